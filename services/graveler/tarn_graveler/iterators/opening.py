"""Opens iterators. docs/design/iterators.md lists them, with the costs and promises of each."""

from __future__ import annotations

from functools import partial

from tarn.core.branch import Branch
from tarn.core.commit import Commit
from tarn.core.ids import BranchId, CommitId, RepositoryId, TagId
from tarn.kv.commit_records import checked_commit
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.port import Kv
from tarn.kv.records import (
    BucketView,
    Repository,
    Tag,
    decode_branch,
    decode_bucket,
    decode_tag,
)
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.reading import Reading
from tarn_graveler.cursors.cursor import Cursor
from tarn_graveler.cursors.rows import RowSource
from tarn_graveler.graph.walk import Span
from tarn_graveler.iterators.commits import COMMITS_AT_ONCE, AncestorSource, LineHeadSource
from tarn_graveler.iterators.entries import EntrySource, StagedRow, StagedSource
from tarn_graveler.iterators.heads import BranchHead, HeadSource
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.commits import Commits
from tarn_graveler.records.repositories import Repositories

__all__ = ["Iterators"]


class Iterators:
    """Opens cursors over the refs, commits and entries of repositories.

    A cursor over refs or commits reads the repository's record after each read of rows, and fails with
    REPOSITORY_NOT_FOUND once a deletion has begun: rows are dropped only after that. So it never ends early without an
    error.

    Each method takes a `prefix` of the keys and a `limit`, as `Cursor`.
    """

    def __init__(
        self,
        kv: Kv,
        keys: InstallationKeys,
        repositories: Repositories,
        commits: Commits,
        layers: Layers,
        reading: Reading,
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._repositories = repositories
        self._commits = commits
        self._layers = layers
        self._reading = reading

    def repositories(
        self, *, prefix: str = "", limit: int | None = None
    ) -> Cursor[RepositoryId, Repository]:
        """Repositories by id; not those that are being created or deleted."""

        def decode(_: str, value: bytes) -> tuple[RepositoryId, Repository] | None:
            found = decode_bucket(value)
            if isinstance(found, BucketView) or not found.is_served:
                return None
            return found.repository_id, found

        root = self._keys.repository("")
        source = RowSource(self._kv, self._keys.graveler, root, decode, prefix=prefix)
        return Cursor(source, limit=limit)

    def buckets(
        self, *, prefix: str = "", limit: int | None = None, views_only: bool = False
    ) -> Cursor[RepositoryId, Repository | BucketView]:
        """Bucket names by name, with what they belong to; not those of what is being created or deleted."""

        def decode(name: str, value: bytes) -> tuple[RepositoryId, Repository | BucketView] | None:
            found = decode_bucket(value)
            if found.is_pending or (views_only and not isinstance(found, BucketView)):
                return None
            if isinstance(found, Repository) and not found.is_served:
                return None
            return RepositoryId(name), found

        root = self._keys.repository("")
        source = RowSource(self._kv, self._keys.graveler, root, decode, prefix=prefix)
        return Cursor(source, limit=limit)

    def branches(
        self, repository: Repository, *, prefix: str = "", limit: int | None = None
    ) -> Cursor[BranchId, Branch]:
        """Branches by id; not those that are being created or deleted."""
        return Cursor(self._branches(repository, prefix), limit=limit)

    def _branches(self, repository: Repository, prefix: str = "") -> RowSource[BranchId, Branch]:
        def decode(name: str, value: bytes) -> tuple[BranchId, Branch] | None:
            branch = decode_branch(value)
            return None if branch.is_deleted else (BranchId(name), branch)

        return RowSource(
            self._kv,
            self._repositories.keys_of(repository).refs,
            RepositoryKeys.branch(""),
            decode,
            prefix=prefix,
            verify=partial(self._repositories.require, repository),
        )

    def branch_records(self, repository: Repository) -> Cursor[BranchId, Branch]:
        """All records of branches by id, also of those that are being created or deleted; for the deletion of the
        repository.
        """

        def decode(name: str, value: bytes) -> tuple[BranchId, Branch]:
            return BranchId(name), decode_branch(value)

        refs = self._repositories.keys_of(repository).refs
        return Cursor(RowSource(self._kv, refs, RepositoryKeys.branch(""), decode))

    def branches_by_commit(
        self, repository: Repository, *, prefix: str = "", limit: int | None = None
    ) -> Cursor[str, BranchHead]:
        """The heads of branches, sorted by commit id (see `HeadSource`); `prefix` is one of a commit id."""
        return Cursor(HeadSource(self._branches(repository), prefix=prefix), limit=limit)

    def tags(
        self, repository: Repository, *, prefix: str = "", limit: int | None = None
    ) -> Cursor[TagId, Tag]:
        """Tags by id; not those that are being created."""

        def decode(name: str, value: bytes) -> tuple[TagId, Tag] | None:
            tag = decode_tag(value)
            return None if tag.is_pending else (TagId(name), tag)

        source = RowSource(
            self._kv,
            self._repositories.keys_of(repository).refs,
            RepositoryKeys.tag(""),
            decode,
            prefix=prefix,
            verify=partial(self._repositories.require, repository),
        )
        return Cursor(source, limit=limit)

    def commits(
        self, repository: Repository, *, prefix: str = "", limit: int | None = None
    ) -> Cursor[CommitId, Commit]:
        """All commits by id, also those that no ref leads to."""
        return Cursor(self._commits_by_id(repository, prefix), limit=limit)

    def _commits_by_id(
        self, repository: Repository, prefix: str = ""
    ) -> RowSource[CommitId, Commit]:
        def decode(name: str, value: bytes) -> tuple[CommitId, Commit]:
            commit_id = CommitId(name)
            return commit_id, checked_commit(commit_id, value)

        return RowSource(
            self._kv,
            self._repositories.keys_of(repository).commits,
            RepositoryKeys.commit(""),
            decode,
            prefix=prefix,
            verify=partial(self._repositories.require, repository),
            rows_max=COMMITS_AT_ONCE,
        )

    def line_heads(
        self, repository: Repository, *, prefix: str = "", limit: int | None = None
    ) -> Cursor[CommitId, Commit]:
        """The commits by id that are the first parent of no commit (see `LineHeadSource`)."""
        listed = self._commits_by_id(repository, prefix)
        return Cursor(LineHeadSource(self._commits_by_id(repository), listed), limit=limit)

    def ancestors(
        self, repository: Repository, span: Span, *, prefix: str = "", limit: int | None = None
    ) -> Cursor[CommitId, Commit]:
        """The commits of a part of history, greatest generation first (see `AncestorSource`)."""
        source = AncestorSource(self._commits, repository, span, prefix=prefix)
        return Cursor(source, limit=limit)

    def staged(
        self, name: BranchName, *, prefix: str = "", limit: int | None = None
    ) -> Cursor[str, tuple[StagedRow, ...]]:
        """The rows of a branch's tokens by path, newest first (see `StagedSource`)."""
        source = StagedSource(self._kv, self._reading, self._layers, name, prefix=prefix)
        return Cursor(source, limit=limit)

    def entries(
        self, repository: Repository, ref: str, *, prefix: str = "", limit: int | None = None
    ) -> Cursor[str, bytes]:
        """The listing of a ref by path, staged entries over committed ones; packed entries."""
        return Cursor(EntrySource(self._reading, repository, ref, prefix=prefix), limit=limit)

"""Restores a repository from the lines of a dump (docs/design/dump.md).

A restore works on a *bare* repository: one whose record has a `restore_id`. Users do not see it, so nothing here needs
to be atomic but the last step. Every step may be repeated: existing records are compared, never replaced.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tarn.block.committed import Committed
from tarn.block.port import BlockNotFoundError, BlockStore
from tarn.collection.owners import note_owner
from tarn.core.commit import COMMITS, Commit, commit_id_of
from tarn.core.dump import BranchLine, ExpiredLine, Line, NoteLine, ReflogLine, TagLine
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadChange, HeadOperation
from tarn.core.ids import BranchId, CommitId, RepositoryId
from tarn.core.rules import Settings
from tarn.kv.records import Repository
from tarn_graveler.journal.draining import Drain
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.records.commits import Commits, commit_not_found
from tarn_graveler.records.expired import ExpiredCommits
from tarn_graveler.records.reflog_rows import ReflogRows
from tarn_graveler.records.repositories import Repositories, repository_not_found
from tarn_graveler.records.settings import RepositorySettings, settings_changed
from tarn_graveler.records.tags import Tags

__all__ = ["Restoring"]

_RESTORE_ID = re.compile(r"[a-z0-9-]{1,64}")
_TRIES = 8


class Restoring:
    """Creates, fills and publishes bare repositories.

    Attributes:
        blocks: holds their namespaces.
    """

    def __init__(
        self,
        repositories: Repositories,
        settings: RepositorySettings,
        branches: Branches,
        tags: Tags,
        commits: Commits,
        reflog: ReflogRows,
        committed: Committed,
        blocks: BlockStore,
        expired: ExpiredCommits,
        drain: Drain | None = None,
    ) -> None:
        self._repositories = repositories
        self._settings = settings
        self._branches = branches
        self._tags = tags
        self._commits = commits
        self._reflog = reflog
        self._committed = committed
        self.blocks = blocks
        self._expired = expired
        self._drain = drain

    async def begin(
        self,
        repository_id: RepositoryId,
        storage_namespace: str,
        default_branch: BranchId,
        restore_id: str,
    ) -> Repository:
        """Creates a bare repository, or returns that of an earlier call with the same arguments.

        Raises:
            TarnError: REPOSITORY_EXISTS: the name or the namespace is taken, or another restore is unfinished;
                INVALID: the namespace is malformed or holds no commits; UNAVAILABLE; OUTCOME_UNKNOWN.
        """
        if not _RESTORE_ID.fullmatch(restore_id):
            text = f"restore_id {restore_id[:80]!r} must be 1 to 64 of a-z, 0-9 and '-'"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="restore_id")
        namespace = storage_namespace.rstrip("/")
        found = await self._existing(repository_id)
        if found is not None and found.restore_id and not found.is_deleted:
            wanted = (namespace, default_branch, restore_id)
            if (found.storage_namespace, found.default_branch, found.restore_id) == wanted:
                await self._note_owner(found)
                return found
            text = (
                f"another restore of repository {repository_id} is not finished; finish it with its own dump, or "
                "delete the repository"
            )
            raise TarnError(
                Kind.ALREADY_EXISTS, Reason.REPOSITORY_EXISTS, text, repository=repository_id
            )
        if not await self.blocks.list_page(namespace, COMMITS, "", 1):
            text = (
                f"storage namespace {namespace} holds no commits of Tarn; a restore needs the namespace of the "
                "dumped repository"
            )
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, namespace=namespace)
        made = await self._repositories.reserve(
            repository_id, namespace, default_branch, restore_id
        )
        try:
            if self._drain is not None:
                await self._drain.note_newest(made.repository)
            await self._repositories.publish(made)
        except TarnError as error:
            if error.kind is not Kind.UNKNOWN_OUTCOME:
                await self._repositories.abandon(made)
            raise
        await self._note_owner(made.repository)
        return made.repository

    async def _note_owner(self, repository: Repository) -> None:
        """Tells other installations that the namespace is in use: the old one must not delete the data."""
        await note_owner(
            self.blocks,
            repository.storage_namespace,
            repository.repository_id,
            repository.instance_uid,
        )

    async def _existing(self, repository_id: RepositoryId) -> Repository | None:
        try:
            found = await self._repositories.read(repository_id, settle=True)
        except TarnError as error:
            if error.reason is Reason.REPOSITORY_NOT_FOUND:
                return None
            raise
        return None if found.is_pending else found

    async def bare(self, repository_id: RepositoryId, restore_id: str) -> Repository:
        """Returns the bare repository of a restore, by a read that is sent now.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND: it is absent or deleted; REPOSITORY_EXISTS: it is not that of this restore.
        """
        found = await self._existing(repository_id)
        if found is None or found.is_deleted:
            raise repository_not_found(repository_id)
        if not found.restore_id or found.restore_id != restore_id:
            raise _not_of(found)
        return found

    # ---- lines

    async def write(self, repository: Repository, records: Sequence[Line], user_id: str) -> None:
        """Writes records to a bare repository: in the order settings, commits, expiries, reflogs, branches, tags.

        Raises:
            TarnError: COMMIT_NOT_FOUND: a parent, the commit of a ref or its listing is missing; BRANCH_EXISTS,
                TAG_EXISTS, SETTINGS_CHANGED: something else is there; INVALID: a wrong generation, or a line that
                is not restored; UNAVAILABLE, OUTCOME_UNKNOWN: repeat the call.
        """
        if any(isinstance(each, NoteLine) for each in records):
            text = "a note is not restored: it belongs to a recovery, which chooses the heads of branches by notes"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="lines")
        for each in records:
            if isinstance(each, Settings):
                await self._restore_settings(repository, each)
        await self._restore_commits(
            repository, [each for each in records if isinstance(each, Commit)]
        )
        entries: dict[BranchId, list[HeadChange]] = {}
        for each in records:
            if isinstance(each, ReflogLine):
                entries.setdefault(each.branch_id, []).append(each.entry)
        expired = [
            (each.commit_id, each.expiry) for each in records if isinstance(each, ExpiredLine)
        ]
        if expired:
            await self._expired.expire(repository, expired)
        keys = self._repositories.keys_of(repository)
        for branch_id, changes in entries.items():
            await self._reflog.write(keys, branch_id, changes)
        cause = Cause(HeadOperation.RESTORE, user_id)
        for each in records:
            if isinstance(each, BranchLine):
                await self._restore_branch(repository, each, cause)
            elif isinstance(each, TagLine):
                await self._restore_tag(repository, each)

    async def _restore_settings(self, repository: Repository, settings: Settings) -> None:
        def decide(current: Settings) -> Settings:
            wanted = replace(settings, change_id=b"", change_time_us=0)
            if current.change_id and replace(current, change_id=b"", change_time_us=0) != wanted:
                raise settings_changed(repository.repository_id, "the settings")
            return wanted

        if settings != Settings():
            await self._settings.change(repository, "", decide)

    async def _restore_commits(self, repository: Repository, commits: Sequence[Commit]) -> None:
        if not commits:
            return
        generations: dict[CommitId, int] = {}
        own = {commit_id_of(each) for each in commits}
        others = {parent for each in commits for parent in each.parents} - own
        stored = await self._commits.get_many(repository, sorted(others))
        generations.update((commit_id_of(each), each.generation) for each in stored)
        for commit in commits:
            commit_id = commit_id_of(commit)
            for parent in commit.parents:
                if parent not in generations:  # of this call, but later
                    raise commit_not_found(repository, parent)
            expected = 1 + max((generations[parent] for parent in commit.parents), default=-1)
            if commit.generation != expected:
                text = (
                    f"commit {commit_id} has generation {commit.generation} instead of {expected}"
                )
                raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, commit=commit_id)
            generations[commit_id] = commit.generation
        await self._commits.add_rows(repository, commits)

    async def _require_listing(self, repository: Repository, commit_id: CommitId) -> None:
        """Checks that a ref at a commit can be read."""
        commit = await self._commits.get(repository, commit_id)
        try:
            await self._committed.metarange(repository.storage_namespace, commit.metarange_id)
        except BlockNotFoundError as error:
            text = (
                f"the listing of commit {commit_id} is not in {repository.storage_namespace}: {error.message}; is it "
                "the namespace of the dumped repository?"
            )
            raise TarnError(
                Kind.NOT_FOUND, Reason.COMMIT_NOT_FOUND, text, commit=commit_id
            ) from error

    async def _restore_branch(self, repository: Repository, line: BranchLine, cause: Cause) -> None:
        await self._require_listing(repository, line.commit_id)
        name = BranchName(repository, line.branch_id)
        try:
            await self._branches.create(
                name,
                line.commit_id,
                cause,
                create_time_us=line.create_time_us,
                continues=True,
            )
        except TarnError as error:
            if error.reason is not Reason.BRANCH_EXISTS:
                raise
            if (await self._branches.fresh(name)).branch.commit_id != line.commit_id:
                raise

    async def _restore_tag(self, repository: Repository, line: TagLine) -> None:
        await self._require_listing(repository, line.commit_id)
        try:
            await self._tags.create(
                repository, line.tag_id, line.commit_id, create_time_us=line.create_time_us
            )
        except TarnError as error:
            if error.reason is not Reason.TAG_EXISTS:
                raise
            if (await self._tags.get(repository, line.tag_id)).commit_id != line.commit_id:
                raise

    # ---- end

    async def finish(
        self, repository_id: RepositoryId, restore_id: str, instance_uid: str
    ) -> Repository:
        """Makes a bare repository visible; a repetition returns it.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND; REPOSITORY_EXISTS: of another restore; BRANCH_NOT_FOUND: its default
                branch is missing; OUTCOME_UNKNOWN.
        """

        def finished(found: Repository) -> Repository:
            if found.instance_uid != instance_uid or found.is_deleted or found.is_pending:
                raise repository_not_found(repository_id)
            if found.restore_id not in ("", restore_id):
                raise _not_of(found)
            return replace(found, restore_id="")

        found = await self._repositories.read(repository_id, settle=True)
        if finished(found) == found:
            return found
        await self._branches.fresh(BranchName(found, found.default_branch))
        return await self._repositories.change(repository_id, finished)


def _not_of(found: Repository) -> TarnError:
    """Returns the error for a call of a restore that does not fill this repository."""
    name = found.repository_id
    why = "another restore fills it" if found.restore_id else "it is complete, and in use"
    text = f"repository {name} cannot be filled by this restore: {why}"
    return TarnError(Kind.ALREADY_EXISTS, Reason.REPOSITORY_EXISTS, text, repository=name)

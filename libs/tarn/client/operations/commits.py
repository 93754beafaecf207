"""Commits, the log, and which commit changed a path last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from tarn.client.calls import PAGE_SIZE, Calls, several
from tarn.client.paging import Listing, listing
from tarn.client.values import Annotation, Commit, NewCommit, timestamp_of

__all__ = ["CommitOperations"]


class CommitOperations(Calls):
    """Commits the uncommitted changes of a branch, and reads the history."""

    async def create_commit(
        self,
        repository_id: str,
        branch_id: str,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        allow_empty: bool = False,
        author_time: datetime | None = None,
    ) -> NewCommit:
        """Commits the uncommitted changes of a branch.

        Args:
            repository_id: the repository.
            branch_id: the branch.
            message: text, at most 64 KiB.
            metadata: at most 4,096 names and values, 64 KiB in all.
            allow_empty: commit even if nothing changed.
            author_time: when the change was made, if it was not now. The time needs a zone. It is shown to people;
                retention, expiry and the filters of `list_commits` go by the time of the commit.

        Raises:
            NothingToCommitError: there are no changes, and `allow_empty` is False.
            BranchResetError: a reset ran at the same time, and left none of the changes; no commit was made.
            BranchNotFoundError: the branch does not exist.
        """
        made = await self.graveler.create_commit(
            self.call(),
            repository_id,
            branch_id,
            message,
            metadata=metadata,
            allow_empty=allow_empty,
            author_time=timestamp_of(author_time),
        )
        return NewCommit(
            Commit.of(made.commit), made.added_count, made.changed_count, made.removed_count
        )

    async def get_commit(self, repository_id: str, ref: str) -> Commit:
        """Returns the commit that a ref names."""
        return Commit.of(await self.graveler.get_commit(self.call(), repository_id, ref))

    def list_commits(
        self,
        repository_id: str,
        ref: str,
        *,
        first_parent: bool = False,
        exclude_ref: str = "",
        symmetric: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        committer: str = "",
        paths: Sequence[str] = (),
        prefixes: Sequence[str] = (),
        page_size: int = PAGE_SIZE,
    ) -> Listing[Commit]:
        """Lists the history of a ref: no commit before one of its descendants, otherwise newest first.

        All pages are about the commits that the first one found. A page may be empty before the end.

        Args:
            repository_id: the repository.
            ref: the ref.
            first_parent: follow first parents only, without merged commits.
            exclude_ref: leave out this ref's history, as `tarn log EXCLUDE..REF` does; empty: nothing.
            symmetric: with `exclude_ref`, the commits that only one of both has, as `tarn log A...B` does.
            since: only commits of this time or later. The time needs a zone.
            until: only commits before this time. The time needs a zone.
            committer: only commits of this user.
            paths: only commits that changed one of these paths, or of `prefixes`.
            prefixes: only commits that changed a path that begins with one of these, or one of `paths`.
            page_size: commits of a page.
        """
        begin, end = timestamp_of(since), timestamp_of(until)
        paths, prefixes = several(paths, "paths"), several(prefixes, "prefixes")
        return listing(
            lambda token: self.graveler.list_commits(
                self.call(),
                repository_id,
                ref,
                first_parent=first_parent,
                exclude_ref=exclude_ref,
                symmetric=symmetric,
                since=begin,
                until=end,
                committer=committer,
                paths=paths,
                prefixes=prefixes,
                page_size=page_size,
                page_token=token,
            ),
            lambda page: map(Commit.of, page.commits),
        )

    def annotate(
        self,
        repository_id: str,
        ref: str,
        *,
        prefix: str = "",
        after: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listing[Annotation]:
        """Lists the paths of a ref's commit, in byte order, each with the commit that gave it its content.

        Args:
            repository_id: the repository.
            ref: the ref; uncommitted changes of a branch have no part.
            prefix: only paths that begin with it.
            after: only paths after this one.
            page_size: paths of a page, at most 1,000.
        """
        return listing(
            lambda token: self.graveler.annotate_paths(
                self.call(),
                repository_id,
                ref,
                prefix=prefix,
                after=after,
                page_size=page_size,
                page_token=token,
            ),
            lambda page: map(Annotation.of, page.lines),
        )

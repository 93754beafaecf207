"""The methods that users of `tarn.client` call. They take and return plain values, without messages of the wire.

It is long because it is one list: a method is found in the class that users have, not in one of its bases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from tarn.client.calls import PAGE_SIZE, Calls, several
from tarn.client.commits import ChangesPage
from tarn.client.diffs import summary_of
from tarn.client.entries import ListingPage
from tarn.client.errors import TarnCallError
from tarn.client.paging import Listing, listing
from tarn.client.raising import call_error
from tarn.client.values import (
    Annotation,
    Branch,
    BucketView,
    Change,
    ChangeSummary,
    Choice,
    Commit,
    CommonPrefix,
    Compaction,
    Conflict,
    DeletedBranch,
    HeadChange,
    MergePreview,
    NewCommit,
    ObjectVersion,
    PathChange,
    Protection,
    Repository,
    RepositorySettings,
    RevertedRange,
    Side,
    StagingStatistics,
    Tag,
    Task,
    User,
    timestamp_of,
)
from tarn.core.errors import TarnError
from tarn.rpc.wire.subject import PATH, REF, REPOSITORY
from tarn_proto.graveler.v1 import merge_service_pb2

__all__ = ["Operations"]


def _seconds(time: timedelta | None) -> int | None:
    return None if time is None else int(time.total_seconds())


class Operations(Calls):
    """The calls of a client. Every method raises a class of `tarn.client.errors`.

    A method about a repository raises `RepositoryNotFoundError` if it does not exist, and one with a ref raises
    `RefNotFoundError` or `RefAmbiguousError` if the ref names no single commit.

    A *ref* is a branch, a tag, a commit id or a unique prefix of one, or a branch with a moment, such as `main@{2}`;
    optionally with `~N` or `^N`. Listings are read page by page, `page_size` items at a time.

    Merges, reverts and picks: `choices` name the side that wins conflicts at the paths of a pattern, and the first
    pattern that matches decides; `default_side` decides the other conflicts. A conflict that neither decides refuses
    the operation with `MergeConflictError`; a branch with uncommitted changes, with `BranchDirtyError`.

    Rules and metadata of a repository have one ETag. A change with the ETag of settings that were replaced since raises
    `SettingsChangedError`: read the settings and decide again.

    Tasks are kept for one day after their end. The compactor of an installation compacts by itself.
    """

    async def get_caller(self) -> User:
        """Returns the user that this client is logged in as."""
        return User.of((await self.auth.get_caller(self.call())).user)

    # ---- repositories

    async def create_repository(
        self, repository_id: str, *, storage_namespace: str = "", default_branch_id: str = ""
    ) -> Repository:
        """Creates a repository with an empty first commit and a default branch.

        Args:
            repository_id: 3 to 63 characters of `a-z 0-9 -`.
            storage_namespace: place of its blocks; empty: Tarn chooses one.
            default_branch_id: empty: `main`.

        Raises:
            RepositoryExistsError: the name or the storage namespace is taken.
        """
        return Repository.of(
            await self.graveler.create_repository(
                self.call(),
                repository_id,
                storage_namespace=storage_namespace,
                default_branch_id=default_branch_id,
            )
        )

    async def get_repository(self, repository_id: str) -> Repository:
        """Returns one repository."""
        return Repository.of(await self.graveler.get_repository(self.call(), repository_id))

    def list_repositories(
        self, *, prefix: str = "", after: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[Repository]:
        """Lists the repositories that the caller may read, in byte order of their names, greater than `after`."""
        return listing(
            lambda token: self.graveler.list_repositories(
                self.call(), prefix=prefix, after=after, page_size=page_size, page_token=token
            ),
            lambda page: map(Repository.of, page.repositories),
        )

    async def delete_repository(self, repository_id: str) -> None:
        """Deletes a repository's metadata: all its branches, tags and uncommitted changes."""
        await self.graveler.delete_repository(self.call(), repository_id)

    # ---- bucket views

    async def create_bucket_view(
        self, bucket_id: str, repository_id: str, ref: str = "", *, public_read: bool = False
    ) -> BucketView:
        """Creates a bucket name that shows a ref of a repository: a branch, a tag or a commit.

        Args:
            bucket_id: 3 to 63 characters of `a-z 0-9 -`.
            repository_id: the repository.
            ref: empty: its default branch.
            public_read: whether anonymous S3 requests may read what it shows.

        Raises:
            BucketExistsError: the name belongs to a view or a repository.
        """
        return BucketView.of(
            await self.graveler.create_bucket_view(
                self.call(), bucket_id, repository_id, ref, public_read=public_read
            )
        )

    async def get_bucket_view(self, bucket_id: str) -> BucketView:
        """Returns one view, or raises `BucketNotFoundError`."""
        return BucketView.of(await self.graveler.get_bucket_view(self.call(), bucket_id))

    def list_bucket_views(
        self, *, prefix: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[BucketView]:
        """Lists the views of repositories that the caller may read, in byte order of their names."""
        return listing(
            lambda token: self.graveler.list_buckets(
                self.call(), prefix=prefix, views_only=True, page_size=page_size, page_token=token
            ),
            lambda page: (BucketView.of(each.view) for each in page.buckets),
        )

    async def point_bucket_view(
        self, bucket_id: str, repository_id: str, ref: str = "", *, etag: str = ""
    ) -> BucketView:
        """Has a view show something else: for each request that begins after this has returned.

        Args:
            bucket_id: the view.
            repository_id: the repository that it will show.
            ref: empty: its default branch.
            etag: the version that the caller has seen; empty: whichever there is.

        Raises:
            BucketNotFoundError: the view does not exist.
            BucketMovedError: it has another version.
        """
        return BucketView.of(
            await self.graveler.point_bucket_view(
                self.call(), bucket_id, repository_id, ref, etag=etag
            )
        )

    async def set_bucket_view_public_read(
        self, bucket_id: str, public_read: bool, *, etag: str = ""
    ) -> BucketView:
        """Lets anonymous S3 requests read what a view shows, or ends that: for each request that begins after this has
        returned. Arguments and errors as `point_bucket_view`; `BucketMovedError` also for a change beside this one."""
        return BucketView.of(
            await self.graveler.set_bucket_view_public_read(
                self.call(), bucket_id, public_read, etag=etag
            )
        )

    async def delete_bucket_view(self, bucket_id: str, *, etag: str = "") -> None:
        """Deletes a view; what it shows stays. Arguments and errors as `point_bucket_view`."""
        await self.graveler.delete_bucket_view(self.call(), bucket_id, etag=etag)

    async def get_bucket_cors(self, bucket_id: str) -> str:
        """Returns the CORS rules of a bucket as JSON, empty if it has none; or raises `BucketNotFoundError`."""
        return (await self.graveler.get_bucket_cors(self.call(), bucket_id)).rules_json

    async def set_bucket_cors(self, bucket_id: str, rules_json: str) -> None:
        """Replaces the CORS rules of a bucket, a repository's or a view's.

        Args:
            bucket_id: the repository or the view.
            rules_json: all rules, in the form of `aws s3api put-bucket-cors`; empty: none.

        Raises:
            BucketNotFoundError, RepositoryNotFoundError: there is no such bucket.
            BucketMovedError: other rules were set at the same time.
        """
        is_view = (await self.graveler.get_bucket_cors(self.call(), bucket_id)).is_view
        await self.graveler.set_bucket_cors(self.call(), bucket_id, rules_json, is_view=is_view)

    # ---- branches

    async def create_branch(
        self,
        repository_id: str,
        branch_id: str,
        source_ref: str,
        *,
        time_to_live: timedelta | None = None,
    ) -> Branch:
        """Creates a branch at the commit of any ref. Uncommitted changes of that ref are not copied.

        It expires `time_to_live` after now, in whole seconds, and is deleted a day later; None: never.

        Raises:
            BranchExistsError, TagExistsError: the name is taken.
            InvalidArgumentError: `time_to_live` is not one minute to ten years.
        """
        return Branch.of(
            await self.graveler.create_branch(
                self.call(),
                repository_id,
                branch_id,
                source_ref,
                time_to_live_s=_seconds(time_to_live),
            )
        )

    async def set_branch_expiry(
        self, repository_id: str, branch_id: str, time_to_live: timedelta | None
    ) -> Branch:
        """Lets a branch expire `time_to_live` after now, in whole seconds, or never (None); returns the branch.

        Raises:
            BranchNotFoundError: the branch does not exist.
            BranchProtectedError: the caller may not delete the branch.
            InvalidArgumentError: it is the default branch, or `time_to_live` is not one minute to ten years.
        """
        return Branch.of(
            await self.graveler.set_branch_expiry(
                self.call(), repository_id, branch_id, _seconds(time_to_live)
            )
        )

    async def get_branch(self, repository_id: str, branch_id: str) -> Branch:
        """Returns one branch, or raises `BranchNotFoundError`."""
        return Branch.of(await self.graveler.get_branch(self.call(), repository_id, branch_id))

    def list_branches(
        self,
        repository_id: str,
        *,
        prefix: str = "",
        after: str = "",
        include_hidden: bool = False,
        page_size: int = PAGE_SIZE,
    ) -> Listing[Branch]:
        """Lists the branches in byte order of their names, greater than `after`; by default without those that
        a rule hides."""
        return listing(
            lambda token: self.graveler.list_branches(
                self.call(),
                repository_id,
                prefix=prefix,
                after=after,
                page_size=page_size,
                page_token=token,
                include_hidden=include_hidden,
            ),
            lambda page: map(Branch.of, page.branches),
        )

    async def delete_branch(self, repository_id: str, branch_id: str) -> None:
        """Deletes a branch and its uncommitted changes; its commits stay.

        Raises:
            BranchNotFoundError: the branch does not exist.
            InvalidArgumentError: it is the default branch.
        """
        await self.graveler.delete_branch(self.call(), repository_id, branch_id)

    async def reset_branch(
        self,
        repository_id: str,
        branch_id: str,
        *,
        prefix: str | None = None,
        path: str | None = None,
    ) -> None:
        """Discards uncommitted changes of a branch: all, or those of a prefix or of one path; of a part all or none.

        It discards the changes that were acknowledged before the call, and perhaps some that are under way. After
        `UnknownOutcomeError`, look before you reset again: a late repetition discards newer changes.

        Args:
            repository_id: the repository.
            branch_id: the branch.
            prefix: only changes of paths that begin with it; not empty.
            path: only the change of this path; not together with `prefix`.
        """
        await self.graveler.reset_branch(
            self.call(), repository_id, branch_id, prefix=prefix, path=path
        )

    async def move_branch(
        self,
        repository_id: str,
        branch_id: str,
        target_ref: str,
        *,
        expected_commit_id: str,
        force: bool = False,
    ) -> Branch:
        """Moves the head of a branch to the commit of a ref (a hard reset); returns the branch.

        Args:
            repository_id: the repository.
            branch_id: the branch.
            target_ref: the ref whose commit becomes the head.
            expected_commit_id: the head that the caller knows; another head raises `RefMovedError`.
            force: discard uncommitted changes; otherwise they raise `BranchDirtyError`.
        """
        return Branch.of(
            await self.graveler.move_branch(
                self.call(),
                repository_id,
                branch_id,
                target_ref,
                expected_commit_id=expected_commit_id,
                force=force,
            )
        )

    # ---- tags

    async def create_tag(self, repository_id: str, tag_id: str, source_ref: str) -> Tag:
        """Creates a tag on the commit of any ref. A taken name raises `TagExistsError` or `BranchExistsError`."""
        return Tag.of(
            await self.graveler.create_tag(self.call(), repository_id, tag_id, source_ref)
        )

    async def get_tag(self, repository_id: str, tag_id: str) -> Tag:
        """Returns one tag, or raises `TagNotFoundError`."""
        return Tag.of(await self.graveler.get_tag(self.call(), repository_id, tag_id))

    def list_tags(
        self, repository_id: str, *, prefix: str = "", after: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[Tag]:
        """Lists the tags in byte order of their names, which are greater than `after`."""
        return listing(
            lambda token: self.graveler.list_tags(
                self.call(),
                repository_id,
                prefix=prefix,
                after=after,
                page_size=page_size,
                page_token=token,
            ),
            lambda page: map(Tag.of, page.tags),
        )

    async def delete_tag(self, repository_id: str, tag_id: str) -> None:
        """Deletes a tag, or raises `TagNotFoundError`; its commit stays."""
        await self.graveler.delete_tag(self.call(), repository_id, tag_id)

    # ---- commits

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

    def diff_refs(
        self,
        repository_id: str,
        left_ref: str,
        right_ref: str,
        *,
        from_merge_base: bool = False,
        prefix: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listing[Change]:
        """Lists the changes from the left ref to the right one, in byte order of the paths.

        With `from_merge_base`, from the merge base of both to the right one: the changes that a merge of right into
        left would bring. All pages compare the commits that the first one read.
        """
        return listing(
            lambda token: self.graveler.diff_refs(
                self.call(),
                repository_id,
                left_ref,
                right_ref,
                from_merge_base=from_merge_base,
                prefix=prefix,
                page_size=page_size,
                page_token=token,
            ),
            _changes,
        )

    def diff_uncommitted(
        self, repository_id: str, branch_id: str, *, prefix: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[Change]:
        """Lists the uncommitted changes of a branch, in byte order of the paths."""
        return listing(
            lambda token: self.graveler.diff_uncommitted(
                self.call(),
                repository_id,
                branch_id,
                prefix=prefix,
                page_size=page_size,
                page_token=token,
            ),
            _changes,
        )

    # ---- settings: rules and metadata have one ETag

    async def get_settings(self, repository_id: str) -> RepositorySettings:
        """Returns the rules, the metadata and the default branch of a repository."""
        sent = await self.graveler.get_settings(self.call(), repository_id)
        try:
            return RepositorySettings.of(sent)
        except TarnError as error:
            raise call_error(error, {REPOSITORY: repository_id}) from error

    async def set_rules(
        self,
        repository_id: str,
        *,
        protections: Iterable[Protection],
        hidden_patterns: Iterable[str],
        if_match: str,
    ) -> str:
        """Replaces all protections and all hidden patterns; returns the new ETag.

        Other replicas apply the rules to writes at most five seconds later; to all other changes, at once.

        Args:
            repository_id: the repository.
            protections: at most 100, each with another pattern.
            hidden_patterns: of the branches that listings omit, at most 100.
            if_match: ETag of the settings that this change replaces.
        """
        return await self.graveler.set_rules(
            self.call(),
            repository_id,
            protections=[each.message() for each in protections],
            hidden_patterns=several(hidden_patterns, "hidden_patterns"),
            if_match=if_match,
        )

    async def set_read_only(
        self, repository_id: str, read_only: bool, *, if_match: str | None = None
    ) -> str:
        """Makes a repository read-only, or writable again; returns the new ETag.

        Args:
            repository_id: the repository.
            read_only: True: nothing but the rules can be changed.
            if_match: ETag of the settings that this change replaces; None: whatever they are.
        """
        return await self.graveler.set_read_only(
            self.call(), repository_id, read_only, if_match=_optional(if_match, "if_match")
        )

    async def set_metadata(
        self, repository_id: str, metadata: Mapping[str, str], *, if_match: str
    ) -> str:
        """Replaces all metadata of a repository; returns the new ETag.

        Args:
            repository_id: the repository.
            metadata: at most 100 names, of at most 256 bytes; all together at most 16 KiB.
            if_match: ETag of the settings that this change replaces.
        """
        return await self.graveler.set_metadata(
            self.call(), repository_id, metadata, if_match=if_match
        )

    async def set_default_branch(
        self, repository_id: str, branch_id: str, *, expected_branch_id: str | None = None
    ) -> str:
        """Makes an existing branch the default branch; returns the former one.

        Args:
            repository_id: the repository.
            branch_id: the new default branch.
            expected_branch_id: the present one, else `SettingsChangedError`; None: whichever it is.
        """
        expected = _optional(expected_branch_id, "expected_branch_id")
        return await self.graveler.set_default_branch(
            self.call(), repository_id, branch_id, expected_branch_id=expected
        )

    # ---- history

    # ---- reflog

    def list_reflog(
        self, repository_id: str, branch_id: str, *, page_size: int = PAGE_SIZE
    ) -> Listing[HeadChange]:
        """Lists the changes of a branch's head, newest first; the branch may be deleted.

        The ref `main@{1}` is `old_commit_id` of the first item, `main@{2}` of the second, and so on.
        """
        return listing(
            lambda token: self.graveler.list_reflog(
                self.call(), repository_id, branch_id, page_size=page_size, page_token=token
            ),
            lambda page: map(HeadChange.of, page.entries),
        )

    def list_deleted_branches(
        self, repository_id: str, *, prefix: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[DeletedBranch]:
        """Lists the deleted branches that can be restored, in byte order of their names."""
        return listing(
            lambda token: self.graveler.list_deleted_branches(
                self.call(), repository_id, prefix=prefix, page_size=page_size, page_token=token
            ),
            lambda page: map(DeletedBranch.of, page.branches),
        )

    async def restore_branch(self, repository_id: str, branch_id: str) -> Branch:
        """Creates a deleted branch again, at its last head. Its uncommitted changes are lost.

        A name that is taken raises `BranchExistsError` or `TagExistsError`; a branch whose deletion is not
        recorded, or has expired, `BranchNotFoundError`.
        """
        return Branch.of(await self.graveler.restore_branch(self.call(), repository_id, branch_id))

    # ---- paths

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

    # ---- differences without versions

    def diff_names(
        self,
        repository_id: str,
        left_ref: str,
        right_ref: str,
        *,
        from_merge_base: bool = False,
        prefix: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listing[PathChange]:
        """As `diff_refs`, without the versions of the objects: shorter answers."""
        return listing(
            lambda token: self.graveler.diff_refs(
                self.call(),
                repository_id,
                left_ref,
                right_ref,
                from_merge_base=from_merge_base,
                prefix=prefix,
                page_size=page_size,
                page_token=token,
                names_only=True,
            ),
            _names,
        )

    def diff_uncommitted_names(
        self, repository_id: str, branch_id: str, *, prefix: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[PathChange]:
        """As `diff_uncommitted`, without the versions of the objects."""
        return listing(
            lambda token: self.graveler.diff_uncommitted(
                self.call(),
                repository_id,
                branch_id,
                prefix=prefix,
                page_size=page_size,
                page_token=token,
                names_only=True,
            ),
            _names,
        )

    async def summarize_diff(
        self,
        repository_id: str,
        left_ref: str,
        right_ref: str,
        *,
        from_merge_base: bool = False,
        prefix: str = "",
        delimiter: str = "",
        page_size: int = PAGE_SIZE,
    ) -> ChangeSummary:
        """Counts the changes from the left ref to the right one, by folder if there is a delimiter.

        It reads all pages, each with a time limit of its own, and holds one line for each folder. All pages compare
        the commits that the first one read.

        Args:
            repository_id: the repository.
            left_ref: the ref before the changes.
            right_ref: the ref after the changes.
            from_merge_base: count from the merge base of both: the changes that a merge of right into left would bring.
            prefix: only paths that begin with it.
            delimiter: paths that are equal up to the first one after the prefix are one folder; empty: no folders.
            page_size: folders of a page, at most 1,000.
        """
        found = await summary_of(
            lambda token: self.graveler.summarize_diff(
                self.call(),
                repository_id,
                left_ref,
                right_ref,
                from_merge_base=from_merge_base,
                prefix=prefix,
                delimiter=delimiter,
                page_size=page_size,
                page_token=token,
            )
        )
        return ChangeSummary.of(found)

    async def summarize_uncommitted(
        self,
        repository_id: str,
        branch_id: str,
        *,
        prefix: str = "",
        delimiter: str = "",
        page_size: int = PAGE_SIZE,
    ) -> ChangeSummary:
        """Counts the uncommitted changes of a branch; the arguments are those of `summarize_diff`.

        If the branch gets another head meanwhile, raises `RefMovedError`.
        """
        found = await summary_of(
            lambda token: self.graveler.summarize_uncommitted(
                self.call(),
                repository_id,
                branch_id,
                prefix=prefix,
                delimiter=delimiter,
                page_size=page_size,
                page_token=token,
            )
        )
        return ChangeSummary.of(found)

    # ---- merges, reverts and picks

    async def merge(
        self,
        repository_id: str,
        branch_id: str,
        source_ref: str,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        squash: bool = False,
        allow_empty: bool = False,
        fast_forward_only: bool = False,
        expected_commit_id: str = "",
    ) -> Commit:
        """Merges the commit of a ref into a branch; returns the new head.

        Args:
            repository_id: the repository.
            branch_id: the branch that takes the merge.
            source_ref: the ref to merge.
            message: empty for a default text that names both refs.
            metadata: of the merge commit.
            choices: see the class.
            default_side: see the class.
            squash: make a commit with one parent, the former head.
            allow_empty: make a merge commit even if there is nothing to merge.
            fast_forward_only: move the branch to the source's commit; make no commit.
            expected_commit_id: the head that the branch must have, such as that of a preview; empty: any.

        Raises:
            NothingToMergeError: the branch contains the source already, and `allow_empty` is False.
            NotFastForwardError: with `fast_forward_only`, the branch has commits that the source lacks.
        """
        return Commit.of(
            await self.graveler.merge(
                self.call(),
                repository_id,
                branch_id,
                source_ref,
                message=message,
                metadata=metadata,
                choices=_choices(choices),
                default_side=_side(default_side),
                squash=squash,
                allow_empty=allow_empty,
                fast_forward_only=fast_forward_only,
                expected_commit_id=expected_commit_id,
            )
        )

    async def create_merge_branch(
        self,
        repository_id: str,
        branch_id: str,
        destination_ref: str,
        source_ref: str,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        allow_empty: bool = False,
    ) -> Commit:
        """Creates a branch at the merge of two refs, which stay as they are; returns the merge commit.

        The merge commit is the one that `merge` would make of the two commits.

        Args:
            repository_id: the repository.
            branch_id: the branch to create.
            destination_ref: the ref that takes the merge; uncommitted changes of a branch have no part.
            source_ref: the ref to merge.
            message: empty for a default text that names both refs.
            metadata: of the merge commit.
            choices: see the class.
            default_side: see the class.
            allow_empty: make a merge commit even if there is nothing to merge.

        Raises:
            BranchExistsError, TagExistsError: the name is taken.
            NothingToMergeError: the destination contains the source already, and `allow_empty` is False.
        """
        return Commit.of(
            await self.graveler.create_merge_branch(
                self.call(),
                repository_id,
                branch_id,
                destination_ref,
                source_ref,
                message=message,
                metadata=metadata,
                choices=_choices(choices),
                default_side=_side(default_side),
                allow_empty=allow_empty,
            )
        )

    async def preview_merge(
        self,
        repository_id: str,
        destination_ref: str,
        source_ref: str,
        *,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
    ) -> MergePreview:
        """Returns the effect of a merge without making it; `list_conflicts` lists its conflicts."""
        return MergePreview.of(
            await self.graveler.preview_merge(
                self.call(),
                repository_id,
                destination_ref,
                source_ref,
                choices=_choices(choices),
                default_side=_side(default_side),
                page_size=1,
            )
        )

    async def find_merge_base(
        self, repository_id: str, destination_ref: str, source_ref: str
    ) -> tuple[str, ...]:
        """Returns the ids of the merge bases of two refs: one; several after criss-cross merges, greatest generation
        first; none for unrelated histories.

        Raises:
            TooManyMergeBasesError: there are more than 32.
        """
        found = await self.graveler.find_merge_base(
            self.call(), repository_id, destination_ref, source_ref
        )
        return tuple(found.base_commit_ids)

    def list_conflicts(
        self,
        repository_id: str,
        destination_ref: str,
        source_ref: str,
        *,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        page_size: int = PAGE_SIZE,
    ) -> Listing[Conflict]:
        """Lists the conflicts of a merge that no choice decides, in byte order of the paths.

        All pages are about the two commits that the first one read.
        """
        commits = [destination_ref, source_ref]

        async def read(after: str) -> tuple[Iterable[Conflict], str]:
            page = await self.graveler.preview_merge(
                self.call(),
                repository_id,
                *commits,
                choices=_choices(choices),
                default_side=_side(default_side),
                after=after,
                page_size=page_size,
            )
            commits[:] = page.destination_commit_id, page.source_commit_id
            return map(Conflict.of, page.conflicts), page.next_after

        return Listing(read)

    async def revert(
        self,
        repository_id: str,
        branch_id: str,
        ref: str,
        *,
        parent_number: int = 0,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        allow_empty: bool = False,
        expected_commit_id: str = "",
    ) -> Commit:
        """Undoes the changes of one commit by a new commit, which it returns.

        Args:
            repository_id: the repository.
            branch_id: the branch that takes the new commit.
            ref: the commit to undo.
            parent_number: the parent, from 1, whose content is restored; needed for a merge commit only.
            message: empty for a default text that names the commit.
            metadata: of the new commit.
            choices: see the class; the source is the commit's parent.
            default_side: see the class.
            allow_empty: commit even if the branch lacks all changes of the commit.
            expected_commit_id: the head that the branch must have, such as that of a preview; empty: any.

        Raises:
            NothingToCommitError: the branch lacks all changes of the commit, and `allow_empty` is False.
            InvalidArgumentError: the commit is a merge and `parent_number` is 0, or it has no such parent.
        """
        return Commit.of(
            await self.graveler.revert(
                self.call(),
                repository_id,
                branch_id,
                ref,
                parent_number=parent_number,
                message=message,
                metadata=metadata,
                choices=_choices(choices),
                default_side=_side(default_side),
                allow_empty=allow_empty,
                expected_commit_id=expected_commit_id,
            )
        )

    async def revert_range(
        self,
        repository_id: str,
        branch_id: str,
        since_ref: str,
        ref: str,
        *,
        squash: bool = False,
        parent_number: int = 0,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        allow_empty: bool = False,
        expected_commit_id: str = "",
    ) -> RevertedRange:
        """Undoes up to 100 commits, newest first; all of it becomes visible together, or nothing.

        The range is `ref` and its first parents, without `since_ref` and its ancestors (`tarn revert SINCE..REF`).

        Args:
            repository_id: the repository.
            branch_id: the branch that takes the new commits.
            since_ref: the range begins after it; not empty.
            ref: the newest commit to undo.
            squash: make one commit instead of one for each.
            parent_number: 1 if there are merge commits in the range.
            message: of each new commit; empty for a default text that names the undone commit.
            metadata: of each new commit.
            choices: see the class; the source is the parent of the undone commit.
            default_side: see the class.
            allow_empty: commit even where the branch lacks all changes of a commit; otherwise it is passed over.
            expected_commit_id: the head that the branch must have, such as that of a preview; empty: any.
        """
        if not since_ref:
            raise ValueError("since_ref is empty; to undo one commit, call revert")
        sent = await self.graveler.revert_range(
            self.call(),
            repository_id,
            branch_id,
            since_ref,
            ref,
            squash=squash,
            parent_number=parent_number,
            message=message,
            metadata=metadata,
            choices=_choices(choices),
            default_side=_side(default_side),
            allow_empty=allow_empty,
            expected_commit_id=expected_commit_id,
        )
        return RevertedRange(Commit.of(sent.commit), tuple(sent.reverted_commit_ids))

    async def cherry_pick(
        self,
        repository_id: str,
        branch_id: str,
        ref: str,
        *,
        parent_number: int = 0,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        allow_empty: bool = False,
        expected_commit_id: str = "",
    ) -> Commit:
        """Applies the changes of one commit to a branch by a new commit, which it returns.

        The arguments and errors are those of `revert`; the source of conflicts is the commit.
        """
        return Commit.of(
            await self.graveler.cherry_pick(
                self.call(),
                repository_id,
                branch_id,
                ref,
                parent_number=parent_number,
                message=message,
                metadata=metadata,
                choices=_choices(choices),
                default_side=_side(default_side),
                allow_empty=allow_empty,
                expected_commit_id=expected_commit_id,
            )
        )

    # ---- tasks

    async def start_merge(
        self,
        repository_id: str,
        branch_id: str,
        source_ref: str,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        squash: bool = False,
        allow_empty: bool = False,
        fast_forward_only: bool = False,
        expected_commit_id: str = "",
        task_id: str = "",
    ) -> Task:
        """Starts a merge as a task; other arguments as of `merge`.

        `task_id` is from `new_task_id` of the client. After `UnknownOutcomeError`, the same call with the same id
        starts no second merge; it returns the task. Without it, Tarn chooses an id.
        """
        request = merge_service_pb2.MergeRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            source_ref=source_ref,
            message=message,
            metadata=metadata,
            choices=_choices(choices),
            default_side=_side(default_side),
            squash=squash,
            allow_empty=allow_empty,
            fast_forward_only=fast_forward_only,
            expected_commit_id=expected_commit_id,
        )
        return Task.of(await self.graveler.start_merge(self.call(), request, task_id=task_id))

    async def start_preview(
        self,
        repository_id: str,
        destination_ref: str,
        source_ref: str,
        *,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        task_id: str = "",
    ) -> Task:
        """Starts the preview of a merge as a task; arguments as of `preview_merge`, `task_id` as of `start_merge`."""
        request = merge_service_pb2.PreviewMergeRequest(
            repository_id=repository_id,
            destination_ref=destination_ref,
            source_ref=source_ref,
            choices=_choices(choices),
            default_side=_side(default_side),
            page_size=1,
        )
        return Task.of(await self.graveler.start_preview(self.call(), request, task_id=task_id))

    async def get_task(self, repository_id: str, task_id: str) -> Task:
        """Returns one task, with its result or its error."""
        return Task.of(await self.graveler.get_task(self.call(), repository_id, task_id))

    async def wait_task(self, repository_id: str, task_id: str, *, timeout_s: float = 10.0) -> Task:
        """Returns a task once it has ended, or after `timeout_s` as it is then: look at `state.is_ended`.

        One call waits for at most 30 seconds.
        """
        timeout_ms = max(1, round(timeout_s * 1000))
        return Task.of(
            await self.graveler.wait_task(
                self.call(), repository_id, task_id, timeout_ms=timeout_ms
            )
        )

    async def cancel_task(self, repository_id: str, task_id: str) -> Task:
        """Asks for the end of a task, which may go on for some seconds; a merge that is being published is made."""
        return Task.of(await self.graveler.cancel_task(self.call(), repository_id, task_id))

    def list_tasks(
        self, repository_id: str, *, all_users: bool = False, page_size: int = PAGE_SIZE
    ) -> Listing[Task]:
        """Lists the caller's tasks in a repository, or those of all users, oldest first, without their results."""
        return listing(
            lambda token: self.graveler.list_tasks(
                self.call(),
                repository_id,
                all_users=all_users,
                page_size=page_size,
                page_token=token,
            ),
            lambda page: map(Task.of, page.tasks),
        )

    # ---- compactions

    async def compact_branch(
        self, repository_id: str, branch_id: str, *, force: bool = False
    ) -> Compaction:
        """Folds the uncommitted changes of a branch into one listing, so that listings no longer pass deleted objects.

        Changes no object, no listing and no commit. A repetition after `UnknownOutcomeError` does no harm. A million
        rows take seconds; give larger ones time by `with_timeout`.

        Args:
            repository_id: the repository.
            branch_id: the branch.
            force: also if another compaction of the branch seems to run.
        """
        return Compaction.of(
            await self.graveler.compact_branch(self.call(), repository_id, branch_id, force=force)
        )

    async def get_staging_statistics(
        self, repository_id: str, branch_id: str, *, rows_max: int = 10_000
    ) -> StagingStatistics:
        """Counts the uncommitted rows of a branch.

        Args:
            repository_id: the repository.
            branch_id: the branch.
            rows_max: number of rows after which counting ends; at most 100,000.
        """
        return StagingStatistics.of(
            await self.graveler.staging_statistics(
                self.call(), repository_id, branch_id, rows_max=rows_max
            )
        )

    # ---- objects; their bytes travel over S3

    async def get_object(self, repository_id: str, ref: str, path: str) -> ObjectVersion:
        """Returns size, time, ETag and metadata of an object; without one, raises `EntryNotFoundError`."""
        found = await self.graveler.lookup(self.call(), repository_id, ref, path)
        return ObjectVersion.of(path, found.entry)

    def list_objects(
        self,
        repository_id: str,
        ref: str,
        *,
        prefix: str = "",
        delimiter: str = "",
        after: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listing[ObjectVersion | CommonPrefix]:
        """Lists the objects of a ref in byte order of their paths, uncommitted ones of a branch included.

        Args:
            repository_id: the repository.
            ref: the ref.
            prefix: list only paths that start with it.
            delimiter: roll up paths that are equal up to the first delimiter after the prefix, as S3 does.
            after: list only paths and common prefixes greater than this.
            page_size: items of a page, at most 1,000.
        """
        return listing(
            lambda token: self.graveler.list_entries(
                self.call(),
                repository_id,
                ref,
                prefix=prefix,
                delimiter=delimiter,
                after=after,
                page_size=page_size,
                page_token=token,
            ),
            _objects,
        )

    async def delete_object(self, repository_id: str, branch_id: str, path: str) -> None:
        """Deletes an object of a branch. A path that holds nothing is no error."""
        await self.graveler.unstage(self.call(), repository_id, branch_id, path)

    async def delete_objects(
        self, repository_id: str, branch_id: str, paths: Sequence[str]
    ) -> dict[str, TarnCallError]:
        """Deletes objects of a branch, 1,000 in a call; returns the errors of those that could not be deleted.

        An error of a whole call, such as a branch that does not exist, is raised; earlier calls keep their effect.
        """
        failed = {}
        for start in range(0, len(paths), _DELETE_MAX):
            part = paths[start : start + _DELETE_MAX]
            outcomes = await self.graveler.unstage_many(self.call(), repository_id, branch_id, part)
            for path, error in zip(part, outcomes, strict=True):
                if error is not None:
                    about = {REPOSITORY: repository_id, REF: branch_id, PATH: path}
                    failed[path] = call_error(error, about)
        return failed


def _changes(page: ChangesPage) -> list[Change]:
    version = ObjectVersion.of_optional
    rows = zip(page.paths, page.left_entries, page.right_entries, strict=True)
    return [Change(path, version(path, left), version(path, right)) for path, left, right in rows]


def _optional(condition: str | None, name: str) -> str:
    """Returns a condition as the rpc takes it.

    An empty text would mean "no condition" there; a program that computes an empty one means something else.
    """
    if condition == "":
        raise ValueError(f"{name} is empty; leave it out for no condition")
    return condition or ""


def _names(page: ChangesPage) -> list[PathChange]:
    return [PathChange.of(path, kind) for path, kind in zip(page.paths, page.kinds, strict=True)]


def _choices(choices: Sequence[Choice]) -> list[merge_service_pb2.ConflictChoice]:
    return [
        merge_service_pb2.ConflictChoice(pattern=pattern, side=_side(side))
        for pattern, side in choices
    ]


def _side(side: Side | None) -> merge_service_pb2.MergeSide:
    return merge_service_pb2.MERGE_SIDE_UNSPECIFIED if side is None else side.value


_DELETE_MAX = 1000


def _objects(page: ListingPage) -> list[ObjectVersion | CommonPrefix]:
    rows = zip(page.paths, page.entries, strict=True)
    return [
        ObjectVersion.of(path, packed) if packed else CommonPrefix(path) for path, packed in rows
    ]

"""Client of graveler's operations on commits, history and differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.client.rpc_client import RpcClient
from tarn.rpc.client.transport import Transport, garbled
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import commit_service_pb2 as pb
from tarn_proto.graveler.v1.commit_service_rpc import CommitServiceClient

__all__ = ["AnnotationsPage", "ChangesPage", "CommitClient", "PathAnnotation"]


@dataclass(frozen=True, slots=True)
class ChangesPage:
    """A page of changes from a left listing to a right one, in byte order of the paths.

    Attributes:
        paths: at most the page size; a page may be shorter, even empty, before the end.
        left_entries: packed, one for each path; empty for an added path. No entries with `names_only`.
        right_entries: packed, one for each path; empty for a removed path. Likewise.
        next_page_token: empty at the end, and only there.
        kinds: one for each path with `names_only`; otherwise none, because the entries tell.
        left_commit_id: the commit before the changes, of several merge bases the first; empty if there is none
            (`from_merge_base`).
        right_commit_id: the commit after the changes; empty for uncommitted changes.
        merge_base_commit_ids: several merge bases, whose merge is compared; otherwise empty (`from_merge_base`).
    """

    paths: list[str]
    left_entries: list[bytes]
    right_entries: list[bytes]
    next_page_token: str
    kinds: list[pb.DiffKind] = field(default_factory=list)
    left_commit_id: str = ""
    right_commit_id: str = ""
    merge_base_commit_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PathAnnotation:
    """Where the content of a path comes from.

    Attributes:
        path: the path.
        commit: the commit that gave it its content.
        is_final: False if the search was not finished: an older commit may have made it. Annotate `commit` to continue.
    """

    path: str
    commit: pb.CommitSummary
    is_final: bool


@dataclass(frozen=True, slots=True)
class AnnotationsPage:
    """A page of annotations, in byte order of the paths; the token is empty at the end, and only there."""

    lines: list[PathAnnotation]
    next_page_token: str


class CommitClient(RpcClient):
    """Commits and compares. Methods raise the `TarnError` that graveler raised."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._commit_service = CommitServiceClient(transport)

    async def create_commit(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        allow_empty: bool = False,
        author_time: Timestamp | None = None,
    ) -> pb.CreateCommitResponse:
        """Commits a branch's changes. Returns `commit`, `added_count`, `changed_count`, `removed_count`.

        `author_time` says when the change was made, for people; None: now.

        Raises:
            TarnError: FAILED_PRECONDITION, NOTHING_TO_COMMIT: there are no changes and `allow_empty` is False.
        """
        request = pb.CreateCommitRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            message=message,
            metadata=metadata,
            allow_empty=allow_empty,
            author_time=author_time,
        )
        return await self._commit_service.CreateCommit(request, call)

    async def get_commit(self, call: Call, repository_id: str, ref: str) -> pb.Commit:
        """Returns the commit that a ref names."""
        return (await self.resolve_ref(call, repository_id, ref)).commit

    async def resolve_ref(self, call: Call, repository_id: str, ref: str) -> pb.GetCommitResponse:
        """Returns the commit that a ref names, and one that a short commit id of the same letters would name."""
        request = pb.GetCommitRequest(repository_id=repository_id, ref=ref)
        return await self._commit_service.GetCommit(request, call)

    async def measure_ref(self, call: Call, repository_id: str, ref: str) -> pb.MeasureRefResponse:
        """Returns the number of objects of the commit that a ref names, and the sum of their sizes in bytes."""
        request = pb.MeasureRefRequest(repository_id=repository_id, ref=ref)
        return await self._commit_service.MeasureRef(request, call)

    async def list_commits(
        self,
        call: Call,
        repository_id: str,
        ref: str,
        *,
        page_size: int = 0,
        page_token: str = "",
        first_parent: bool = False,
        exclude_ref: str = "",
        symmetric: bool = False,
        since: Timestamp | None = None,
        until: Timestamp | None = None,
        committer: str = "",
        paths: Sequence[str] = (),
        prefixes: Sequence[str] = (),
    ) -> pb.ListCommitsResponse:
        """Returns a page of history: `commits`, no commit before one of its descendants, and `next_page_token`.

        `exclude_ref` leaves out the history of another ref; with `symmetric`, only the history that both share. `since`
        is inclusive, `until` exclusive. `paths` and `prefixes` list only commits that change one of them. Only the
        token
        tells the last page: a page may be empty before.
        """
        request = pb.ListCommitsRequest(
            repository_id=repository_id,
            ref=ref,
            page_size=page_size,
            page_token=page_token,
            first_parent=first_parent,
            exclude_ref=exclude_ref,
            symmetric=symmetric,
            since=since,
            until=until,
            committer=committer,
            paths=paths,
            prefixes=prefixes,
        )
        return await self._commit_service.ListCommits(request, call)

    async def annotate_paths(
        self,
        call: Call,
        repository_id: str,
        ref: str,
        *,
        prefix: str = "",
        after: str = "",
        page_size: int = 0,
        page_token: str = "",
    ) -> AnnotationsPage:
        """Returns for a page of paths, up to 1,000, the commits that gave them their present content."""
        request = pb.AnnotatePathsRequest(
            repository_id=repository_id,
            ref=ref,
            prefix=prefix,
            after=after,
            page_size=page_size,
            page_token=page_token,
        )
        page = await self._commit_service.AnnotatePaths(request, call)
        if not len(page.paths) == len(page.commit_indexes) == len(page.is_final):
            raise garbled(f"{len(page.commit_indexes)} commits for {len(page.paths)} paths")
        if any(not 0 <= place < len(page.commits) for place in page.commit_indexes):
            raise garbled("an annotation names a commit that the page does not have")
        lines = [
            PathAnnotation(path, page.commits[place], is_final)
            for path, place, is_final in zip(
                page.paths, page.commit_indexes, page.is_final, strict=True
            )
        ]
        return AnnotationsPage(lines, page.next_page_token)

    async def diff_refs(
        self,
        call: Call,
        repository_id: str,
        left_ref: str,
        right_ref: str,
        *,
        prefix: str = "",
        after: str = "",
        page_size: int = 0,
        page_token: str = "",
        from_merge_base: bool = False,
        names_only: bool = False,
    ) -> ChangesPage:
        """Returns the changes from left to right, up to 5,000 on a page.

        With `from_merge_base`, from the merge base of both to the right one: the changes that a merge of right into
        left brings.
        """
        request = pb.DiffRefsRequest(
            repository_id=repository_id,
            left_ref=left_ref,
            right_ref=right_ref,
            prefix=prefix,
            after=after,
            page_size=page_size,
            page_token=page_token,
            from_merge_base=from_merge_base,
            names_only=names_only,
        )
        page = await self._commit_service.DiffRefs(request, call)
        found = _changes(page, page.left_commit_id, page.right_commit_id)
        return replace(found, merge_base_commit_ids=tuple(page.merge_base_commit_ids))

    async def diff_uncommitted(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        *,
        prefix: str = "",
        after: str = "",
        page_size: int = 0,
        page_token: str = "",
        names_only: bool = False,
    ) -> ChangesPage:
        """Returns the uncommitted changes of a branch, up to 1,000 on a page.

        Raises:
            TarnError: CONFLICT, REF_MOVED: the branch got another head since the first page.
        """
        request = pb.DiffUncommittedRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            prefix=prefix,
            after=after,
            page_size=page_size,
            page_token=page_token,
            names_only=names_only,
        )
        page = await self._commit_service.DiffUncommitted(request, call)
        return _changes(page, page.commit_id, "")


def _changes(
    page: pb.DiffRefsResponse | pb.DiffUncommittedResponse, left: str, right: str
) -> ChangesPage:
    paths, lefts, rights = list(page.paths), list(page.left_entries), list(page.right_entries)
    kinds = list(page.kinds)
    entries = len(paths) if not kinds else 0
    if not len(lefts) == len(rights) == entries or (kinds and len(kinds) != len(paths)):
        text = (
            f"{len(lefts)} and {len(rights)} entries and {len(kinds)} kinds for {len(paths)} paths"
        )
        raise garbled(text)
    return ChangesPage(paths, lefts, rights, page.next_page_token, kinds, left, right)

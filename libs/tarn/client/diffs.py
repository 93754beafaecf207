"""Client of graveler's counts of differences: in all, and folder by folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tarn.client.rpc_client import RpcClient
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import diff_service_pb2 as pb
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_proto.graveler.v1.diff_service_rpc import DiffServiceClient

__all__ = ["DiffClient", "DiffSummary", "SummaryPage", "summary_of"]


_BYTES_MAX = 2**63 - 1

SummaryPage = pb.SummarizeDiffResponse | pb.SummarizeUncommittedResponse
"""A page of counts: `counts` of all changes of the page, its `folders`, and `next_page_token`."""


@dataclass(slots=True)
class DiffSummary:
    """The counts of several pages.

    Attributes:
        counts: all changes.
        folders: one line for each common prefix or path, in byte order.
        has_more: whether more pages follow.
    """

    counts: merge_pb.MergeCounts = field(default_factory=merge_pb.MergeCounts)
    folders: list[pb.FolderCounts] = field(default_factory=list)
    has_more: bool = False

    def add(self, page: SummaryPage) -> None:
        """Adds the next page. A folder that it continues stays one line."""
        _add(self.counts, page.counts)
        for folder in page.folders:
            if self.folders and self.folders[-1].path == folder.path:
                _add(self.folders[-1].counts, folder.counts)
            else:
                self.folders.append(folder)


def _add(total: merge_pb.MergeCounts, more: merge_pb.MergeCounts) -> None:
    total.added_count += more.added_count
    total.changed_count += more.changed_count
    total.removed_count += more.removed_count
    total.added_bytes = min(total.added_bytes + more.added_bytes, _BYTES_MAX)
    total.removed_bytes = min(total.removed_bytes + more.removed_bytes, _BYTES_MAX)


async def summary_of(
    fetch: Callable[[str], Awaitable[SummaryPage]], *, folders_max: int = 0
) -> DiffSummary:
    """Reads the pages of a summary and adds them up.

    Args:
        fetch: reads the page of a token; the first token is empty.
        folders_max: stop after the page with this line; 0: read all pages.
    """
    found, token = DiffSummary(), ""
    while True:
        page = await fetch(token)
        found.add(page)
        token = page.next_page_token
        found.has_more = bool(token)
        if not token or (folders_max and len(found.folders) >= folders_max):
            return found


class DiffClient(RpcClient):
    """Counts differences page by page; `summary_of` adds the pages up. Methods raise graveler's `TarnError`."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._diff_service = DiffServiceClient(transport)

    async def summarize_diff(
        self,
        call: Call,
        repository_id: str,
        left_ref: str,
        right_ref: str,
        *,
        from_merge_base: bool = False,
        prefix: str = "",
        delimiter: str = "",
        page_size: int = 0,
        page_token: str = "",
    ) -> pb.SummarizeDiffResponse:
        """Returns counts of the changes from left to right, by folder; up to 1,000 lines on a page.

        Args:
            call: context of the call.
            repository_id: the repository.
            left_ref: the ref before the changes.
            right_ref: the ref after the changes.
            from_merge_base: compare the merge base of both refs with the right one.
            prefix: only paths that start with it.
            delimiter: roll paths up to the first one after the prefix; empty: count the total only.
            page_size: most lines; 0 for 100.
            page_token: of the previous page.
        """
        request = pb.SummarizeDiffRequest(
            repository_id=repository_id,
            left_ref=left_ref,
            right_ref=right_ref,
            from_merge_base=from_merge_base,
            prefix=prefix,
            delimiter=delimiter,
            page_size=page_size,
            page_token=page_token,
        )
        return await self._diff_service.SummarizeDiff(request, call)

    async def summarize_uncommitted(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        *,
        prefix: str = "",
        delimiter: str = "",
        page_size: int = 0,
        page_token: str = "",
    ) -> pb.SummarizeUncommittedResponse:
        """Returns counts of the uncommitted changes of a branch, by folder; arguments as `summarize_diff`.

        Raises:
            TarnError: CONFLICT, REF_MOVED: the branch got another head since the first page.
        """
        request = pb.SummarizeUncommittedRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            prefix=prefix,
            delimiter=delimiter,
            page_size=page_size,
            page_token=page_token,
        )
        return await self._diff_service.SummarizeUncommitted(request, call)

"""Client of graveler's stream of changes of staging tokens, for compactors."""

from __future__ import annotations

from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import staging_event_service_pb2 as pb
from tarn_proto.graveler.v1.staging_event_service_rpc import StagingEventServiceClient

__all__ = ["StagingEventClient"]


class StagingEventClient:
    """Watches one replica. Methods raise the `TarnError` that graveler raised."""

    def __init__(self, transport: Transport) -> None:
        self._staging_event_service = StagingEventServiceClient(transport)

    async def watch_staging(
        self,
        call: Call,
        start_id: bytes,
        after_sequence: int,
        wait_ms: int,
        report: pb.CompactorReport | None = None,
    ) -> pb.WatchStagingResponse:
        """Returns the tokens that changed at the replica since its last answer; waits for a change.

        Args:
            call: its deadline must be later than the wait.
            start_id: of the last answer; empty at first.
            after_sequence: of the last answer.
            wait_ms: how long to wait, at most 20,000.
            report: what the caller does now, if it is a compactor.
        """
        request = pb.WatchStagingRequest(
            start_id=start_id, after_sequence=after_sequence, wait_ms=wait_ms, report=report
        )
        return await self._staging_event_service.WatchStaging(request, call)

    async def measure_staging(
        self, call: Call, repository_id: str, branch_id: str, *, rows_max: int = 0
    ) -> pb.MeasureStagingResponse:
        """Returns the counts of a branch's staged rows, up to `rows_max` rows (0: 10,000), and its tokens."""
        request = pb.MeasureStagingRequest(
            repository_id=repository_id, branch_id=branch_id, rows_max=rows_max
        )
        return await self._staging_event_service.MeasureStaging(request, call)

    async def list_staged_branches(
        self, call: Call, after_repository_id: str, after_branch_id: str, *, page_size: int = 0
    ) -> pb.ListStagedBranchesResponse:
        """Returns a page of the branches that have staged rows, and where the next page begins."""
        request = pb.ListStagedBranchesRequest(
            after_repository_id=after_repository_id,
            after_branch_id=after_branch_id,
            page_size=page_size,
        )
        return await self._staging_event_service.ListStagedBranches(request, call)

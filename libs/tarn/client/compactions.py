"""Client of graveler's compactions."""

from __future__ import annotations

from tarn.client.rpc_client import RpcClient
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import compaction_service_pb2 as pb
from tarn_proto.graveler.v1.compaction_service_rpc import CompactionServiceClient

__all__ = ["CompactionClient"]


class CompactionClient(RpcClient):
    """Compacts branches, and counts their staged rows. Methods raise the `TarnError` that graveler raised."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._compaction_service = CompactionServiceClient(transport)

    async def compact_branch(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        *,
        force: bool = False,
        is_background: bool = False,
    ) -> pb.CompactBranchResponse:
        """Folds the uncommitted changes of a branch into one listing; returns the result.

        Args:
            call: the caller.
            repository_id: the repository.
            branch_id: the branch.
            force: also if another compaction of the branch seems to run.
            is_background: no caller waits for the result, so a large one leaves the machine to everything else.
        """
        request = pb.CompactBranchRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            force=force,
            is_background=is_background,
        )
        return await self._compaction_service.CompactBranch(request, call)

    async def staging_statistics(
        self, call: Call, repository_id: str, branch_id: str, *, rows_max: int = 0
    ) -> pb.GetStagingStatisticsResponse:
        """Returns the layers of a branch and the counts of its staged rows, up to `rows_max` rows (0: 10,000)."""
        request = pb.GetStagingStatisticsRequest(
            repository_id=repository_id, branch_id=branch_id, rows_max=rows_max
        )
        return await self._compaction_service.GetStagingStatistics(request, call)

    async def get_compaction_pause(self, call: Call) -> pb.CompactionPause | None:
        """Returns the pause of all compactors that holds now; None: they are not paused."""
        request = pb.GetCompactionPauseRequest()
        found = await self._compaction_service.GetCompactionPause(request, call)
        return found.pause if found.HasField("pause") else None

    async def list_compactors(self, call: Call) -> list[pb.WatchingCompactor]:
        """Returns the compactors that watch the replica that answers, with what they told it last."""
        found = await self._compaction_service.ListCompactors(pb.ListCompactorsRequest(), call)
        return list(found.compactors)

    async def begin_compaction_pause(self, call: Call, duration_s: int = 0) -> pb.CompactionPause:
        """Pauses all compactors for some seconds, at most 7 days; 0: until `end_compaction_pause`."""
        request = pb.SetCompactionPauseRequest(duration_s=duration_s)
        answer = await self._compaction_service.SetCompactionPause(request, call)
        return answer.pause

    async def end_compaction_pause(self, call: Call) -> None:
        """Ends the pause of all compactors, if there is one."""
        request = pb.SetCompactionPauseRequest(resume=True)
        await self._compaction_service.SetCompactionPause(request, call)

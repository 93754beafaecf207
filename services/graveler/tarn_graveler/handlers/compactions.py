"""CompactionService: compactions of branches, and the counts that say when one is worth it."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from tarn.core.compaction_pause import CompactionPause
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_branch_id
from tarn.gate.permits import Permit, RepositoryPermit
from tarn_graveler.assembly import Graveler
from tarn_graveler.compaction.compacting import CompactionOutcome, running_since_us
from tarn_graveler.handlers.compactors import WatchingCompactors
from tarn_graveler.handlers.requests import paging, timestamp
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.compaction_pauses import CompactionPauses
from tarn_proto.graveler.v1 import compaction_service_pb2 as pb

__all__ = ["CompactionHandler"]

_PAUSE_SECONDS_MAX = 7 * 86_400
_ROWS_DEFAULT = 10_000
_ROWS_MAX = 100_000

_OUTCOMES = {
    CompactionOutcome.COMPACTED: pb.COMPACTION_OUTCOME_COMPACTED,
    CompactionOutcome.NOTHING_TO_DO: pb.COMPACTION_OUTCOME_NOTHING_TO_DO,
    CompactionOutcome.SUPERSEDED: pb.COMPACTION_OUTCOME_SUPERSEDED,
    CompactionOutcome.RUNNING: pb.COMPACTION_OUTCOME_RUNNING,
}


class CompactionHandler:
    """Answers `tarn.graveler.v1.CompactionService`."""

    def __init__(self, graveler: Graveler, compactors: WatchingCompactors) -> None:
        self._compactors = compactors
        self._compacting = graveler.compacting
        self._statistics = graveler.staging_statistics
        self._events = graveler.branches.events
        self._pauses = CompactionPauses(graveler.repositories, graveler.clock)
        self._clock = graveler.clock

    async def CompactBranch(
        self, request: pb.CompactBranchRequest, permit: RepositoryPermit
    ) -> pb.CompactBranchResponse:
        """Folds the uncommitted changes of a branch into one listing."""
        branch_id = parse_branch_id(request.branch_id)
        repository = permit.repository
        name = BranchName(repository, branch_id)
        done = await self._compacting.compact(
            name, force=request.force, is_background=request.is_background
        )
        duration = Duration()
        duration.FromMicroseconds(int(done.seconds * 1_000_000))
        answer = pb.CompactBranchResponse(
            outcome=_OUTCOMES[done.outcome],
            rows_read=done.rows_read,
            rows_written=done.rows_written,
            tombstones_removed=done.tombstones_removed,
            tokens_taken=done.tokens_taken,
            duration=duration,
            compacted_metarange_id=done.compacted or "",
        )
        if done.running_since_us:
            answer.running_since.CopyFrom(timestamp(done.running_since_us))
        return answer

    async def GetStagingStatistics(
        self, request: pb.GetStagingStatisticsRequest, permit: RepositoryPermit
    ) -> pb.GetStagingStatisticsResponse:
        """Counts the staged rows of a branch, up to a limit."""
        branch_id = parse_branch_id(request.branch_id)
        repository = permit.repository
        rows_max = paging(request.rows_max, _ROWS_DEFAULT, _ROWS_MAX)
        found = await self._statistics.count(BranchName(repository, branch_id), rows_max)
        branch = found.branch
        read, returned = self._events.listed_rows(branch)
        answer = pb.GetStagingStatisticsResponse(
            sealed_token_count=len(branch.sealed),
            row_count=found.rows,
            tombstone_count=found.tombstones,
            size_bytes=found.size_bytes,
            is_truncated=found.is_truncated,
            compacted_metarange_id=branch.compacted_metarange_id or "",
            compacted_row_count=found.compacted_rows,
            commit_id=branch.commit_id,
            listed_rows_read=read,
            listed_rows_returned=returned,
        )
        times = {
            "oldest_write_time": found.oldest_write_us,
            "compaction_start_time": running_since_us(branch, self._clock.now_us()),
            "last_compaction_time": branch.compaction_end_time_us,
        }
        for field, time_us in times.items():
            if time_us:
                getattr(answer, field).CopyFrom(timestamp(time_us))
        return answer

    async def GetCompactionPause(
        self, request: pb.GetCompactionPauseRequest, permit: Permit
    ) -> pb.GetCompactionPauseResponse:
        """Returns the pause of background compactions that holds now."""
        return pb.GetCompactionPauseResponse(pause=_pause(await self._pauses.get()))

    async def SetCompactionPause(
        self, request: pb.SetCompactionPauseRequest, permit: Permit
    ) -> pb.SetCompactionPauseResponse:
        """Begins or ends a pause of all compactors."""
        grant = permit.grant
        if not request.HasField("duration_s") and not request.resume:
            text = "the request names no change: set duration_s, or resume to true"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="change")
        if request.resume:
            await self._pauses.end(grant.user_id)
            return pb.SetCompactionPauseResponse()
        if request.duration_s > _PAUSE_SECONDS_MAX:
            text = f"a pause of {request.duration_s} s is longer than {_PAUSE_SECONDS_MAX} s"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="duration_s")
        begun = await self._pauses.begin(grant.user_id, request.duration_s)
        return pb.SetCompactionPauseResponse(pause=_pause(begun))

    async def ListCompactors(
        self, request: pb.ListCompactorsRequest, permit: Permit
    ) -> pb.ListCompactorsResponse:
        """Lists the compactors that watch this replica, with what they told it last."""
        return pb.ListCompactorsResponse(compactors=self._compactors.watching())


def _pause(pause: CompactionPause | None) -> pb.CompactionPause | None:
    if pause is None:
        return None
    end = timestamp(pause.end_us) if pause.end_us else None
    return pb.CompactionPause(
        user_id=pause.user_id, start_time=timestamp(pause.time_us), end_time=end
    )

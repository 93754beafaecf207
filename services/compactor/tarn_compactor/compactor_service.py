"""`tarn.compactor.v1.CompactorService`: the state of this compactor, and pauses of all."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.core.clock import Clock
from tarn.gate.permits import Permit
from tarn.rpc.wire.pagination import page_size
from tarn_compactor.compactor import Compactor, Work
from tarn_compactor.counts import BranchKey, Counts
from tarn_compactor.pauses import Pauses
from tarn_compactor.policy import BranchView
from tarn_compactor.sensor import Sensor
from tarn_proto.compactor.v1 import compactor_service_pb2 as pb

__all__ = ["CompactorService"]


_PAUSE_SECONDS = 3600
_BRANCHES_DEFAULT = 100
_BRANCHES_MAX = 1000


class CompactorService:
    """Each rpc needs the action ManageCompaction."""

    def __init__(
        self,
        counts: Counts,
        sensor: Sensor,
        compactor: Compactor,
        pauses: Pauses,
        clock: Clock,
    ) -> None:
        self._counts = counts
        self._sensor = sensor
        self._compactor = compactor
        self._pauses = pauses
        self._clock = clock

    async def GetCompactorStatus(
        self, request: pb.GetCompactorStatusRequest, permit: Permit
    ) -> pb.GetCompactorStatusResponse:
        """Returns the state of the compactor: its replicas, its branches and its work."""
        limit = page_size(request.page_size, _BRANCHES_DEFAULT, _BRANCHES_MAX)
        now = self._clock.monotonic()
        views = {key: self._counts.view(key, now) for key in self._counts.known()}
        known = [key for key, view in views.items() if view.rows or view.sealed_tokens]
        known.sort(key=lambda key: (-views[key].tombstones, -views[key].rows, key))
        totals = self._compactor.totals
        answer = pb.GetCompactorStatusResponse(
            branches=[self._branch(key, views[key]) for key in known[:limit]],
            branch_count=len(known),
            replicas=[
                pb.ReplicaStatus(
                    address=address,
                    is_connected=state.is_connected,
                    changes=state.changes,
                    gaps=state.gaps,
                    error=state.error,
                )
                for address, state in sorted(self._sensor.replicas.items())
            ],
            measure_queue=len(self._counts.unmeasured),
            compactions=totals.compactions,
            failures=totals.failures,
            rows_read=totals.rows_read,
            rows_written=totals.rows_written,
            sealed_tokens_removed=totals.sealed_tokens,
            tombstones_removed=totals.tombstones,
            duration_ms=int(totals.seconds * 1000),
        )
        if (pause := await self._pauses.read(permit.call)) is not None:
            answer.paused_by = pause.user_id
            answer.pause_start_time.CopyFrom(pause.start_time)
            if pause.HasField("end_time"):
                answer.pause_end_time.CopyFrom(pause.end_time)
        return answer

    async def PauseCompactor(
        self, request: pb.PauseCompactorRequest, permit: Permit
    ) -> pb.PauseCompactorResponse:
        """Has all compactors start no compaction for a while. Graveler checks the length, and stores the pause."""
        seconds = 0 if request.until_resumed else request.duration_s or _PAUSE_SECONDS
        pause = await self._pauses.begin(permit.call, seconds)
        end = pause.end_time if pause.HasField("end_time") else None
        return pb.PauseCompactorResponse(pause_end_time=end)

    async def ResumeCompactor(
        self, request: pb.ResumeCompactorRequest, permit: Permit
    ) -> pb.ResumeCompactorResponse:
        """Ends the pause of all compactors."""
        await self._pauses.end(permit.call)
        self._sensor.woken.set()
        return pb.ResumeCompactorResponse()

    def _branch(self, key: BranchKey, view: BranchView) -> pb.BranchStatus:
        work = self._compactor.work.get(key)
        state, reason = _state(work)
        return pb.BranchStatus(
            repository_id=key[0],
            branch_id=key[1],
            rows=view.rows,
            tombstones=view.tombstones,
            size_bytes=view.size_bytes,
            sealed_tokens=view.sealed_tokens,
            since_time=self._in(-view.age_s),
            listing_amplification=view.amplification,
            state=state,
            reason=reason,
        )

    def _in(self, seconds: float) -> Timestamp:
        stamp = Timestamp()
        stamp.FromMicroseconds(self._clock.now_us() + int(seconds * 1_000_000))
        return stamp


def _state(work: Work | None) -> tuple[pb.BranchState, str]:
    if work is None:
        return pb.BRANCH_STATE_IDLE, ""
    if work.is_running:
        return pb.BRANCH_STATE_RUNNING, work.reason
    if work.reason and (work.waits_for or work.error):
        reason = f"failed: {work.error}" if work.error else work.waits_for
        return pb.BRANCH_STATE_WAITING, reason
    if work.reason:
        return pb.BRANCH_STATE_QUEUED, work.reason
    return pb.BRANCH_STATE_IDLE, work.error

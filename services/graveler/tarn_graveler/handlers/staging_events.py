"""StagingEventService: the changes of staging tokens, for compactors."""

from __future__ import annotations

from tarn.core.ids import parse_branch_id
from tarn.gate.permits import Permit, RepositoryPermit
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.compactors import WatchingCompactors
from tarn_graveler.handlers.requests import paging
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.staging_events import TokenTally
from tarn_proto.graveler.v1 import staging_event_service_pb2 as pb

__all__ = ["StagingEventHandler"]


_WAIT_SECONDS_MAX = 20.0
_MARGIN_SECONDS = 1.0
_BRANCHES_MAX = 200
_ROWS_DEFAULT = 10_000
_ROWS_MAX = 100_000


class StagingEventHandler:
    """Answers `tarn.graveler.v1.StagingEventService`."""

    def __init__(self, graveler: Graveler, compactors: WatchingCompactors) -> None:
        self._compactors = compactors
        self._events = graveler.branches.events
        self._staged = graveler.staged_branches
        self._statistics = graveler.staging_statistics
        self._clock = graveler.clock
        self._has_journal = graveler.drain is not None

    async def WatchStaging(
        self, request: pb.WatchStagingRequest, permit: Permit
    ) -> pb.WatchStagingResponse:
        """Returns the tokens that changed since the caller's last answer; waits for a change."""
        if request.HasField("report"):
            self._compactors.tell(request.report)
        wait_s = min(
            request.wait_ms / 1000,
            _WAIT_SECONDS_MAX,
            max(0.0, permit.call.remaining(self._clock) - _MARGIN_SECONDS),
        )
        changes = await self._events.watch(request.start_id, request.after_sequence, wait_s)
        return pb.WatchStagingResponse(
            tokens=map(_message, changes.tokens),
            sequence=changes.sequence,
            start_id=self._events.start_id,
            is_incomplete=changes.is_incomplete,
        )

    async def ListStagedBranches(
        self, request: pb.ListStagedBranchesRequest, permit: Permit
    ) -> pb.ListStagedBranchesResponse:
        """Returns the staged branches among the next ones."""
        limit = paging(request.page_size, maximum=_BRANCHES_MAX)
        page = await self._staged.page(request.after_repository_id, request.after_branch_id, limit)
        return pb.ListStagedBranchesResponse(
            branches=[
                pb.StagedBranch(
                    repository_id=repository_id, branch_id=branch_id, sealed_tokens=sealed
                )
                for repository_id, branch_id, sealed in page.branches
            ],
            next_repository_id=page.next_repository,
            next_branch_id=page.next_branch,
        )

    async def MeasureStaging(
        self, request: pb.MeasureStagingRequest, permit: RepositoryPermit
    ) -> pb.MeasureStagingResponse:
        """Counts the staged rows of a branch, up to a limit.

        With a journal, a path that was written several times counts so often: its events fill the store, until the
        token is folded.
        """
        branch_id = parse_branch_id(request.branch_id)
        repository = permit.repository
        rows_max = paging(request.rows_max, _ROWS_DEFAULT, _ROWS_MAX)
        found = await self._statistics.count(
            BranchName(repository, branch_id),
            rows_max,
            with_compacted=False,
            with_events=self._has_journal,
        )
        age_us = self._clock.now_us() - found.oldest_write_us if found.oldest_write_us else 0
        return pb.MeasureStagingResponse(
            token_ids=[token.token_id for token in found.branch.tokens],
            rows=max(found.rows, found.events),
            tombstones=found.tombstones,
            size_bytes=found.size_bytes,
            is_truncated=found.is_truncated,
            age_ms=max(0, age_us // 1000),
        )


def _message(tally: TokenTally) -> pb.StagedToken:
    return pb.StagedToken(
        repository_id=tally.repository_id,
        branch_id=tally.branch_id,
        token_id=tally.token_id,
        rows=tally.rows,
        tombstones=tally.tombstones,
        size_bytes=tally.size_bytes,
        listed_rows_read=tally.rows_read,
        listed_rows_returned=tally.rows_returned,
        is_sealed=tally.is_sealed,
        is_removed=tally.is_removed,
        is_committed=tally.is_committed,
    )

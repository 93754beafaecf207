"""Operations of `tarn.client` for compactions: folding the uncommitted changes of a branch."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.client.calls import Calls
from tarn.client.values import time_of
from tarn_proto.graveler.v1 import compaction_service_pb2 as pb

__all__ = ["Compaction", "CompactionOperations", "CompactionOutcome", "StagingStatistics"]


class CompactionOutcome(enum.Enum):
    """The result of a request to compact a branch. `OTHER` is one that this version does not know."""

    COMPACTED = pb.COMPACTION_OUTCOME_COMPACTED
    """The changes that were acknowledged before the call are folded."""
    NOTHING_TO_DO = pb.COMPACTION_OUTCOME_NOTHING_TO_DO
    """The branch has no staged row."""
    SUPERSEDED = pb.COMPACTION_OUTCOME_SUPERSEDED
    """A commit, merge, reset or another compaction changed the branch meanwhile; nothing was folded."""
    RUNNING = pb.COMPACTION_OUTCOME_RUNNING
    """Another compaction of the branch runs; nothing was done."""
    OTHER = -1

    @classmethod
    def _missing_(cls, value: object) -> CompactionOutcome | None:
        return cls.OTHER if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction. The counts are those of its work, also if the result was superseded.

    Attributes:
        outcome: the result.
        rows_read: staged rows that were read, tombstones (uncommitted deletes) included.
        rows_written: rows of the ranges that were written.
        tombstones_removed: tombstones that listings no longer read.
        tokens_taken: sealed tokens that were folded.
        duration: from the request to the answer, as graveler measured it.
        compacted_metarange_id: id of the new listing; None if the branch has no uncommitted change left, or unless
            COMPACTED.
        running_since: only with RUNNING: when the other compaction began, in UTC.
    """

    outcome: CompactionOutcome
    rows_read: int
    rows_written: int
    tombstones_removed: int
    tokens_taken: int
    duration: timedelta
    compacted_metarange_id: str | None
    running_since: datetime | None

    @staticmethod
    def of(sent: pb.CompactBranchResponse) -> Compaction:
        """The value of a message."""
        return Compaction(
            CompactionOutcome(sent.outcome),
            sent.rows_read,
            sent.rows_written,
            sent.tombstones_removed,
            sent.tokens_taken,
            sent.duration.ToTimedelta(),
            sent.compacted_metarange_id or None,
            _time_of(sent, "running_since", sent.running_since),
        )


@dataclass(frozen=True, slots=True)
class StagingStatistics:
    """The layers of a branch. A row counts once for each token that holds one, as a listing reads them.

    Attributes:
        commit_id: the head of the branch.
        sealed_token_count: tokens that a commit, merge or compaction has sealed, and none has taken yet.
        row_count: staged rows, tombstones included.
        tombstone_count: tombstones among them.
        size_bytes: bytes of their keys and values.
        is_truncated: counting ended at the limit, so the three counts above are lower bounds.
        oldest_write_time: no staged row is older; None without rows.
        compacted_metarange_id: id of the listing that a compaction, or the reset of a part, put over the commit; None
            if there is none.
        compacted_row_count: its entries.
        compaction_start_time: when the running compaction began; None if none runs.
        last_compaction_time: when one last ended; None: never. All times are in UTC.
    """

    commit_id: str
    sealed_token_count: int
    row_count: int
    tombstone_count: int
    size_bytes: int
    is_truncated: bool
    oldest_write_time: datetime | None
    compacted_metarange_id: str | None
    compacted_row_count: int
    compaction_start_time: datetime | None
    last_compaction_time: datetime | None

    @staticmethod
    def of(sent: pb.GetStagingStatisticsResponse) -> StagingStatistics:
        """The value of a message."""
        return StagingStatistics(
            sent.commit_id,
            sent.sealed_token_count,
            sent.row_count,
            sent.tombstone_count,
            sent.size_bytes,
            sent.is_truncated,
            _time_of(sent, "oldest_write_time", sent.oldest_write_time),
            sent.compacted_metarange_id or None,
            sent.compacted_row_count,
            _time_of(sent, "compaction_start_time", sent.compaction_start_time),
            _time_of(sent, "last_compaction_time", sent.last_compaction_time),
        )


def _time_of(
    sent: pb.CompactBranchResponse | pb.GetStagingStatisticsResponse, field: str, time: Timestamp
) -> datetime | None:
    return time_of(time) if sent.HasField(field) else None


class CompactionOperations(Calls):
    """Compactions, and the counts that say when one is worth it. The compactor of an installation does both itself."""

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

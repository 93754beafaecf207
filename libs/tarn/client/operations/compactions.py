"""Compactions of uncommitted changes, and what calls for them."""

from __future__ import annotations

from tarn.client.calls import Calls
from tarn.client.values import Compaction, StagingStatistics

__all__ = ["CompactionOperations"]


class CompactionOperations(Calls):
    """Compacts branches, and counts what they have staged."""

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

"""Metrics of the counts of a compactor: uncommitted rows, tombstones, sealed tokens and listings of repositories."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tarn.core.clock import Clock
from tarn.telemetry.meters import Meters
from tarn_compactor.counts import Counts
from tarn_compactor.policy import BranchView

__all__ = ["REPOSITORIES_MAX", "register_staging"]

REPOSITORIES_MAX: Final = 100
"""Repositories that are shown: those with most uncommitted rows."""

_AGE_SECONDS_MAX: Final = 5.0


@dataclass(slots=True)
class _Sums:
    """Sums over the branches of a repository; of sealed tokens, the most of one branch."""

    rows: int = 0
    tombstones: int = 0
    sealed_tokens: int = 0
    listed_rows_read: float = 0.0
    listed_rows_returned: float = 0.0

    @property
    def amplification(self) -> float:
        """Rows that listings read for each one that they returned; 0: none was listed."""
        return self.listed_rows_read / max(self.listed_rows_returned, 1.0)

    def add(self, view: BranchView) -> None:
        self.rows += view.rows
        self.tombstones += view.tombstones
        self.sealed_tokens = max(self.sealed_tokens, view.sealed_tokens)
        self.listed_rows_read += view.listed_rows_read
        self.listed_rows_returned += view.listed_rows_returned


class _StagedRepositories:
    """Sums by repository, computed at most every few seconds: there may be 20,000 branches."""

    def __init__(self, counts: Counts, clock: Clock) -> None:
        self._counts = counts
        self._clock = clock
        self._top: list[tuple[str, _Sums]] = []
        self._made_at = -_AGE_SECONDS_MAX

    def each(
        self, value: Callable[[_Sums], float]
    ) -> Callable[[], Iterator[tuple[tuple[str, ...], float]]]:
        """Returns what samples a value of each repository."""
        return lambda: (((repository,), value(sums)) for repository, sums in self._largest())

    def _largest(self) -> list[tuple[str, _Sums]]:
        """Returns the repositories with the most rows, and their sums."""
        now = self._clock.monotonic()
        if now - self._made_at < _AGE_SECONDS_MAX:
            return self._top
        found: dict[str, _Sums] = {}
        for key in self._counts.known():
            view = self._counts.view(key, now)
            if view.rows or view.sealed_tokens:
                found.setdefault(key[0], _Sums()).add(view)
        largest = heapq.nlargest(
            REPOSITORIES_MAX, found.items(), key=lambda item: (item[1].rows, item[1].sealed_tokens)
        )
        self._top, self._made_at = largest, now
        return self._top


def register_staging(meters: Meters, counts: Counts, clock: Clock) -> None:
    """Registers the gauges `staging.…`."""
    staged = _StagedRepositories(counts, clock)
    meters.sample("staging.branches", lambda: len(counts))
    meters.sample_each("staging.rows", staged.each(lambda sums: sums.rows))
    meters.sample_each("staging.tombstones", staged.each(lambda sums: sums.tombstones))
    meters.sample_each("staging.sealed_tokens", staged.each(lambda sums: sums.sealed_tokens))
    meters.sample_each("staging.amplification", staged.each(lambda sums: sums.amplification))

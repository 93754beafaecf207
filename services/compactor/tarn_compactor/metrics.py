"""Metrics of what a compactor knows: uncommitted rows and sealed tokens of repositories."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from tarn.core.clock import Clock
from tarn.telemetry.meters import Meters
from tarn_compactor.counts import Counts

__all__ = ["REPOSITORIES_MAX", "register_staging"]

REPOSITORIES_MAX: Final = 100
"""Repositories that are shown: those with most uncommitted rows."""

_AGE_SECONDS_MAX: Final = 5.0


class _StagedRepositories:
    """Sums by repository, computed at most every few seconds: there may be 20,000 branches."""

    def __init__(self, counts: Counts, clock: Clock) -> None:
        self._counts = counts
        self._clock = clock
        self._top: list[tuple[int, int, str]] = []
        self._made_at = -_AGE_SECONDS_MAX

    def rows(self) -> Iterator[tuple[tuple[str, ...], float]]:
        return (((repository,), rows) for rows, _, repository in self._largest())

    def sealed(self) -> Iterator[tuple[tuple[str, ...], float]]:
        return (((repository,), sealed) for _, sealed, repository in self._largest())

    def _largest(self) -> list[tuple[int, int, str]]:
        """Returns rows, most sealed tokens of one branch, and repository; most rows first."""
        now = self._clock.monotonic()
        if now - self._made_at < _AGE_SECONDS_MAX:
            return self._top
        sums: dict[str, tuple[int, int]] = {}
        for key in self._counts.known():
            view = self._counts.view(key, now)
            if view.rows or view.sealed_tokens:
                rows, sealed = sums.get(key[0], (0, 0))
                sums[key[0]] = rows + view.rows, max(sealed, view.sealed_tokens)
        found = ((rows, sealed, repository) for repository, (rows, sealed) in sums.items())
        self._top, self._made_at = heapq.nlargest(REPOSITORIES_MAX, found), now
        return self._top


def register_staging(meters: Meters, counts: Counts, clock: Clock) -> None:
    """Registers the gauges `staging.…`."""
    staged = _StagedRepositories(counts, clock)
    meters.sample("staging.branches", lambda: len(counts))
    meters.sample_each("staging.rows", staged.rows)
    meters.sample_each("staging.sealed_tokens", staged.sealed)

"""The backlog of garbage collections, as metrics of a replica (docs/operate/gc.md).

Every replica reads the records of all repositories now and then, and reports the sums. So all replicas report the same,
up to the time of their last look; queries take the maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from tarn.core.clock import Clock
from tarn.core.collection import Collection
from tarn.core.errors import TarnError
from tarn.telemetry.meters import Meters
from tarn_graveler.iterators.opening import Iterators
from tarn_graveler.records.collections import CollectionRecords
from tarn_graveler.records.purges import Purges

__all__ = ["LOOK_SECONDS", "Backlog", "CollectionBacklog"]

LOOK_SECONDS: Final = 900.0
"""Time between two looks: one read for each repository. The backlog changes in hours."""
_FIRST_SECONDS: Final = 60.0
_NAMESPACES: Final = 1_000

_log = structlog.get_logger()


@dataclass(slots=True)
class Backlog:
    """The backlog of all repositories. Times are microseconds since the epoch; 0: none.

    Attributes:
        candidates: blocks and files that the last complete marks found, and no sweep has deleted yet.
        candidate_bytes: their bytes.
        oldest_mark_us: end of the oldest complete mark that was not swept.
        oldest_run_us: of the repository whose last complete mark or sweep is the longest ago, its end; of one that was
            never collected, its creation.
        purges: deleted repositories whose data may be deleted now and are not.
    """

    candidates: int = 0
    candidate_bytes: int = 0
    oldest_mark_us: int = 0
    oldest_run_us: int = 0
    purges: int = 0

    def add(self, create_time_us: int, found: Collection) -> None:
        """Adds a repository."""
        if found.mark_run_id:
            self.oldest_mark_us = _earlier(self.oldest_mark_us, found.mark_end_us)
            if found.last_mark is not None:
                self.candidates += found.last_mark.candidate_count
                self.candidate_bytes += found.last_mark.candidate_bytes
        ends = [each.end_us for each in (found.last_mark, found.last_sweep) if each is not None]
        self.oldest_run_us = _earlier(self.oldest_run_us, max(ends, default=create_time_us))


def _earlier(one_us: int, other_us: int) -> int:
    return min(one_us, other_us) if one_us else other_us


class CollectionBacklog:
    """Looks at the collections of all repositories, again and again."""

    def __init__(
        self, iterators: Iterators, collections: CollectionRecords, purges: Purges, clock: Clock
    ) -> None:
        self._iterators = iterators
        self._collections = collections
        self._purges = purges
        self._clock = clock
        self._found = Backlog()
        self._failed = 0

    def register(self, meters: Meters) -> None:
        """Registers the gauges; before the first look they are 0."""
        meters.sample("collection.candidates", lambda: self._found.candidates)
        meters.sample("collection.candidate", lambda: self._found.candidate_bytes)
        meters.sample("collection.mark_age", self._age_of(lambda: self._found.oldest_mark_us))
        meters.sample("collection.run_age", self._age_of(lambda: self._found.oldest_run_us))
        meters.sample("collection.purges_waiting", lambda: self._found.purges)
        meters.sample("collection.looks_failed", lambda: self._failed)

    def _age_of(self, time_us: Callable[[], int]) -> Callable[[], float]:
        def age() -> float:
            since_us = time_us()
            return max(0, self._clock.now_us() - since_us) / 1_000_000 if since_us else 0.0

        return age

    async def run(self) -> None:
        """Looks every `LOOK_SECONDS`, until cancelled. A look that fails leaves the last numbers."""
        await self._clock.sleep(_FIRST_SECONDS)
        while True:
            try:
                await self.look()
            except TarnError as error:
                self._failed += 1
                _log.warning(
                    "cannot look at garbage collections", reason=error.reason, error=error.message
                )
            await self._clock.sleep(LOOK_SECONDS)

    async def look(self) -> Backlog:
        """Reads the records of all repositories and deleted namespaces; returns the backlog.

        Raises:
            TarnError: CORRUPT: a record is damaged; errors of the store.
        """
        found = Backlog()
        async for _, repository in self._iterators.repositories():
            found.add(repository.create_time_us, await self._collections.read(repository))
        after, is_end = "", False
        while not is_end:
            page, after = await self._purges.page(after, _NAMESPACES)
            now_us = self._clock.now_us()
            found.purges += sum(
                each.purge_after_us <= now_us and not each.purge_end_us for _, each in page
            )
            is_end = not after
        self._found = found
        return found

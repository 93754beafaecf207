"""Which entries of a reflog decide moments that requests have asked for.

Each request that reads `main@{1 day ago}/path` resolves the moment, which reads the reflog back to there: 60 ms for
10,000 entries. A job reads many paths at one moment, so the entries that were found are kept for seconds.

It holds for one incarnation and one sequence of the branch's head: until the head changes again, the reflog changes
only by expiry.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tarn.aio.ttl_cache import TtlCache
from tarn.core.branch import Branch
from tarn.core.clock import Clock
from tarn.core.head_change import HeadChange
from tarn.core.ids import BranchId
from tarn.kv.records import Repository

__all__ = ["FoundEntries", "MomentCache", "Neighbours"]

_SECONDS = 5.0
"""How long a moment may name a commit after its entry expired."""
_STATES_MAX = 1024
_KEPT_MAX = 16


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Two entries with none between them: the newest one at or before a time, and the oldest one after it.

    None stands for the end of the reflog on that side.
    """

    older: HeadChange | None
    newer: HeadChange | None

    def enclose(self, time_us: int) -> bool:
        """Whether they are the neighbours of a time, in Unix microseconds."""
        return (self.older is None or self.older.time_us <= time_us) and (
            self.newer is None or time_us < self.newer.time_us
        )


@dataclass(slots=True)
class FoundEntries:
    """The entries that were found in one state of a reflog; the first ones found are dropped first.

    Attributes:
        count: number of entries; None if no request has counted them.
    """

    count: int | None = None
    _numbered: deque[tuple[int, HeadChange]] = field(
        default_factory=lambda: deque(maxlen=_KEPT_MAX)
    )
    _neighbours: deque[Neighbours] = field(default_factory=lambda: deque(maxlen=_KEPT_MAX))

    def keep_numbered(self, number: int, entry: HeadChange) -> None:
        """Keeps the entry of the change with a number; 1 is the newest."""
        self._numbered.append((number, entry))

    def numbered(self, number: int) -> HeadChange | None:
        """Returns the entry of the change with a number; None if it was not found before."""
        return next((entry for each, entry in self._numbered if each == number), None)

    def keep_neighbours(self, neighbours: Neighbours) -> None:
        """Keeps the neighbours of a time."""
        self._neighbours.append(neighbours)

    def neighbours(self, time_us: int) -> Neighbours | None:
        """Returns the neighbours of a time; None if they were not found before."""
        return next((each for each in self._neighbours if each.enclose(time_us)), None)


class MomentCache:
    """The entries that were found in the reflogs of existing branches; kept for five seconds from the first request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: TtlCache[tuple[str, BranchId, bytes, int], FoundEntries] = TtlCache(
            clock, _STATES_MAX
        )

    def of(self, repository: Repository, branch_id: BranchId, live: Branch | None) -> FoundEntries:
        """Returns the entries that were found in the reflog of a branch with this record; none are kept without a
        record."""
        if live is None:
            return FoundEntries()
        state = (repository.instance_uid, branch_id, live.incarnation, live.head_sequence)
        found = self._states.get(state)
        if found is None:
            end = self._clock.monotonic() + _SECONDS
            found = FoundEntries()
            self._states.put(state, found, end)
        return found

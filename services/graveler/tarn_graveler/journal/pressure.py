"""How much waits for the drain: the events that are in the store, and in no file of the bucket.

A process counts what it writes, by repository and time, until the record of the drain says that a later round has
taken it. Each replica puts its number into that record, in steps, with every look at it. So each knows the sum, also
what a process had written that has died since. Nothing is scanned, and no disk is asked: it is the same for all stores.

The sum is not exact (docs/design/journal.md, "The drain", says by how much). So it must be well below what the
disks of the store hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tarn.core.clock import Clock
from tarn.kv.journal_records import DrainRecord, Undrained

__all__ = ["WAITS_US", "Pressure"]

WAITS_US: Final = 60_000_000
"""A repository that is drained to less than this ago takes writes: what it has written leaves with the next rounds."""
_MARGIN_US: Final = 30_000_000
"""Clocks that differ, and the time between the count of a write and its row. Longer writes are few."""
_SLOT_US: Final = 10_000_000
_SLOTS_MAX: Final = 64
"""Of a repository. With more, two and two become one, which counts until its later end is drained."""
_ROOTS_MAX: Final = 10_000
"""Repositories that are counted one by one. Those beyond count until all repositories are drained."""
_STEPS: Final = 256
"""A number is put into the record in steps of this part of the limit: in quiet times it is 0, and not written."""
_WRITERS_MAX: Final = 64
"""Processes in the record. With more, the oldest ones share an entry."""
_OTHERS: Final = ""


@dataclass(slots=True)
class _Slot:
    """What was written in a time: `size` bytes, the last of them at `until_us`."""

    begin_us: int
    until_us: int
    size: int


class Pressure:
    """Counts the undrained events of an installation. Belongs to one event loop.

    Args:
        clock: times of writes.
        size_max: bytes, from which on repositories that are behind take no writes.

    Attributes:
        size_max: see there.
        size: bytes of keys and values of the events that this process has written and that may not be in the bucket.
        others: the same of all other processes, as the record of the drain says.
    """

    def __init__(self, clock: Clock, size_max: int) -> None:
        self._clock = clock
        self.size_max = size_max
        self.size = 0
        self.others = 0
        self._slots: dict[str, list[_Slot]] = {}

    @property
    def total(self) -> int:
        """Bytes of the events of all processes that may not be in the bucket."""
        return self.size + self.others

    def add(self, root: str, size: int) -> None:
        """Counts events that are about to be written.

        Args:
            root: of the repository (`RepositoryKeys.root`), or the installation.
            size: bytes of their keys and values.
        """
        now_us = self._clock.now_us()
        self.size += size
        slots = self._slots.get(root)
        if slots is None and len(self._slots) >= _ROOTS_MAX:
            root = _OTHERS
            slots = self._slots.get(root)
        if slots is None:
            self._slots[root] = slots = []
        else:
            last = slots[-1]
            if now_us - last.begin_us < _SLOT_US:
                last.size += size
                last.until_us = max(last.until_us, now_us)
                return
        slots.append(_Slot(now_us, now_us, size))
        if len(slots) > _SLOTS_MAX:
            self._slots[root] = [
                _Slot(a.begin_us, max(a.until_us, b.until_us), a.size + b.size)
                for a, b in zip(slots[::2], slots[1::2], strict=False)
            ] + slots[len(slots) // 2 * 2 :]

    def learn(self, record: DrainRecord, holder: str) -> None:
        """Forgets what is drained, and takes over the numbers of the others.

        Args:
            record: the newest one.
            holder: this process in it.
        """
        for root, slots in list(self._slots.items()):
            until_us = _least(record) if root == _OTHERS else record.of(root)
            if left := [each for each in slots if each.until_us + _MARGIN_US > until_us]:
                self._slots[root] = left
            else:
                del self._slots[root]
        self.size = sum(each.size for slots in self._slots.values() for each in slots)
        self.others = sum(each.size for each in record.undrained if each.holder != holder)

    def told(self, record: DrainRecord, holder: str) -> DrainRecord:
        """Returns the record with the number of this process, and without those that are drained by now."""
        now_us, until_us = self._clock.now_us(), _least(record)
        step = max(1, self.size_max // _STEPS)
        size = self.size // step * step
        others = [
            each
            for each in record.undrained
            if each.holder != holder and each.time_us + _MARGIN_US > until_us
        ]
        own = [each for each in record.undrained if each.holder == holder and each.size == size]
        if size and not own:
            own = [Undrained(holder, size, now_us)]
        found = sorted([*others, *own[: bool(size)]], key=lambda each: (each.time_us, each.holder))
        if len(found) > _WRITERS_MAX:
            old, found = found[: 1 - _WRITERS_MAX], found[1 - _WRITERS_MAX :]
            found = [Undrained(_OTHERS, sum(each.size for each in old), old[-1].time_us), *found]
        return replace(record, undrained=tuple(found))


def _least(record: DrainRecord) -> int:
    """Until when all repositories are drained."""
    return min((record.drained_until_us, *record.behind.values()))

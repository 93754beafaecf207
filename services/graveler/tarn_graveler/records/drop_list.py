"""The list of partitions to drop, ordered by time: one partition per hour, which is dropped whole.

No row is ever deleted. Deleting the head of the list row by row would make every scan on Cassandra read
the Cassandra tombstones of all earlier rows (docs/design/kv.md). Instead one row, the checkpoint, is
shared by all replicas and says up to which time the list is done; scans begin there. The rows between it and
now are read again by each pass.

Nothing may be registered behind the checkpoint, where no pass looks. So the checkpoint stays behind the clock by three
minutes, and a row counts only if it was durable within two minutes after its time. Whoever moves the checkpoint
past the row then began his pass after that, by any clock of the installation, and has read the row. A process may pause
at any step, for any time: then its row is too late, and it adds the row again, with a new time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Iterable, Sequence
from dataclasses import replace

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.drop_records import Drop, decode_drop, encode_drop
from tarn.kv.keys import InstallationKeys
from tarn.kv.paging import pages_of
from tarn.kv.port import Group, Kv, PredicateFailedError, Versioned

__all__ = ["DropList"]

_HOUR_US = 3_600_000_000
_BEHIND_US = 180_000_000
"""How far the checkpoint stays behind the clock: more than `_LATE_US` and the clock skew."""
_LATE_US = 120_000_000
"""Age of a row that is too old when it is durable: the checkpoint may be past it."""
_TRIES = 3
"""How often one call adds a drop that was late."""
_STEP_US = 60_000_000
"""Smallest step of the checkpoint: every replica may move it, and each move is a compare-and-set."""
_FIRST_LOOK_US = 24 * _HOUR_US
"""How far back scans begin if there is no checkpoint yet, or a wrong one."""
_PAGE = 256


class DropList:
    """The registered drops of one installation. Several replicas may add to it and process it concurrently."""

    def __init__(self, kv: Kv, keys: InstallationKeys, clock: Clock) -> None:
        self._kv = kv
        self._keys = keys
        self._clock = clock

    async def add(self, drops: Sequence[Drop]) -> list[TarnError | None]:
        """Adds drops to the list; adding one again changes nothing.

        A drop whose time is over for minutes is added with the present time.

        Returns:
            The outcome of each drop, as `Kv.set_many`; UNAVAILABLE: it is not on the list, because this process paused
            during each attempt.
        """
        drops = list(drops)
        outcomes: list[TarnError | None] = [None] * len(drops)
        todo = list(range(len(drops)))
        for _ in range(_TRIES):
            for index in self._late(drops, todo):
                drops[index] = replace(drops[index], drop_time_us=self._clock.now_us())
            answers = await self._write([drops[index] for index in todo])
            for index, outcome in zip(todo, answers, strict=True):
                outcomes[index] = outcome
            # After the rows are durable. A failed one is not on the list anyway.
            todo = self._late(drops, [index for index in todo if outcomes[index] is None])
            if not todo:
                return outcomes
        for index in todo:
            text = (
                f"{drops[index].partition.name} was put on the drop list {_TRIES} times, each time minutes too late: "
                "this process or its store is stopped again and again; try again"
            )
            outcomes[index] = TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
        return outcomes

    def _late(self, drops: Sequence[Drop], indexes: Sequence[int]) -> list[int]:
        """Returns those of the indexes whose drops no pass may see any more, if they are durable only now."""
        since_us = self._clock.now_us() - _LATE_US
        return [index for index in indexes if drops[index].drop_time_us < since_us]

    async def _write(self, drops: Sequence[Drop]) -> list[TarnError | None]:
        outcomes: list[TarnError | None] = [None] * len(drops)
        hours: dict[int, list[int]] = {}
        for index, drop in enumerate(drops):
            hours.setdefault(drop.drop_time_us // _HOUR_US, []).append(index)
        for hour, indexes in hours.items():
            groups = [self._group(drops[index]) for index in indexes]
            answers = await self._kv.set_many(self._keys.drops(hour), groups)
            for index, outcome in zip(indexes, answers, strict=True):
                outcomes[index] = outcome
        return outcomes

    async def begin(self) -> DropListPass:
        """Starts a pass over the drops that are due now."""
        (found,) = await self._kv.get_many(self._keys.cleanup, [self._keys.DONE_BEFORE])
        return DropListPass(self._kv, self._keys, self._clock.now_us(), found)

    def _group(self, drop: Drop) -> Group:
        key = self._keys.drop(drop.drop_time_us, drop.partition.name)
        return Group(key, ((key, encode_drop(drop)),))


class DropListPass:
    """One replica's view of the list at one time.

    Attributes:
        done_before_us: all drops with an earlier time are done; microseconds since the epoch.
    """

    def __init__(
        self, kv: Kv, keys: InstallationKeys, now_us: int, found: Versioned | None
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._now_us = now_us
        self._found = found
        done_us = int(found.value) if found else now_us
        # A time in the future was written by a wrong clock; a correct one looks back, and sets it back.
        self.done_before_us = done_us if done_us < now_us else now_us - _FIRST_LOOK_US

    async def due(self, done: Container[bytes] = ()) -> AsyncIterator[tuple[bytes, Drop]]:
        """Yields key and drop of each drop that is due and whose key is not in `done`.

        Each pass reads minutes of rows again; rows that are done are not even decoded.
        """
        end = self._keys.drop(self._now_us + 1, "")
        for hour in range(self.done_before_us // _HOUR_US, self._now_us // _HOUR_US + 1):
            start = self._keys.drop(self.done_before_us, "")
            async for page in pages_of(self._kv, self._keys.drops(hour), start, end, _PAGE):
                for key, value in page:
                    if key not in done:
                        yield key, decode_drop(value)

    async def finish(self) -> None:
        """Records that everything due is done: drops the partitions of past hours, and moves the checkpoint.

        Raises:
            TarnError: UNAVAILABLE, UNKNOWN_OUTCOME: the next pass repeats it.
        """
        until_us = self._now_us - _BEHIND_US
        if until_us - self.done_before_us < _STEP_US:
            return
        for hour in self._hours_over(until_us):
            await self._kv.drop_partition(self._keys.drops(hour))
        predicate = self._found.predicate if self._found else None
        try:
            await self._kv.set_if(
                self._keys.cleanup, self._keys.DONE_BEFORE, b"%d" % until_us, predicate
            )
        except PredicateFailedError:
            return  # another replica has done the same

    def _hours_over(self, until_us: int) -> Iterable[int]:
        return range(self.done_before_us // _HOUR_US, until_us // _HOUR_US)

"""Rules by which a client of the simulated Cassandra chooses the timestamps of plain rows.

Production uses `ReadFirst` (`tarn.kv.cassandra.rows.timestamps`). The others would be cheaper;
docs/design/timestamps.md says which of them keep the promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from tarn.core.errors import TarnError
from tarn.kv.port import OutcomeUnknownError

__all__ = [
    "BesideWrite",
    "Cell",
    "CommitWait",
    "Coordinator",
    "OwnClock",
    "OwnRowsRecent",
    "ProcessMaximum",
    "ReadFirst",
    "StampRule",
]

Cell = tuple[int, bytes, bool]
"""Write time, value, and whether it is live (not deleted); the greatest cell wins."""

CassandraPartition = tuple[str, int]

_APART_US = 1_000_000
"""Greatest difference between two clocks of a simulated run: twice the greatest skew of any plan."""


class Coordinator(Protocol):
    """The operations that a rule needs on a bucket."""

    def now_us(self) -> int:
        """Returns the client's wall clock in microseconds."""
        ...

    async def read(
        self, place: CassandraPartition, wanted: Callable[[bytes], bool]
    ) -> dict[bytes, Cell]:
        """Returns the newest cells of a quorum."""
        ...

    async def send(self, place: CassandraPartition, cells: Mapping[bytes, Cell]) -> None:
        """Writes to all nodes; returns when a quorum has answered."""
        ...


class StampRule:
    """Writes rows of one bucket; returns when they may be acknowledged. Each process has its own.

    `write` raises the errors of `read` and `send`.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """Writes rows."""
        raise NotImplementedError

    def saw(self, cells: Mapping[bytes, Cell]) -> None:
        """Tells the rule which cells the process has read for other requests."""

    def _cells(
        self, values: Mapping[bytes, bytes], seen: Mapping[bytes, Cell], *, live: bool
    ) -> dict[bytes, Cell]:
        """Returns each row as a cell with the timestamp `max(now, seen + 1)`; the rows of a group have the same."""
        seen_us = max((seen[key][0] for key in values if key in seen), default=-1)
        time_us = max(self._coordinator.now_us(), seen_us + 1)
        return {key: (time_us, value, live) for key, value in values.items()}


class ReadFirst(StampRule):
    """Reads the timestamps of the rows at quorum before it writes them."""

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """Costs one round trip in addition to the write."""
        seen = await self._coordinator.read(place, values.__contains__)
        await self._coordinator.send(place, self._cells(values, seen, live=live))


class OwnClock(StampRule):
    """Uses the writer's clock only."""

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """Writes without a read."""
        await self._coordinator.send(place, self._cells(values, {}, live=live))


class ProcessMaximum(StampRule):
    """A hybrid clock without a read: exceeds all timestamps that this process has written or seen."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(coordinator)
        self._last_us = 0

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """Writes without a read."""
        self._last_us = max(self._coordinator.now_us(), self._last_us + 1)
        cells = {key: (self._last_us, value, live) for key, value in values.items()}
        await self._coordinator.send(place, cells)

    def saw(self, cells: Mapping[bytes, Cell]) -> None:
        """Later timestamps exceed those of these cells."""
        self._last_us = max([self._last_us, *(cell[0] for cell in cells.values())])


class OwnRowsRecent(StampRule):
    """Skips the read for rows that this process wrote recently, within the difference of two clocks."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(coordinator)
        self._written: dict[tuple[CassandraPartition, bytes], Cell] = {}

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """Reads only some of the rows."""
        own = {key: self._written[place, key] for key in values if (place, key) in self._written}
        young_us = self._coordinator.now_us() - _APART_US
        seen = {key: cell for key, cell in own.items() if cell[0] >= young_us}
        if len(seen) < len(values):
            seen = await self._coordinator.read(place, values.__contains__)
        cells = self._cells(values, seen, live=live)
        await self._coordinator.send(place, cells)
        self._written |= {(place, key): cell for key, cell in cells.items()}


class CommitWait(StampRule):
    """Uses the writer's clock; acknowledges when every other clock has passed the timestamp."""

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """Writes without a read, and waits for the greatest difference of two clocks."""
        await self._coordinator.send(place, self._cells(values, {}, live=live))
        await asyncio.sleep(_APART_US / 1e6)


class BesideWrite(StampRule):
    """Reads at the same time as it writes; writes a row again if the existing one was not older."""

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """Costs as many requests as `ReadFirst`, and one round trip less if no existing row was newer."""
        cells = self._cells(values, {}, live=live)
        async with asyncio.TaskGroup() as both:
            reading = both.create_task(self._read(place, values))
            writing = both.create_task(self._send(place, cells))
        error, seen = writing.result(), reading.result()
        if error is not None:
            raise error
        if isinstance(seen, TarnError):
            raise OutcomeUnknownError(f"written, and the earlier row is not known: {seen}")
        # Of equal times the greater value wins, so comparing times is not enough.
        if any(key in seen and seen[key] > cell for key, cell in cells.items()):
            await self._coordinator.send(place, self._cells(values, seen, live=live))

    async def _read(
        self, place: CassandraPartition, values: Mapping[bytes, bytes]
    ) -> dict[bytes, Cell] | TarnError:
        try:
            return await self._coordinator.read(place, values.__contains__)
        except TarnError as error:
            return error

    async def _send(
        self, place: CassandraPartition, cells: Mapping[bytes, Cell]
    ) -> TarnError | None:
        try:
            await self._coordinator.send(place, cells)
        except TarnError as error:
            return error
        return None

"""Rules by which a client of the simulated Cassandra gives plain rows their timestamps.

Production's is `ReadFirst` (`tarn.kv.cassandra.rows.timestamps`). The others are what could be cheaper; which
of them keep the promises is told in docs/design/timestamps.md.
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
"""Write time, value, whether it is live: the greatest one wins."""

CassandraPartition = tuple[str, int]

_APART_US = 1_000_000
"""No two clocks of a simulated run are further apart: twice the greatest skew of any plan."""


class Coordinator(Protocol):
    """What a client can do with a bucket."""

    def now_us(self) -> int:
        """Its wall clock."""
        ...

    async def read(
        self, place: CassandraPartition, wanted: Callable[[bytes], bool]
    ) -> dict[bytes, Cell]:
        """The newest cells that a quorum has."""
        ...

    async def send(self, place: CassandraPartition, cells: Mapping[bytes, Cell]) -> None:
        """Writes to all nodes; returns when a quorum has answered."""
        ...


class StampRule:
    """Writes rows of one bucket; returns when they may be acknowledged. One for each process.

    What `read` and `send` raise, `write` raises.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """Writes rows."""
        raise NotImplementedError

    def saw(self, cells: Mapping[bytes, Cell]) -> None:
        """The process has read these on other business."""

    def _cells(
        self, values: Mapping[bytes, bytes], seen: Mapping[bytes, Cell], *, live: bool
    ) -> dict[bytes, Cell]:
        """Each row at `max(now, seen + 1)`."""
        now_us = self._coordinator.now_us()
        return {
            key: (max(now_us, seen[key][0] + 1 if key in seen else 0), value, live)
            for key, value in values.items()
        }


class ReadFirst(StampRule):
    """The timestamps of the rows are read at quorum before they are written."""

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """One more round trip than the write."""
        seen = await self._coordinator.read(place, values.__contains__)
        await self._coordinator.send(place, self._cells(values, seen, live=live))


class OwnClock(StampRule):
    """The writer's clock and nothing else."""

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """No read."""
        await self._coordinator.send(place, self._cells(values, {}, live=live))


class ProcessMaximum(StampRule):
    """A hybrid clock without the read: above all timestamps that this process has written or met."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(coordinator)
        self._last_us = 0

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """No read."""
        self._last_us = max(self._coordinator.now_us(), self._last_us + 1)
        cells = {key: (self._last_us, value, live) for key, value in values.items()}
        await self._coordinator.send(place, cells)

    def saw(self, cells: Mapping[bytes, Cell]) -> None:
        """Goes above them from now on."""
        self._last_us = max([self._last_us, *(cell[0] for cell in cells.values())])


class OwnRowsRecent(StampRule):
    """The read is left out for rows that this process itself wrote while clocks may be apart."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(coordinator)
        self._written: dict[tuple[CassandraPartition, bytes], Cell] = {}

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """A read now and then."""
        own = {key: self._written[place, key] for key in values if (place, key) in self._written}
        young_us = self._coordinator.now_us() - _APART_US
        seen = {key: cell for key, cell in own.items() if cell[0] >= young_us}
        if len(seen) < len(values):
            seen = await self._coordinator.read(place, values.__contains__)
        cells = self._cells(values, seen, live=live)
        await self._coordinator.send(place, cells)
        self._written |= {(place, key): cell for key, cell in cells.items()}


class CommitWait(StampRule):
    """The writer's clock; acknowledged when every other clock has passed it."""

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """No read, and a wait of as long as clocks may be apart."""
        await self._coordinator.send(place, self._cells(values, {}, live=live))
        await asyncio.sleep(_APART_US / 1e6)


class BesideWrite(StampRule):
    """The read goes beside the write; a row that was not below ours is written again above it."""

    async def write(
        self, place: CassandraPartition, values: Mapping[bytes, bytes], *, live: bool
    ) -> None:
        """As many requests as `ReadFirst`, one round trip less when nothing was above."""
        cells = self._cells(values, {}, live=live)
        async with asyncio.TaskGroup() as both:
            reading = both.create_task(self._read(place, values))
            writing = both.create_task(self._send(place, cells))
        error, seen = writing.result(), reading.result()
        if error is not None:
            raise error
        if isinstance(seen, TarnError):
            raise OutcomeUnknownError(f"written, and what was there is not known: {seen}")
        # Of equal times the greater value wins, so the times alone do not tell.
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

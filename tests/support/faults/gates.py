"""A KV whose operations a test can hold, fail and lose one by one.

`GatedKv` wraps a real driver. A *gate* holds the next matching operation, either before it is sent or
after it was applied but before its answer, so that a test can produce an exact interleaving of the
protocol. A *loss* turns an answer into `OutcomeUnknownError`, with or without applying the write. A
compare-and-set that was applied then stays undecided, as on Cassandra: reads miss it until a read settles
it, or until the next compare-and-set of its row. A *late* compare-and-set also has an unknown outcome,
and waits in a queue, where no read sees it; it is applied directly before the next one of its key, or
when the test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from tarn.core.errors import TarnError
from tarn.kv.port import (
    Companion,
    CompanionName,
    Group,
    Kv,
    OutcomeUnknownError,
    Partition,
    Predicate,
    PredicateFailedError,
    ReadsTogether,
    Row,
    RowFilter,
    RowName,
    SiftedPage,
    Versioned,
)

__all__ = ["HeldOperation", "GatedKv", "Late"]

R = TypeVar("R")

Fits = Callable[[str, Sequence[bytes]], bool]


@dataclass(eq=False)
class HeldOperation:
    """One held operation.

    Attributes:
        skipped: calls that pass before the one that is held.
        calls: operations and partitions that arrived at the store, before and after.
        reached: set when the operation has arrived at the gate.
    """

    fits: Fits
    after: bool
    skipped: int = 0
    calls: Sequence[tuple[str, str]] = ()
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._made = len(self.calls)

    def open(self) -> None:
        """Lets the operation continue."""
        self.opened.set()

    def passed(self) -> list[str]:
        """Returns the calls since the gate was made, for a test whose gate holds none of them."""
        return [f"{operation} of {partition}" for operation, partition in self.calls[self._made :]]


@dataclass(eq=False)
class Late:
    """A compare-and-set that waits in a queue after it was sent.

    Attributes:
        landed: None while it waits; then whether it was applied.
    """

    key: bytes
    request: Callable[[], Awaitable[object]] | None = None
    landed: bool | None = None

    async def land(self) -> None:
        """Takes it out of the queue; it is applied if its predicate still holds."""
        if self.request is None or self.landed is not None:
            return
        request, self.request = self.request, None
        try:
            await request()
        except PredicateFailedError:
            self.landed = False
        else:
            self.landed = True


class GatedKv:
    """A `Kv` with gates, losses and late writes; see the module."""

    def __init__(self, kv: Kv) -> None:
        self._kv = kv
        self._late: list[Late] = []
        self._gates: list[HeldOperation] = []
        self._losses: list[tuple[Fits, bool]] = []
        # The values that non-settling reads return for rows with an undecided compare-and-set.
        self._undecided: dict[tuple[Partition, bytes], Versioned | None] = {}
        self.calls: list[tuple[str, str]] = []
        if isinstance(kv, ReadsTogether):
            self._read_together = kv.get_together
            self.get_together = self._get_together

    def _gate_of(self, operation: str, keys: Sequence[bytes]) -> HeldOperation | None:
        """Returns the gate that holds a call. Those that wait for a later one count it, too."""
        found = None
        for gate in self._gates:
            if not gate.fits(operation, keys):
                continue
            if gate.skipped:
                gate.skipped -= 1
            elif found is None:
                found = gate
        return found

    def hold(
        self, operation: str, key: bytes | None = None, *, after: bool = False, number: int = 1
    ) -> HeldOperation:
        """Holds the `number`th call of an operation from now on, on any key or on `key`."""
        gate = HeldOperation(_fits(operation, key), after, number - 1, self.calls)
        self._gates.append(gate)
        return gate

    def lose(
        self, operation: str, key: bytes | None = None, *, applied: bool, times: int = 1
    ) -> None:
        """Loses the answers of the next calls of an operation, with or without applying them."""
        self._losses.extend([(_fits(operation, key), applied)] * times)

    def delay(self, key: bytes) -> Late:
        """Makes the next compare-and-set of a key late."""
        late = Late(key)
        self._late.append(late)
        return late

    async def _compare(self, key: bytes, request: Callable[[], Awaitable[R]]) -> R:
        late = next((each for each in self._late if each.key == key), None)
        if late is not None and late.request is None and late.landed is None:
            late.request = request
            raise OutcomeUnknownError("the request waits in a queue")
        if late is not None:
            self._late.remove(late)
            await late.land()
        return await request()

    async def _run(
        self,
        operation: str,
        partition: Partition,
        keys: Sequence[bytes],
        act: Callable[[], Awaitable[R]],
    ) -> R:
        self.calls.append((operation, partition.name))
        gate = self._gate_of(operation, keys)
        if gate is not None:
            self._gates.remove(gate)
            if not gate.after:
                gate.reached.set()
                await gate.opened.wait()
        loss = next((item for item in self._losses if item[0](operation, keys)), None)
        if loss is not None:
            self._losses.remove(loss)
            if loss[1]:
                await self._apply_undecided(operation, partition, keys, act)
            raise OutcomeUnknownError(f"the answer to {operation} was lost")
        answer = await act()
        if gate is not None and gate.after:
            gate.reached.set()
            await gate.opened.wait()
        return answer

    async def _apply_undecided(
        self,
        operation: str,
        partition: Partition,
        keys: Sequence[bytes],
        act: Callable[[], Awaitable[object]],
    ) -> None:
        if operation not in {"set_if", "delete_if"}:
            await act()
            return
        before = await self._kv.get_many(partition, keys)
        await act()
        for key, found in zip(keys, before, strict=True):
            self._undecided[partition, key] = found

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`."""

        async def read() -> list[Versioned | None]:
            if settle:
                self._decide(partition, keys)
            rows = await self._kv.get_many(partition, keys, settle=settle)
            return [
                self._undecided.get((partition, key), row)
                for key, row in zip(keys, rows, strict=True)
            ]

        return await self._run("get_many", partition, keys, read)

    async def _get_together(self, rows: Sequence[RowName]) -> list[Versioned | None]:
        """See `ReadsTogether.get_together`; held and lost as a `get_many` of any of its rows."""

        async def read() -> list[Versioned | None]:
            found = await self._read_together(rows)
            return [self._undecided.get(row, each) for row, each in zip(rows, found, strict=True)]

        return await self._run("get_many", rows[0][0], [key for _, key in rows], read)

    def _decide(self, partition: Partition, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._undecided.pop((partition, key), None)

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`."""
        keys = [key for group in groups for key, _ in group.rows]
        return await self._run(
            "set_many", partition, keys, lambda: self._kv.set_many(partition, groups)
        )

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        """See `Kv.set_if`."""

        def request() -> Awaitable[Predicate]:
            self._decide(partition, [key])
            return self._kv.set_if(partition, key, value, predicate, companions=companions)

        return await self._run("set_if", partition, [key], lambda: self._compare(key, request))

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`."""
        await self._run(
            "delete_many", partition, keys, lambda: self._kv.delete_many(partition, keys)
        )

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        """See `Kv.delete_if`."""

        def request() -> Awaitable[None]:
            self._decide(partition, [key])
            return self._kv.delete_if(partition, key, predicate, companions=companions)

        await self._run("delete_if", partition, [key], lambda: self._compare(key, request))

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        return await self._run(
            "scan", partition, [], lambda: self._kv.scan(partition, start, end, limit)
        )

    async def scan_without(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """See `Kv.scan_without`."""
        return await self._run(
            "scan_without",
            partition,
            [],
            lambda: self._kv.scan_without(partition, start, end, limit, unwanted),
        )

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`; held as a whole before its first batch."""

        async def nothing() -> None:
            return

        await self._run("scan_arrow", partition, [], nothing)
        async for batch in self._kv.scan_arrow(partition, start, end):
            yield batch

    async def scan_companions(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Companion]:
        """See `Kv.scan_companions`."""
        return await self._run(
            "scan_companions",
            partition,
            [],
            lambda: self._kv.scan_companions(partition, start, end, limit),
        )

    async def delete_companions(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """See `Kv.delete_companions`."""
        await self._run(
            "delete_companions",
            partition,
            [key for _, key in names],
            lambda: self._kv.delete_companions(partition, names),
        )

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
        await self._run("drop_partition", partition, [], lambda: self._kv.drop_partition(partition))

    async def close(self) -> None:
        """See `Kv.close`."""
        await self._kv.close()


def _fits(operation: str, key: bytes | None) -> Fits:
    def fits(called: str, keys: Sequence[bytes]) -> bool:
        return called == operation and (key is None or key in keys)

    return fits

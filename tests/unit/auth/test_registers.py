"""Compare-and-sets of auth whose answers are lost (docs/design/protocol.md, "Late compare-and-sets")."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from tarn.kv.keys import AuthKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import (
    Kv,
    OutcomeUnknownError,
    Partition,
    Predicate,
    PredicateFailedError,
    Row,
    Versioned,
)
from tarn_auth.registers import Registers

KEY = b"user/ada"


class LateKv:
    """A store whose compare-and-sets wait at a coordinator, beyond the read that settles them.

    Attributes:
        lost: how many answers are still to be lost.
        late: what waits; the next compare-and-set finds it made, or `land` makes it.
    """

    def __init__(self) -> None:
        self.rows = MemKv()
        self.lost = 0
        self.late: list[Callable[[], Coroutine[Any, Any, object]]] = []

    async def get_many(
        self, partition: Partition, keys: list[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        return await self.rows.get_many(partition, keys, settle=settle)

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        made: Predicate = await self._change(
            lambda: self.rows.set_if(partition, key, value, predicate, companions=companions)
        )
        return made

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        await self._change(
            lambda: self.rows.delete_if(partition, key, predicate, companions=companions)
        )

    async def _change(self, change: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        if self.lost:
            self.lost -= 1
            self.late.append(change)
            raise OutcomeUnknownError("it waits at its coordinator")
        return await change()

    async def land(self) -> None:
        for change in self.late:
            try:
                await change()
            except PredicateFailedError:
                continue


async def value_of(registers: Registers) -> bytes | None:
    found = await registers.get(KEY)
    return None if found is None else found.value


def registers_over(kv: LateKv) -> Registers:
    return Registers(cast("Kv", kv), AuthKeys("test").partition)


async def test_a_row_that_is_late_is_written_once() -> None:
    kv = LateKv()
    registers = registers_over(kv)
    kv.lost = 1
    assert await registers.insert(KEY, b"1") == b"1"
    row = registers.register(KEY, lambda value: value, lambda value: value, "a row")
    await row.change(lambda _: b"2")
    await kv.land()
    assert await value_of(registers) == b"2"


async def test_a_row_that_may_still_come_is_no_refusal() -> None:
    kv = LateKv()
    registers = registers_over(kv)
    kv.lost = 1000
    with pytest.raises(OutcomeUnknownError):
        await registers.insert(KEY, b"1")
    await kv.land()
    assert await value_of(registers) == b"1"


async def test_a_late_row_loses_to_another_writer() -> None:
    kv = LateKv()
    registers = registers_over(kv)
    kv.lost = 1
    await kv.rows.set_if(AuthKeys("test").partition, KEY, b"9", None)
    assert await registers.insert(KEY, b"1") == b"9"
    await kv.land()
    assert await value_of(registers) == b"9"

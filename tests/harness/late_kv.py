"""A KV whose compare-and-sets are refused, lost, and applied long after a read that did not see them.

Each is applied at most once, as `Kv.set_if` promises. `LateKv` shows every state of a register that a
reader could see, one after the other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from tests.support.faults.gates import GatedKv

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import (
    Kv,
    OutcomeUnknownError,
    Partition,
    Predicate,
    PredicateFailedError,
    Row,
    Versioned,
)

__all__ = ["LateKv"]


class LateKv(GatedKv):
    """Chooses a fate for each operation by a seed.

    Attributes:
        observe: called after every change of a register; while it is None, no faults happen.
        bad: probability that an operation fails, from 0 to 1.
    """

    def __init__(self, kv: Kv, rng: random.Random) -> None:
        super().__init__(kv)
        self._rng = rng
        self._delayed: list[tuple[int, Callable[[], Awaitable[object]]]] = []
        self._ticks = 0
        self.observe: Callable[[], Awaitable[None]] | None = None
        self.bad = 0.0

    async def _change(self, act: Callable[[], Awaitable[object]]) -> object:
        done = await act()
        if self.observe is not None:
            await self.observe()
        return done

    async def _turn(self) -> None:
        """Lets other tasks run; late requests may be applied now."""
        for _ in range(self._rng.randrange(3)):
            await asyncio.sleep(0)
        self._ticks += 1
        due = [act for at, act in self._delayed if at <= self._ticks]
        self._delayed = [(at, act) for at, act in self._delayed if at > self._ticks]
        for act in due:
            with suppress(PredicateFailedError):
                await self._change(act)

    async def settle_down(self) -> None:
        """Applies all late requests and ends the faults."""
        self.bad = 0.0
        self._ticks += 1_000_000
        await self._turn()

    async def _badly(self, act: Callable[[], Awaitable[object]]) -> object:
        await self._turn()
        if self._rng.random() >= self.bad:
            return await self._change(act)
        match self._rng.randrange(4):
            case 0:
                raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "refused")
            case 1:
                with suppress(PredicateFailedError):
                    await self._change(act)
            case 2:
                self._delayed.append((self._ticks + self._rng.randrange(60), act))
            case _:
                pass
        raise OutcomeUnknownError("no answer")

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        await self._turn()
        if self._rng.random() < self.bad / 4:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "refused")
        return await self._kv.get_many(partition, keys, settle=settle)

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        set_it = self._kv.set_if
        done = await self._badly(
            lambda: set_it(partition, key, value, predicate, companions=companions)
        )
        assert isinstance(done, bytes)
        return Predicate(done)

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        delete = self._kv.delete_if
        await self._badly(lambda: delete(partition, key, predicate, companions=companions))

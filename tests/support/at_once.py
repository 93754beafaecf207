"""Stores in memory that read at once, and tell of a row beside a write, as the embedded one does."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.faults.gates import GatedKv

from tarn.kv.mem import MemKv
from tarn.kv.port import ROWS_AT_ONCE_MAX, Group, Partition, Predicate, RowName, Versioned

__all__ = ["AtOnceKv", "BesideKv"]


class BesideKv(GatedKv):
    """`SetsBeside`, with the rows of a store in memory. Such a write is held and lost as a `set_many`.

    Attributes:
        told: of each write that told of the row beside it, whether that was there.
    """

    def __init__(self, rows: MemKv) -> None:
        super().__init__(rows)
        self._rows = rows
        self.told: list[bool] = []

    async def set_beside(
        self, partition: Partition, group: Group, beside: RowName
    ) -> Predicate | None:
        async def act() -> Predicate | None:
            found = self._get(*beside)
            (error,) = await self._rows.set_many(partition, [group])  # does not wait
            if error is not None:
                raise error
            self.told.append(found is not None)
            return None if found is None else found.predicate

        return await self._run("set_many", partition, [key for key, _ in group.rows], act)

    def _get(self, partition: Partition, key: bytes) -> Versioned | None:
        try:
            self._rows.get_many(partition, [key]).send(None)
        except StopIteration as done:
            (found,) = done.value
            assert found is None or isinstance(found, Versioned)
            return found
        raise AssertionError("a store in memory does not wait")


class AtOnceKv(BesideKv):
    """As `BesideKv`, and `ReadsAtOnce`.

    Attributes:
        reads: the rows of each read, in order.
        failing: keys whose reads fail.
    """

    def __init__(self, rows: MemKv) -> None:
        super().__init__(rows)
        self.reads: list[list[RowName]] = []
        self.failing: dict[bytes, Exception] = {}

    def get_at_once(self, rows: Sequence[RowName]) -> list[Versioned | None]:
        assert len(rows) <= ROWS_AT_ONCE_MAX
        self.reads.append(list(rows))
        for _, key in rows:
            if (error := self.failing.get(key)) is not None:
                raise error
        return [self._get(*row) for row in rows]

    def get_at_once_beside(
        self, rows: Sequence[RowName], beside: RowName
    ) -> tuple[list[Versioned | None], Predicate | None]:
        *found, last = self.get_at_once((*rows, beside))
        return found, None if last is None else last.predicate

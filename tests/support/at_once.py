"""A store in memory that reads at once, as the embedded one does."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.faults.gates import GatedKv

from tarn.kv.mem import MemKv
from tarn.kv.port import ROWS_AT_ONCE_MAX, Partition, Predicate, RowName, Versioned

__all__ = ["AtOnceKv"]


class AtOnceKv(GatedKv):
    """`ReadsAtOnce`, with the rows of a store in memory.

    Attributes:
        reads: the rows of each read, in order.
        failing: keys whose reads fail.
    """

    def __init__(self, rows: MemKv) -> None:
        super().__init__(rows)
        self._rows = rows
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

    def _get(self, partition: Partition, key: bytes) -> Versioned | None:
        try:
            self._rows.get_many(partition, [key]).send(None)
        except StopIteration as done:
            (found,) = done.value
            assert found is None or isinstance(found, Versioned)
            return found
        raise AssertionError("a store in memory does not wait")

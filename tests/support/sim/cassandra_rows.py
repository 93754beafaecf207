"""The data of a simulated Cassandra: cells of plain rows on each node, and rows decided by Paxos."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.support.sim.stamps import Cell

from tarn.kv.port import Predicate, Versioned

__all__ = ["Change", "Gone", "Node", "Proposal", "Register"]


@dataclass(slots=True)
class Node:
    """The plain partitions on one node.

    Attributes:
        cells: of each bucket.
        keys: of the cells of each bucket, in byte order.
        dropped_us: by partition, until when all its cells are dropped.
    """

    cells: dict[tuple[str, int], dict[bytes, Cell]] = field(default_factory=dict)
    keys: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    dropped_us: dict[str, int] = field(default_factory=dict)
    is_down: bool = False
    hints: list[Callable[[], None]] = field(default_factory=list)

    def put(self, place: tuple[str, int], key: bytes, cell: Cell) -> None:
        """Stores a cell if it is newer than the existing one and than the drop of its partition."""
        if cell[0] <= self.dropped_us.get(place[0], -1):
            return
        row = self.cells.setdefault(place, {})
        if key not in row:
            insort(self.keys.setdefault(place, []), key)
            row[key] = cell
        elif row[key] < cell:
            row[key] = cell

    def between(self, place: tuple[str, int], start: bytes, end: bytes | None) -> list[bytes]:
        """Returns the keys of a bucket with `start <= key < end`, in byte order."""
        keys = self.keys.get(place, [])
        last = len(keys) if end is None else bisect_left(keys, end)
        return keys[bisect_left(keys, start) : last]

    def drop(self, partition: str, time_us: int) -> None:
        """Hides every cell of a partition up to a time."""
        self.dropped_us[partition] = max(self.dropped_us.get(partition, -1), time_us)
        for place, row in self.cells.items():
            if place[0] == partition:
                for key in [key for key, cell in row.items() if cell[0] <= time_us]:
                    del row[key]
                self.keys[place] = sorted(row)


class Gone(Versioned):
    """A removal that other rows depend on (`Register.couple`)."""


class Register:
    """One row of a register partition.

    Attributes:
        decided: the value that Paxos has agreed on; None: no row.
        committed: the value that every quorum has: `decided`, or its predecessor.
        proposal: the undecided change, if there is one.
        is_beside: whether the row lies in the bucket of another row, its group's anchor, where only scans
            find it.
        order: of its last change among all changes that were decided; only companions have one.
    """

    __slots__ = ("_beside", "_committed", "_decided", "is_beside", "order", "proposal")

    def __init__(self) -> None:
        self._decided: Versioned | None = None
        self._committed: Versioned | None = None
        self._beside: list[
            tuple[Versioned, Sequence[tuple[Register, Versioned]], Callable[[], int]]
        ] = []
        self.order = 0
        self.proposal: Proposal | None = None
        self.is_beside = False

    def couple(
        self,
        after: Versioned,
        beside: Sequence[tuple[Register, Versioned]],
        ballot: Callable[[], int],
    ) -> None:
        """Adds the other rows of an atomic group, which are decided and committed with this value.

        Args:
            after: the value, or a `Gone` for a removal.
            beside: the other rows.
            ballot: returns a greater number each time.
        """
        self._beside.append((after, beside, ballot))

    @property
    def decided(self) -> Versioned | None:
        """See the class."""
        return None if isinstance(self._decided, Gone) else self._decided

    @decided.setter
    def decided(self, value: Versioned | None) -> None:
        self._decided = value
        for other, row, order in self._rows_beside(value):
            other.decided = row
            other.order = order

    @property
    def committed(self) -> Versioned | None:
        """See the class."""
        return None if isinstance(self._committed, Gone) else self._committed

    @committed.setter
    def committed(self, value: Versioned | None) -> None:
        if value is None and isinstance(self._decided, Gone):
            value = self._decided
        self._committed = value
        for other, row, _ in self._rows_beside(value):
            if other.decided is row:  # a later ballot may have removed it
                other.committed = row

    def _rows_beside(self, value: Versioned | None) -> Iterator[tuple[Register, Versioned, int]]:
        for after, beside, ballot in self._beside:
            if after is value:
                order = ballot()
                for other, row in beside:
                    yield other, row, order


@dataclass(slots=True, eq=False)
class Proposal:
    """A change that is not decided; None removes the row."""

    after: Versioned | None


@dataclass(frozen=True, slots=True)
class Change:
    """The change that a light-weight transaction requests.

    Attributes:
        predicate: the version that the row must have; None: there must be no row.
        after: the new value; None removes the row.
        is_conditional: whether `predicate` is checked.
    """

    key: bytes
    predicate: Predicate | None
    after: Versioned | None
    is_conditional: bool

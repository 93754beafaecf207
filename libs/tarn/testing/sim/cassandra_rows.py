"""What the nodes of a simulated Cassandra keep: cells of plain rows, and rows that Paxos decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tarn.kv.port import Predicate, Versioned
from tarn.testing.sim.stamps import Cell

__all__ = ["Change", "Node", "Proposal", "Register"]


@dataclass(slots=True)
class Node:
    """What one node has of the plain partitions."""

    cells: dict[tuple[str, int], dict[bytes, Cell]] = field(default_factory=dict)
    dropped_us: dict[str, int] = field(default_factory=dict)
    is_down: bool = False
    hints: list[Callable[[], None]] = field(default_factory=list)

    def put(self, place: tuple[str, int], key: bytes, cell: Cell) -> None:
        """Keeps a cell if it is newer than what is there, and than the drop of its partition."""
        if cell[0] <= self.dropped_us.get(place[0], -1):
            return
        row = self.cells.setdefault(place, {})
        if key not in row or row[key] < cell:
            row[key] = cell

    def drop(self, partition: str, time_us: int) -> None:
        """Hides every cell of a partition up to a time."""
        self.dropped_us[partition] = max(self.dropped_us.get(partition, -1), time_us)
        for place, row in self.cells.items():
            if place[0] == partition:
                for key in [key for key, cell in row.items() if cell[0] <= time_us]:
                    del row[key]


@dataclass(slots=True)
class Register:
    """One row of a register partition.

    Attributes:
        decided: what Paxos has agreed on; None is no row.
        committed: what every quorum has: `decided`, or what was before it.
        proposal: an undecided change; at most one.
        is_beside: it lies in the bucket of another row, its group's anchor, so that only scans find it.
    """

    decided: Versioned | None = None
    committed: Versioned | None = None
    proposal: Proposal | None = None
    is_beside: bool = False


@dataclass(slots=True, eq=False)
class Proposal:
    """A change that is not decided; None removes the row."""

    after: Versioned | None


@dataclass(frozen=True, slots=True)
class Change:
    """What a light-weight transaction shall do.

    Attributes:
        predicate: what must be there; None is no row.
        after: None removes the row.
        is_conditional: whether `predicate` counts.
    """

    key: bytes
    predicate: Predicate | None
    after: Versioned | None
    is_conditional: bool

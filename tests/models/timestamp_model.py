"""A model of the timestamps of plain rows on Cassandra (docs/design/timestamps.md).

One cell: the greatest timestamp wins; with equal ones a Cassandra tombstone wins, then the greater value. Writers run
one after another, each on a machine whose clock is off by up to `SKEW`, with less than that between two writes. After
the last write a read must return its value. All clock errors are tried.

    python -m tests.models.timestamp_model
"""

# ruff: noqa: T201 - it is a command

from __future__ import annotations

import enum
import sys
from itertools import product
from typing import NamedTuple

__all__ = ["HISTORIES", "Op", "Policy", "lost_write"]

SKEW = 3
"""Greatest error of a clock, in units of the time between two writes."""

_BEGIN = 100


class Op(enum.Enum):
    """The operation of a writer."""

    PUT = "put"
    DELETE = "delete"


class Policy(enum.Enum):
    """A rule for the timestamp of a write, and for the row that a delete writes."""

    CLOCK = "the writer's clock"
    COMPARED_FIRST = (
        "the first write is a compare-and-set, stamped by a coordinator whose clock is ahead"
    )
    ABOVE_SEEN_CASSANDRA_TOMBSTONES = (
        "max(now, seen + 1); a delete is a Cassandra tombstone, whose time no reader sees"
    )
    ABOVE_SEEN_TOMBSTONE_ROWS = "max(now, seen + 1); a delete is a row that holds a tombstone"


class Cell(NamedTuple):
    """A cell of a node; the greater one wins."""

    time: int
    is_tombstone: bool
    write: int


HISTORIES = tuple(
    history for length in (2, 3) for history in product(Op, repeat=length) if history[0] is Op.PUT
)
"""Returns sequences of two or three writes of one row, the first of which is a put."""


def lost_write(policy: Policy, history: tuple[Op, ...]) -> tuple[int, ...] | None:
    """Returns clock errors with which a read does not return the last write; None if there are none."""
    for errors in product(range(-SKEW, SKEW + 1), repeat=len(history)):
        if not _shows_last(policy, history, errors):
            return errors
    return None


def _shows_last(policy: Policy, history: tuple[Op, ...], errors: tuple[int, ...]) -> bool:
    cell: Cell | None = None
    for write, (op, error) in enumerate(zip(history, errors, strict=True)):
        now = _BEGIN + write + error
        if policy is Policy.COMPARED_FIRST and write == 0:
            now = _BEGIN + SKEW
        new = _written(policy, op, now, write, cell)
        cell = new if cell is None else max(cell, new)
    assert cell is not None
    last = len(history) - 1
    if history[last] is Op.DELETE:
        is_tombstone = not cell.is_tombstone and history[cell.write] is Op.DELETE
        return cell.is_tombstone or is_tombstone
    return not cell.is_tombstone and cell.write == last


def _written(policy: Policy, op: Op, now: int, write: int, cell: Cell | None) -> Cell:
    if policy in {Policy.CLOCK, Policy.COMPARED_FIRST}:
        return Cell(now, op is Op.DELETE, write)
    if policy is Policy.ABOVE_SEEN_TOMBSTONE_ROWS:
        return Cell(max(now, cell.time + 1 if cell else now), is_tombstone=False, write=write)
    seen = None if cell is None or cell.is_tombstone else cell.time
    time = now if seen is None else max(now, seen + 1)
    return Cell(time, op is Op.DELETE, write)


def main() -> int:
    """Prints for each policy and history whether a write is lost."""
    for policy in Policy:
        print(policy.value)
        for history in HISTORIES:
            errors = lost_write(policy, history)
            ops = ", ".join(op.value for op in history)
            print(
                f"    {ops:22} {'holds' if errors is None else f'lost with clock errors {errors}'}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

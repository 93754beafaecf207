"""Judges lines that a page or a difference shows or leaves out, and that are no read of one key (I1).

- A path that the uncommitted differences leave out had the value of the head. If every head of that time has one value
  at the path, that is a read of it; otherwise one of the values must have been there.
- A common prefix stands for a path: one of those below it was there. A prefix that is left out is a read of each path
  below it, which the recorder adds.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.check.history import ABSENT, Op
from tests.support.check.past import Past

__all__ = ["unchanged_value", "wrong_lines"]


def unchanged_value(past: Past, op: Op) -> int | None:
    """Returns the value that a path which the differences left out must have had; None if it may have had several."""
    values = _unchanged(past, op)
    return values.pop() if values is not None and len(values) == 1 else None


def _unchanged(past: Past, op: Op) -> set[int] | None:
    assert op.key is not None, "a line has a path"
    heads = past.heads(op)
    if heads is None:
        return None
    return {past.history.commits[each].contents.get(op.key, ABSENT) for each in heads}


def wrong_lines(past: Past) -> Iterator[tuple[Op, str]]:
    """Yields the reads whose lines are wrong, and why."""
    for op in past.history.ops:
        if op.below and not _is_any_there(past, op):
            yield op, f"shows a common prefix of {op.below[0]!r}, and no path below it was there"
        if op.is_unchanged:
            assert op.key is not None, "a line has a path"
            values = _unchanged(past, op)
            writes = past.writes(op.branch, op.key).between(op.inv, op.end)
            if values and all(write.value not in values for write in writes):
                yield op, "leaves out a path whose value was never that of the head"


def _is_any_there(past: Past, op: Op) -> bool:
    return any(
        write.value > ABSENT
        for key in op.below
        for write in past.writes(op.branch, key).between(op.inv, op.end)
    )

"""The writes of one key: the values that it had, or may have had, and when."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.support.check.history import ABSENT, GONE, MERGES, NEVER, History, Op, OpKind, Outcome
from tests.support.check.versions import Versions

__all__ = ["Write", "Writes", "writes_of"]


@dataclass(frozen=True, slots=True)
class Write:
    """A value that a key had, or may have had.

    Attributes:
        replaces: as in `Effect`.
    """

    value: int
    inv: float
    ret: float
    op: Op
    replaces: int | None = None


class Writes:
    """The writes of one key, indexed for queries."""

    def __init__(self, writes: Sequence[Write]) -> None:
        acked = sorted((w for w in writes if w.ret != NEVER), key=lambda w: w.ret)
        self._rets = [w.ret for w in acked]
        self._newest: list[Write] = []
        for write in acked:
            last = self._newest[-1] if self._newest else write
            self._newest.append(write if write.inv >= last.inv else last)
        self._by_value: dict[int, list[Write]] = defaultdict(list)
        for write in writes:
            self._by_value[write.value].append(write)

    def newest_before(self, time: float) -> Write | None:
        """Of the acknowledged writes that ended before `time`, returns the one that began last."""
        count = bisect_left(self._rets, time)
        return self._newest[count - 1] if count else None

    def candidate(self, value: int, before: float) -> Write | None:
        """Of the writes of a value that began before a time, returns the one that ended last."""
        fitting = [w for w in self._by_value.get(value, ()) if w.inv < before]
        return max(fitting, key=lambda w: w.ret, default=None)

    def __contains__(self, value: int) -> bool:
        return value in self._by_value

    def between(self, begin: float, end: float) -> Iterator[Write]:
        """Yields the writes that may have been the newest one at some moment between two times."""
        newest = self.newest_before(begin)
        since = newest.inv if newest is not None else -NEVER
        for writes in self._by_value.values():
            yield from (each for each in writes if each.inv < end and each.ret >= since)


def writes_of(history: History, versions: Versions, key: str, ops: Iterable[Op]) -> Iterator[Write]:
    """Yields the writes of a key of one branch, whose operations are given."""
    for op in ops:
        if op.outcome is Outcome.FAIL:
            continue
        if op.kind in {OpKind.PUT, OpKind.DELETE} and op.key == key:
            assert op.value is not None, "a write has a value"
            yield Write(op.value, op.inv, op.ret, op)
        elif op.kind is OpKind.REMOVE:
            yield Write(GONE, op.inv, op.ret, op)
        elif op.kind is OpKind.CREATE:
            source = history.commits.get(op.commit_id)
            contents = source.contents if source is not None else {}
            yield Write(contents.get(key, ABSENT), op.inv, op.ret, op)
        elif op.kind in {OpKind.RESET, OpKind.MOVE, *MERGES}:
            for merged in versions.merged(op, key):
                yield Write(merged.value, op.inv, op.ret, op, merged.replaces)

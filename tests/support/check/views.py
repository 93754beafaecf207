"""The details that unfinished operations can still distinguish; the search for a witness forgets all others."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.support.check.effects import Effect, Reading
from tests.support.check.history import NEVER

__all__ = ["Event", "View", "views_of"]


@dataclass(frozen=True, slots=True)
class View:
    """The details that unfinished operations can still distinguish.

    Attributes:
        begins: begin times of the running operations and of later unsettled writes, ascending.
        wanted: values that running operations may have seen.
        wanted_later: values that any unfinished operation may see.
    """

    begins: Sequence[float]
    wanted: frozenset[int]
    wanted_later: frozenset[int]


Event = tuple[float, float, Effect | Reading, tuple[int, ...]]
"""End and begin of an operation, the operation, and the numbers of its effects if it is a write."""


def views_of(effects: Sequence[Effect], events: Sequence[Event]) -> list[View]:
    """Returns the view after each event."""
    unsettled = [effect for effect in effects if effect.ret == NEVER]
    begun = sorted(effect.inv for effect in unsettled)
    conditional = [effect for effect in unsettled if effect.expected is not None]
    pending: list[tuple[float, int, frozenset[int]]] = []
    views: list[View] = []
    later: set[int] = set()
    wanted_later: frozenset[int] = frozenset()
    for at in range(len(events) - 1, -1, -1):
        now, inv, event, numbers = events[at]
        under_way = pending[: bisect_left(pending, (now,))]
        begins: list[float] = []
        if under_way:
            between = begun[bisect_left(begun, under_way[0][0]) : bisect_left(begun, now)]
            begins = sorted({*(each[0] for each in under_way), *between})
        wanted = frozenset[int]().union(*(each[2] for each in under_way))
        views.append(View(begins, _with_expected(wanted, conditional), wanted_later))
        values = _wanted(event, [effects[number] for number in numbers])
        insort(pending, (inv, at, values))
        if not values <= later:
            later |= values
            wanted_later = _with_expected(later, conditional)
    views.reverse()
    return views


def _wanted(event: Effect | Reading, alternatives: Sequence[Effect]) -> frozenset[int]:
    """Returns the values of which an operation must have seen one."""
    if isinstance(event, Reading):
        return frozenset((event.value,))
    return frozenset(each.expected for each in alternatives if each.expected is not None)


def _with_expected(values: Iterable[int | None], conditional: Sequence[Effect]) -> frozenset[int]:
    """Adds the values that unsettled writes must see before their own, needed value can be seen."""
    found = {value for value in values if value is not None}
    while True:
        more = {e.expected for e in conditional if e.value in found} - found - {None}
        if not more:
            return frozenset(found)
        found |= {value for value in more if value is not None}

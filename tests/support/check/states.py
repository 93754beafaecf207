"""A possible past of one key, as the search for a witness keeps it (`tests.support.check.witness`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.check.effects import Effect
from tests.support.check.history import GONE, NEVER

__all__ = [
    "BEGIN",
    "BURIED",
    "Entry",
    "Period",
    "State",
    "is_grounded",
    "is_twice",
    "places_of",
    "undominated",
    "value_of",
]

Entry = tuple[int, int]
"""An effect: the number of its write, and its ordinal among the effects of that write; negative if a conditional
write had it on top of a merge that it had not seen; 0 if it stands for any effect like this one."""

BEGIN: Entry = (-1, 0)
BURIED: Entry = (-2, 0)
"""Any unconditional effect beneath the ground whose value no operation needs."""


@dataclass(frozen=True, slots=True)
class Period:
    """The time in which an effect was on top, until the next period starts.

    Attributes:
        is_put: whether the effect was put there; otherwise the effects above it vanished.
    """

    start: float
    entry: Entry
    is_put: bool


@dataclass(frozen=True, slots=True)
class State:
    """One possible past.

    Attributes:
        periods: the past, as far back as a running operation may have seen it.
        stack: the effects that may show again, the top last; the first one never vanishes.
        used: for each write, its number of effects, and the earliest time of the last one.
        buried: running writes whose effect is permanently beneath another one.
        again: effects beyond the first one of their write.
    """

    periods: tuple[Period, ...]
    stack: tuple[Entry, ...]
    used: tuple[tuple[int, int, float], ...] = ()
    buried: frozenset[int] = frozenset()
    again: int = field(default=0, compare=False)

    def end_of(self, at: int) -> float:
        """Returns when a period ended."""
        return self.periods[at + 1].start if at + 1 < len(self.periods) else NEVER


def undominated(found: Iterable[State]) -> dict[State, None]:
    """Of states that differ only in the remaining effects of their writes, keeps those with the most."""
    alike: defaultdict[tuple[object, ...], list[State]] = defaultdict(list)
    for state in found:
        same = alike[state.periods, state.stack, state.buried]
        if not any(_does_less(other, state) for other in same):
            same[:] = [other for other in same if not _does_less(state, other)]
            same.append(state)
    return {state: None for same in alike.values() for state in same}


def _does_less(one: State, other: State) -> bool:
    """Whether `one` has used no write more often than `other`."""
    counts = {number: (count, last) for number, count, last in other.used}
    for number, count, last in one.used:
        other_count, other_last = counts.get(number, (0, NEVER))
        if count > other_count or (count == other_count and last > other_last):
            return False
    return True


def places_of(state: State, number: int) -> list[int]:
    """Returns where in the stack a write has effects that may be its last one."""
    return [at for at, (n, ordinal) in enumerate(state.stack) if n == number and ordinal > 0]


def is_grounded(state: State, at: int) -> bool:
    """Whether the effect that a period begins with is the ground, or was covered until the ground came."""
    since = state.periods[at:]
    grounds = [n for n, period in enumerate(since) if period.entry == state.stack[0]]
    return bool(grounds) and all(period.is_put for period in since[: grounds[0] + 1])


def is_twice(effects: Sequence[Effect], one: Period, other: Period, now: float) -> bool:
    """Whether two periods beneath the ground, one after the other, are as good as one.

    They are if they differ in nothing, and no write can come between them that expects their value.
    """
    number, ordinal = one.entry
    if one != other or ordinal or (number >= 0 and effects[number].expected is not None):
        return False
    value = value_of(effects, one.entry)
    return value is None or not any(
        each.expected == value and each.inv < one.start and each.ret > now for each in effects
    )


def value_of(effects: Sequence[Effect], entry: Entry) -> int | None:
    """Returns the value of an effect; before the first effect there is no branch."""
    if entry[0] < 0:
        return GONE if entry == BEGIN else None
    return effects[entry[0]].value

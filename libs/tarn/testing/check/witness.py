"""Finds an order of effects that explains all reads of one key, or shows that there is none.

An *effect* is a row that becomes visible. The protocol (docs/design/protocol.md) gives a key a stack of
them:

- A write puts an effect on top, between its beginning and its answer; without an answer, at any time
  after its beginning.
- Its first effect needs nothing else. Each further one needs a seal that the write met: only its own live
  call writes again, and only after it found that its token was sealed (rule 1). A call makes at most
  `EFFECTS_MAX` attempts. A plain write may begin on a record of some seconds ago, so the seal may be
  older than the write.
- An effect may vanish, and the effect beneath it shows again: its row was too late for the commit that
  scanned its token, or only readers of an older record see it. That, too, needs a seal.
- The last effect of an acknowledged write never vanishes (rule 1), and nothing beneath it shows again.
- The completion of an upload takes no further effect while an effect of it lies beneath another one: an attempt
  that landed and was overwritten is done. The completion begins with a fresh record.
- A conditional write takes effect only directly on top of the value that it expects (I6).
- Creating and removing a branch take effect once, and do not vanish.

A read returns the top at some moment between its beginning and its end. So the question is whether the
operations on a key are linearizable with this stack in place of a register.

The search processes the answers in the order of time and keeps every state (`_State`) that explains all
answers so far. Effects are placed as late as possible: an effect that no answer needs is left out; one
that an answer needs is placed at the end of that answer's operation, or hidden directly beneath an effect
that was put since the write began. No order is missed: an operation that needs an earlier moment has an
earlier answer. Three effects that no answer needs are tried nevertheless: one more effect of a write that
settles on top, if it may hide a write that began since; one that vanished before a conditional write that does
not expect it; and one of the value that this one expects, over it. So there is usually one state, and
occasionally as many as there are orders of concurrent writes.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tarn.testing.check.effects import EFFECTS_MAX, Effect, Reading, Seals
from tarn.testing.check.history import GONE, NEVER, Op

__all__ = ["Verdict", "explain"]

_STATES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a search.

    Attributes:
        failed: the first answer that no order explains, with those before it; None if all are explained.
        again: effects beyond the first one of their write, in the order that was found.
        is_cut: there were more states than are kept, so a failure is not a proof.
        states_max: greatest number of states kept at one time.
    """

    failed: Op | None
    again: int
    is_cut: bool
    states_max: int


_Entry = tuple[int, int]
"""An effect: the number of its write, and its ordinal among the effects of that write."""

_BEGIN: _Entry = (-1, 0)
_BURIED: _Entry = (-2, 0)
"""Any unconditional effect beneath the ground whose value no operation needs."""


@dataclass(frozen=True, slots=True)
class _Period:
    """The time in which an effect was on top, until the next period starts.

    Attributes:
        is_put: whether the effect was put there; otherwise the effects above it vanished.
    """

    start: float
    entry: _Entry
    is_put: bool


@dataclass(frozen=True, slots=True)
class _State:
    """One possible past.

    Attributes:
        periods: the past, as far back as a running operation may have seen it.
        stack: the effects that may show again, the top last; the first one never vanishes.
        used: for each write, its number of effects, and the earliest time of the last one.
        buried: running writes whose effect is permanently beneath another one.
        again: effects beyond the first one of their write.
    """

    periods: tuple[_Period, ...]
    stack: tuple[_Entry, ...]
    used: tuple[tuple[int, int, float], ...] = ()
    buried: frozenset[int] = frozenset()
    again: int = field(default=0, compare=False)

    def end_of(self, at: int) -> float:
        """Returns when a period ended."""
        return self.periods[at + 1].start if at + 1 < len(self.periods) else NEVER


@dataclass(slots=True)
class _Search:
    effects: Sequence[Effect]
    seals: Seals
    now: float = 0.0
    _of_value: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for number, effect in enumerate(self.effects):
            self._of_value[effect.value].append(number)

    def value(self, entry: _Entry) -> int | None:
        """Returns the value of an effect; before the first effect there is no branch."""
        if entry[0] < 0:
            return GONE if entry == _BEGIN else None
        return self.effects[entry[0]].value

    # ---- events

    def read(self, state: _State, reading: Reading) -> Iterator[_State]:
        """Yields states in which a value was on top at some moment of a read; the state itself if it
        qualifies.
        """
        for at, period in enumerate(state.periods):
            if self.value(period.entry) == reading.value and state.end_of(at) > reading.inv:
                yield state
                return
        for shown, _ in self._show(state, reading.value, reading.inv, ()):
            yield shown

    def settle(self, state: _State, number: int) -> Iterator[_State]:
        """Yields states in which a write has had its last effect, which stays."""
        if number in state.buried:
            yield replace(state, buried=state.buried - {number})
        else:
            placed = [at for at, entry in enumerate(state.stack) if entry[0] == number]
            if placed:
                yield self._grounded(state, placed[-1], number)
            is_top = bool(placed) and placed[-1] == len(state.stack) - 1
            if is_top and not self._may_hide(state, number):
                return
        for put, _ in self._put(state, number, self.effects[number].inv, ()):
            if number in put.buried:
                yield replace(put, buried=put.buried - {number})
                continue
            placed = [at for at, entry in enumerate(put.stack) if entry[0] == number]
            if placed:
                yield self._grounded(put, placed[-1], number)

    def _may_hide(self, state: _State, number: int) -> bool:
        """Whether one more effect of the write on top, which no answer needs, may have hidden another write.

        The other write began after the last effect, so it cannot lie beneath that; it is acknowledged later.
        """
        since = state.periods[-1].start
        others = (effect for effect in self.effects if since < effect.inv < self.now)
        is_upload = self.effects[number].op.is_upload  # would show again over the other one
        return not is_upload and any(self.now < effect.ret < NEVER for effect in others)

    # ---- possible effects

    def uncovered(self, state: _State, wanted: frozenset[int]) -> Iterator[_State]:
        """Yields the state itself, and states in which effects vanish directly before a write settles.

        A value that a running operation saw may have shown only until then: afterwards it is too late for
        an effect beneath an effect that stays to vanish. An earlier effect of the write itself may also
        vanish; its call then takes effect again.
        """
        yield state
        if len(state.stack) > 1 and self.seals.any_before(self.now):
            for value in sorted(wanted - {self.value(state.stack[-1])}):
                for shown, _ in self._vanish(state, value):
                    yield shown

    def _show(
        self, state: _State, value: int, after: float, chain: tuple[int, ...]
    ) -> Iterator[tuple[_State, int]]:
        """Yields states in which a value was on top at some moment after `after`, and the period."""
        for at, period in enumerate(state.periods):
            if self.value(period.entry) == value and state.end_of(at) > after:
                yield state, at
        if self.value(state.stack[-1]) == value:
            return  # any other effect may just as well be hidden beneath the next one
        if self.seals.any_before(self.now):
            yield from self._vanish(state, value)
        for number in self._writers(state, value):
            yield from self._put(state, number, after, chain)

    def _vanish(self, state: _State, value: int) -> Iterator[tuple[_State, int]]:
        for at in range(len(state.stack) - 2, -1, -1):
            if self.effects[state.stack[at + 1][0]].is_turn:
                return
            if self.value(state.stack[at]) == value:
                period = _Period(self.now, state.stack[at], is_put=False)
                periods = (*state.periods, period)
                yield replace(state, periods=periods, stack=state.stack[: at + 1]), len(periods) - 1

    def _writers(self, state: _State, value: int) -> Iterator[int]:
        """Yields writes of a value that may take effect; of equivalent unsettled ones, only one."""
        seen: set[bool] = set()
        for number in self._of_value[value]:
            effect = self.effects[number]
            if effect.inv >= self.now or effect.ret < self.now:
                continue
            if not self._may(state, number, self.now):
                continue
            if effect.ret == NEVER and effect.op.expected is None:
                if effect.is_turn in seen:
                    continue
                seen.add(effect.is_turn)
            yield number

    def _may(self, state: _State, number: int, time: float) -> bool:
        """Whether the protocol allows a write to take effect once more."""
        count, last = next(((c, t) for n, c, t in state.used if n == number), (0, 0.0))
        effect = self.effects[number]
        if count == 0:
            return True
        if effect.is_turn or count >= EFFECTS_MAX * effect.op.calls:
            return False
        if effect.op.is_upload and self._is_covered(state, number):
            return False
        return count < effect.op.calls * (1 + self.seals.met(effect, time, last))

    @staticmethod
    def _is_covered(state: _State, number: int) -> bool:
        """Whether an effect of a write lies beneath another one."""
        is_beneath = any(entry[0] == number for entry in state.stack[:-1])
        return is_beneath or number in state.buried

    def _put(
        self, state: _State, number: int, after: float, chain: tuple[int, ...]
    ) -> Iterator[tuple[_State, int]]:
        """Yields states in which a write took effect (once more), and was on top at some moment after
        `after`.

        `chain` holds the conditional writes that wait for this one.
        """
        effect = self.effects[number]
        if number in chain or not self._may(state, number, self.now):
            return
        after = max(after, effect.inv)
        expected = effect.op.expected
        if expected is None:
            for at in range(1, len(state.periods)):
                if state.periods[at].start > after:
                    yield from self._beneath(state, number, after, at)
            yield self._on_top(state, number, after), len(state.periods)
            return
        for shown, at in self._show(state, expected, effect.inv, (*chain, number)):
            if at == len(shown.periods) - 1:
                yield self._on_top(shown, number, after), at + 1
            elif shown.end_of(at) > after:
                yield from self._beneath(shown, number, after, at + 1)

    def _beneath(
        self, state: _State, number: int, after: float, at: int
    ) -> Iterator[tuple[_State, int]]:
        """The states in which an effect came right before a period began.

        If that period's effect does not expect it, it vanished, or a running write of the expected value hid it.
        """
        if self._fits_beneath(state, at, self.effects[number]):
            yield self._inserted(state, number, after, at), at
            return
        period, below = state.periods[at], state.periods[at - 1]
        expected = self._expected(period.entry)
        if expected is None or not period.is_put or expected != self.value(below.entry):
            return
        for writer in self._writers(state, expected):
            over = self.effects[writer]
            if writer != number and over.op.expected is None and over.inv < period.start:
                hidden = self._inserted(state, number, after, at)
                yield self._inserted(hidden, writer, max(after, over.inv), at + 1), at
        if not self.effects[number].is_turn and self.seals.any_before(self.now):
            entry, state = self._counted(state, number, after)
            shown = _Period(period.start, entry, is_put=True)
            again = _Period(period.start, below.entry, is_put=False)
            periods = (*state.periods[:at], shown, again, *state.periods[at:])
            yield replace(state, periods=periods), at

    def _fits_beneath(self, state: _State, at: int, effect: Effect) -> bool:
        """Whether an effect may have been put directly before a period began."""
        period = state.periods[at]
        if not period.is_put or period.entry == _BEGIN:
            return False
        expected = self._expected(period.entry)
        return expected is None or expected == effect.value

    def _expected(self, entry: _Entry) -> int | None:
        return self.effects[entry[0]].op.expected if entry[0] >= 0 else None

    # ---- the next state

    def _counted(self, state: _State, number: int, after: float) -> tuple[_Entry, _State]:
        count = next((c for n, c, _ in state.used if n == number), 0)
        used = [each for each in state.used if each[0] != number]
        used.append((number, count + 1, after))
        again = state.again + (count > 0)
        return (number, count + 1), replace(state, used=tuple(sorted(used)), again=again)

    def _on_top(self, state: _State, number: int, after: float) -> _State:
        entry, state = self._counted(state, number, after)
        periods = (*state.periods, _Period(self.now, entry, is_put=True))
        return replace(state, periods=periods, stack=(*state.stack, entry))

    def _inserted(self, state: _State, number: int, after: float, at: int) -> _State:
        """Returns the state with an effect hidden beneath the one that a period begins with."""
        entry, state = self._counted(state, number, after)
        above = state.periods[at].entry
        periods = list(state.periods)
        periods.insert(at, _Period(periods[at].start, entry, is_put=True))
        state = replace(state, periods=tuple(periods))
        if above in state.stack[1:]:
            place = state.stack.index(above)
            stack = (*state.stack[:place], entry, *state.stack[place:])
            return replace(state, stack=stack)
        # Beneath the ground, or vanished with the one above it.
        grounds = [n for n, period in enumerate(periods) if period.entry == state.stack[0]]
        is_buried = bool(grounds) and grounds[0] > at
        if is_buried and self.effects[number].ret != NEVER:
            return replace(state, buried=state.buried | {number})
        return state

    def _grounded(self, state: _State, at: int, number: int) -> _State:
        """Returns the state with an effect that stays: effects beneath it never show again."""
        below = {entry[0] for entry in state.stack[:at]}
        buried = {n for n in below if n >= 0 and self.now < self.effects[n].ret < NEVER}
        kept = (state.buried | buried) - {number}
        return replace(state, stack=state.stack[at:], buried=kept)

    # ---- states that differ in nothing that matters

    def plain(self, state: _State, view: _View) -> _State:
        """Returns the state without details that no operation can observe any more.

        A time matters only as before or after the beginning of an operation that may still use it; an
        effect beneath the ground only if its value is needed; a write only if it may take effect once
        more.
        """
        ground = state.stack[0]
        entries = [period.entry for period in state.periods]
        first_live = entries.index(ground) if ground in entries else 0
        periods: list[_Period] = []
        for at, found in enumerate(state.periods):
            period = found
            if at < first_live and self.value(period.entry) not in view.wanted:
                expected = self._expected(period.entry)
                if period.is_put and period.entry != _BEGIN and expected is None:
                    period = replace(period, entry=_BURIED)
            place = bisect_left(view.begins, period.start)
            start = math.nextafter(view.begins[place - 1], math.inf) if place else -math.inf
            period = replace(period, start=start)
            if periods and start == -math.inf:
                periods[-1] = period  # no running operation can have seen the one before
            elif not (periods and periods[-1] == period and period.entry == _BURIED):
                periods.append(period)
        used = [each for each in state.used if self._is_live(each[0], view)]
        return replace(state, periods=tuple(periods), used=tuple(used))

    def _is_live(self, number: int, view: _View) -> bool:
        effect = self.effects[number]
        return effect.ret > self.now and (effect.ret != NEVER or effect.value in view.wanted_later)


@dataclass(frozen=True, slots=True)
class _View:
    """The details that unfinished operations can still distinguish.

    Attributes:
        begins: begin times of the running operations and of later unsettled writes, ascending.
        wanted: values that running operations may have seen.
        wanted_later: values that any unfinished operation may see.
    """

    begins: Sequence[float]
    wanted: frozenset[int]
    wanted_later: frozenset[int]


_Event = tuple[float, float, "Effect | Reading", int]
"""End and begin of an operation, the operation, and its number if it is a write."""


def _views(effects: Sequence[Effect], events: Sequence[_Event]) -> list[_View]:
    """Returns the view after each event."""
    unsettled = [effect for effect in effects if effect.ret == NEVER]
    begun = sorted(effect.inv for effect in unsettled)
    conditional = [effect for effect in unsettled if effect.op.expected is not None]
    pending: list[tuple[float, int, Effect | Reading]] = []
    views: list[_View] = []
    later: set[int] = set()
    wanted_later: frozenset[int] = frozenset()
    for at in range(len(events) - 1, -1, -1):
        now, inv, event, _ = events[at]
        under_way = pending[: bisect_left(pending, (now,))]
        begins: list[float] = []
        if under_way:
            between = begun[bisect_left(begun, under_way[0][0]) : bisect_left(begun, now)]
            begins = sorted({*(each[0] for each in under_way), *between})
        wanted = {_wanted(each[2]) for each in under_way} - {None}
        views.append(_View(begins, _with_expected(wanted, conditional), wanted_later))
        insort(pending, (inv, at, event))
        value = _wanted(event)
        if value is not None and value not in later:
            later.add(value)
            wanted_later = _with_expected(later, conditional)
    views.reverse()
    return views


def _wanted(event: Effect | Reading) -> int | None:
    """Returns the value that an operation must have seen."""
    return event.value if isinstance(event, Reading) else event.op.expected


def _with_expected(values: Iterable[int | None], conditional: Sequence[Effect]) -> frozenset[int]:
    """Adds the values that unsettled writes must see before their own, needed value can be seen."""
    found = {value for value in values if value is not None}
    while True:
        more = {e.op.expected for e in conditional if e.value in found} - found - {None}
        if not more:
            return frozenset(found)
        found |= {value for value in more if value is not None}


def _undominated(found: Iterable[_State]) -> dict[_State, None]:
    """Of states that differ only in the remaining effects of their writes, keeps those with the most."""
    alike: defaultdict[tuple[object, ...], list[_State]] = defaultdict(list)
    for state in found:
        same = alike[state.periods, state.stack, state.buried]
        if not any(_does_less(other, state) for other in same):
            same[:] = [other for other in same if not _does_less(state, other)]
            same.append(state)
    return {state: None for same in alike.values() for state in same}


def _does_less(one: _State, other: _State) -> bool:
    """Whether `one` has used no write more often than `other`."""
    counts = {number: (count, last) for number, count, last in other.used}
    for number, count, last in one.used:
        other_count, other_last = counts.get(number, (0, NEVER))
        if count > other_count or (count == other_count and last > other_last):
            return False
    return True


def explain(effects: Sequence[Effect], readings: Sequence[Reading], seals: Seals) -> Verdict:
    """Whether some order of effects explains all readings and conditional writes of a key."""
    search = _Search(effects, seals)
    events: list[_Event] = [
        (effect.ret, effect.inv, effect, number)
        for number, effect in enumerate(effects)
        if effect.ret != NEVER
    ]
    events += [(read.end, read.inv, read, -1) for read in readings if read.end != NEVER]
    events.sort(key=lambda event: event[:2])
    views = _views(effects, events)
    states = {_State((_Period(-NEVER, _BEGIN, is_put=True),), (_BEGIN,)): None}
    is_cut, states_max = False, 1
    for at, (search.now, _, event, number) in enumerate(events):
        found: dict[_State, None] = {}  # in an order that is the same in every run
        wanted = views[at].wanted
        is_read = isinstance(event, Reading)
        before = (
            states
            if is_read
            else (each for state in states for each in search.uncovered(state, wanted))
        )
        for state in before:
            after = (
                search.read(state, event)
                if isinstance(event, Reading)
                else search.settle(state, number)
            )
            for each in after:
                found[search.plain(each, views[at])] = None
        if not found:
            return Verdict(event.op, _again(states), is_cut, states_max)
        found = _undominated(found)
        states_max = max(states_max, len(found))
        if len(found) > _STATES_MAX:
            is_cut = True
            least = sorted(found, key=lambda state: state.again)
            found = dict.fromkeys(least[:_STATES_MAX])
        states = found
    return Verdict(None, _again(states), is_cut, states_max)


def _again(states: Mapping[_State, None]) -> int:
    return min(state.again for state in states)

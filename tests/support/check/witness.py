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
- Creating, removing and resetting a branch and moving its head take effect once, and do not vanish.
- A merge or an unforced move takes effect on a key that it changes: on top of the value that the former head has,
  or hidden beneath a write that came since it began (rule 9). Such a write may have been conditional: its row was
  there, and acknowledged, before the merge was published beneath it.
- A conditional write that is not acknowledged may take effect on top of such a merge although it expects the value
  beneath: its condition was checked before the merge, and its row came after it. Its outcome is unknown.
- Both hold for several merges, one on the result of the other, if the later ones began before the first one ended:
  they keep the token that the first one replaced, and the row is in it.
- The reset of a part that finds nothing to discard changes nothing: a row that is late for a merge may come after it.

A read returns the top at some moment between its beginning and its end. So the question is whether the
operations on a key are linearizable with this stack in place of a register.

The search processes the answers in the order of time and keeps every state (`State`) that explains all
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
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.support.check.effects import EFFECTS_MAX, Effect, Reading, Seals
from tests.support.check.history import ABSENT, NEVER, Op, OpKind
from tests.support.check.states import (
    BEGIN,
    BURIED,
    Entry,
    Period,
    State,
    is_grounded,
    is_twice,
    places_of,
    undominated,
    value_of,
)
from tests.support.check.turns import Turns
from tests.support.check.views import Event, View, views_of

__all__ = ["Verdict", "explain"]

_STATES_MAX = 8_000


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


@dataclass(slots=True)
class _Search:
    effects: Sequence[Effect]
    seals: Seals
    now: float = 0.0
    _of_value: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _of_op: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _alike: dict[tuple[object, ...], int] = field(default_factory=dict)
    turns: Turns = field(init=False)

    def __post_init__(self) -> None:
        self.turns = Turns(self.effects)
        for number, effect in enumerate(self.effects):
            self._of_value[effect.value].append(number)
            self._of_op[effect.op.number].append(number)

    def alternatives(self, number: int) -> Sequence[int]:
        """Returns the effects of one operation, of which one at most happens."""
        return self._of_op[self.effects[number].op.number]

    def value(self, entry: Entry) -> int | None:
        """Returns the value of an effect; before the first effect there is no branch."""
        return value_of(self.effects, entry)

    # ---- events

    def read(self, state: State, reading: Reading) -> Iterator[State]:
        """Yields states in which a value was on top at some moment of a read; the state itself if it
        qualifies.
        """
        for at, period in enumerate(state.periods):
            if self.value(period.entry) == reading.value and state.end_of(at) > reading.inv:
                yield state
                return
        for shown, _ in self._show(state, reading.value, reading.inv, ()):
            yield shown

    def settle(self, state: State, number: int) -> Iterator[State]:
        """Yields states in which a write has had its last effect, which stays."""
        if number in state.buried:
            yield replace(state, buried=state.buried - {number})
        else:
            placed = places_of(state, number)
            if placed:
                yield self._grounded(state, placed[-1], number)
            is_top = bool(placed) and placed[-1] == len(state.stack) - 1
            if is_top and not self._may_hide(state, number):
                yield from self._settle_again(state, number)
                return
        effect = self.effects[number]
        if self.turns.may_be_idle(state, number):
            yield state
        for put, _ in self._put(state, number, effect.inv, ()):
            if number in put.buried:
                yield replace(put, buried=put.buried - {number})
            elif placed := places_of(put, number):
                yield self._grounded(put, placed[-1], number)
                yield from self._settle_again(put, number)
        if effect.is_turn and effect.expected is not None and self._may(state, number, self.now):
            yield from self._slip(state, number)

    def _settle_again(self, state: State, number: int) -> Iterator[State]:
        """Yields states in which a write that settles on top took effect once more, over a conditional write that
        had seen its effect before and is acknowledged later. No answer needs either effect.
        """
        effect = self.effects[number]
        used = {each for each, _, _ in state.used}
        is_seen = any(
            other.expected == effect.value and other.inv < self.now < other.ret < NEVER
            for each, other in enumerate(self.effects)
            if each not in used
        )
        if not is_seen or state.stack[-1][0] != number or effect.op.is_upload:
            return
        if len(state.stack) > 1 and self.value(state.stack[-2]) == effect.value:
            return  # the conditional write needs no effect of this write
        for again, _ in self._put(state, number, effect.inv, ()):
            if placed := places_of(again, number):
                yield self._grounded(again, placed[-1], number)

    def _slip(self, state: State, number: int) -> Iterator[State]:
        """Yields states in which a merge was published beneath a row that hid it from the start."""
        effect = self.effects[number]
        ready = [state]
        for other, write in enumerate(self.effects):
            is_running = write.inv < self.now < write.ret < NEVER
            may_hide = write.expected == effect.expected or self.turns.beneath(other, effect)
            if is_running and write.op.kind in {OpKind.PUT, OpKind.DELETE} and may_hide:
                ready += (put for put, _ in self._put(state, other, effect.inv, ()))
        for put in ready:
            for at in range(len(put.periods)):
                if self.turns.may_cover(put, at, effect, self.now):
                    yield from self._slipped(put, number, at)

    def _slipped(self, state: State, number: int, at: int) -> Iterator[State]:
        """Yields the state with a merge beneath the effect that a period begins with, which hid it from the start."""
        above = state.periods[at].entry
        entry, counted = self._counted(state, number, self.effects[number].inv)
        if above in state.stack[1:]:
            place = state.stack.index(above)
            stack = (*state.stack[:place], entry, *state.stack[place:])
            yield self._grounded(replace(counted, stack=stack), place, number)
        elif is_grounded(state, at):
            yield counted

    def _may_hide(self, state: State, number: int) -> bool:
        """Whether one more effect of the write on top, which no answer needs, may have hidden another write.

        The other write began after the last effect, so it cannot lie beneath that; it is acknowledged later.
        """
        since = state.periods[-1].start
        others = (effect for effect in self.effects if since < effect.inv < self.now)
        is_upload = self.effects[number].op.is_upload  # would show again over the other one
        return not is_upload and any(self.now < effect.ret < NEVER for effect in others)

    # ---- possible effects

    def uncovered(self, state: State, wanted: frozenset[int]) -> Iterator[State]:
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
        self, state: State, value: int, after: float, chain: tuple[int, ...]
    ) -> Iterator[tuple[State, int]]:
        """Yields states in which a value was on top at some moment after `after`, and the period."""
        for at, period in enumerate(state.periods):
            if self.value(period.entry) == value and state.end_of(at) > after:
                yield state, at
        if self.value(state.stack[-1]) == value:
            return  # any other effect may just as well be hidden beneath the next one
        if self.seals.any_before(self.now):
            yield from self._vanish(state, value)
        if any(self.effects[number].expected == value for number in chain[:-1]):
            # An earlier write of the chain waits for this value, and needs none of the effects between. Equal objects
            # would give very many orders of them.
            return
        for number in self._writers(state, value):
            yield from self._put(state, number, after, chain)

    def _vanish(self, state: State, value: int) -> Iterator[tuple[State, int]]:
        for at in range(len(state.stack) - 2, -1, -1):
            if self.effects[state.stack[at + 1][0]].is_turn:
                return
            if self.value(state.stack[at]) == value:
                period = Period(self.now, state.stack[at], is_put=False)
                periods = (*state.periods, period)
                yield replace(state, periods=periods, stack=state.stack[: at + 1]), len(periods) - 1

    def _writers(self, state: State, value: int) -> Iterator[int]:
        """Yields writes of a value that may take effect; of equivalent unsettled ones, only one."""
        seen: set[bool] = set()
        for number in self._of_value[value]:
            effect = self.effects[number]
            if effect.inv >= self.now or effect.ret < self.now:
                continue
            if not self._may(state, number, self.now):
                continue
            if effect.ret == NEVER and effect.expected is None:
                if effect.is_turn in seen:
                    continue
                seen.add(effect.is_turn)
            yield number

    def _may(self, state: State, number: int, time: float) -> bool:
        """Whether the protocol allows a write to take effect once more."""
        count, last = next(((c, t) for n, c, t in state.used if n == number), (0, 0.0))
        effect = self.effects[number]
        others = self.alternatives(number)
        if len(others) > 1 and any(n in others and n != number for n, _, _ in state.used):
            return False
        if count == 0:
            return True
        if effect.is_turn or count >= EFFECTS_MAX * effect.op.calls:
            return False
        if effect.op.is_upload and self._is_covered(state, number):
            return False
        return count < effect.op.calls * (1 + self.seals.met(effect, time, last))

    @staticmethod
    def _is_covered(state: State, number: int) -> bool:
        """Whether an effect of a write lies beneath another one."""
        is_beneath = any(entry[0] == number for entry in state.stack[:-1])
        return is_beneath or number in state.buried

    def _put(
        self, state: State, number: int, after: float, chain: tuple[int, ...]
    ) -> Iterator[tuple[State, int]]:
        """Yields states in which a write took effect (once more), and was on top at some moment after
        `after`.

        `chain` holds the conditional writes that wait for this one.
        """
        effect = self.effects[number]
        if number in chain or not self._may(state, number, self.now):
            return
        after = max(after, effect.inv)
        expected = effect.expected
        if expected is None:
            for at in range(1, len(state.periods)):
                if state.periods[at].start > after:
                    yield from self._beneath(state, number, after, at)
            yield self._on_top(state, number, after), len(state.periods)
            return
        if not effect.is_turn:
            yield from self._put_blindly(state, number, after)
        before = _times_used(state, number)
        for shown, at in self._show(state, expected, effect.inv, (*chain, number)):
            if effect.is_conditional_delete and _times_used(shown, number) > before:
                # It has hidden the value that it expects, beneath another effect.
                yield shown, at + 1
            elif at == len(shown.periods) - 1:
                yield self._on_top(shown, number, after), at + 1
            elif shown.end_of(at) > after:
                yield from self._beneath(shown, number, after, at + 1)

    def _put_blindly(self, state: State, number: int, after: float) -> Iterator[tuple[State, int]]:
        """Yields states in which the row of a conditional write came right after a merge that it had not seen."""
        effect = self.effects[number]
        merges = [self.effects[merge] for merge in self.turns.unseen_by(number)]
        # A delete of a path that a merge has removed writes no row.
        may_be_deleted = any(each.value == ABSENT and each.inv < self.now for each in merges)
        for at, period in enumerate(state.periods):
            if period.entry[0] < 0 or not period.is_put or state.end_of(at) <= after:
                continue
            below = self.effects[period.entry[0]]
            is_delete = may_be_deleted and below.op.kind is OpKind.DELETE
            if not is_delete and all(below is not merge for merge in merges):
                continue
            if at == len(state.periods) - 1:
                yield self._on_top(state, number, after, is_blind=True), at + 1
            elif self._fits_beneath(state, at + 1, effect):
                yield self._inserted(state, number, after, at + 1, is_blind=True), at + 1

    def _beneath(
        self, state: State, number: int, after: float, at: int
    ) -> Iterator[tuple[State, int]]:
        """The states in which an effect came right before a period began.

        If that period's effect does not expect it, it vanished, or a running write of the expected value hid it.
        """
        if self._fits_beneath(state, at, self.effects[number]):
            yield self._inserted(state, number, after, at), at
            return
        period, below = state.periods[at], state.periods[at - 1]
        expected, value_below = self._expected(period.entry), self.value(below.entry)
        is_known = expected == value_below
        # Beneath the ground, a value that no operation needs is not kept: but this effect was put on what it expects.
        if expected is None or not period.is_put or not (is_known or value_below is None):
            return
        hidden = self._inserted(state, number, after, at)
        for writer in self._writers(hidden, expected):
            over = self.effects[writer]
            may_follow = over.expected in {None, self.effects[number].value}
            may_follow &= is_known or over.is_conditional_delete
            if may_follow and writer != number and over.inv < period.start:
                yield self._inserted(hidden, writer, max(after, over.inv), at + 1), at
        if is_known and not self.effects[number].is_turn and self.seals.any_before(self.now):
            entry, state = self._counted(state, number, after)
            shown = Period(period.start, entry, is_put=True)
            again = Period(period.start, below.entry, is_put=False)
            periods = (*state.periods[:at], shown, again, *state.periods[at:])
            yield replace(state, periods=periods), at

    def _fits_beneath(self, state: State, at: int, effect: Effect) -> bool:
        """Whether an effect may have been put directly before a period began."""
        period = state.periods[at]
        if not period.is_put or period.entry == BEGIN:
            return False
        expected = self._expected(period.entry)
        return expected is None or expected == effect.value

    def _expected(self, entry: Entry) -> int | None:
        return self.effects[entry[0]].expected if entry[0] >= 0 else None

    # ---- the next state

    def _counted(
        self, state: State, number: int, after: float, *, is_blind: bool = False
    ) -> tuple[Entry, State]:
        count = _times_used(state, number)
        used = [each for each in state.used if each[0] != number]
        used.append((number, count + 1, after))
        again = state.again + (count > 0)
        entry = (number, -count - 1 if is_blind else count + 1)
        return entry, replace(state, used=tuple(sorted(used)), again=again)

    def _on_top(self, state: State, number: int, after: float, *, is_blind: bool = False) -> State:
        entry, state = self._counted(state, number, after, is_blind=is_blind)
        periods = (*state.periods, Period(self.now, entry, is_put=True))
        return replace(state, periods=periods, stack=(*state.stack, entry))

    def _inserted(
        self, state: State, number: int, after: float, at: int, *, is_blind: bool = False
    ) -> State:
        """Returns the state with an effect hidden beneath the one that a period begins with."""
        entry, state = self._counted(state, number, after, is_blind=is_blind)
        above = state.periods[at].entry
        periods = list(state.periods)
        periods.insert(at, Period(periods[at].start, entry, is_put=True))
        state = replace(state, periods=tuple(periods))
        if above in state.stack[1:]:
            place = state.stack.index(above)
            stack = (*state.stack[:place], entry, *state.stack[place:])
            return replace(state, stack=stack)
        # Beneath the ground, or vanished with the one above it.
        grounds = [n for n, period in enumerate(periods) if period.entry == state.stack[0]]
        is_buried = bool(grounds) and grounds[0] > at
        if is_buried and not is_blind and self.effects[number].ret != NEVER:
            return replace(state, buried=state.buried | {number})
        return state

    def _grounded(self, state: State, at: int, number: int) -> State:
        """Returns the state with an effect that stays: effects beneath it never show again."""
        below = {entry[0] for entry in state.stack[:at]}
        buried = {n for n in below if n >= 0 and self.now < self.effects[n].ret < NEVER}
        kept = (state.buried | buried) - {number}
        return replace(state, stack=state.stack[at:], buried=kept)

    # ---- states that differ in nothing that matters

    def plain(self, state: State, view: View) -> State:
        """Returns the state without details that no operation can observe any more.

        A time matters only as before or after the beginning of an operation that may still use it; an
        effect beneath the ground only if its value is needed; a write only if it may take effect once
        more.
        """
        ground = state.stack[0]
        entries = [period.entry for period in state.periods]
        first_live = entries.index(ground) if ground in entries else 0
        periods: list[Period] = []
        for at, found in enumerate(state.periods):
            period = found
            if at < first_live and period.is_put and period.entry != BEGIN:
                period = replace(period, entry=self._buried(period.entry, view))
            place = bisect_left(view.begins, period.start)
            start = math.nextafter(view.begins[place - 1], math.inf) if place else -math.inf
            period = replace(period, start=start)
            if periods and start == -math.inf:
                periods[-1] = period  # no running operation can have seen the one before
            elif not (periods and is_twice(self.effects, periods[-1], period, self.now)):
                periods.append(period)
        used = [each for each in state.used if self._is_live(each[0], view)]
        return replace(state, periods=tuple(periods), used=tuple(used))

    def _buried(self, entry: Entry, view: View) -> Entry:
        """Returns an entry that stands for an effect beneath the ground; one for all that nothing can tell apart."""
        value, expected = self.value(entry), self._expected(entry)
        is_wanted = value is not None and value in view.wanted
        if not is_wanted and expected is None:
            return BURIED
        effect = self.effects[entry[0]]
        if effect.ret > self.now or (is_wanted and expected is not None):
            return entry
        if self.turns.unseen_by(entry[0]):
            return entry
        # Whether a merge that is under way began before its write ended.
        place = bisect_left(view.begins, effect.ret) if is_wanted else 0
        alike = (self.now, value if is_wanted else None, expected, effect.op.kind, place)
        return self._alike.setdefault(alike, entry[0]), 0

    def _is_live(self, number: int, view: View) -> bool:
        if self.effects[number].ret != NEVER:
            return self.effects[number].ret > self.now
        return any(self.effects[n].value in view.wanted_later for n in self.alternatives(number))


def explain(effects: Sequence[Effect], readings: Sequence[Reading], seals: Seals) -> Verdict:
    """Whether some order of effects explains all readings and conditional writes of a key."""
    search = _Search(effects, seals)
    events: list[Event] = []
    for number, effect in enumerate(effects):
        numbers = tuple(search.alternatives(number))
        if effect.ret != NEVER and number == numbers[0]:
            events.append((effect.ret, effect.inv, effect, numbers))
    events += [(read.end, read.inv, read, ()) for read in readings if read.end != NEVER]
    events.sort(key=lambda event: event[:2])
    views = views_of(effects, events)
    states = {State((Period(-NEVER, BEGIN, is_put=True),), (BEGIN,)): None}
    is_cut, states_max = False, 1
    for at, (search.now, _, event, numbers) in enumerate(events):
        found: dict[State, None] = {}  # in an order that is the same in every run
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
                else (each for number in numbers for each in search.settle(state, number))
            )
            for each in after:
                found[search.plain(each, views[at])] = None
        if not found:
            return Verdict(event.op, _again(states), is_cut, states_max)
        found = undominated(found)
        states_max = max(states_max, len(found))
        if len(found) > _STATES_MAX:
            is_cut = True
            least = sorted(found, key=lambda state: state.again)
            found = dict.fromkeys(least[:_STATES_MAX])
        states = found
    return Verdict(None, _again(states), is_cut, states_max)


def _times_used(state: State, number: int) -> int:
    """Returns how often a write took effect."""
    return next((count for each, count, _ in state.used if each == number), 0)


def _again(states: Mapping[State, None]) -> int:
    return min(state.again for state in states)

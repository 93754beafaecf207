"""The merges, moves and resets that a conditional write may not have seen (`tests.support.check.witness`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from tests.support.check.effects import Effect
from tests.support.check.history import NEVER, OpKind
from tests.support.check.states import Entry, State, value_of

__all__ = ["Turns"]


class Turns:
    """The effects of a key that change what lies beneath the staged rows, and keep these rows (rule 9)."""

    def __init__(self, effects: Sequence[Effect]) -> None:
        self._effects = effects
        self._turns = [
            number
            for number, effect in enumerate(effects)
            if effect.is_turn and effect.expected is not None
        ]
        self._unseen: dict[int, frozenset[int]] = {}

    def unseen_by(self, number: int) -> frozenset[int]:
        """Returns those beneath which, or on top of which, the row of a conditional write may come although the write
        expects the value that they replace.

        The first one replaces the token of the row, and keeps it. One on the result of the first keeps it, too, if it
        sealed before: such a token is none of those that it found to be clean.
        """
        found = self._unseen.get(number)
        if found is None:
            write = self._effects[number]
            # Its own value stands for an earlier row of it, which it wrote again.
            seen = (write.expected, write.value)
            of_all: set[int] = set()
            if not write.is_turn and write.expected is not None:
                for first in self._turns:
                    turn = self._effects[first]
                    if turn.expected in seen and write.inv < turn.ret:
                        of_all |= self._followers(first)
            found = self._unseen[number] = frozenset(of_all)
        return found

    def beneath(self, number: int, merge: Effect) -> set[int]:
        """Returns those on which a merge may lie, both hidden beneath the row of a conditional write."""
        return {
            other
            for other in self.unseen_by(number)
            if self._effects[other].value == merge.expected and merge.inv < self._effects[other].ret
        }

    @cached_property
    def late_for(self) -> frozenset[int]:
        """Those that some conditional write without an answer may not have seen."""
        writes = (n for n, effect in enumerate(self._effects) if effect.ret == NEVER)
        return frozenset().union(*map(self.unseen_by, writes))

    def may_cover(self, state: State, at: int, merge: Effect, now: float) -> bool:
        """Whether the effect of a period may be a row that came between the beginning of a merge and its last step.

        Either a conditional write replaced the value that the merge replaces; or a write that was under way wrote
        its own row once more, where the merge replaces that row's value.
        """
        period = state.periods[at]
        if period.entry[0] < 0:
            return False
        write = self._effects[period.entry[0]]
        if write.op.kind not in {OpKind.PUT, OpKind.DELETE}:
            return False
        if write.value == merge.expected and write.ret > merge.inv:
            return True
        is_since = at > 0 and period.is_put and period.start > merge.inv
        if not is_since or write.expected is None:
            return False
        if self._value(state.periods[at - 1].entry) == merge.expected == write.expected:
            return True
        return self._covers_another(state, at, merge, now)

    def _covers_another(self, state: State, at: int, merge: Effect, now: float) -> bool:
        """Whether the row that a period begins with lies on another merge, which ended after this one began and left
        the value that this one replaces.
        """
        above = state.periods[at].entry
        others = self.beneath(above[0], merge)
        if above not in state.stack[1:]:
            return bool(others)  # beneath the ground
        # One whose answer is due, or was lost, may lie there although no answer has shown it yet.
        is_due = any(self._effects[other].ret > now for other in others)
        return is_due or state.stack[state.stack.index(above) - 1][0] in others

    def may_be_idle(self, state: State, number: int) -> bool:
        """Whether the reset of a part may have found nothing to discard, over a merge that a row is late for.

        A reset that only leaves the value of the merge on top explains everything else.
        """
        reset = self._effects[number]
        if not reset.op.part or any(self._effects[n].op is reset.op for n, _, _ in state.used):
            return False
        return any(
            period.entry[0] in self.late_for
            and self._value(period.entry) == reset.value
            and state.end_of(at) > reset.inv
            for at, period in enumerate(state.periods)
        )

    def _followers(self, first: int) -> set[int]:
        """Returns a turn, and those that were made one on the result of the other and began before it ended."""
        found = {first}
        left = [first]
        end = self._effects[first].ret
        while left:
            value = self._effects[left.pop()].value
            for number in self._turns:
                turn = self._effects[number]
                if number not in found and turn.expected == value and turn.inv < end:
                    found.add(number)
                    left.append(number)
        return found

    def _value(self, entry: Entry) -> int | None:
        return value_of(self._effects, entry)

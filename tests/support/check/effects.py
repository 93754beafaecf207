"""Defines how often one write may take effect on a key under the protocol (used by
`tests.support.check.witness`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tests.support.check.history import MERGES, NEVER, Op, OpKind, Outcome

__all__ = ["EFFECTS_MAX", "Effect", "Reading", "Seals"]

EFFECTS_MAX = 8
"""Attempts of one call: TRIES of `tarn_graveler.records.settling`."""

_SEALS_OF_A_BUILD = 2
"""Seals by one commit or compaction: one. A second one, with another token, if the answer to the compare-and-set of a
commit was lost. Also if a compaction leaves out the staging token at first, because there are many sealed ones, and
seals it afterwards."""

_NEVER_BEGUN = -NEVER

_SEALS_OF_A_MOVE = 3
"""Seals by a merge, an unforced move or the reset of a part: as many as a commit, and one by its last step (rule 9)."""

_TURNS = {OpKind.CREATE, OpKind.REMOVE, OpKind.RESET, OpKind.MOVE, *MERGES}


@dataclass(frozen=True, slots=True)
class Effect:
    """A write that had, or may have had, an effect on the key.

    Several effects of one operation are alternatives: one of them at most happens.

    Attributes:
        replaces: the value that a change of the head replaces; None if it replaces any.
    """

    value: int
    op: Op
    replaces: int | None = None

    @property
    def expected(self) -> int | None:
        """The value directly on top of which alone it takes effect; None for any."""
        return self.op.expected if self.replaces is None else self.replaces

    @property
    def is_conditional_delete(self) -> bool:
        """Whether it is a delete that expects a value."""
        return self.op.kind is OpKind.DELETE and self.op.expected is not None

    @property
    def inv(self) -> float:
        """Earliest time at which it may take effect."""
        return self.op.inv

    @property
    def ret(self) -> float:
        """Latest time at which it must have taken effect: when it was acknowledged, or `NEVER`."""
        return self.op.ret

    @property
    def is_turn(self) -> bool:
        """Whether it changes what lies beneath the staged rows of all keys, by one compare-and-set."""
        return self.op.kind in _TURNS


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that was returned."""

    value: int
    inv: float
    end: float
    op: Op


class Seals:
    """The times at which a branch may have been sealed: by commits, compactions, merges and resets, by conditional
    writes, and by uploads.

    The first conditional write of a branch seals, so that rows are registers from then on; each commit, compaction,
    merge or reset returns to plain rows, and the next conditional write seals again. A repeated completion of an upload
    seals the token that its first attempt may still write to, so once for each upload.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        self._builds = [_span(op) for op in ops if op.kind in (OpKind.COMMIT, OpKind.COMPACT)]
        conditional = [op for op in ops if op.expected is not None]
        self._conditional = [_span(op) for op in conditional]
        self._removals = [
            _span(op) for op in ops if op.kind is OpKind.REMOVE and op.outcome is not Outcome.FAIL
        ]
        acked = [op for op in conditional if op.is_ok]
        self._acked = _Acknowledged(acked)
        self._acked_of = {
            key: _Acknowledged([op for op in acked if op.key == key])
            for key in {op.key for op in acked}
        }
        self._moves = [
            _span(op)
            for op in ops
            if op.kind in MERGES
            or (op.kind is OpKind.MOVE and not op.is_forced)
            or (op.kind is OpKind.RESET and op.part)
        ]
        self._resets = [
            _span(op)
            for op in ops
            if (
                (op.kind is OpKind.RESET and not op.part)
                or (op.kind is OpKind.MOVE and op.is_forced)
            )
            and op.outcome is not Outcome.FAIL
        ]
        creations = (_span(op) for op in ops if op.kind is OpKind.CREATE)
        plain = [*self._builds, *self._moves, *self._resets]
        self._to_plain = [*plain, *creations]
        self._uploads = [_span(op) for op in ops if op.is_upload]
        others = [*self._conditional, *self._removals, *self._uploads]
        spans = [*plain, *others]
        self._first = min((inv for inv, _ in spans), default=NEVER)

    def any_before(self, time: float) -> bool:
        """Whether there may have been a seal before `time`."""
        return self._first < time

    def met(self, effect: Effect, time: float, last: float) -> int:
        """Returns how many seals a write may have met until `time`, if its last effect came after `last`.

        Conditional writes seal only a plain token: one for each seal that made it plain, and one if the token was
        plain when the write began.
        """
        plain = _overlapping(self._builds, effect.inv, time) * _SEALS_OF_A_BUILD
        plain += _overlapping(self._moves, effect.inv, time) * _SEALS_OF_A_MOVE
        plain += _overlapping(self._resets, effect.inv, time)
        conditional = _overlapping(self._conditional, effect.inv, time)
        seals = plain + min(conditional, plain + self._may_be_plain(effect, last))
        seals += _overlapping(self._removals, effect.inv, time)
        # An upload's own seal is no reason to write the object again over something else.
        seals += _overlapping(self._uploads, effect.inv, time) - effect.op.is_upload
        # Completions of uploads begin with a fresh record.
        is_plain = effect.op.kind is OpKind.PUT and effect.op.expected is None
        is_plain = is_plain and not effect.op.is_upload
        return seals + (is_plain and self.any_before(effect.inv))

    def _may_be_plain(self, effect: Effect, last: float) -> bool:
        """Whether the staging token may have been plain when a write began, and not sealed by a conditional write until
        the write's last effect, which came after `last`.

        An acknowledged conditional write saw a conditional token, between its beginning and its answer. If one was
        answered before the write began, a commit, compaction, merge, move or reset must have made the token plain
        between the two. The same holds if one of the same key was answered before the last effect: the effect lies over
        its row. One of another key tells nothing about that: a row may come into a token long after its seal.
        """
        newest = self._acked.newest(effect.inv)
        if (of_key := self._acked_of.get(effect.op.key)) is not None:
            newest = max(newest, of_key.newest(last))
        if newest == _NEVER_BEGUN:
            return True
        return newest < effect.inv and _overlapping(self._to_plain, newest, effect.inv) > 0


class _Acknowledged:
    """When acknowledged conditional writes began and ended."""

    def __init__(self, ops: Sequence[Op]) -> None:
        ops = sorted(ops, key=lambda op: op.end)
        self._ends = [op.end for op in ops]
        self._newest = [*accumulate((op.inv for op in ops), max)]

    def newest(self, time: float) -> float:
        """Returns the latest beginning of those that ended before a time."""
        ended = bisect_left(self._ends, time)
        return self._newest[ended - 1] if ended else _NEVER_BEGUN


def _span(op: Op) -> tuple[float, float]:
    return op.inv, NEVER if op.outcome is Outcome.INFO else op.end


def _overlapping(spans: Sequence[tuple[float, float]], begin: float, end: float) -> int:
    return sum(inv < end and over > begin for inv, over in spans)

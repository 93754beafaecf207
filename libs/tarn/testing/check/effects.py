"""Defines how often one write may take effect on a key under the protocol (used by
`tarn.testing.check.witness`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tarn.testing.check.history import NEVER, Op, OpKind, Outcome

__all__ = ["EFFECTS_MAX", "Effect", "Reading", "Seals"]

EFFECTS_MAX = 8
"""Attempts of one call: TRIES of `tarn_graveler.branch.attempts`."""

_SEALS_OF_A_COMMIT = 2
"""Seals by one commit: one; if the answer to its compare-and-set was lost, a second one, with another token."""

_TURNS = {OpKind.CREATE, OpKind.REMOVE}


@dataclass(frozen=True, slots=True)
class Effect:
    """A write that had, or may have had, an effect on the key.

    Attributes:
        ret: when it was acknowledged; `NEVER` if it was not.
    """

    value: int
    op: Op

    @property
    def inv(self) -> float:
        """Earliest time at which it may take effect."""
        return self.op.inv

    @property
    def ret(self) -> float:
        """Latest time at which it must have taken effect."""
        return self.op.ret

    @property
    def is_turn(self) -> bool:
        """Whether it writes all keys of the branch."""
        return self.op.kind in _TURNS


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that was returned."""

    value: int
    inv: float
    end: float
    op: Op


class Seals:
    """The times at which a branch may have been sealed: by commits, by conditional writes, and by uploads.

    The first conditional write of a branch seals, so that rows are registers from then on; each commit
    returns to plain rows, and the next conditional write seals again. A repeated completion of an upload
    seals the token that its first attempt may still write to, so once for each upload.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        self._commits = [_span(op) for op in ops if op.kind is OpKind.COMMIT]
        conditional = [op for op in ops if op.kind is OpKind.PUT and op.expected is not None]
        self._conditional = [_span(op) for op in conditional]
        self._removals = [
            _span(op) for op in ops if op.kind is OpKind.REMOVE and op.outcome is not Outcome.FAIL
        ]
        acked = sorted((op for op in conditional if op.is_ok), key=lambda op: op.end)
        self._acked_ends = [op.end for op in acked]
        begins = (op.inv for op in acked)
        self._newest_begins = [*accumulate(begins, max)]  # of those that ended so far, the latest
        self._to_plain = [*self._commits, *(_span(op) for op in ops if op.kind is OpKind.CREATE)]
        self._uploads = [_span(op) for op in ops if op.is_upload]
        spans = [*self._commits, *self._conditional, *self._removals, *self._uploads]
        self._first = min((inv for inv, _ in spans), default=NEVER)

    def any_before(self, time: float) -> bool:
        """Whether there may have been a seal before `time`."""
        return self._first < time

    def met(self, effect: Effect, time: float, last: float) -> int:
        """Returns how many seals a write may have met until `time`, if its last effect came after `last`.

        Conditional writes seal only a plain token: one for each commit, and one if the token was plain when the
        write began.
        """
        commits = _overlapping(self._commits, effect.inv, time) * _SEALS_OF_A_COMMIT
        conditional = _overlapping(self._conditional, effect.inv, time)
        seals = commits + min(conditional, commits + self._may_be_plain(effect.inv, last))
        seals += _overlapping(self._removals, effect.inv, time)
        # An upload's own seal is no reason to write the object again over something else.
        seals += _overlapping(self._uploads, effect.inv, time) - effect.op.is_upload
        # Completions of uploads begin with a fresh record.
        is_plain = effect.op.kind is OpKind.PUT and effect.op.expected is None
        is_plain = is_plain and not effect.op.is_upload
        return seals + (is_plain and self.any_before(effect.inv))

    def _may_be_plain(self, begin: float, end: float) -> bool:
        """Whether the staging token may have been plain at `begin`, and not sealed by a conditional write until `end`.

        An acknowledged conditional write saw a conditional token, between its beginning and its answer. If one was
        answered before `end`, it must have seen that token before `begin`, and a commit must have made it plain
        since.
        """
        ended = bisect_left(self._acked_ends, max(begin, end))
        if not ended:
            return True
        newest = self._newest_begins[ended - 1]
        return newest < begin and _overlapping(self._to_plain, newest, begin) > 0


def _span(op: Op) -> tuple[float, float]:
    return op.inv, NEVER if op.outcome is Outcome.INFO else op.end


def _overlapping(spans: Sequence[tuple[float, float]], begin: float, end: float) -> int:
    return sum(inv < end and over > begin for inv, over in spans)

"""The life of a branch on which a client began an upload or a link; both end with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.check.history import NEVER, History, Op, OpKind, Outcome

__all__ = ["BranchLife"]


@dataclass(frozen=True, slots=True)
class BranchLife:
    """One life of a branch, from a moment on.

    Attributes:
        branch: name of the branch.
        ended: removals of the branch that were over at that moment.
    """

    branch: str
    ended: frozenset[int]

    @staticmethod
    def of(history: History, branch: str) -> BranchLife:
        """Returns the life of a branch from now on."""
        removals = _removals(history, branch)
        return BranchLife(branch, frozenset(op.number for op in removals if op.ret != NEVER))

    def may_be_over(self, history: History) -> bool:
        """Whether the branch may have been removed since, and perhaps made again."""
        return any(op.number not in self.ended for op in _removals(history, self.branch))


def _removals(history: History, branch: str) -> Iterator[Op]:
    """Yields the removals of a branch, also those that may not have taken effect."""
    for op in history.ops:
        is_removal = op.kind is OpKind.REMOVE and op.branch == branch
        if is_removal and op.outcome is not Outcome.FAIL:
            yield op

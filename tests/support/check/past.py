"""What may have been true while an operation of a history ran, by the other answers (`refusals`, `pages`)."""

from __future__ import annotations

from tests.support.check.history import NEVER, History, Op, OpKind, Outcome
from tests.support.check.versions import Versions
from tests.support.check.writes import Writes, writes_of

__all__ = ["Past"]


class Past:
    """The states that a history allows. Each answer errs on the side of "may have been"."""

    def __init__(self, history: History, versions: Versions) -> None:
        self.history = history
        self.versions = versions
        self._writes: dict[tuple[str, str], Writes] = {}

    def writes(self, branch: str, key: str) -> Writes:
        """Returns the writes of a key."""
        place = (branch, key)
        found = self._writes.get(place)
        if found is None:
            ops = [op for op in self.history.ops if op.branch == branch]
            listed = writes_of(self.history, self.versions, key, ops)
            found = self._writes[place] = Writes([*listed])
        return found

    def all_keys(self) -> set[str]:
        """Returns all keys of the history."""
        return {op.key for op in self.history.ops if op.key is not None}

    def heads(self, op: Op, branch: str = "") -> list[str] | None:
        """Returns the commits that may have been the head of a branch; None if one of them is unknown."""
        return self.versions.heads_between(branch or op.branch, op.inv, op.end)

    def may_be_gone(self, op: Op, branch: str) -> bool:
        """Whether there may have been no such branch."""
        ops = [each for each in self.history.ops if each.branch == branch]
        made = [each for each in ops if each.kind is OpKind.CREATE and each.is_ok]
        newest = max((each.inv for each in made if each.ret < op.inv), default=-NEVER)
        if newest == -NEVER:
            return True  # it was made neither before nor by a known operation
        removed = (each for each in ops if each.kind is OpKind.REMOVE)
        return any(
            each.outcome is not Outcome.FAIL and each.inv < op.end and each.ret >= newest
            for each in removed
        )

    def may_exist(self, op: Op) -> bool:
        """Whether there may have been a branch of the name that an operation creates."""
        ops = [each for each in self.history.ops if each.branch == op.branch and each is not op]
        removed = [each for each in ops if each.kind is OpKind.REMOVE and each.is_ok]
        newest = max((each.inv for each in removed if each.ret < op.inv), default=-NEVER)
        created = (each for each in ops if each.kind is OpKind.CREATE)
        return any(
            each.outcome is not Outcome.FAIL and each.inv < op.end and each.ret >= newest
            for each in created
        )

    def is_beside(self, op: Op, kinds: frozenset[OpKind]) -> bool:
        """Whether another operation of some kinds may have taken effect on the branch."""
        return any(
            each is not op
            and each.branch == op.branch
            and each.kind in kinds
            and each.inv < op.end
            and each.ret > op.inv
            and (each.outcome is not Outcome.FAIL or each.end > op.inv)
            for each in self.history.ops
        )

    def sources(self, op: Op) -> list[str] | None:
        """Returns the commits that an operation may have merged; None if one of them is unknown."""
        found = [op.source_id] if op.source_id else self.heads(op, op.source_branch)
        if found is None or any(each not in self.history.commits for each in found):
            return None
        return found

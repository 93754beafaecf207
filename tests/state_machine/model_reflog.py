"""The reflogs of the model: which head each branch had before each change, also of branches that are deleted."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["HeadChange", "Reflogs"]


class HeadChange(NamedTuple):
    """A change of a branch's head.

    Attributes:
        operation: its kind, as `HeadOperation` names it.
        old: the former head; None for a creation.
        new: the new head; None for a deletion.
    """

    operation: str
    old: int | None
    new: int | None


class Reflogs:
    """The changes of all branches of a repository."""

    def __init__(self) -> None:
        self._changes: dict[str, list[HeadChange]] = {}

    def add(self, branch: str, operation: str, old: int | None, new: int | None) -> None:
        """Records a change; one that leaves the head where it is, is none."""
        if old != new:
            self._changes.setdefault(branch, []).append(HeadChange(operation, old, new))

    def newest_first(self, branch: str) -> list[HeadChange]:
        """Returns the changes of a name, of all of its lives."""
        return self._changes.get(branch, [])[::-1]

    def head_before(self, branch: str, count: int, head: int | None) -> int | None:
        """Returns the head before the last `count` changes; None if there was no branch, or fewer changes.

        Args:
            branch: the name.
            count: number of changes to look behind.
            head: the present head; None if the branch does not exist.
        """
        if count == 0:
            return head
        changes = self.newest_first(branch)
        return changes[count - 1].old if count <= len(changes) else None

    def last_head(self, branch: str) -> int | None:
        """Returns the last head of a deleted branch; None if the newest change is no deletion."""
        changes = self.newest_first(branch)
        return changes[0].old if changes and changes[0].new is None else None

    def deleted(self) -> dict[str, int]:
        """Returns the last head of each branch whose newest change is its deletion, in the order of the names."""
        found = {name: self.last_head(name) for name in sorted(self._changes)}
        return {name: head for name, head in found.items() if head is not None}

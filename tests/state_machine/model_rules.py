"""The rules of the model: protected and hidden branches, and read-only (docs/user/rules.md)."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["Protection", "Rules"]


@dataclass(frozen=True)
class Protection:
    """Blocks changes of branches.

    Attributes:
        pattern: of their names.
        blocked: the kinds: write, commit, merge, delete, force.
        exempts: names how the caller is exempt, `user` or `role`; empty if it is bound.
    """

    pattern: str
    blocked: frozenset[str]
    exempts: str = ""


@dataclass(frozen=True)
class Rules:
    """The rules of a repository."""

    protections: tuple[Protection, ...] = ()
    hidden: tuple[str, ...] = ()
    is_read_only: bool = False

    def refusal(self, branch: str, kind: str) -> str:
        """Returns the reason to refuse a change; empty if it is allowed.

        Args:
            branch: the branch to change.
            kind: as in a protection; `other` for changes that no protection blocks.
        """
        if self.is_read_only:
            return "REPOSITORY_READ_ONLY"
        blocked = any(
            kind in each.blocked and not each.exempts and fnmatchcase(branch, each.pattern)
            for each in self.protections
        )
        return "BRANCH_PROTECTED" if blocked else ""

    def hides(self, branch: str) -> bool:
        """Whether listings omit a branch that is not the default branch."""
        return any(fnmatchcase(branch, pattern) for pattern in self.hidden)

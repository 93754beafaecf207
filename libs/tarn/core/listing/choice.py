"""Which side of a merge conflict wins: a strategy decides path by path."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.glob import check_glob, match_glob

__all__ = ["CHOICE_RULES_MAX", "REFUSE", "Choice", "ChoiceRule", "Side"]

CHOICE_RULES_MAX = 100
"""Most rules of a choice. Each rule is one pass over the paths that conflict."""


class Side(enum.IntEnum):
    """The entry of a path that a merge keeps."""

    REFUSE = 0
    """Neither: the merge is refused, and the conflict is listed."""
    SOURCE = 1
    DEST = 2


@dataclass(frozen=True, slots=True)
class ChoiceRule:
    """Resolves the conflicts whose paths match a pattern (`tarn.core.glob`)."""

    glob: str
    side: Side


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy for conflicts. Paths without a conflict are not affected.

    Attributes:
        default: for a path that no rule matches.
        rules: the first rule that matches a path decides.

    Raises:
        TarnError: INVALID for too many rules or a pattern that is not valid.
    """

    default: Side = Side.REFUSE
    rules: tuple[ChoiceRule, ...] = ()

    def __post_init__(self) -> None:
        if len(self.rules) > CHOICE_RULES_MAX:
            text = f"a merge takes at most {CHOICE_RULES_MAX} rules for conflicts, not {len(self.rules)}"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        for rule in self.rules:
            check_glob(rule.glob)

    def sides(self, paths: pa.StringArray) -> npt.NDArray[np.int8]:
        """Returns the `Side` of each path."""
        sides = np.full(len(paths), self.default, np.int8)
        undecided = np.ones(len(paths), np.bool_)
        for rule in self.rules:
            matched = undecided & match_glob(paths, rule.glob)
            sides[matched] = rule.side
            undecided &= ~matched
        return sides


REFUSE = Choice()
"""The default strategy: any conflict refuses the merge."""

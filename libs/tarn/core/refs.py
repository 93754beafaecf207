"""The grammar of refs: `<base>[~N|^N]*`.

`base` is a full commit id, a branch, a tag, or a unique prefix of a commit id, looked up in that order. `~N`
goes back N steps along first parents, `^N` goes to the Nth parent (`^0` is the commit itself; `~` and `^` alone
mean 1). `@` directly after a branch means its newest commit, without uncommitted changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tarn.core.errors import Kind, Reason, TarnError

__all__ = [
    "COMMIT_PREFIX_MIN",
    "RefExpression",
    "Step",
    "is_commit_id",
    "may_be_prefix",
    "parse_ref",
]

COMMIT_PREFIX_MIN = 4
"""Shorter prefixes of commit ids are rejected as probable typing errors."""

_REF_BYTES_MAX = 512
_REF = re.compile(
    r"(?P<base>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})(?P<at>@?)(?P<steps>(?:[~^][0-9]{0,6})*)"
)
_STEP = re.compile(r"([~^])([0-9]*)")
_HEX = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Step:
    """One modifier: `~count` (count first parents back) or `^count` (the count-th parent)."""

    is_parent: bool
    count: int


@dataclass(frozen=True, slots=True)
class RefExpression:
    """A parsed ref.

    Attributes:
        base: a name, a commit id or a prefix of one.
        committed: an `@` or a step was given, so uncommitted changes of a branch are ignored.
        steps: the modifiers, in order.
    """

    base: str
    committed: bool
    steps: tuple[Step, ...]


def is_commit_id(text: str) -> bool:
    """Whether a text is a full commit id."""
    return len(text) == 64 and _HEX.fullmatch(text) is not None


def may_be_prefix(text: str) -> bool:
    """Whether a text may be a prefix of a commit id."""
    return COMMIT_PREFIX_MIN <= len(text) < 64 and _HEX.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def parse_ref(text: str) -> RefExpression:
    """Parses a ref as clients write it.

    Raises:
        TarnError: INVALID: the text breaks the grammar; the message gives the rule.
    """
    matched = _REF.fullmatch(text) if len(text) <= _REF_BYTES_MAX else None
    if matched is None:
        shown = text[:80]
        rule = "is not <branch, tag or commit id>[@][~N|^N]*"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, f"ref {shown!r} {rule}", ref=shown)
    steps = tuple(
        Step(sign == "^", int(count) if count else 1)
        for sign, count in _STEP.findall(matched["steps"])
    )
    return RefExpression(matched["base"], bool(matched["at"]) or bool(steps), steps)

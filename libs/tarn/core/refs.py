"""The grammar of refs: `<base>[@|@{moment}][~N|^N]*`.

`base` is a full commit id, a branch, a tag, or a unique prefix of a commit id, looked up in that order. `~N`
goes back N steps along first parents, `^N` goes to the Nth parent (`^0` is the commit itself; `~` and `^` alone
mean 1). `@` directly after a branch means its newest commit, without uncommitted changes. `@{moment}` means a
commit that was its newest one (`tarn.core.moments`); then the base is always the name of a branch, which may be
deleted by now. Modifiers apply from left to right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.core.moments import MOMENT_CHARS_MAX, MOMENT_RULE, Moment, parse_moment

__all__ = [
    "COMMIT_PREFIX_MIN",
    "RefExpression",
    "Step",
    "branch_to_write",
    "is_commit_id",
    "may_be_prefix",
    "parse_ref",
]

COMMIT_PREFIX_MIN = 4
"""Shorter prefixes of commit ids are rejected as probable typing errors."""

_REF_BYTES_MAX = 512
_REF = re.compile(
    r"(?P<base>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})(?P<at>@(?:\{(?P<moment>[^{}]*)\})?)?"
    r"(?P<steps>(?:[~^][0-9]{0,6})*)"
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
        moment: when the commit was the head of the branch `base`; None if no `@{…}` was given.
    """

    base: str
    committed: bool
    steps: tuple[Step, ...]
    moment: Moment | None = None


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
        raise _invalid(
            text, "is not <branch, tag or commit id>[@][~N|^N]* or <branch>@{moment}[~N|^N]*"
        )
    steps = tuple(
        Step(sign == "^", int(count) if count else 1)
        for sign, count in _STEP.findall(matched["steps"])
    )
    moment = None if matched["moment"] is None else _moment(text, matched)
    return RefExpression(matched["base"], bool(matched["at"]) or bool(steps), steps, moment)


def _moment(text: str, matched: re.Match[str]) -> Moment:
    if is_commit_id(matched["base"]):
        raise _invalid(text, "is a commit id with a moment: only branches have a reflog")
    inside = matched["moment"]
    moment = parse_moment(inside) if len(inside) <= MOMENT_CHARS_MAX else None
    if moment is None:
        raise _invalid(text, f"has no valid moment: {MOMENT_RULE}")
    return moment


def _invalid(text: str, rule: str) -> TarnError:
    shown = text[:80]
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, f"ref {shown!r} {rule}", ref=shown)


@lru_cache(maxsize=4096)
def branch_to_write(ref: str) -> BranchId:
    """Returns the branch of a ref that is to be written to. A tag's name is accepted: only graveler knows the tags.

    Raises:
        TarnError: REF_NOT_WRITABLE for a commit id and for a ref with `@` or steps; as `parse_ref`.
    """
    expression = parse_ref(ref)
    if expression.committed or is_commit_id(expression.base):
        text = f"{ref} is not a branch; only branches take writes"
        raise TarnError(Kind.INVALID, Reason.REF_NOT_WRITABLE, text, ref=ref)
    return BranchId(expression.base)

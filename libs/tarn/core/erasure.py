"""Erasure of objects by their paths: checks of patterns, ids and ages, and the row of an erased address.

The run of a plan notes the address of each block before it deletes the block (docs/design/erase.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tarn.core.collection import CollectionLimits
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.glob import check_glob
from tarn.core.ids import address_time_us

__all__ = [
    "ADDRESSES_MAX",
    "ADDRESS_BYTES",
    "ErasedAddress",
    "check_old_enough",
    "check_pattern",
    "check_plan_id",
    "is_old_enough",
    "literal_prefix",
]

ADDRESS_BYTES: Final = 16
ADDRESSES_MAX: Final = 1000
"""Most addresses that one request notes."""
_PLAN_ID = re.compile(r"[0-9a-f]{32}")
_PLAIN = re.compile(r"(?:[^\\*?]|\\.)*", re.DOTALL)
_HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class ErasedAddress:
    """The row of an erased address.

    Attributes:
        plan_id: the plan, 32 hex digits.
        time_us: when the row was written, microseconds since the epoch.
    """

    plan_id: str
    time_us: int


def literal_prefix(glob: str) -> str:
    """Returns the literal text at the start of a pattern: every path that matches begins with it."""
    found = _PLAIN.match(glob)
    assert found is not None, "the expression matches an empty text"
    return re.sub(r"\\(.)", r"\1", found.group(), flags=re.DOTALL)


def check_pattern(glob: str, *, everything: bool = False) -> None:
    """Checks the pattern of a plan.

    A typing error must not erase a lake, so a pattern begins with a whole literal segment unless `everything` is true.

    Raises:
        TarnError: INVALID.
    """
    check_glob(glob)
    if (
        everything
        or "/" in literal_prefix(glob).lstrip("/")
        or literal_prefix(glob) == _plain(glob)
    ):
        return
    text = (
        f"the pattern {glob[:100]!r} does not begin with a whole literal segment such as users/, so a typing error "
        "could erase far too much; pass --everything if you mean it"
    )
    raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="pattern")


def _plain(glob: str) -> str:
    return re.sub(r"\\(.)", r"\1", glob, flags=re.DOTALL)


def check_plan_id(plan_id: str) -> None:
    """Checks the id of a plan.

    Raises:
        TarnError: INVALID.
    """
    if not _PLAN_ID.fullmatch(plan_id):
        text = f"{plan_id[:80]!r} is not the id of a plan: 32 lower-case hex digits"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="plan_id")


def is_old_enough(address: bytes, now_us: int, limits: CollectionLimits) -> bool:
    """Whether no writer can stage an address any more, so that its block can be erased for good.

    The margin over the staging limit (rule 11) is that of a collection: for clocks, and for rows on their way.
    """
    return now_us - address_time_us(address) >= limits.cutoff_us


def check_old_enough(address: bytes, now_us: int, limits: CollectionLimits) -> None:
    """Refuses to erase an address that a writer may still stage.

    Raises:
        TarnError: FAILED_PRECONDITION, ADDRESS_TOO_YOUNG.
    """
    if not is_old_enough(address, now_us, limits):
        text = (
            f"the block {address.hex()} was begun less than {limits.cutoff_us / _HOUR_US:g} hours ago, so a writer may "
            "still refer to it; none of the addresses was recorded as erased; make a new plan later"
        )
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.ADDRESS_TOO_YOUNG, text)

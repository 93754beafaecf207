"""What a protection asks of pull requests before they are merged (docs/design/pull-requests.md). Values and checks
only; `tarn.core.pull_request` decides which reviews meet a rule.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["APPROVALS_MAX", "ExemptUser", "OwnerRule", "ReviewRule", "StaleApprovals"]

APPROVALS_MAX: Final = 10
OWNER_RULES_MAX: Final = 50
OWNERS_MAX: Final = 20
_PREFIX_BYTES_MAX: Final = 1024


class StaleApprovals(enum.StrEnum):
    """What happens to the approval of a commit when the branch moves on."""

    KEEP = "keep"
    """It counts for whatever the branch holds."""
    IGNORE = "ignore"
    """It counts only while the branch is at the approved commit; again, if the branch comes back to it."""
    DISMISS = "dismiss"
    """It ends when the branch moves."""


@dataclass(frozen=True, slots=True)
class ExemptUser:
    """A user whom a rule names; only this life of the user, not a later one of the same name.

    Attributes:
        unknown_fields: fields of the record that only newer replicas know (`tarn.kv.unknown_fields`).
    """

    user_id: str
    user_uid: bytes
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OwnerRule:
    """Changes of paths that begin with `prefix` need the approval of one of its owners."""

    prefix: str
    owners: tuple[ExemptUser, ...]
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    def check(self) -> None:
        """Checks a new rule.

        Raises:
            TarnError: INVALID_ARGUMENT.
        """
        if len(self.prefix.encode()) > _PREFIX_BYTES_MAX:
            text = f"the prefix {self.prefix[:80]!r} is longer than {_PREFIX_BYTES_MAX} bytes"
            raise _invalid(text)
        if not 1 <= len(self.owners) <= OWNERS_MAX:
            text = f"the prefix {self.prefix[:80]!r} has {len(self.owners)} owners, not 1 to {OWNERS_MAX}"
            raise _invalid(text)


@dataclass(frozen=True, slots=True)
class ReviewRule:
    """What a pull request needs before it is merged into a branch.

    Attributes:
        approval_count: how many users have to approve it.
        author_counts: whether the approval of its author counts.
        stale: what happens to approvals when the source moves.
        covers_destination: whether the same happens when the destination moves.
        owners: of prefixes. Each one below which the merge changes something has to approve.
        unknown_stale: a value of `stale` that only newer replicas know; `stale` is the strictest one then.
    """

    approval_count: int = 1
    author_counts: bool = False
    stale: StaleApprovals = StaleApprovals.IGNORE
    covers_destination: bool = False
    owners: tuple[OwnerRule, ...] = ()
    unknown_stale: str = ""
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    def check(self) -> None:
        """Checks a new rule.

        Raises:
            TarnError: INVALID_ARGUMENT.
        """
        if not 0 <= self.approval_count <= APPROVALS_MAX:
            text = f"{self.approval_count} approvals are wanted; the number is 0 to {APPROVALS_MAX}"
            raise _invalid(text)
        if len(self.owners) > OWNER_RULES_MAX:
            text = f"{len(self.owners)} prefixes have owners; at most {OWNER_RULES_MAX} may"
            raise _invalid(text)
        if len({each.prefix for each in self.owners}) < len(self.owners):
            raise _invalid("two owner rules have the same prefix; merge them into one")
        for each in self.owners:
            each.check()


def _invalid(text: str) -> TarnError:
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="review")

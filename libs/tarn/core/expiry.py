"""Expired commits: commits that a retention rule has let go (docs/design/retention.md).

An expired commit keeps its record, its metarange and its ranges, so the history stays whole. It keeps none of its
objects: its entries are no roots of a collection any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn.core.moments import iso_time

__all__ = ["EXPIRE_MAX", "RULE_CHARS_MAX", "Expiry", "expired_commit"]

EXPIRE_MAX = 500
"""Most commits that one request lets expire."""
RULE_CHARS_MAX = 300
"""Most characters of the text that names a rule."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """When a commit expired, and why.

    Attributes:
        rule: what let it expire, for people.
        time_us: microseconds since the epoch.
    """

    rule: str
    time_us: int


def expired_commit(commit_id: CommitId, expiry: Expiry) -> TarnError:
    """Returns the error for a request that needs the objects of an expired commit."""
    when = iso_time(expiry.time_us)
    text = (
        f"commit {commit_id} expired on {when} by the retention rule `{expiry.rule}`, so its objects are deleted; "
        "its record and its differences can still be read"
    )
    metadata = {"commit_id": str(commit_id), "rule": expiry.rule, "expire_time": when}
    return TarnError(Kind.FAILED_PRECONDITION, Reason.EXPIRED_COMMIT, text, **metadata)

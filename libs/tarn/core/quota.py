"""Limits of repositories and users: the values, the errors that report them, and token buckets for rates.

docs/design/quotas.md says where each limit is enforced, and how exactly.
"""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, fields

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_repository_id, parse_user_id

__all__ = [
    "NO_LIMITS",
    "RATES",
    "Limits",
    "Quota",
    "QuotaKind",
    "TokenBucket",
    "check_quota",
    "is_quota_exceeded",
    "parse_kind",
    "quota_exceeded",
]

LIMIT_MAX = 1 << 62


class QuotaKind(enum.StrEnum):
    """The kind of subject that a quota limits."""

    REPOSITORY = "repository"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits or usage of one repository or user. A limit of 0 means no limit.

    Attributes:
        staged_objects: uncommitted objects.
        staged_bytes: bytes of uncommitted objects.
        branches: branches.
        uploads: multipart uploads and issued addresses that are open.
        requests_per_second: S3 requests.
        bytes_per_second: bytes of bodies of S3 requests and answers.
    """

    staged_objects: int = 0
    staged_bytes: int = 0
    branches: int = 0
    uploads: int = 0
    requests_per_second: int = 0
    bytes_per_second: int = 0

    def __bool__(self) -> bool:
        return any(asdict(self).values())

    @property
    def has_staged(self) -> bool:
        """Whether uncommitted objects are limited."""
        return bool(self.staged_objects or self.staged_bytes)


NO_LIMITS = Limits()
RATES = ("requests_per_second", "bytes_per_second")
"""The limits that gateways enforce; users have no others."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits that were set for one repository or user."""

    kind: QuotaKind
    name: str
    limits: Limits


def parse_kind(text: str) -> QuotaKind:
    """Returns the kind of a quota.

    Raises:
        TarnError: INVALID_ARGUMENT.
    """
    if text not in set(QuotaKind):
        said = f"a quota is one of a repository or of a user, not of {text[:80]!r}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, said, field="kind")
    return QuotaKind(text)


def check_quota(quota: Quota) -> None:
    """Checks the name and the limits of a quota.

    Raises:
        TarnError: INVALID_ARGUMENT: a limit is negative or too large, or is not one of a user; an invalid name.
    """
    if quota.kind is QuotaKind.USER:
        parse_user_id(quota.name)
    else:
        parse_repository_id(quota.name)
    for field in fields(quota.limits):
        value = getattr(quota.limits, field.name)
        text = ""
        if not 0 <= value <= LIMIT_MAX:
            text = f"{field.name} is {value}, not 0 to {LIMIT_MAX}"
        elif value and quota.kind is QuotaKind.USER and field.name not in RATES:
            text = f"{field.name} limits repositories; users have requests_per_second and bytes_per_second"
        if text:
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field=field.name)


_ADVICE = {
    "staged_objects": "commit or reset its branches",
    "staged_bytes": "commit or reset its branches",
    "branches": "delete branches that are not needed any more",
    "uploads": "complete or abort uploads that were begun",
}


def quota_exceeded(repository_id: str, limit: str, allowed: int, used: int) -> TarnError:
    """Returns the error for a change beyond a limit of a repository, which tells what to do.

    Args:
        repository_id: the repository.
        limit: name of the limit, a field of `Limits`.
        allowed: the limit.
        used: the present usage.
    """
    text = (
        f"repository {repository_id} may have {allowed} {limit} and has {used}: {_ADVICE[limit]}, or ask an "
        f"administrator to raise this limit (tarn quota set)"
    )
    return TarnError(
        Kind.EXHAUSTED,
        Reason.QUOTA_EXCEEDED,
        text,
        repository=repository_id,
        limit=limit,
        allowed=str(allowed),
        used=str(used),
    )


def is_quota_exceeded(error: TarnError) -> bool:
    """Whether an error says that a limit is reached, and so that nothing was done."""
    return error.kind is Kind.EXHAUSTED and error.reason is Reason.QUOTA_EXCEEDED


class TokenBucket:
    """A rate limit that admits what arrives within a second at once, and then as much as the rate allows.

    Costs that are known only afterwards, such as bytes, are taken then: the bucket is in debt, and admits nothing
    until the rate has paid for it.

    Args:
        rate: tokens per second, above 0; also the most tokens that are saved.
        now: the present time, in seconds of a monotonic clock.
    """

    __slots__ = ("_at", "_most", "_tokens", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens = self._most = max(rate, 1.0)
        self._at = now

    def wait_seconds(self, now: float, cost: float) -> float:
        """Returns how long to wait until there are tokens; 0 if there are some now."""
        self._fill(now)
        missing = min(cost, self._most) - self._tokens
        return max(0.0, missing / self.rate)

    def take(self, now: float, cost: float) -> None:
        """Takes tokens, also more than there are."""
        self._fill(now)
        self._tokens -= cost

    def _fill(self, now: float) -> None:
        self._tokens = min(self._most, self._tokens + (now - self._at) * self.rate)
        self._at = now

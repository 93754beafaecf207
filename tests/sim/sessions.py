"""The history of session keys, and the judge of their uses (I13). Times are those of the loop, in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from tests.support.check.history import Op

from tarn.core.access.policy import Binding
from tarn.core.errors import Reason

__all__ = [
    "BOUND_SECONDS",
    "CACHE_SECONDS",
    "GRANT_SECONDS",
    "REFUSAL_SECONDS",
    "UNKNOWN",
    "Period",
    "Right",
    "SessionLife",
    "Sessions",
    "Use",
]

CACHE_SECONDS: Final = 0.5
GRANT_SECONDS: Final = 0.5
BOUND_SECONDS: Final = CACHE_SECONDS + GRANT_SECONDS
"""Within this time the end of a key or of a right takes effect everywhere; 10 s in production."""
REFUSAL_SECONDS: Final = 0.1
_MILLISECOND: Final = 0.001

UNKNOWN: Final = frozenset(
    {Reason.CREDENTIAL_NOT_FOUND, Reason.SESSION_TOKEN_INVALID, Reason.CALLER_TOKEN_INVALID}
)
"""Reasons that say that there is no such key."""


@dataclass
class Period:
    """The time of a request; it ends never if its outcome is unknown."""

    begin: float
    end: float = math.inf


@dataclass
class Right(Period):
    """A change of the roles of the user.

    Attributes:
        can_write: whether the user may write from now on.
    """

    can_write: bool = False


@dataclass
class SessionLife:
    """A session key whose secrets its user has received.

    Attributes:
        binding: the only one of the key.
        is_read_only: its own permissions are those to read.
        lasts: when it was told to last until when, by the clock of the process of auth that said so.
        lasts_at_most: until when it may last at most, if an unknown renewal was made.
        ends: the requests to end it, or to delete the key pair that issued it.
    """

    access_key_id: str
    secret: str
    token: str
    binding: Binding
    is_read_only: bool
    lasts: list[tuple[float, float]]
    lasts_at_most: float
    ends: list[Period] = field(default_factory=list)

    def is_gone(self, at: float) -> bool:
        """Whether it has surely ended long enough ago."""
        return any(each.end + BOUND_SECONDS < at for each in self.ends)

    def may_end(self, until: float) -> bool:
        """Whether it may have ended by then."""
        return any(each.begin < until for each in self.ends)

    def lasted(self, at: float) -> float:
        """Until when it lasts, as was known then."""
        return max(until for told, until in self.lasts if told <= max(at, self.lasts[0][0]))


@dataclass
class Use:
    """A request with a session key.

    Attributes:
        begin: when it began.
        is_stranger: it had another token than the key's, or none.
        is_write: whether it needs the right to write.
        answers: whether it was admitted, or why not, and when: by the gateway, and by graveler for each operation.
        ops: the operations in the history.
    """

    life: SessionLife
    begin: float
    is_stranger: bool
    is_write: bool
    answers: list[tuple[Reason | None, float]] = field(default_factory=list)
    ops: list[tuple[Op, float]] = field(default_factory=list)

    def line(self) -> str:
        """Describes it."""
        what = "write" if self.is_write else "read"
        who = "a stranger's" if self.is_stranger else "its user's"
        return f"{self.begin:.3f} {who} {what} with session key {self.life.access_key_id}"


@dataclass
class Sessions:
    """What happened to session keys.

    Attributes:
        lives: the keys.
        rights: the changes of the user's rights, in order; at first the user may write.
        uses: every request.
        problems: requests that reached another ref than that of the binding.
        skew_seconds: difference between a clock and the true time.
    """

    lives: list[SessionLife] = field(default_factory=list)
    rights: list[Right] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skew_seconds: float = 0.0

    def may_write(self, begin: float, end: float, *, can: bool = True) -> bool:
        """Whether the user had the right to write, or not (`can`), at some moment of a time."""
        for at, right in enumerate([Right(-math.inf, -math.inf, can_write=True), *self.rights]):
            over = min((each.end for each in self.rights[at:]), default=math.inf)
            until = math.inf if math.isinf(right.end) and right.end > 0 else over
            if right.can_write is can and right.begin < end and until > begin:
                return True
        return False

    def judge(self) -> list[str]:
        """Returns what is wrong (I13), and notes which refusals of graveler are right."""
        problems = [*self.problems]
        for use in self.uses:
            for reason, end in use.answers:
                problem = self._admitted(use, end) if reason is None else ""
                if reason is not None and not self._is_right(use, reason, end):
                    problem = f"was refused as {reason}"
                problems += [f"{use.line()} {problem}"] if problem else []
            for op, end in use.ops:
                problem = self._admitted(use, end) if op.is_ok else ""
                if op.reason and self._is_right(use, Reason(op.reason), end):
                    op.grounds |= {op.reason}
                problems += [f"{use.line()} {problem}: {op.line()}"] if problem else []
        return problems

    def _admitted(self, use: Use, end: float) -> str:
        """Returns why a request must not be admitted."""
        life = use.life
        if use.is_stranger:
            return "was admitted"
        if life.is_gone(use.begin):
            return f"was admitted, but the key has ended: {life.ends}"
        if use.begin > life.lasts_at_most + self.skew_seconds + _MILLISECOND:
            return f"was admitted, but the key has expired at {life.lasts_at_most:.3f}"
        if use.is_write and life.is_read_only:
            return "was admitted, but the key may only read"
        if use.is_write and not self.may_write(use.begin - BOUND_SECONDS, end):
            return f"was admitted, but its user may only read: {self.rights}"
        return ""

    def _is_right(self, use: Use, reason: Reason, end: float) -> bool:
        """Whether a refusal may be right."""
        life, earlier = use.life, use.begin - REFUSAL_SECONDS
        has_expired = life.lasted(earlier) < end + self.skew_seconds + _MILLISECOND
        if use.is_stranger and reason in UNKNOWN:
            return True
        if reason in UNKNOWN:
            return life.may_end(end) or has_expired
        if reason is Reason.SESSION_EXPIRED:
            return has_expired
        if reason is Reason.ACCESS_DENIED:
            since = use.begin - BOUND_SECONDS - REFUSAL_SECONDS
            lacks = life.is_read_only or self.may_write(since, end, can=False)
            return use.is_write and lacks
        return False

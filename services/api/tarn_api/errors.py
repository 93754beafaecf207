"""Errors of the REST endpoint: the one mapping from Tarn's kinds and reasons to the statuses that lakeFS answers.

The body of an error is `{"message": …}`. 503 says that nothing was done, and that another attempt may succeed. A change
whose outcome is unknown is 500, never 4xx and never 503: it may have been made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from starlette.responses import Response

from tarn.core.errors import Kind, Reason, TarnError
from tarn.gate.rates import retry_after_s

__all__ = ["ApiError", "from_tarn_error", "too_many"]

_RETRY_AFTER_S: Final = 1


class ApiError(Exception):
    """An error to be sent to the client.

    Args:
        status: of HTTP.
        message: says what happened and what to do.
        reason: for the log; that of a `TarnError`, or a word.
        headers: of the answer.
        body: the JSON to send instead of the message alone.

    Attributes:
        page: for a person in front of a browser, instead of the page of errors; None: there is none.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        reason: str = "",
        headers: Mapping[str, str] = MappingProxyType({}),
        body: object = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.headers = dict(headers)
        if status == 503:
            self.headers.setdefault("Retry-After", str(_RETRY_AFTER_S))
        self.body = body if body is not None else {"message": message}
        self.page: Response | None = None


def too_many(text: str, wait_s: float, *, reason: str) -> ApiError:
    """Returns the answer to a request beyond a rate, which may be sent again after so many seconds."""
    headers = {"Retry-After": str(retry_after_s(wait_s))}
    return ApiError(429, text, reason=reason, headers=headers)


_REASONS: Final[Mapping[Reason, int]] = MappingProxyType(
    {
        Reason.BRANCH_DIRTY: 400,
        Reason.NOTHING_TO_COMMIT: 400,
        Reason.NOTHING_TO_MERGE: 400,
        Reason.REF_NOT_WRITABLE: 400,
        Reason.MERGE_CONFLICT: 409,
        Reason.NOT_FAST_FORWARD: 409,
        Reason.TOO_MANY_MERGE_BASES: 409,
        Reason.PULL_REQUEST_NOT_OPEN: 412,
        Reason.PULL_REQUEST_BLOCKED: 412,
        Reason.BRANCH_PROTECTED: 403,
        Reason.REPOSITORY_READ_ONLY: 403,
        Reason.QUOTA_EXCEEDED: 403,
        Reason.REPOSITORY_DELETED: 404,
        Reason.EXPIRED_COMMIT: 410,
        Reason.BLOCK_NOT_FOUND: 410,
        Reason.SETTINGS_CHANGED: 412,
        Reason.PRECONDITION_FAILED: 412,
        Reason.FEATURE_LEVEL: 501,
    }
)

_KINDS: Final[Mapping[Kind, int]] = MappingProxyType(
    {
        Kind.NOT_FOUND: 404,
        Kind.ALREADY_EXISTS: 409,
        Kind.INVALID: 400,
        Kind.DENIED: 403,
        Kind.UNAUTHENTICATED: 401,
        # Others moved the branch all the time; nothing was done.
        Kind.CONFLICT: 409,
        Kind.FAILED_PRECONDITION: 400,
        Kind.EXHAUSTED: 503,
        Kind.UNAVAILABLE: 503,
        # Of a read, or before the work of a change began: after that, its outcome is unknown.
        Kind.DEADLINE: 503,
        Kind.UNKNOWN_OUTCOME: 500,
        Kind.UNIMPLEMENTED: 501,
        Kind.CORRUPT: 500,
        Kind.INTERNAL: 500,
    }
)

_WORDS: Final[Mapping[Reason, str]] = MappingProxyType(
    {
        Reason.REPOSITORY_NOT_FOUND: "repository not found",
        Reason.REPOSITORY_DELETED: "repository not found",
        Reason.REPOSITORY_EXISTS: "error creating repository: not unique",
        Reason.COMMIT_NOT_FOUND: "commit not found",
        Reason.USER_NOT_FOUND: "user not found",
        Reason.NOTHING_TO_COMMIT: "commit: no changes",
    }
)
"""lakeFS's own words, which scripts compare; the request names what it is about."""

_PROTECTED: Final = frozenset({"write", "commit"})
"""Changes of a protected branch that lakeFS has words for."""

_OURS: Final = frozenset({Kind.CORRUPT, Kind.INTERNAL})


def from_tarn_error(error: TarnError, *, write: bool) -> ApiError:
    """Returns the answer to a `TarnError`.

    Args:
        error: the failure.
        write: whether the request may have changed something.
    """
    if error.kind is Kind.UNKNOWN_OUTCOME:
        if not write:
            return ApiError(503, error.message, reason=error.reason.value)
        text = f"{error.message}; it may have been done: look before you repeat it"
        return ApiError(500, text, reason=error.reason.value)
    status = _REASONS.get(error.reason, _KINDS[error.kind])
    message = error.message
    if error.kind in _OURS:
        message = "an error of the server; its log has the details"  # no internals for clients
    elif error.kind is Kind.UNAUTHENTICATED:
        # One text for all: it does not tell which half of a key pair is wrong.
        message = "error authenticating request"
    elif error.reason in _WORDS:
        message = _WORDS[error.reason]
    elif error.reason is Reason.NOTHING_TO_MERGE:
        message = f"no changes: {error.message}"  # clients look for these words
    elif (
        error.reason is Reason.BRANCH_PROTECTED
        and (change := error.metadata.get("change")) in _PROTECTED
    ):
        message = f"cannot {change} to protected branch: {error.message}"  # and for these
    return ApiError(status, message, reason=error.reason.value)

"""The one error base of Tarn, and the reasons that cross service borders.

A domain error says what *kind* of failure it is (one kind maps to one gRPC code and to a retry rule)
and for which *reason* (one reason maps to one S3 error code or CLI exit). Subclasses live beside the
code that raises them; after a trip over the wire an error comes back as a plain `TarnError` with the
same kind, reason and metadata, so callers compare `kind` and `reason`, not classes.
"""

from __future__ import annotations

import enum

__all__ = ["Kind", "Reason", "TarnError"]


class Kind(enum.Enum):
    """What sort of failure: decides the gRPC code and whether a retry may help."""

    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    INVALID = "invalid"
    DENIED = "denied"
    UNAUTHENTICATED = "unauthenticated"
    CONFLICT = "conflict"
    """A compare-and-set was lost: the caller re-reads and decides again."""
    FAILED_PRECONDITION = "failed_precondition"
    EXHAUSTED = "exhausted"
    """A limit or quota; try later."""
    UNAVAILABLE = "unavailable"
    """Surely not applied; the only kind that a client may retry by itself."""
    DEADLINE = "deadline"
    UNKNOWN_OUTCOME = "unknown_outcome"
    """May or may not have been applied; nobody treats it as either."""
    UNIMPLEMENTED = "unimplemented"
    CORRUPT = "corrupt"
    """An invariant is broken or stored bytes are damaged; never retried."""
    INTERNAL = "internal"


class Reason(enum.StrEnum):
    """Reasons that a caller in another service tells apart."""

    REPOSITORY_NOT_FOUND = "REPOSITORY_NOT_FOUND"
    REPOSITORY_EXISTS = "REPOSITORY_EXISTS"
    REPOSITORY_DELETED = "REPOSITORY_DELETED"
    BRANCH_NOT_FOUND = "BRANCH_NOT_FOUND"
    BRANCH_EXISTS = "BRANCH_EXISTS"
    TAG_NOT_FOUND = "TAG_NOT_FOUND"
    TAG_EXISTS = "TAG_EXISTS"
    REF_NOT_FOUND = "REF_NOT_FOUND"
    REF_AMBIGUOUS = "REF_AMBIGUOUS"
    REF_NOT_WRITABLE = "REF_NOT_WRITABLE"
    """A write named a tag, a commit or a relative ref."""
    COMMIT_NOT_FOUND = "COMMIT_NOT_FOUND"
    NOTHING_TO_COMMIT = "NOTHING_TO_COMMIT"
    ENTRY_NOT_FOUND = "ENTRY_NOT_FOUND"
    UPLOAD_NOT_FOUND = "UPLOAD_NOT_FOUND"
    UPLOAD_PART_INVALID = "UPLOAD_PART_INVALID"
    UPLOAD_PART_ORDER = "UPLOAD_PART_ORDER"
    UPLOAD_PART_TOO_SMALL = "UPLOAD_PART_TOO_SMALL"
    UPLOAD_BUSY = "UPLOAD_BUSY"
    BLOCK_NOT_FOUND = "BLOCK_NOT_FOUND"
    USER_NOT_FOUND = "USER_NOT_FOUND"
    USER_EXISTS = "USER_EXISTS"
    ROLE_NOT_FOUND = "ROLE_NOT_FOUND"
    CREDENTIAL_NOT_FOUND = "CREDENTIAL_NOT_FOUND"
    ALREADY_SET_UP = "ALREADY_SET_UP"
    SIGNATURE_MISMATCH = "SIGNATURE_MISMATCH"
    CALLER_TOKEN_INVALID = "CALLER_TOKEN_INVALID"  # noqa: S105 - a reason, not a secret
    ACCESS_DENIED = "ACCESS_DENIED"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    INVALID_PAGE_TOKEN = "INVALID_PAGE_TOKEN"  # noqa: S105 - a reason, not a secret
    KEY_TOO_LONG = "KEY_TOO_LONG"
    METADATA_TOO_LARGE = "METADATA_TOO_LARGE"
    PRECONDITION_FAILED = "PRECONDITION_FAILED"
    """A conditional write found another object, or one at all."""
    REF_MOVED = "REF_MOVED"
    TOO_MANY_RETRIES = "TOO_MANY_RETRIES"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    OVERLOADED = "OVERLOADED"
    UNAVAILABLE = "UNAVAILABLE"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    DATA_CORRUPT = "DATA_CORRUPT"
    INTERNAL = "INTERNAL"


class TarnError(Exception):
    """A failure that Tarn understands.

    Args:
        kind: what sort of failure.
        reason: the precise reason, compared by callers.
        message: a sentence for people that can be debugged from its text alone; no secrets.
        metadata: every variable of the message, by name, for programs.
    """

    def __init__(self, kind: Kind, reason: Reason, message: str, **metadata: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.reason = reason
        self.message = message
        self.metadata = metadata

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as what it is, not by what it was made of: subclasses are made of other things."""
        return _unmade, (type(self), self.args), self.__dict__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind.name}, {self.reason}, {self.message!r})"


def _unmade(of: type[TarnError], args: tuple[object, ...]) -> TarnError:
    """An error as it is before `__init__`; what it had is put into it then."""
    return of.__new__(of, *args)

"""Tarn's base error class, and the reasons that cross service borders.

An error has a *kind* of failure and a *reason*. Each kind maps to one gRPC code and one retry rule, each reason to one
S3 error code or CLI exit code. Subclasses are defined beside the code that raises them. An error that has crossed the
wire is a plain `TarnError` with the same kind, reason and metadata, so callers compare `kind` and `reason`, not
classes.
"""

from __future__ import annotations

import enum

__all__ = ["Kind", "Reason", "TarnError"]


class Kind(enum.Enum):
    """The kind of a failure; decides the gRPC code and whether a retry may help."""

    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    INVALID = "invalid"
    DENIED = "denied"
    UNAUTHENTICATED = "unauthenticated"
    CONFLICT = "conflict"
    """A compare-and-set was lost: the caller reads again and decides again."""
    FAILED_PRECONDITION = "failed_precondition"
    EXHAUSTED = "exhausted"
    """A limit or quota is exceeded; retry later."""
    UNAVAILABLE = "unavailable"
    """Certainly not applied; the only kind that a client may retry by itself."""
    DEADLINE = "deadline"
    UNKNOWN_OUTCOME = "unknown_outcome"
    """The outcome is unknown: callers must treat it neither as applied nor as failed."""
    UNIMPLEMENTED = "unimplemented"
    CORRUPT = "corrupt"
    """An invariant is broken or stored bytes are damaged; never retried."""
    INTERNAL = "internal"


class Reason(enum.StrEnum):
    """Reasons that callers in other services distinguish."""

    REPOSITORY_NOT_FOUND = "REPOSITORY_NOT_FOUND"
    REPOSITORY_EXISTS = "REPOSITORY_EXISTS"
    REPOSITORY_DELETED = "REPOSITORY_DELETED"
    BUCKET_NOT_FOUND = "BUCKET_NOT_FOUND"
    """A bucket view, or the repository that it shows, does not exist (any more)."""
    BUCKET_EXISTS = "BUCKET_EXISTS"
    """The name of a new bucket view belongs to another view or to a repository."""
    BUCKET_MOVED = "BUCKET_MOVED"
    """A bucket view shows something else than its caller believes; nothing was done."""
    BRANCH_NOT_FOUND = "BRANCH_NOT_FOUND"
    BRANCH_EXISTS = "BRANCH_EXISTS"
    BRANCH_DIRTY = "BRANCH_DIRTY"
    """A merge, revert, cherry-pick or move met uncommitted changes."""
    BRANCH_PROTECTED = "BRANCH_PROTECTED"
    """A rule of the repository blocks this change of the branch for this caller."""
    REPOSITORY_READ_ONLY = "REPOSITORY_READ_ONLY"
    SETTINGS_CHANGED = "SETTINGS_CHANGED"
    """The settings of a repository are not those that a change expects."""
    BRANCH_RESET = "BRANCH_RESET"
    """A reset discarded the changes that a commit was about to commit."""
    TAG_NOT_FOUND = "TAG_NOT_FOUND"
    TAG_EXISTS = "TAG_EXISTS"
    REF_NOT_FOUND = "REF_NOT_FOUND"
    REF_AMBIGUOUS = "REF_AMBIGUOUS"
    REF_NOT_WRITABLE = "REF_NOT_WRITABLE"
    """A write named a tag, a commit or a relative ref instead of a branch."""
    COMMIT_NOT_FOUND = "COMMIT_NOT_FOUND"
    EXPIRED_COMMIT = "EXPIRED_COMMIT"
    NOTHING_TO_COMMIT = "NOTHING_TO_COMMIT"
    NOTHING_TO_MERGE = "NOTHING_TO_MERGE"
    """The destination already contains the source."""
    MERGE_CONFLICT = "MERGE_CONFLICT"
    """Both sides changed a path differently, and no choice says which one wins."""
    NOT_FAST_FORWARD = "NOT_FAST_FORWARD"
    """The destination has commits that the source lacks."""
    TOO_MANY_MERGE_BASES = "TOO_MANY_MERGE_BASES"
    """The histories have merged too many commits independently of each other."""
    PULL_REQUEST_NOT_FOUND = "PULL_REQUEST_NOT_FOUND"
    PULL_REQUEST_EXISTS = "PULL_REQUEST_EXISTS"
    """An open pull request has the same source and the same destination."""
    PULL_REQUEST_NOT_OPEN = "PULL_REQUEST_NOT_OPEN"
    PULL_REQUEST_BLOCKED = "PULL_REQUEST_BLOCKED"
    """The rules of the repository want more reviews before the request is merged."""
    ENTRY_NOT_FOUND = "ENTRY_NOT_FOUND"
    UPLOAD_NOT_FOUND = "UPLOAD_NOT_FOUND"
    UPLOAD_PART_INVALID = "UPLOAD_PART_INVALID"
    UPLOAD_PART_ORDER = "UPLOAD_PART_ORDER"
    UPLOAD_PART_TOO_SMALL = "UPLOAD_PART_TOO_SMALL"
    UPLOAD_BUSY = "UPLOAD_BUSY"
    LINK_EXPIRED = "LINK_EXPIRED"
    LINK_USED = "LINK_USED"
    """An issued address is linked already, as another object."""
    LINK_MISMATCH = "LINK_MISMATCH"
    """The bucket holds another size or ETag than the client says."""
    BLOCK_NOT_FOUND = "BLOCK_NOT_FOUND"
    TASK_NOT_FOUND = "TASK_NOT_FOUND"
    TASK_EXISTS = "TASK_EXISTS"
    """The id of a new task belongs to another task."""
    ADDRESS_TOO_OLD = "ADDRESS_TOO_OLD"
    """An entry names a block that a collection may have judged already (rule 11)."""
    ADDRESS_IN_FUTURE = "ADDRESS_IN_FUTURE"
    """An entry names a block whose address is from the future: the clock of a gateway or of graveler is wrong (rule
    11)."""
    ADDRESS_TOO_YOUNG = "ADDRESS_TOO_YOUNG"
    """An erasure names a block to which a writer may still refer (docs/design/erase.md)."""
    ADDRESS_NOT_ISSUED = "ADDRESS_NOT_ISSUED"
    """Only gateways and REST endpoints stage addresses in the storage namespace."""
    COLLECTION_RUNNING = "COLLECTION_RUNNING"
    COLLECTION_HELD = "COLLECTION_HELD"
    COLLECTION_LOST = "COLLECTION_LOST"
    """A run of a collection is over, or its lease is: it has to stop."""
    COLLECTION_NO_MARK = "COLLECTION_NO_MARK"
    COLLECTION_TOO_EARLY = "COLLECTION_TOO_EARLY"
    NAMESPACE_NOT_DOOMED = "NAMESPACE_NOT_DOOMED"
    FEATURE_LEVEL = "FEATURE_LEVEL"
    """The store's feature level does not allow it, or this release does not support the level."""
    USER_NOT_FOUND = "USER_NOT_FOUND"
    USER_EXISTS = "USER_EXISTS"
    ROLE_NOT_FOUND = "ROLE_NOT_FOUND"
    CREDENTIAL_NOT_FOUND = "CREDENTIAL_NOT_FOUND"
    SESSION_TOKEN_INVALID = "SESSION_TOKEN_INVALID"  # noqa: S105 - a reason, not a secret
    SESSION_EXPIRED = "SESSION_EXPIRED"
    ALREADY_SET_UP = "ALREADY_SET_UP"
    SIGNATURE_MISMATCH = "SIGNATURE_MISMATCH"
    CALLER_TOKEN_INVALID = "CALLER_TOKEN_INVALID"  # noqa: S105 - a reason, not a secret
    ACCESS_DENIED = "ACCESS_DENIED"
    SERVICE_REQUIRED = "SERVICE_REQUIRED"
    """The rpc is for certain services of Tarn, and the caller did not prove to be one of them."""
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    INVALID_PAGE_TOKEN = "INVALID_PAGE_TOKEN"  # noqa: S105 - a reason, not a secret
    KEY_TOO_LONG = "KEY_TOO_LONG"
    METADATA_TOO_LARGE = "METADATA_TOO_LARGE"
    PRECONDITION_FAILED = "PRECONDITION_FAILED"
    """The condition of a write did not hold: there is another object, or an unexpected one."""
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    """A limit of the repository is reached; nothing was done, and trying again does not help by itself."""
    JOURNAL_BEHIND = "JOURNAL_BEHIND"
    """The bucket has taken no events of the repository for so long that it takes no more writes; deletes go on."""
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
        kind: the kind of failure.
        reason: the precise reason; callers compare it.
        message: a sentence for people that explains the failure by itself; never with secrets.
        metadata: every variable of the message, by name, for programs.
    """

    def __init__(self, kind: Kind, reason: Reason, message: str, **metadata: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.reason = reason
        self.message = message
        self.metadata = metadata

    def again(self) -> TarnError:
        """Returns an error that says the same. One object raised in many tasks would collect all their tracebacks."""
        return TarnError(self.kind, self.reason, self.message, **self.metadata)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the state instead of the constructor's arguments, because subclasses have other arguments."""
        return _unmade, (type(self), self.args), self.__dict__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind.name}, {self.reason}, {self.message!r})"


def _unmade(of: type[TarnError], args: tuple[object, ...]) -> TarnError:
    """Creates an error without calling `__init__`; unpickling then restores its state."""
    return of.__new__(of, *args)

"""The exceptions of `tarn.client`: one class for each reason, below the class of its kind.

`except BranchNotFoundError` catches one reason, `except NotFoundError` all of its kind, `except TarnCallError`
every failed call. The kind says whether repeating the call helps: after `UnavailableError` nothing was done;
after `UnknownOutcomeError` the change may or may not have been made.

A reason that comes with several kinds has a class directly below `TarnCallError`; its errors are instances of
that class and of the class of their kind. The docstrings are the texts of the table in docs/user/grpc.md, which
`python -m tarn.client.reference` prints.
"""

from __future__ import annotations

from tarn.client.failures import (
    AlreadyExistsError,
    CorruptError,
    DeadlineError,
    DeniedError,
    ExhaustedError,
    FailedPreconditionError,
    InternalError,
    InvalidError,
    LostRaceError,
    NotFoundError,
    TarnCallError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownOutcomeError,
)
from tarn.core.errors import Kind, Reason

__all__ = [
    "TarnCallError",
    "NotFoundError",
    "AlreadyExistsError",
    "InvalidError",
    "DeniedError",
    "UnauthenticatedError",
    "LostRaceError",
    "FailedPreconditionError",
    "ExhaustedError",
    "UnavailableError",
    "DeadlineError",
    "UnknownOutcomeError",
    "UnimplementedError",
    "CorruptError",
    "InternalError",
    "RepositoryNotFoundError",
    "RepositoryExistsError",
    "BucketNotFoundError",
    "BucketExistsError",
    "BucketMovedError",
    "RepositoryDeletedError",
    "BranchNotFoundError",
    "BranchExistsError",
    "BranchDirtyError",
    "BranchResetError",
    "BranchProtectedError",
    "RepositoryReadOnlyError",
    "SettingsChangedError",
    "TagNotFoundError",
    "TagExistsError",
    "RefNotFoundError",
    "RefAmbiguousError",
    "RefNotWritableError",
    "CommitNotFoundError",
    "NothingToCommitError",
    "NothingToMergeError",
    "MergeConflictError",
    "NotFastForwardError",
    "TooManyMergeBasesError",
    "PullRequestNotFoundError",
    "PullRequestExistsError",
    "PullRequestNotOpenError",
    "PullRequestBlockedError",
    "EntryNotFoundError",
    "UploadNotFoundError",
    "UploadPartInvalidError",
    "UploadPartOrderError",
    "UploadPartTooSmallError",
    "UploadBusyError",
    "BlockNotFoundError",
    "TaskNotFoundError",
    "TaskExistsError",
    "AddressInFutureError",
    "AddressTooOldError",
    "AddressTooYoungError",
    "CollectionRunningError",
    "CollectionHeldError",
    "FeatureLevelError",
    "CollectionLostError",
    "CollectionNoMarkError",
    "CollectionTooEarlyError",
    "NamespaceNotDoomedError",
    "UserNotFoundError",
    "UserExistsError",
    "RoleNotFoundError",
    "CredentialNotFoundError",
    "AlreadySetUpError",
    "SignatureMismatchError",
    "CallerTokenInvalidError",
    "AccessDeniedError",
    "ServiceRequiredError",
    "InvalidArgumentError",
    "InvalidPageTokenError",
    "JournalBehindError",
    "KeyTooLongError",
    "MetadataTooLargeError",
    "PreconditionFailedError",
    "RefMovedError",
    "TooManyRetriesError",
    "OutcomeUnknownError",
    "OverloadedError",
    "QuotaExceededError",
    "ServiceUnavailableError",
    "DeadlineExceededError",
    "NotOfferedError",
    "DataCorruptError",
    "UnexpectedError",
]


class RepositoryNotFoundError(NotFoundError):
    """The repository does not exist."""

    REASON = Reason.REPOSITORY_NOT_FOUND


class RepositoryExistsError(AlreadyExistsError):
    """A repository of this name exists."""

    REASON = Reason.REPOSITORY_EXISTS


class RepositoryDeletedError(NotFoundError):
    """The repository was deleted during the call."""

    REASON = Reason.REPOSITORY_DELETED


class BucketNotFoundError(NotFoundError):
    """The bucket view does not exist, or the repository that it shows does not."""

    REASON = Reason.BUCKET_NOT_FOUND


class BucketExistsError(AlreadyExistsError):
    """The name belongs to a bucket view or a repository."""

    REASON = Reason.BUCKET_EXISTS


class BucketMovedError(LostRaceError):
    """The bucket view is not the expected one: look at it again."""

    REASON = Reason.BUCKET_MOVED


class BranchNotFoundError(NotFoundError):
    """The branch does not exist."""

    REASON = Reason.BRANCH_NOT_FOUND


class BranchExistsError(AlreadyExistsError):
    """A branch of this name exists."""

    REASON = Reason.BRANCH_EXISTS


class BranchDirtyError(FailedPreconditionError):
    """The branch has uncommitted changes: commit or reset them first."""

    REASON = Reason.BRANCH_DIRTY


class BranchResetError(LostRaceError):
    """The commit was not made: a reset ran at the same time, and discarded its changes, or another commit took them."""

    REASON = Reason.BRANCH_RESET


class BranchProtectedError(DeniedError):
    """A rule of the repository protects the branch from this change."""

    REASON = Reason.BRANCH_PROTECTED


class RepositoryReadOnlyError(DeniedError):
    """The repository is read-only."""

    REASON = Reason.REPOSITORY_READ_ONLY


class SettingsChangedError(LostRaceError):
    """The settings of the repository are not the expected ones: read them again."""

    REASON = Reason.SETTINGS_CHANGED


class TagNotFoundError(NotFoundError):
    """The tag does not exist."""

    REASON = Reason.TAG_NOT_FOUND


class TagExistsError(AlreadyExistsError):
    """A tag of this name exists."""

    REASON = Reason.TAG_EXISTS


class RefNotFoundError(NotFoundError):
    """No branch, tag or commit has this name."""

    REASON = Reason.REF_NOT_FOUND


class RefAmbiguousError(InvalidError):
    """Several commit ids begin with these digits: give more."""

    REASON = Reason.REF_AMBIGUOUS


class RefNotWritableError(InvalidError):
    """Only branches take writes; the ref is a tag, a commit or an expression."""

    REASON = Reason.REF_NOT_WRITABLE


class CommitNotFoundError(NotFoundError):
    """The commit does not exist."""

    REASON = Reason.COMMIT_NOT_FOUND


class NothingToCommitError(FailedPreconditionError):
    """There are no changes, and the call does not allow an empty commit."""

    REASON = Reason.NOTHING_TO_COMMIT


class NothingToMergeError(FailedPreconditionError):
    """The branch contains the source already."""

    REASON = Reason.NOTHING_TO_MERGE


class MergeConflictError(FailedPreconditionError):
    """Both sides changed a path differently, and no choice decides it."""

    REASON = Reason.MERGE_CONFLICT


class NotFastForwardError(FailedPreconditionError):
    """The branch has commits that the source lacks."""

    REASON = Reason.NOT_FAST_FORWARD


class TooManyMergeBasesError(FailedPreconditionError):
    """The two histories have merged more than 32 commits independently of each other; merge an older commit first."""

    REASON = Reason.TOO_MANY_MERGE_BASES


class PullRequestNotFoundError(NotFoundError):
    """The pull request does not exist."""

    REASON = Reason.PULL_REQUEST_NOT_FOUND


class PullRequestExistsError(AlreadyExistsError):
    """An open pull request has the same source and destination; `pull_request` in the details is its id."""

    REASON = Reason.PULL_REQUEST_EXISTS


class PullRequestNotOpenError(FailedPreconditionError):
    """The pull request is closed or merged."""

    REASON = Reason.PULL_REQUEST_NOT_OPEN


class PullRequestBlockedError(FailedPreconditionError):
    """The rules of the repository want more reviews before the pull request is merged."""

    REASON = Reason.PULL_REQUEST_BLOCKED


class EntryNotFoundError(NotFoundError):
    """The ref has no object at this path."""

    REASON = Reason.ENTRY_NOT_FOUND


class UploadNotFoundError(NotFoundError):
    """The multipart upload does not exist."""

    REASON = Reason.UPLOAD_NOT_FOUND


class UploadPartInvalidError(InvalidError):
    """A listed part does not exist or has another ETag."""

    REASON = Reason.UPLOAD_PART_INVALID


class UploadPartOrderError(InvalidError):
    """The parts are not listed in the order of their numbers."""

    REASON = Reason.UPLOAD_PART_ORDER


class UploadPartTooSmallError(InvalidError):
    """A part before the last one is smaller than 5 MiB."""

    REASON = Reason.UPLOAD_PART_TOO_SMALL


class UploadBusyError(UnavailableError):
    """Another gateway completes the upload now."""

    REASON = Reason.UPLOAD_BUSY


class ExpiredCommitError(FailedPreconditionError):
    """A retention rule let the commit expire: its objects are deleted, or about to be."""

    REASON = Reason.EXPIRED_COMMIT


class LinkExpiredError(FailedPreconditionError):
    """An address was not linked in time: ask for a new one."""

    REASON = Reason.LINK_EXPIRED


class LinkUsedError(FailedPreconditionError):
    """An issued address is linked already, as an object of another size or ETag."""

    REASON = Reason.LINK_USED


class LinkMismatchError(FailedPreconditionError):
    """The bucket holds another size or ETag than the client says."""

    REASON = Reason.LINK_MISMATCH


class BlockNotFoundError(NotFoundError):
    """The bytes of an object are not in the block store."""

    REASON = Reason.BLOCK_NOT_FOUND


class TaskNotFoundError(NotFoundError):
    """The task does not exist, ended more than a day ago, or is that of another user."""

    REASON = Reason.TASK_NOT_FOUND


class TaskExistsError(AlreadyExistsError):
    """The id of a new task belongs to another task."""

    REASON = Reason.TASK_EXISTS


class AddressTooOldError(FailedPreconditionError):
    """The block of an entry was begun more than 6 hours ago, so a garbage collection may delete it: write it again."""

    REASON = Reason.ADDRESS_TOO_OLD


class AddressInFutureError(FailedPreconditionError):
    """The address of a block is from more than 15 minutes in the future: set the clocks, and write the object again."""

    REASON = Reason.ADDRESS_IN_FUTURE


class AddressTooYoungError(FailedPreconditionError):
    """A block that is to be erased was begun less than a day ago, so a writer may still refer to it: plan later."""

    REASON = Reason.ADDRESS_TOO_YOUNG


class AddressNotIssuedError(DeniedError):
    """Only gateways and REST endpoints stage addresses: write by S3 or REST, or link it (`GetPhysicalAddress`)."""

    REASON = Reason.ADDRESS_NOT_ISSUED


class FeatureLevelError(FailedPreconditionError):
    """The installation's feature level is too low for it, because an upgrade is not finished."""

    REASON = Reason.FEATURE_LEVEL


class UserNotFoundError(NotFoundError):
    """The user does not exist."""

    REASON = Reason.USER_NOT_FOUND


class UserExistsError(AlreadyExistsError):
    """A user of this name exists."""

    REASON = Reason.USER_EXISTS


class RoleNotFoundError(NotFoundError):
    """There is no such role."""

    REASON = Reason.ROLE_NOT_FOUND


class CredentialNotFoundError(TarnCallError):
    """The key pair does not exist: the caller's own, or (NOT_FOUND) one that the call names."""

    REASON = Reason.CREDENTIAL_NOT_FOUND
    KINDS = (Kind.UNAUTHENTICATED, Kind.NOT_FOUND)


class SessionTokenInvalidError(UnauthenticatedError):
    """The session token is not that of the session key, or the session key does not exist."""

    REASON = Reason.SESSION_TOKEN_INVALID


class SessionExpiredError(UnauthenticatedError):
    """The session key has expired: get another one."""

    REASON = Reason.SESSION_EXPIRED


class AlreadySetUpError(FailedPreconditionError):
    """The installation has its first admin."""

    REASON = Reason.ALREADY_SET_UP


class SignatureMismatchError(UnauthenticatedError):
    """The proof does not match: the secret access key is wrong, or a clock is off by 15 minutes."""

    REASON = Reason.SIGNATURE_MISMATCH


class CallerTokenInvalidError(UnauthenticatedError):
    """The caller token is missing, forged or expired: log in again."""

    REASON = Reason.CALLER_TOKEN_INVALID


class AccessDeniedError(DeniedError):
    """The caller's roles do not allow this action on this resource."""

    REASON = Reason.ACCESS_DENIED


class ServiceRequiredError(DeniedError):
    """The call is for certain services of Tarn only, and the caller did not prove to be one of them."""

    REASON = Reason.SERVICE_REQUIRED


class InvalidArgumentError(TarnCallError):
    """An argument is wrong; the text says which, and why."""

    REASON = Reason.INVALID_ARGUMENT
    KINDS = (Kind.INVALID, Kind.NOT_FOUND, Kind.FAILED_PRECONDITION)


class InvalidPageTokenError(InvalidError):
    """The page token is damaged, or belongs to another caller or listing."""

    REASON = Reason.INVALID_PAGE_TOKEN


class KeyTooLongError(InvalidError):
    """The path has more than 1,024 bytes."""

    REASON = Reason.KEY_TOO_LONG


class MetadataTooLargeError(InvalidError):
    """The metadata of an object or a commit exceed their limit."""

    REASON = Reason.METADATA_TOO_LARGE


class PreconditionFailedError(FailedPreconditionError):
    """The condition of a write did not hold: the path holds another object."""

    REASON = Reason.PRECONDITION_FAILED


class RefMovedError(LostRaceError):
    """The branch is not at the expected commit, or another operation moved it."""

    REASON = Reason.REF_MOVED


class TooManyRetriesError(TarnCallError):
    """Other operations came first, time after time; nothing was done. Try again."""

    REASON = Reason.TOO_MANY_RETRIES
    KINDS = (Kind.UNAVAILABLE, Kind.CONFLICT)


class OutcomeUnknownError(UnknownOutcomeError):
    """The answer was lost, so the change may or may not have been made: look before you repeat it."""

    REASON = Reason.OUTCOME_UNKNOWN


class OverloadedError(TarnCallError):
    """A limit of the server is reached; nothing was done. Try again later."""

    REASON = Reason.OVERLOADED
    KINDS = (Kind.EXHAUSTED, Kind.UNAVAILABLE)


class QuotaExceededError(ExhaustedError):
    """A limit of the repository is reached; nothing was done. The message says what to do."""

    REASON = Reason.QUOTA_EXCEEDED


class JournalBehindError(ExhaustedError):
    """The bucket takes no files of the journal, so writes are refused; nothing was done. Try again later."""

    REASON = Reason.JOURNAL_BEHIND


class ServiceUnavailableError(TarnCallError):
    """A server or store does not answer; nothing was done. Try again later."""

    REASON = Reason.UNAVAILABLE
    KINDS = (Kind.UNAVAILABLE, Kind.CONFLICT)


class DeadlineExceededError(DeadlineError):
    """There was no answer in time. The call changes nothing."""

    REASON = Reason.DEADLINE_EXCEEDED


class NotOfferedError(UnimplementedError):
    """The server does not have this operation."""

    REASON = Reason.NOT_IMPLEMENTED


class DataCorruptError(CorruptError):
    """Stored data are damaged; run `tarn fsck`."""

    REASON = Reason.DATA_CORRUPT


class UnexpectedError(TarnCallError):
    """A defect of Tarn, or a reason that this client is too old to know (`peer_reason` in the metadata)."""

    REASON = Reason.INTERNAL
    KINDS = (Kind.INTERNAL,)


class CollectionRunningError(FailedPreconditionError):
    """Another run of a garbage collection works on the repository, or a batch of deletions was never ended."""

    REASON = Reason.COLLECTION_RUNNING


class CollectionHeldError(FailedPreconditionError):
    """Garbage collections of the repository are held: release the hold, or wait for its end."""

    REASON = Reason.COLLECTION_HELD


class CollectionLostError(FailedPreconditionError):
    """The run of a garbage collection is over, or its lease is: it has to stop at once."""

    REASON = Reason.COLLECTION_LOST


class CollectionNoMarkError(FailedPreconditionError):
    """The mark to sweep is not the last complete one of the repository."""

    REASON = Reason.COLLECTION_NO_MARK


class CollectionTooEarlyError(FailedPreconditionError):
    """The grace time of the mark is not over."""

    REASON = Reason.COLLECTION_TOO_EARLY


class NamespaceNotDoomedError(FailedPreconditionError):
    """The data of a deleted repository are not to be deleted, or their deletion has begun and cannot be undone."""

    REASON = Reason.NAMESPACE_NOT_DOOMED

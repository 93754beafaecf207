"""The values that `tarn.client` returns: plain data with Python's times, without messages of the wire."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tarn.client.calls import several
from tarn.client.commits import PathAnnotation
from tarn.client.diffs import DiffSummary
from tarn.client.errors import TarnCallError
from tarn.client.raising import call_error
from tarn.core.change_kind import ChangeKind
from tarn.core.entry import shown_time_us, unpack
from tarn.core.review_rule import StaleApprovals
from tarn.rpc.client.transport import garbled
from tarn.rpc.wire.errors import error_from_operation
from tarn_proto.auth.v1 import user_pb2
from tarn_proto.graveler.v1 import (
    branch_service_pb2,
    bucket_service_pb2,
    commit_service_pb2,
    compaction_service_pb2,
    merge_service_pb2,
    reflog_service_pb2,
    repository_service_pb2,
    settings_service_pb2,
    tag_service_pb2,
    task_service_pb2,
)

__all__ = [
    "Choice",
    "Annotation",
    "Branch",
    "BucketView",
    "Change",
    "ChangeCounts",
    "ChangeSummary",
    "Commit",
    "CommonPrefix",
    "Compaction",
    "CompactionOutcome",
    "Conflict",
    "DeletedBranch",
    "HeadChange",
    "HeadOperation",
    "KeyPair",
    "MergePreview",
    "NewCommit",
    "ObjectVersion",
    "PathChange",
    "Protection",
    "ReviewRule",
    "StaleApprovals",
    "Repository",
    "RepositorySettings",
    "RevertedRange",
    "Side",
    "StagingStatistics",
    "Tag",
    "Task",
    "TaskState",
    "User",
    "time_of",
    "timestamp_of",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(sent: Timestamp) -> datetime:
    """Returns the time of a message, in UTC, to the microsecond."""
    return _EPOCH + timedelta(seconds=sent.seconds, microseconds=sent.nanos // 1000)


def _time_in(sent: Message, field: str) -> datetime | None:
    """Returns the time in a field of a message; None if it is not set."""
    return time_of(getattr(sent, field)) if sent.HasField(field) else None


class Side(enum.Enum):
    """The side that wins a conflict."""

    SOURCE = merge_service_pb2.MERGE_SIDE_SOURCE
    DESTINATION = merge_service_pb2.MERGE_SIDE_DESTINATION


Choice = tuple[str, Side]
"""A pattern of paths, such as `raw/**`, and the side that wins conflicts there (docs/user/versioning.md)."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A lake under version control.

    Attributes:
        repository_id: its name, which is the name of the S3 bucket.
        storage_namespace: place of its blocks, such as `local://lake-1f2e3d4c`.
        default_branch_id: the branch that it was created with.
        create_time: in UTC.
        instance_uid: id of this life of the repository; one created again under the name has another.
    """

    repository_id: str
    storage_namespace: str
    default_branch_id: str
    create_time: datetime
    instance_uid: str

    @staticmethod
    def of(sent: repository_service_pb2.Repository) -> Repository:
        """The value of a message."""
        return Repository(
            sent.repository_id,
            sent.storage_namespace,
            sent.default_branch_id,
            time_of(sent.create_time),
            sent.instance_uid,
        )


@dataclass(frozen=True, slots=True)
class BucketView:
    """A bucket name of the S3 endpoint that shows a ref of a repository.

    Attributes:
        bucket_id: the name of the bucket.
        repository_id: the repository that it shows.
        ref: the branch, tag or commit that it shows.
        etag: names this version of what the view shows; each change of that makes another.
        create_time: in UTC.
        public_read: whether anonymous S3 requests may read what it shows.
    """

    bucket_id: str
    repository_id: str
    ref: str
    etag: str
    create_time: datetime
    public_read: bool = False

    @staticmethod
    def of(sent: bucket_service_pb2.BucketView) -> BucketView:
        """The value of a message."""
        return BucketView(
            sent.bucket_id,
            sent.repository_id,
            sent.ref,
            sent.etag,
            time_of(sent.create_time),
            sent.public_read,
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch and its head. Times are in UTC.

    Attributes:
        expire_time: when it expires; None: never.
        delete_time: when it is deleted, after its grace.
    """

    branch_id: str
    commit_id: str
    create_time: datetime
    expire_time: datetime | None = None
    delete_time: datetime | None = None

    @staticmethod
    def of(sent: branch_service_pb2.Branch) -> Branch:
        """The value of a message."""
        ends: tuple[datetime | None, datetime | None] = (None, None)
        if sent.HasField("expiry"):
            ends = time_of(sent.expiry.expire_time), time_of(sent.expiry.delete_time)
        return Branch(sent.branch_id, sent.commit_id, time_of(sent.create_time), *ends)


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag and its commit; `create_time` is in UTC."""

    tag_id: str
    commit_id: str
    create_time: datetime

    @staticmethod
    def of(sent: tag_service_pb2.Tag) -> Tag:
        """The value of a message."""
        return Tag(sent.tag_id, sent.commit_id, time_of(sent.create_time))


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit.

    Attributes:
        commit_id: hash of all that follows, in hex.
        parent_ids: none for the first commit, two for a merge; the first is the branch's former head.
        committer: id of the user.
        message: text.
        create_time: in UTC.
        metadata: of the user, and Tarn's own under `tarn.…`.
        generation: 0 without parents, otherwise 1 + the greatest generation of the parents.
        metarange_id: the file that lists its ranges.
        expired_by: the retention rule that let it go, so its objects are deleted; empty: it has them. Only a commit
            that was asked for, or listed, tells that.
        author_time: when the change was made, in UTC, if its author says so; None: at `create_time`.
    """

    commit_id: str
    parent_ids: tuple[str, ...]
    committer: str
    message: str
    create_time: datetime
    metadata: Mapping[str, str]
    generation: int
    metarange_id: str
    expired_by: str = ""
    author_time: datetime | None = None

    @staticmethod
    def of(sent: commit_service_pb2.Commit) -> Commit:
        """The value of a message."""
        return Commit(
            sent.commit_id,
            tuple(sent.parent_ids),
            sent.committer,
            sent.message,
            time_of(sent.create_time),
            dict(sent.metadata),
            sent.generation,
            sent.metarange_id,
            sent.expired_by,
            _time_in(sent, "author_time"),
        )


@dataclass(frozen=True, slots=True)
class NewCommit:
    """A commit that was just made, and the number of paths that it added, changed and removed."""

    commit: Commit
    added_count: int
    changed_count: int
    removed_count: int


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One version of an object.

    Attributes:
        path: its path in the repository.
        size_bytes: size of the object.
        modify_time: time of the write, in UTC.
        etag: without quotes.
        content_type: empty if the writer gave none.
        metadata: user metadata (`x-amz-meta-…`, without the prefix).
        tags: object tags.
    """

    path: str
    size_bytes: int
    modify_time: datetime
    etag: str
    content_type: str
    metadata: Mapping[str, str]
    tags: Mapping[str, str]

    @staticmethod
    def of(path: str, packed: bytes) -> ObjectVersion:
        """The value of a packed entry."""
        entry = unpack(packed)
        return ObjectVersion(
            path,
            entry.size,
            _EPOCH + timedelta(microseconds=shown_time_us(entry.mtime_us)),
            entry.etag,
            entry.content_type,
            dict(entry.metadata),
            dict(entry.tags),
        )

    @staticmethod
    def of_optional(path: str, packed: bytes) -> ObjectVersion | None:
        """As `of`; None for no entry."""
        return ObjectVersion.of(path, packed) if packed else None


@dataclass(frozen=True, slots=True)
class CommonPrefix:
    """Objects that a listing with a delimiter rolled up; `path` ends with the delimiter."""

    path: str


@dataclass(frozen=True, slots=True)
class Change:
    """A path that differs between two listings; `before` is None if it was added, `after` if it was removed."""

    path: str
    before: ObjectVersion | None
    after: ObjectVersion | None

    @property
    def kind(self) -> Literal["added", "changed", "removed"]:
        """The kind of change."""
        if self.before is None:
            return "added"
        return "changed" if self.after is not None else "removed"


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Numbers of paths, and of the bytes that came and went."""

    added_count: int
    changed_count: int
    removed_count: int
    added_bytes: int
    removed_bytes: int

    @staticmethod
    def of(sent: merge_service_pb2.MergeCounts) -> ChangeCounts:
        """The value of a message."""
        return ChangeCounts(
            sent.added_count,
            sent.changed_count,
            sent.removed_count,
            sent.added_bytes,
            sent.removed_bytes,
        )


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that both sides changed differently; a version is None where the path does not exist.

    Attributes:
        is_base_undecided: there are several merge bases, which changed the path differently; then `base` is None.
    """

    path: str
    base: ObjectVersion | None
    source: ObjectVersion | None
    destination: ObjectVersion | None
    is_base_undecided: bool = False

    @staticmethod
    def of(sent: merge_service_pb2.MergeConflict) -> Conflict:
        """The value of a message."""
        version = ObjectVersion.of_optional
        return Conflict(
            sent.path,
            version(sent.path, sent.base_entry),
            version(sent.path, sent.source_entry),
            version(sent.path, sent.destination_entry),
            sent.is_base_undecided,
        )


@dataclass(frozen=True, slots=True)
class MergePreview:
    """The effect that a merge would have.

    Attributes:
        source_commit_id: the commit that would be merged.
        destination_commit_id: the head that would take it.
        base_commit_id: the merge base, of several the first; None if the two have no common ancestor.
        counts: all changes of the destination.
        prefixes: the same for each top-level prefix.
        conflict_count: number of the conflicts that no choice decides.
        base_commit_ids: all merge bases; several after criss-cross merges.
    """

    source_commit_id: str
    destination_commit_id: str
    base_commit_id: str | None
    counts: ChangeCounts
    prefixes: Mapping[str, ChangeCounts]
    conflict_count: int
    base_commit_ids: tuple[str, ...] = ()

    @staticmethod
    def of(sent: merge_service_pb2.PreviewMergeResponse) -> MergePreview:
        """The value of a message."""
        return MergePreview(
            sent.source_commit_id,
            sent.destination_commit_id,
            sent.base_commit_id or None,
            ChangeCounts.of(sent.counts),
            {each.prefix: ChangeCounts.of(each.counts) for each in sent.prefixes},
            sent.conflict_count,
            tuple(sent.base_commit_ids),
        )


@dataclass(frozen=True, slots=True)
class User:
    """A user and the names of its roles; `create_time` is in UTC."""

    user_id: str
    roles: tuple[str, ...]
    create_time: datetime

    @staticmethod
    def of(sent: user_pb2.User) -> User:
        """The value of a message."""
        return User(sent.user_id, tuple(sent.roles), time_of(sent.create_time))


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An access key id and its secret, with which a program logs in and signs S3 requests; of a session key also its
    token."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


class TaskState(enum.Enum):
    """How far a task is. `OTHER` is a state that this version does not know."""

    PENDING = task_service_pb2.TASK_STATE_PENDING
    RUNNING = task_service_pb2.TASK_STATE_RUNNING
    SUCCEEDED = task_service_pb2.TASK_STATE_SUCCEEDED
    FAILED = task_service_pb2.TASK_STATE_FAILED
    CANCELLED = task_service_pb2.TASK_STATE_CANCELLED
    OTHER = -1

    @classmethod
    def _missing_(cls, value: object) -> TaskState | None:
        return cls.OTHER if isinstance(value, int) else None

    @property
    def is_ended(self) -> bool:
        """Whether the task changes no more."""
        return self in (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Task:
    """Work that goes on without its caller.

    Attributes:
        user_id: who started it.
        subject: its subject, for people.
        create_time, end_time: in UTC; `end_time` is None before the end.
        done_count, total_count: parts of the work that are done, and all; the total is 0 while it is unknown.
        run_count: replicas that have begun it, one after the other.
        commit: of a merge that succeeded: the new head.
        preview: of a preview that succeeded. Both are None in listings.
        error: why it failed; None unless it did.
    """

    task_id: str
    repository_id: str
    state: TaskState
    user_id: str
    subject: str
    create_time: datetime
    end_time: datetime | None
    done_count: int
    total_count: int
    run_count: int
    commit: Commit | None
    preview: MergePreview | None
    error: TarnCallError | None

    @staticmethod
    def of(sent: task_service_pb2.Task) -> Task:
        """The value of a message."""
        result = sent.WhichOneof("result")
        about = {"repository": sent.repository_id}
        has_error = sent.HasField("error")
        return Task(
            sent.task_id,
            sent.repository_id,
            TaskState(sent.state),
            sent.user_id,
            sent.subject,
            time_of(sent.create_time),
            _time_in(sent, "end_time"),
            sent.done_count,
            sent.total_count,
            sent.run_count,
            _commit_in(sent),
            MergePreview.of(sent.preview) if result == "preview" else None,
            call_error(error_from_operation(sent.error), about) if has_error else None,
        )


def _commit_in(sent: task_service_pb2.Task) -> Commit | None:
    """The commit that a task has made."""
    match sent.WhichOneof("result"):
        case "merge":
            return Commit.of(sent.merge.commit)
        case "commit":
            return Commit.of(sent.commit)
        case _:
            return None


class CompactionOutcome(enum.Enum):
    """The result of a request to compact a branch. `OTHER` is one that this version does not know."""

    COMPACTED = compaction_service_pb2.COMPACTION_OUTCOME_COMPACTED
    """The changes that were acknowledged before the call are folded."""
    NOTHING_TO_DO = compaction_service_pb2.COMPACTION_OUTCOME_NOTHING_TO_DO
    """The branch has no staged row."""
    SUPERSEDED = compaction_service_pb2.COMPACTION_OUTCOME_SUPERSEDED
    """A commit, merge, reset or another compaction changed the branch meanwhile; nothing was folded."""
    RUNNING = compaction_service_pb2.COMPACTION_OUTCOME_RUNNING
    """Another compaction of the branch runs; nothing was done."""
    OTHER = -1

    @classmethod
    def _missing_(cls, value: object) -> CompactionOutcome | None:
        return cls.OTHER if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction. The counts are those of its work, also if the result was superseded.

    Attributes:
        outcome: the result.
        rows_read: staged rows that were read, tombstones (uncommitted deletes) included.
        rows_written: rows of the ranges that were written.
        tombstones_removed: tombstones that listings no longer read.
        tokens_taken: sealed tokens that were folded.
        duration: from the request to the answer, as graveler measured it.
        compacted_metarange_id: id of the new listing; None if the branch has no uncommitted change left, or unless
            COMPACTED.
        running_since: only with RUNNING: when the other compaction began, in UTC.
    """

    outcome: CompactionOutcome
    rows_read: int
    rows_written: int
    tombstones_removed: int
    tokens_taken: int
    duration: timedelta
    compacted_metarange_id: str | None
    running_since: datetime | None

    @staticmethod
    def of(sent: compaction_service_pb2.CompactBranchResponse) -> Compaction:
        """The value of a message."""
        return Compaction(
            CompactionOutcome(sent.outcome),
            sent.rows_read,
            sent.rows_written,
            sent.tombstones_removed,
            sent.tokens_taken,
            sent.duration.ToTimedelta(),
            sent.compacted_metarange_id or None,
            _time_in(sent, "running_since"),
        )


@dataclass(frozen=True, slots=True)
class StagingStatistics:
    """The layers of a branch. A row counts once for each token that holds one, as a listing reads them.

    Attributes:
        commit_id: the head of the branch.
        sealed_token_count: tokens that a commit, merge or compaction has sealed, and none has taken yet.
        row_count: staged rows, tombstones included.
        tombstone_count: tombstones among them.
        size_bytes: bytes of their keys and values.
        is_truncated: counting ended at the limit, so the three counts above are lower bounds.
        oldest_write_time: no staged row is older; None without rows.
        compacted_metarange_id: id of the listing that a compaction, or the reset of a part, put over the commit; None
            if there is none.
        compacted_row_count: its entries.
        compaction_start_time: when the running compaction began; None if none runs.
        last_compaction_time: when one last ended; None: never. All times are in UTC.
    """

    commit_id: str
    sealed_token_count: int
    row_count: int
    tombstone_count: int
    size_bytes: int
    is_truncated: bool
    oldest_write_time: datetime | None
    compacted_metarange_id: str | None
    compacted_row_count: int
    compaction_start_time: datetime | None
    last_compaction_time: datetime | None

    @staticmethod
    def of(sent: compaction_service_pb2.GetStagingStatisticsResponse) -> StagingStatistics:
        """The value of a message."""
        return StagingStatistics(
            sent.commit_id,
            sent.sealed_token_count,
            sent.row_count,
            sent.tombstone_count,
            sent.size_bytes,
            sent.is_truncated,
            _time_in(sent, "oldest_write_time"),
            sent.compacted_metarange_id or None,
            sent.compacted_row_count,
            _time_in(sent, "compaction_start_time"),
            _time_in(sent, "last_compaction_time"),
        )


class HeadOperation(enum.Enum):
    """The kind of operation that changed a head."""

    UNKNOWN = reflog_service_pb2.HEAD_OPERATION_UNSPECIFIED
    """Not recorded, or newer than this client."""
    CREATE = reflog_service_pb2.HEAD_OPERATION_CREATE
    COMMIT = reflog_service_pb2.HEAD_OPERATION_COMMIT
    MERGE = reflog_service_pb2.HEAD_OPERATION_MERGE
    REVERT = reflog_service_pb2.HEAD_OPERATION_REVERT
    CHERRY_PICK = reflog_service_pb2.HEAD_OPERATION_CHERRY_PICK
    MOVE = reflog_service_pb2.HEAD_OPERATION_MOVE
    DELETE = reflog_service_pb2.HEAD_OPERATION_DELETE
    RESTORE = reflog_service_pb2.HEAD_OPERATION_RESTORE

    @classmethod
    def _missing_(cls, value: object) -> HeadOperation | None:
        return cls.UNKNOWN if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class HeadChange:
    """One change of a branch's head.

    Attributes:
        time: in UTC, by the clock of the replica that made it. Later changes of a branch have later times.
        operation: its kind.
        user_id: the user who made it; empty if it is not recorded.
        old_commit_id: the head before; None for a creation.
        new_commit_id: the head after; None for a deletion.
        incarnation: identifies the life of the branch: a branch that is created again has another one.
    """

    time: datetime
    operation: HeadOperation
    user_id: str
    old_commit_id: str | None
    new_commit_id: str | None
    incarnation: bytes

    @staticmethod
    def of(sent: reflog_service_pb2.HeadChange) -> HeadChange:
        """The value of a message."""
        return HeadChange(
            time_of(sent.time),
            HeadOperation(sent.operation),
            sent.user_id,
            sent.old_commit_id or None,
            sent.new_commit_id or None,
            sent.incarnation,
        )


@dataclass(frozen=True, slots=True)
class DeletedBranch:
    """A deleted branch that can be restored.

    Attributes:
        branch_id: its name.
        commit_id: its last head.
        delete_time: in UTC.
        user_id: the user who deleted it; empty if it is not recorded.
    """

    branch_id: str
    commit_id: str
    delete_time: datetime
    user_id: str

    @staticmethod
    def of(sent: reflog_service_pb2.DeletedBranch) -> DeletedBranch:
        """The value of a message."""
        return DeletedBranch(
            sent.branch_id, sent.commit_id, time_of(sent.delete_time), sent.user_id
        )


@dataclass(frozen=True, slots=True)
class Annotation:
    """Where the content of a path comes from.

    Attributes:
        path: the path.
        commit_id: the commit that gave it its content.
        committer: id of the user that made this commit.
        create_time: of this commit, in UTC.
        subject: first line of its message, at most 200 characters.
        is_final: False if the search stopped early: this commit has the content, but an older one may have made
            it. Annotate `commit_id` to continue.
    """

    path: str
    commit_id: str
    committer: str
    create_time: datetime
    subject: str
    is_final: bool

    @staticmethod
    def of(line: PathAnnotation) -> Annotation:
        """The value of a line."""
        commit = line.commit
        return Annotation(
            line.path,
            commit.commit_id,
            commit.committer,
            time_of(commit.create_time),
            commit.subject,
            line.is_final,
        )


_KINDS: Mapping[int, Literal["added", "changed", "removed"]] = {
    commit_service_pb2.DIFF_KIND_ADDED: "added",
    commit_service_pb2.DIFF_KIND_CHANGED: "changed",
    commit_service_pb2.DIFF_KIND_REMOVED: "removed",
}


@dataclass(frozen=True, slots=True)
class PathChange:
    """A path that differs between two listings, without its versions."""

    path: str
    kind: Literal["added", "changed", "removed"]

    @staticmethod
    def of(path: str, kind: commit_service_pb2.DiffKind) -> PathChange:
        """The value of a row; a kind that this client does not know is a change."""
        return PathChange(path, _KINDS.get(kind, "changed"))


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """Counts of changes.

    Attributes:
        counts: all of them.
        folders: those of each common prefix or path, in byte order; empty if the call had no delimiter.
    """

    counts: ChangeCounts
    folders: Mapping[str, ChangeCounts]

    @staticmethod
    def of(found: DiffSummary) -> ChangeSummary:
        """The value of added-up pages."""
        counts: merge_service_pb2.MergeCounts = found.counts
        folders = {each.path: ChangeCounts.of(each.counts) for each in found.folders}
        return ChangeSummary(ChangeCounts.of(counts), folders)


@dataclass(frozen=True, slots=True)
class RevertedRange:
    """The effect of a revert of several commits.

    Attributes:
        commit: the new head.
        reverted_commit_ids: the commits that it undoes, newest first; those without effect are left out.
    """

    commit: Commit
    reverted_commit_ids: tuple[str, ...]


def timestamp_of(time: datetime | None) -> Timestamp | None:
    """Returns the message of a time; None for None.

    Raises:
        ValueError: the time has no zone, or its zone puts it outside the years 1 to 9999.
    """
    if time is None:
        return None
    if time.tzinfo is None:
        raise ValueError(f"the time {time} has no zone; for UTC, add tzinfo=datetime.UTC")
    sent = Timestamp()
    try:
        sent.FromDatetime(time.astimezone(UTC))
    except OverflowError as error:
        raise ValueError(f"the time {time} is not one of the years 1 to 9999 in UTC") from error
    return sent


_CHANGE_KINDS = {
    settings_service_pb2.CHANGE_KIND_WRITE: ChangeKind.WRITE,
    settings_service_pb2.CHANGE_KIND_COMMIT: ChangeKind.COMMIT,
    settings_service_pb2.CHANGE_KIND_MERGE: ChangeKind.MERGE,
    settings_service_pb2.CHANGE_KIND_DELETE: ChangeKind.DELETE,
    settings_service_pb2.CHANGE_KIND_FORCE: ChangeKind.FORCE,
}


_STALE = {
    settings_service_pb2.STALE_APPROVALS_UNSPECIFIED: StaleApprovals.IGNORE,
    settings_service_pb2.STALE_APPROVALS_KEEP: StaleApprovals.KEEP,
    settings_service_pb2.STALE_APPROVALS_IGNORE: StaleApprovals.IGNORE,
    settings_service_pb2.STALE_APPROVALS_DISMISS: StaleApprovals.DISMISS,
}
_STALE_NUMBERS = {stale: number for number, stale in _STALE.items()}
_CHANGE_NUMBERS = {kind: number for number, kind in _CHANGE_KINDS.items()}


@dataclass(frozen=True, slots=True)
class ReviewRule:
    """What a pull request needs before it is merged into the branches of a protection.

    Attributes:
        approval_count: how many users have to approve it, 0 to 10.
        author_counts: whether the approval of its author counts.
        stale: what happens to approvals when the source moves.
        covers_destination: whether the same happens when the destination moves.
        owners: users by prefix. Each prefix below which the merge changes something needs the approval of one of them.
    """

    approval_count: int = 1
    author_counts: bool = False
    stale: StaleApprovals = StaleApprovals.IGNORE
    covers_destination: bool = False
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def of(sent: settings_service_pb2.ReviewRule) -> ReviewRule:
        """The value of a message.

        Raises:
            TarnError: INTERNAL: it treats stale approvals in a way that this client does not know.
        """
        stale = _STALE.get(sent.stale)
        if stale is None:
            raise garbled(f"the way {sent.stale} to treat stale approvals; update this client")
        return ReviewRule(
            sent.approval_count,
            sent.author_counts,
            stale,
            sent.covers_destination,
            {each.prefix: tuple(each.user_ids) for each in sent.owners},
        )

    def message(self) -> settings_service_pb2.ReviewRule:
        """The message of this value.

        Raises:
            TypeError: the owners of a prefix are one text.
        """
        return settings_service_pb2.ReviewRule(
            approval_count=self.approval_count,
            author_counts=self.author_counts,
            stale=_STALE_NUMBERS[self.stale],
            covers_destination=self.covers_destination,
            owners=[
                settings_service_pb2.OwnerRule(
                    prefix=prefix, user_ids=several(user_ids, "owners of one prefix")
                )
                for prefix, user_ids in self.owners.items()
            ],
        )


@dataclass(frozen=True, slots=True)
class Protection:
    """Blocks changes of the branches that match a pattern, except for some callers.

    Attributes:
        pattern: of branch names: `*` any characters, `?` one, a backslash before a literal one.
        blocked: the blocked kinds, at least one: WRITE, COMMIT, MERGE, DELETE, FORCE.
        exempt_user_ids: users whom it does not bind. They must exist when they are named first.
        exempt_roles: roles whose users it does not bind.
        review: what pull requests need before they are merged, although it blocks merges; None: what other merges need.
    """

    pattern: str
    blocked: frozenset[ChangeKind]
    exempt_user_ids: tuple[str, ...] = ()
    exempt_roles: tuple[str, ...] = ()
    review: ReviewRule | None = None

    @staticmethod
    def of(sent: settings_service_pb2.Protection) -> Protection:
        """The value of a message.

        Raises:
            TarnError: INTERNAL: it blocks a kind that this client does not know. Without that kind, a program
                that changes the rules would weaken this one.
        """
        if unknown := set(sent.blocked) - _CHANGE_KINDS.keys():
            raise garbled(
                f"kinds {sorted(unknown)} of the protection {sent.pattern!r}, which this client does not know;"
                " update it"
            )
        return Protection(
            sent.pattern,
            frozenset(_CHANGE_KINDS[each] for each in sent.blocked),
            tuple(sent.exempt_user_ids),
            tuple(sent.exempt_roles),
            ReviewRule.of(sent.review) if sent.HasField("review") else None,
        )

    def message(self) -> settings_service_pb2.Protection:
        """The message of this value.

        Raises:
            ValueError: a blocked kind is one that no protection can block.
            TypeError: the exempt users or roles are one text.
        """
        if wrong := sorted(set(self.blocked) - _CHANGE_NUMBERS.keys()):
            names = ", ".join(_CHANGE_NUMBERS)
            raise ValueError(f"a protection cannot block {', '.join(wrong)}; it blocks {names}")
        return settings_service_pb2.Protection(
            pattern=self.pattern,
            blocked=sorted(_CHANGE_NUMBERS[each] for each in self.blocked),
            exempt_user_ids=several(self.exempt_user_ids, "exempt_user_ids"),
            exempt_roles=several(self.exempt_roles, "exempt_roles"),
            review=None if self.review is None else self.review.message(),
        )


@dataclass(frozen=True, slots=True)
class RepositorySettings:
    """The settings of a repository.

    Attributes:
        protections: a change must pass all that match its branch.
        hidden_patterns: patterns of the branches that listings omit.
        read_only: True: nothing but these settings can be changed.
        metadata: names and values.
        etag: version of all of the above, for `if_match`.
        default_branch_id: the default branch; it has no part in `etag`.
    """

    protections: tuple[Protection, ...]
    hidden_patterns: tuple[str, ...]
    read_only: bool
    metadata: Mapping[str, str]
    etag: str
    default_branch_id: str

    @staticmethod
    def of(sent: settings_service_pb2.GetSettingsResponse) -> RepositorySettings:
        """The value of a message; raises as `Protection.of`."""
        return RepositorySettings(
            tuple(map(Protection.of, sent.protections)),
            tuple(sent.hidden_patterns),
            sent.read_only,
            dict(sent.metadata),
            sent.etag,
            sent.default_branch_id,
        )

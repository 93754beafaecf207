"""Values of `tarn.client` about history: reflogs, deleted branches, annotations, and counts of changes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.client.commits import PathAnnotation
from tarn.client.diffs import DiffSummary
from tarn.client.values import ChangeCounts, Commit, time_of
from tarn_proto.graveler.v1 import commit_service_pb2, merge_service_pb2, reflog_service_pb2

__all__ = [
    "Annotation",
    "ChangeSummary",
    "DeletedBranch",
    "HeadChange",
    "HeadOperation",
    "PathChange",
    "RevertedRange",
    "timestamp_of",
]


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

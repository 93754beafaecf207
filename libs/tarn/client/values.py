"""The values that `tarn.client` returns: plain data with Python's times, without messages of the wire."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.core.entry import shown_time_us, unpack
from tarn_proto.auth.v1 import user_pb2
from tarn_proto.graveler.v1 import (
    branch_service_pb2,
    commit_service_pb2,
    merge_service_pb2,
    repository_service_pb2,
    tag_service_pb2,
)

__all__ = [
    "Branch",
    "Change",
    "ChangeCounts",
    "Choice",
    "Commit",
    "CommonPrefix",
    "Conflict",
    "KeyPair",
    "MergePreview",
    "NewCommit",
    "ObjectVersion",
    "Repository",
    "Side",
    "Tag",
    "User",
    "time_of",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(sent: Timestamp) -> datetime:
    """Returns the time of a message, in UTC, to the microsecond."""
    return _EPOCH + timedelta(seconds=sent.seconds, microseconds=sent.nanos // 1000)


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
    """

    path: str
    size_bytes: int
    modify_time: datetime
    etag: str
    content_type: str
    metadata: Mapping[str, str]

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
    """An access key id and its secret, with which a program logs in and signs S3 requests."""

    access_key_id: str
    secret_access_key: str = field(repr=False)

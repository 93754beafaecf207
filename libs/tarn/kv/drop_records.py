"""Records of the drop list: partitions to drop, and items to look at (`tarn_graveler.records.drop_list`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tarn.core.ids import BranchId, RepositoryId, TaskId, TokenId
from tarn.kv.port import Partition, PartitionKind
from tarn.kv.records import parse_record
from tarn.kv.unknown_fields import unknown_of, with_unknown
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = [
    "BranchOwner",
    "Drop",
    "ReflogOwner",
    "TaskOwner",
    "TokenOwner",
    "decode_drop",
    "encode_drop",
]


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The branch record that names a staging token, or named it once.

    Attributes:
        root: prefix of the partitions of the token's repository (`RepositoryKeys`).
        look_count: how often the cleaner has found the token still named.
        storage_namespace: where the journal of its repository is; empty without a journal.
    """

    root: str
    branch_id: BranchId
    token_id: TokenId
    look_count: int = 0
    storage_namespace: str = ""
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ReflogOwner:
    """The branch name whose reflog has entries to expire.

    Attributes:
        root: prefix of the partitions of its repository (`RepositoryKeys`).
    """

    root: str
    branch_id: BranchId
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TaskOwner:
    """The task that a look at it is registered for.

    Attributes:
        root: prefix of the partitions of its repository (`RepositoryKeys`).
    """

    root: str
    task_id: TaskId
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class BranchOwner:
    """The branch name that a look is registered for: at the end of its grace, it is deleted.

    Attributes:
        root: prefix of the partitions of its repository (`RepositoryKeys`).
        repository_id: the repository's name. Its present instance may be another one, with another root.
    """

    root: str
    branch_id: BranchId
    repository_id: RepositoryId
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Drop:
    """A partition to drop.

    Attributes:
        drop_time_us: earliest time of the drop, in Unix microseconds.
        count: how often the partition was dropped already.
        owner: the branch record to read before the drop, because the token was only announced and may still
            be in use. None: the token is certainly out of use.
        reflog: if present, no partition is dropped: expired entries of this reflog are removed. `partition` is
            then a name that no row is ever written to, so that a replica of an older version drops nothing.
        task: if present, no partition is dropped: this task is looked at. `partition` as for `reflog`.
        branch: if present, no partition is dropped: this branch is deleted if it has expired. `partition` as for
            `reflog`.
        journal: if present, the token is out of use, and its events are drained before the drop.
    """

    partition: Partition
    drop_time_us: int
    count: int = 0
    owner: TokenOwner | None = None
    reflog: ReflogOwner | None = None
    task: TaskOwner | None = None
    branch: BranchOwner | None = None
    journal: TokenOwner | None = None
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


def encode_drop(drop: Drop) -> bytes:
    """Encodes a partition to drop as a KV value."""
    record = pb.CleanupRecord(
        partition=drop.partition.name,
        is_register=drop.partition.kind is PartitionKind.REGISTER,
        buckets=drop.partition.buckets,
        drop_time_us=drop.drop_time_us,
        drop_count=drop.count,
        owner=None if drop.owner is None else _owner_to(drop.owner),
        reflog=_reflog_to(drop.reflog),
        task=_task_to(drop.task),
        branch=_branch_to(drop.branch),
        journal=None if drop.journal is None else _owner_to(drop.journal),
    )
    return with_unknown(record, drop.unknown_fields).SerializeToString()


def _reflog_to(reflog: ReflogOwner | None) -> pb.ReflogOwner | None:
    if reflog is None:
        return None
    record = pb.ReflogOwner(root=reflog.root, branch_id=reflog.branch_id)
    return with_unknown(record, reflog.unknown_fields)


def _task_to(task: TaskOwner | None) -> pb.TaskOwner | None:
    if task is None:
        return None
    record = pb.TaskOwner(root=task.root, task_id=task.task_id)
    return with_unknown(record, task.unknown_fields)


def _branch_to(branch: BranchOwner | None) -> pb.BranchOwner | None:
    if branch is None:
        return None
    record = pb.BranchOwner(
        root=branch.root, branch_id=branch.branch_id, repository_id=branch.repository_id
    )
    return with_unknown(record, branch.unknown_fields)


def _branch_from(record: pb.BranchOwner) -> BranchOwner:
    branch_id, repository_id = BranchId(record.branch_id), RepositoryId(record.repository_id)
    return BranchOwner(record.root, branch_id, repository_id, unknown_of(record))


def _owner_to(owner: TokenOwner) -> pb.TokenOwner:
    record = pb.TokenOwner(
        root=owner.root,
        branch_id=owner.branch_id,
        token_id=owner.token_id,
        look_count=owner.look_count,
        storage_namespace=owner.storage_namespace,
    )
    return with_unknown(record, owner.unknown_fields)


def _owner_from(record: pb.TokenOwner) -> TokenOwner:
    branch_id, token_id = BranchId(record.branch_id), TokenId(record.token_id)
    return TokenOwner(
        record.root,
        branch_id,
        token_id,
        record.look_count,
        record.storage_namespace,
        unknown_of(record),
    )


def decode_drop(value: bytes) -> Drop:
    """Decodes a partition to drop from a KV value."""
    record = parse_record(pb.CleanupRecord(), value)
    kind = PartitionKind.REGISTER if record.is_register else PartitionKind.PLAIN
    partition = Partition(record.partition, kind, record.buckets)
    owner = _owner_from(record.owner) if record.HasField("owner") else None
    reflog = None
    if record.HasField("reflog"):
        found = record.reflog
        reflog = ReflogOwner(found.root, BranchId(found.branch_id), unknown_of(found))
    task = None
    if record.HasField("task"):
        task = TaskOwner(record.task.root, TaskId(record.task.task_id), unknown_of(record.task))
    return Drop(
        partition,
        record.drop_time_us,
        record.drop_count,
        owner,
        reflog,
        task,
        _branch_from(record.branch) if record.HasField("branch") else None,
        _owner_from(record.journal) if record.HasField("journal") else None,
        unknown_of(record),
    )

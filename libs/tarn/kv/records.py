"""What KV values hold: graveler's records to bytes and back (`protos/tarn_proto/store/v1`).

Core values go in and come out; nothing outside this module knows the protos of the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tarn.core.branch import Branch, Token, TokenKind
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, MetarangeId, RepositoryId, TokenId
from tarn.kv.port import Partition, PartitionKind
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = [
    "Drop",
    "Repository",
    "Tag",
    "TokenOwner",
    "decode_branch",
    "decode_drop",
    "decode_repository",
    "decode_tag",
    "encode_branch",
    "encode_drop",
    "encode_repository",
    "encode_tag",
    "parse_record",
    "token_from",
    "token_to",
]


M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Repository:
    """One life of a repository."""

    repository_id: RepositoryId
    instance_uid: str
    storage_namespace: str
    default_branch: BranchId
    create_time_us: int
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Tag:
    """What a tag names."""

    commit_id: CommitId
    create_time_us: int


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The branch record that names a token, or did.

    Attributes:
        root: of the partitions of its repository (`RepositoryKeys`).
        look_count: how often the cleaner has found the token still named.
    """

    root: str
    branch_id: BranchId
    token_id: TokenId
    look_count: int = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """A partition to drop.

    Attributes:
        drop_time_us: not before this time.
        count: how often it was dropped already.
        owner: whose record must be read before: announced, and perhaps still in use. None: surely not
            in use any more.
    """

    partition: Partition
    drop_time_us: int
    count: int = 0
    owner: TokenOwner | None = None


def parse_record(message: M, value: bytes) -> M:
    """Fills a record message.

    Raises:
        TarnError: CORRUPT when the bytes are not of this message.
    """
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        text = f"{len(value)} bytes are no {message.DESCRIPTOR.full_name}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text) from error
    return message


def token_to(token: Token) -> pb.Token:
    """A token as part of a record."""
    return pb.Token(
        token_id=token.token_id,
        is_conditional=token.kind is TokenKind.CONDITIONAL,
        buckets=token.buckets,
        create_time_us=token.create_time_us,
    )


def token_from(record: pb.Token) -> Token:
    """The token of a part of a record."""
    kind = TokenKind.CONDITIONAL if record.is_conditional else TokenKind.PLAIN
    return Token(TokenId(record.token_id), kind, record.buckets, record.create_time_us)


def encode_branch(branch: Branch) -> bytes:
    """A branch as one value."""
    return pb.BranchRecord(
        incarnation=branch.incarnation,
        staging=token_to(branch.staging),
        sealed=[token_to(token) for token in branch.sealed],
        commit_id=branch.commit_id,
        compacted_metarange_id=branch.compacted_metarange_id or "",
        compaction_start_time_us=branch.compaction_start_time_us,
        recent_op_ids=branch.recent_op_ids,
        is_deleted=branch.is_deleted,
        create_time_us=branch.create_time_us,
    ).SerializeToString()


def decode_branch(value: bytes) -> Branch:
    """The branch of a value."""
    record = parse_record(pb.BranchRecord(), value)
    compacted = record.compacted_metarange_id
    return Branch(
        incarnation=record.incarnation,
        staging=token_from(record.staging),
        sealed=tuple(token_from(token) for token in record.sealed),
        commit_id=CommitId(record.commit_id),
        create_time_us=record.create_time_us,
        compacted_metarange_id=MetarangeId(compacted) if compacted else None,
        compaction_start_time_us=record.compaction_start_time_us,
        recent_op_ids=tuple(record.recent_op_ids),
        is_deleted=record.is_deleted,
    )


def encode_repository(repository: Repository) -> bytes:
    """A repository as one value."""
    return pb.RepositoryRecord(
        repository_id=repository.repository_id,
        instance_uid=repository.instance_uid,
        storage_namespace=repository.storage_namespace,
        default_branch=repository.default_branch,
        create_time_us=repository.create_time_us,
        is_deleted=repository.is_deleted,
    ).SerializeToString()


def decode_repository(value: bytes) -> Repository:
    """The repository of a value."""
    record = parse_record(pb.RepositoryRecord(), value)
    return Repository(
        RepositoryId(record.repository_id),
        record.instance_uid,
        record.storage_namespace,
        BranchId(record.default_branch),
        record.create_time_us,
        record.is_deleted,
    )


def encode_tag(tag: Tag) -> bytes:
    """A tag as one value."""
    record = pb.TagRecord(commit_id=tag.commit_id, create_time_us=tag.create_time_us)
    return record.SerializeToString()


def decode_tag(value: bytes) -> Tag:
    """The tag of a value."""
    record = parse_record(pb.TagRecord(), value)
    return Tag(CommitId(record.commit_id), record.create_time_us)


def encode_drop(drop: Drop) -> bytes:
    """A partition to drop as one value."""
    return pb.CleanupRecord(
        partition=drop.partition.name,
        is_register=drop.partition.kind is PartitionKind.REGISTER,
        buckets=drop.partition.buckets,
        drop_time_us=drop.drop_time_us,
        drop_count=drop.count,
        owner=None if drop.owner is None else _owner_to(drop.owner),
    ).SerializeToString()


def _owner_to(owner: TokenOwner) -> pb.TokenOwner:
    return pb.TokenOwner(
        root=owner.root,
        branch_id=owner.branch_id,
        token_id=owner.token_id,
        look_count=owner.look_count,
    )


def _owner_from(record: pb.TokenOwner) -> TokenOwner:
    return TokenOwner(
        record.root, BranchId(record.branch_id), TokenId(record.token_id), record.look_count
    )


def decode_drop(value: bytes) -> Drop:
    """The partition to drop of a value."""
    record = parse_record(pb.CleanupRecord(), value)
    kind = PartitionKind.REGISTER if record.is_register else PartitionKind.PLAIN
    partition = Partition(record.partition, kind, record.buckets)
    owner = _owner_from(record.owner) if record.HasField("owner") else None
    return Drop(partition, record.drop_time_us, record.drop_count, owner)

"""What KV values hold: graveler's records to bytes and back (`protos/tarn_proto/store/v1`).

Core values go in and come out; nothing outside this module knows the protos of the store.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tarn.core.branch import Branch, Token, TokenKind
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, MetarangeId, RepositoryId, TokenId
from tarn.kv.port import Partition, PartitionKind
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = [
    "Drop",
    "Namespace",
    "RefKind",
    "RefName",
    "Repository",
    "Tag",
    "TokenOwner",
    "decode_branch",
    "decode_drop",
    "decode_namespace",
    "decode_ref_name",
    "decode_repository",
    "decode_tag",
    "encode_branch",
    "encode_drop",
    "encode_namespace",
    "encode_ref_name",
    "encode_repository",
    "encode_tag",
    "is_pending_branch",
    "parse_record",
    "token_from",
    "token_to",
]


M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Repository:
    """One life of a repository.

    Attributes:
        is_deleted: being deleted; treated as absent.
        is_pending: being created; treated as absent by everything but creation.
    """

    repository_id: RepositoryId
    instance_uid: str
    storage_namespace: str
    default_branch: BranchId
    create_time_us: int
    is_deleted: bool = False
    is_pending: bool = False

    @property
    def is_served(self) -> bool:
        """Whether users see it."""
        return not (self.is_deleted or self.is_pending)


@dataclass(frozen=True, slots=True)
class Tag:
    """What a tag names.

    Attributes:
        nonce: of this life of the tag.
        is_pending: being created; treated as absent by everything but creation.
    """

    commit_id: CommitId
    create_time_us: int
    nonce: bytes = b""
    is_pending: bool = False


class RefKind(enum.Enum):
    """What a name can be."""

    BRANCH = "branch"
    TAG = "tag"


@dataclass(frozen=True, slots=True)
class RefName:
    """Whose a name is: of the branch with this incarnation, or of the tag with this nonce.

    If there is no such branch or tag (any more), the name is free.
    """

    kind: RefKind
    nonce: bytes
    create_time_us: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Namespace:
    """Whose a storage namespace is.

    Attributes:
        repository_id: where the record of the instance lies.
        is_final: a repository was published with it: it stays occupied when the repository is gone. If
            not set, and there is no record of the instance, its creation failed and it is free.
    """

    repository_id: RepositoryId
    instance_uid: str
    is_final: bool = False


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


def encode_branch(branch: Branch, *, is_pending: bool = False) -> bytes:
    """A branch as one value.

    One that is pending, which means being created, is read as deleted by all who do not ask
    `is_pending_branch`.
    """
    return pb.BranchRecord(
        incarnation=branch.incarnation,
        staging=token_to(branch.staging),
        sealed=[token_to(token) for token in branch.sealed],
        commit_id=branch.commit_id,
        compacted_metarange_id=branch.compacted_metarange_id or "",
        compaction_start_time_us=branch.compaction_start_time_us,
        recent_op_ids=branch.recent_op_ids,
        is_deleted=branch.is_deleted or is_pending,
        create_time_us=branch.create_time_us,
        is_pending=is_pending,
    ).SerializeToString()


def is_pending_branch(value: bytes) -> bool:
    """Whether a value is a branch that is being created."""
    return parse_record(pb.BranchRecord(), value).is_pending


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
        is_pending=repository.is_pending,
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
        record.is_pending,
    )


def encode_tag(tag: Tag) -> bytes:
    """A tag as one value."""
    return pb.TagRecord(
        commit_id=tag.commit_id,
        create_time_us=tag.create_time_us,
        nonce=tag.nonce,
        is_pending=tag.is_pending,
    ).SerializeToString()


def decode_tag(value: bytes) -> Tag:
    """The tag of a value."""
    record = parse_record(pb.TagRecord(), value)
    commit_id = CommitId(record.commit_id)
    return Tag(commit_id, record.create_time_us, record.nonce, record.is_pending)


_REF_KINDS = {
    pb.REF_KIND_BRANCH: RefKind.BRANCH,
    pb.REF_KIND_TAG: RefKind.TAG,
}
_REF_KIND_NUMBERS = {kind: number for number, kind in _REF_KINDS.items()}


def encode_ref_name(name: RefName) -> bytes:
    """Whose a name is, as one value."""
    return pb.RefNameRecord(
        kind=_REF_KIND_NUMBERS[name.kind],
        nonce=name.nonce,
        create_time_us=name.create_time_us,
    ).SerializeToString()


def decode_ref_name(value: bytes) -> RefName:
    """Whose a name is.

    Raises:
        TarnError: CORRUPT, also for a kind that is none.
    """
    record = parse_record(pb.RefNameRecord(), value)
    kind = _REF_KINDS.get(record.kind)
    if kind is None:
        text = f"a name is of kind {record.kind}, neither branch nor tag"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    return RefName(kind, record.nonce, record.create_time_us)


def encode_namespace(namespace: Namespace) -> bytes:
    """Whose a storage namespace is, as one value."""
    return pb.NamespaceRecord(
        repository_id=namespace.repository_id,
        instance_uid=namespace.instance_uid,
        is_final=namespace.is_final,
    ).SerializeToString()


def decode_namespace(value: bytes) -> Namespace:
    """Whose a storage namespace is."""
    record = parse_record(pb.NamespaceRecord(), value)
    return Namespace(RepositoryId(record.repository_id), record.instance_uid, record.is_final)


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

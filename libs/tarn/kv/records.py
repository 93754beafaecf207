"""Encodes graveler's records as KV values, and decodes them (`protos/tarn_proto/store/v1`).

The functions take and return values of the core. `unknown_fields` of a value are those that only newer replicas know;
they are written back as they were (`tarn.kv.unknown_fields`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from tarn.core.branch import Branch, Pin, Token, TokenKind
from tarn.core.branch_expiry import BranchExpiry
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadChange, HeadOperation
from tarn.core.ids import BranchId, CommitId, MetarangeId, RepositoryId, TokenId
from tarn.kv.unknown_fields import unknown_of, with_unknown
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = [
    "ENDED_UPLOAD",
    "BucketView",
    "RefKind",
    "RefName",
    "Repository",
    "Tag",
    "decode_branch",
    "decode_bucket",
    "decode_head_change",
    "decode_ref_name",
    "decode_tag",
    "encode_branch",
    "encode_bucket_view",
    "encode_head_change",
    "encode_ref_name",
    "encode_repository",
    "encode_tag",
    "is_pending_branch",
    "parse_record",
    "token_from",
    "token_to",
]

ENDED_UPLOAD: Final = b"ended"
"""The value of an upload's row in the index once it is completed or aborted; empty before."""


M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository, from its creation to its deletion.

    Attributes:
        is_deleted: deletion has begun; the repository is treated as absent.
        is_pending: creation has begun; every operation except creation treats the repository as absent.
        restore_id: the restore that is not finished; every operation except restore and deletion treats the
            repository as absent. Empty: there is none.
        cors_json: CORS rules of its bucket (`tarn.core.cors`); empty: none.
        client_namespace: the place that a client of another interface named; nothing is kept there. Empty: none.
    """

    repository_id: RepositoryId
    instance_uid: str
    storage_namespace: str
    default_branch: BranchId
    create_time_us: int
    is_deleted: bool = False
    is_pending: bool = False
    restore_id: str = ""
    cors_json: str = ""
    client_namespace: str = ""
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    @property
    def is_served(self) -> bool:
        """Whether users see the repository."""
        return not (self.is_deleted or self.is_pending or self.restore_id)


@dataclass(frozen=True, slots=True)
class BucketView:
    """A bucket name that shows a ref of a repository (docs/design/bucket-views.md).

    Attributes:
        bucket_id: its name, which no repository has.
        uid: of this life of the name; a view that is deleted and made again has another.
        repository_id, repository_uid: the repository that it shows, and its instance.
        ref: the branch, tag or commit that it shows.
        generation: grows by one with each change of what it shows.
        change_id: of the last change, of what it shows or of `is_public_read`.
        is_pending: creation has begun; every operation except creation treats the view as absent.
        cors_json: CORS rules of the bucket (`tarn.core.cors`); empty: none.
        is_public_read: whether anonymous S3 requests may read what it shows.
    """

    bucket_id: RepositoryId
    uid: str
    repository_id: RepositoryId
    repository_uid: str
    ref: str
    generation: int
    create_time_us: int
    change_id: bytes = b""
    is_pending: bool = False
    cors_json: str = ""
    is_public_read: bool = False
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Tag:
    """The record of a tag.

    Attributes:
        nonce: unique to this life of the tag.
        is_pending: creation has begun; every operation except creation treats the tag as absent.
    """

    commit_id: CommitId
    create_time_us: int
    nonce: bytes = b""
    is_pending: bool = False
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


class RefKind(enum.Enum):
    """The kind of ref that owns a name."""

    BRANCH = "branch"
    TAG = "tag"


@dataclass(frozen=True, slots=True)
class RefName:
    """The owner of a name: the branch with this incarnation, or the tag with this nonce.

    The name is free if that branch or tag does not exist (any more).
    """

    kind: RefKind
    nonce: bytes
    create_time_us: int = field(default=0, compare=False)
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


def parse_record(message: M, value: bytes) -> M:
    """Parses the bytes of a record into `message` and returns it.

    Raises:
        TarnError: CORRUPT: the bytes are not a message of this type.
    """
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        text = f"{len(value)} bytes cannot be parsed as {message.DESCRIPTOR.full_name}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text) from error
    return message


def token_to(token: Token) -> pb.Token:
    """Converts a token to its message, for use inside a record."""
    record = pb.Token(
        token_id=token.token_id,
        is_conditional=token.kind is TokenKind.CONDITIONAL,
        buckets=token.buckets,
        create_time_us=token.create_time_us,
    )
    return with_unknown(record, token.unknown_fields)


def token_from(record: pb.Token) -> Token:
    """Converts the message of a token, taken from a record."""
    kind = TokenKind.CONDITIONAL if record.is_conditional else TokenKind.PLAIN
    token_id = TokenId(record.token_id)
    return Token(token_id, kind, record.buckets, record.create_time_us, unknown_of(record))


def encode_branch(branch: Branch, *, is_pending: bool = False) -> bytes:
    """Encodes a branch as a KV value.

    A pending branch, whose creation has begun but not finished, reads as deleted for all callers that do
    not check `is_pending_branch`.
    """
    record = pb.BranchRecord(
        incarnation=branch.incarnation,
        staging=token_to(branch.staging),
        sealed=[token_to(token) for token in branch.sealed],
        commit_id=branch.commit_id,
        compacted_metarange_id=branch.compacted_metarange_id or "",
        compaction_start_time_us=branch.compaction_start_time_us,
        compaction_end_time_us=branch.compaction_end_time_us,
        recent_op_ids=branch.recent_op_ids,
        is_deleted=branch.is_deleted or is_pending,
        create_time_us=branch.create_time_us,
        is_pending=is_pending,
        reset_count=branch.reset_count,
        move_time_us=branch.move_time_us,
        outbox=[encode_head_change(entry) for entry in branch.outbox],
        head_sequence=branch.head_sequence,
        head_time_us=branch.head_time_us,
        pins=[_pin_to(each) for each in branch.pins],
        expiry=_expiry_to(branch.expiry),
    )
    return with_unknown(record, branch.unknown_fields).SerializeToString()


def _pin_to(pin: Pin) -> pb.PinRecord:
    record = pb.PinRecord(pin_id=pin.pin_id, metarange_id=pin.metarange_id)
    return with_unknown(record, pin.unknown_fields)


def _pin_from(record: pb.PinRecord) -> Pin:
    return Pin(record.pin_id, MetarangeId(record.metarange_id), unknown_of(record))


def _expiry_to(expiry: BranchExpiry | None) -> pb.BranchExpiryRecord | None:
    if expiry is None:
        return None
    record = pb.BranchExpiryRecord(
        set_time_us=expiry.set_time_us,
        expire_time_us=expiry.expire_time_us,
        delete_time_us=expiry.delete_time_us,
    )
    return with_unknown(record, expiry.unknown_fields)


def _expiry_from(record: pb.BranchExpiryRecord) -> BranchExpiry:
    times = record.set_time_us, record.expire_time_us, record.delete_time_us
    return BranchExpiry(*times, unknown_of(record))


def encode_head_change(entry: HeadChange) -> bytes:
    """Encodes an entry of a reflog, for a row or an outbox."""
    record = pb.HeadChangeRecord(
        entry_id=entry.entry_id,
        sequence=entry.sequence,
        time_us=entry.time_us,
        operation=entry.unknown_operation or entry.operation.value,
        user_id=entry.user_id,
        incarnation=entry.incarnation,
        old_commit_id=entry.old_commit_id or "",
        new_commit_id=entry.new_commit_id or "",
        old_since_us=entry.old_since_us,
    )
    return with_unknown(record, entry.unknown_fields).SerializeToString()


def decode_head_change(value: bytes) -> HeadChange:
    """Decodes an entry of a reflog. An operation that this version does not know reads as OTHER."""
    record = parse_record(pb.HeadChangeRecord(), value)
    known = {each.value: each for each in HeadOperation}
    return HeadChange(
        entry_id=record.entry_id,
        sequence=record.sequence,
        time_us=record.time_us,
        operation=known.get(record.operation, HeadOperation.OTHER),
        user_id=record.user_id,
        incarnation=record.incarnation,
        old_commit_id=CommitId(record.old_commit_id) if record.old_commit_id else None,
        new_commit_id=CommitId(record.new_commit_id) if record.new_commit_id else None,
        old_since_us=record.old_since_us,
        unknown_operation="" if record.operation in known else record.operation,
        unknown_fields=unknown_of(record),
    )


def is_pending_branch(value: bytes) -> bool:
    """Whether a value is a branch that is being created."""
    return parse_record(pb.BranchRecord(), value).is_pending


def decode_branch(value: bytes) -> Branch:
    """Decodes a branch from a KV value."""
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
        compaction_end_time_us=record.compaction_end_time_us,
        recent_op_ids=tuple(record.recent_op_ids),
        is_deleted=record.is_deleted,
        reset_count=record.reset_count,
        move_time_us=record.move_time_us,
        outbox=tuple(decode_head_change(entry) for entry in record.outbox),
        head_sequence=record.head_sequence,
        head_time_us=record.head_time_us,
        pins=tuple(_pin_from(each) for each in record.pins),
        expiry=_expiry_from(record.expiry) if record.HasField("expiry") else None,
        unknown_fields=unknown_of(record),
    )


def encode_repository(repository: Repository) -> bytes:
    """Encodes a repository as a KV value."""
    record = pb.RepositoryRecord(
        repository_id=repository.repository_id,
        instance_uid=repository.instance_uid,
        storage_namespace=repository.storage_namespace,
        default_branch=repository.default_branch,
        create_time_us=repository.create_time_us,
        is_deleted=repository.is_deleted,
        is_pending=repository.is_pending,
        restore_id=repository.restore_id,
        cors_json=repository.cors_json,
        client_namespace=repository.client_namespace,
    )
    return with_unknown(record, repository.unknown_fields).SerializeToString()


def encode_bucket_view(view: BucketView) -> bytes:
    """Encodes a bucket view as a KV value."""
    record = pb.RepositoryRecord(
        repository_id=view.bucket_id,
        instance_uid=view.uid,
        create_time_us=view.create_time_us,
        is_pending=view.is_pending,
        view_repository_id=view.repository_id,
        view_instance_uid=view.repository_uid,
        view_ref=view.ref,
        view_generation=view.generation,
        view_change_id=view.change_id,
        cors_json=view.cors_json,
        view_is_public_read=view.is_public_read,
    )
    return with_unknown(record, view.unknown_fields).SerializeToString()


def decode_bucket(value: bytes) -> Repository | BucketView:
    """Decodes the holder of a bucket name from a KV value.

    Raises:
        TarnError: CORRUPT.
    """
    record = parse_record(pb.RepositoryRecord(), value)
    if record.view_repository_id:
        if record.storage_namespace or record.default_branch or record.is_deleted:
            text = f"the record of {record.repository_id!r} is that of a view and of a repository"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
        return BucketView(
            RepositoryId(record.repository_id),
            record.instance_uid,
            RepositoryId(record.view_repository_id),
            record.view_instance_uid,
            record.view_ref,
            record.view_generation,
            record.create_time_us,
            record.view_change_id,
            record.is_pending,
            record.cors_json,
            record.view_is_public_read,
            unknown_of(record),
        )
    return Repository(
        RepositoryId(record.repository_id),
        record.instance_uid,
        record.storage_namespace,
        BranchId(record.default_branch),
        record.create_time_us,
        record.is_deleted,
        record.is_pending,
        record.restore_id,
        record.cors_json,
        record.client_namespace,
        unknown_of(record),
    )


def encode_tag(tag: Tag) -> bytes:
    """Encodes a tag as a KV value."""
    record = pb.TagRecord(
        commit_id=tag.commit_id,
        create_time_us=tag.create_time_us,
        nonce=tag.nonce,
        is_pending=tag.is_pending,
    )
    return with_unknown(record, tag.unknown_fields).SerializeToString()


def decode_tag(value: bytes) -> Tag:
    """Decodes a tag from a KV value."""
    record = parse_record(pb.TagRecord(), value)
    commit_id = CommitId(record.commit_id)
    unknown = unknown_of(record)
    return Tag(commit_id, record.create_time_us, record.nonce, record.is_pending, unknown)


_REF_KINDS = {
    pb.REF_KIND_BRANCH: RefKind.BRANCH,
    pb.REF_KIND_TAG: RefKind.TAG,
}
_REF_KIND_NUMBERS = {kind: number for number, kind in _REF_KINDS.items()}


def encode_ref_name(name: RefName) -> bytes:
    """Encodes the owner of a name as a KV value."""
    record = pb.RefNameRecord(
        kind=_REF_KIND_NUMBERS[name.kind],
        nonce=name.nonce,
        create_time_us=name.create_time_us,
    )
    return with_unknown(record, name.unknown_fields).SerializeToString()


def decode_ref_name(value: bytes) -> RefName:
    """Decodes the owner of a name.

    Raises:
        TarnError: CORRUPT: the value cannot be parsed, or its kind is neither branch nor tag.
    """
    record = parse_record(pb.RefNameRecord(), value)
    kind = _REF_KINDS.get(record.kind)
    if kind is None:
        text = f"a name is of kind {record.kind}, neither branch nor tag"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    return RefName(kind, record.nonce, record.create_time_us, unknown_of(record))

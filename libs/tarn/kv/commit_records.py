"""Encodes commits as KV values, and decodes them (`protos/tarn_proto/store/v1/graveler.proto`)."""

from __future__ import annotations

from tarn.core.commit import Commit, commit_id_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, MetarangeId
from tarn.kv.records import parse_record
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = ["checked_commit", "decode_commit", "encode_commit"]


def encode_commit(commit: Commit) -> bytes:
    """Encodes the row of a commit; equal commits give equal bytes."""
    return pb.CommitRecord(
        version=commit.version,
        parents=commit.parents,
        metarange_id=commit.metarange_id,
        committer=commit.committer,
        message=commit.message,
        create_time_us=commit.create_time_us,
        generation=commit.generation,
        metadata=dict(commit.metadata),
    ).SerializeToString(deterministic=True)


def decode_commit(value: bytes) -> Commit:
    """Decodes the commit of a row; the caller checks its hash."""
    record = parse_record(pb.CommitRecord(), value)
    return Commit(
        parents=tuple(CommitId(parent) for parent in record.parents),
        metarange_id=MetarangeId(record.metarange_id),
        committer=record.committer,
        message=record.message,
        create_time_us=record.create_time_us,
        generation=record.generation,
        metadata=tuple(sorted(record.metadata.items())),
        version=record.version,
    )


def checked_commit(commit_id: CommitId, value: bytes) -> Commit:
    """Decodes the commit of a row.

    Raises:
        TarnError: CORRUPT: the row is not that of the commit with this id.
    """
    commit = decode_commit(value)
    if commit_id_of(commit) != commit_id:
        text = f"the record of commit {commit_id} hashes to {commit_id_of(commit)}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    return commit

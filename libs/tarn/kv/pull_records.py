"""Encodes pull requests as KV values, and decodes them (`protos/tarn_proto/store/v1/pulls.proto`)."""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, UserId
from tarn.core.pull_request import (
    EventKind,
    Heads,
    OpenPull,
    PullBranch,
    PullEvent,
    PullIndex,
    PullRequest,
    PullState,
    Review,
    Verdict,
)
from tarn.kv.records import parse_record
from tarn.kv.unknown_fields import unknown_of, with_unknown
from tarn_proto.store.v1 import pulls_pb2 as pb

__all__ = [
    "decode_pull",
    "decode_pull_event",
    "decode_pull_index",
    "encode_pull",
    "encode_pull_event",
    "encode_pull_index",
]


def encode_pull(pull: PullRequest) -> bytes:
    """Encodes a pull request as a KV value."""
    record = pb.PullRequestRecord(
        number=pull.number,
        state=pull.state.value,
        author_id=pull.author_id,
        author_uid=pull.author_uid,
        source=_branch_to(pull.source),
        destination=_branch_to(pull.destination),
        title=pull.title,
        description=pull.description,
        create_time_us=pull.create_time_us,
        update_time_us=pull.update_time_us,
        end_time_us=pull.end_time_us,
        create_id=pull.create_id,
        change_id=pull.change_id,
        reviews=map(_review_to, pull.reviews),
        event_count=pull.event_count,
        text_bytes=pull.text_bytes,
        merge_id=pull.merge_id,
        merge_from_commit_id=pull.merge_from or "",
        merge_commit_id=pull.merge_commit or "",
    )
    return with_unknown(record, pull.unknown_fields).SerializeToString()


def decode_pull(value: bytes) -> PullRequest:
    """Decodes a pull request from a KV value.

    Raises:
        TarnError: CORRUPT: the value cannot be parsed, or has an unknown state or verdict.
    """
    record = parse_record(pb.PullRequestRecord(), value)
    try:
        state = PullState(record.state)
        reviews = tuple(map(_review_from, record.reviews))
    except ValueError as error:
        raise _damaged(f"pull request {record.number}", error) from error
    return PullRequest(
        number=record.number,
        state=state,
        author_id=UserId(record.author_id),
        author_uid=record.author_uid,
        source=_branch_from(record.source),
        destination=_branch_from(record.destination),
        title=record.title,
        description=record.description,
        create_time_us=record.create_time_us,
        update_time_us=record.update_time_us,
        end_time_us=record.end_time_us,
        create_id=record.create_id,
        change_id=record.change_id,
        reviews=reviews,
        event_count=record.event_count,
        text_bytes=record.text_bytes,
        merge_id=record.merge_id,
        merge_from=CommitId(record.merge_from_commit_id) or None,
        merge_commit=CommitId(record.merge_commit_id) or None,
        unknown_fields=unknown_of(record),
    )


def encode_pull_event(event: PullEvent) -> bytes:
    """Encodes an event as a KV value."""
    record = pb.PullEventRecord(
        kind=event.kind.value,
        user_id=event.user_id,
        time_us=event.time_us,
        body=event.body,
        path=event.path,
        source_commit_id=event.source,
        destination_commit_id=event.destination,
    )
    return with_unknown(record, event.unknown_fields).SerializeToString()


def decode_pull_event(value: bytes) -> PullEvent:
    """Decodes an event from a KV value.

    Raises:
        TarnError: CORRUPT.
    """
    record = parse_record(pb.PullEventRecord(), value)
    try:
        kind = EventKind(record.kind)
    except ValueError as error:
        raise _damaged("an event of a pull request", error) from error
    return PullEvent(
        kind,
        UserId(record.user_id),
        record.time_us,
        record.body,
        record.path,
        record.source_commit_id,
        record.destination_commit_id,
        unknown_of(record),
    )


def encode_pull_index(index: PullIndex) -> bytes:
    """Encodes the index of pull requests as a KV value."""
    record = pb.PullIndexRecord(
        last_number=index.last_number, open=[_open_to(each) for each in index.open]
    )
    return with_unknown(record, index.unknown_fields).SerializeToString()


def decode_pull_index(value: bytes) -> PullIndex:
    """Decodes the index of pull requests from a KV value.

    Raises:
        TarnError: CORRUPT.
    """
    record = parse_record(pb.PullIndexRecord(), value)
    found = tuple(
        OpenPull(each.number, each.pair, each.open_id, unknown_of(each)) for each in record.open
    )
    return PullIndex(record.last_number, found, unknown_of(record))


def _damaged(what: str, error: ValueError) -> TarnError:
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, f"{what} cannot be read: {error}")


def _open_to(pull: OpenPull) -> pb.OpenPullRecord:
    record = pb.OpenPullRecord(number=pull.number, pair=pull.pair, open_id=pull.open_id)
    return with_unknown(record, pull.unknown_fields)


def _branch_to(branch: PullBranch) -> pb.PullBranchRecord:
    record = pb.PullBranchRecord(
        branch_id=branch.branch_id, incarnation=branch.incarnation, commit_id=branch.commit_id
    )
    return with_unknown(record, branch.unknown_fields)


def _branch_from(record: pb.PullBranchRecord) -> PullBranch:
    return PullBranch(
        BranchId(record.branch_id),
        record.incarnation,
        CommitId(record.commit_id),
        unknown_of(record),
    )


def _review_to(review: Review) -> pb.PullReviewRecord:
    record = pb.PullReviewRecord(
        user_id=review.user_id,
        user_uid=review.user_uid,
        verdict=review.verdict.value,
        source_commit_id=review.heads.source,
        source_sequence=review.heads.source_sequence,
        destination_commit_id=review.heads.destination,
        destination_sequence=review.heads.destination_sequence,
        time_us=review.time_us,
        dismissed_by=review.dismissed_by,
    )
    return with_unknown(record, review.unknown_fields)


def _review_from(record: pb.PullReviewRecord) -> Review:
    heads = Heads(
        CommitId(record.source_commit_id),
        record.source_sequence,
        CommitId(record.destination_commit_id),
        record.destination_sequence,
    )
    return Review(
        UserId(record.user_id),
        record.user_uid,
        Verdict(record.verdict),
        heads,
        record.time_us,
        record.dismissed_by,
        unknown_of(record),
    )

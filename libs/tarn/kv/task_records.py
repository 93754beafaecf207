"""Encodes tasks as KV values, and decodes them (`protos/tarn_proto/store/v1/tasks.proto`)."""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId, TaskId, UserId
from tarn.core.task import Quota, Task, TaskFailure, TaskProgress, TaskState
from tarn.kv.records import parse_record
from tarn.kv.unknown_fields import unknown_of, with_unknown
from tarn_proto.store.v1 import tasks_pb2 as pb

__all__ = ["decode_quota", "decode_task", "encode_quota", "encode_task"]


def encode_task(task: Task) -> bytes:
    """Encodes a task as a KV value."""
    record = pb.TaskRecord(
        task_id=task.task_id,
        repository_id=task.repository_id,
        instance_uid=task.instance_uid,
        user_id=task.user_id,
        user_uid=task.user_uid,
        roles=task.roles,
        kind=task.kind,
        state=task.state.value,
        subject=task.subject,
        request=task.request,
        digest=task.digest,
        create_time_us=task.create_time_us,
        epoch=task.epoch,
        runner=task.runner,
        lease_until_us=task.lease_until_us,
        is_cancel_requested=task.is_cancel_requested,
        done_count=task.progress.done,
        total_count=task.progress.total,
        begin_sequence=task.begin_sequence,
        incarnation=task.incarnation,
        end_time_us=task.end_time_us,
        result=task.result,
        request_row=task.request_row,
        result_row=task.result_row,
        session_key_id=task.session_key_id,
    )
    if (failure := task.failure) is not None:
        record.error.kind = failure.kind.value
        record.error.reason = failure.reason.value
        record.error.message = failure.message
        record.error.metadata.update(failure.metadata)
        with_unknown(record.error, failure.unknown_fields)
    return with_unknown(record, task.unknown_fields).SerializeToString(deterministic=True)


def decode_task(value: bytes) -> Task:
    """Decodes a task from a KV value.

    Raises:
        TarnError: CORRUPT: the value cannot be parsed, or has an unknown state or error.
    """
    record = parse_record(pb.TaskRecord(), value)
    try:
        state = TaskState(record.state)
        failure = _failure(record.error) if record.HasField("error") else None
    except ValueError as error:
        text = f"task {record.task_id!r} cannot be read: {error}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text) from error
    return Task(
        task_id=TaskId(record.task_id),
        repository_id=RepositoryId(record.repository_id),
        instance_uid=record.instance_uid,
        user_id=UserId(record.user_id),
        user_uid=record.user_uid,
        roles=tuple(record.roles),
        kind=record.kind,
        subject=record.subject,
        request=record.request,
        digest=record.digest,
        create_time_us=record.create_time_us,
        begin_sequence=record.begin_sequence,
        incarnation=record.incarnation,
        state=state,
        epoch=record.epoch,
        runner=record.runner,
        lease_until_us=record.lease_until_us,
        is_cancel_requested=record.is_cancel_requested,
        progress=TaskProgress(record.done_count, record.total_count),
        end_time_us=record.end_time_us,
        result=record.result,
        request_row=record.request_row,
        result_row=record.result_row,
        session_key_id=record.session_key_id,
        failure=failure,
        unknown_fields=unknown_of(record),
    )


def encode_quota(quota: Quota) -> bytes:
    """Encodes the starts of a user on one day as a KV value."""
    ids = [bytes.fromhex(task_id) for task_id in quota.open_ids]
    record = pb.TaskQuotaRecord(start_count=quota.count, open_task_ids=ids)
    return with_unknown(record, quota.unknown_fields).SerializeToString()


def decode_quota(value: bytes) -> Quota:
    """Decodes the starts of a user on one day from a KV value.

    Raises:
        TarnError: CORRUPT.
    """
    record = parse_record(pb.TaskQuotaRecord(), value)
    ids = tuple(TaskId(each.hex()) for each in record.open_task_ids)
    return Quota(record.start_count, ids, unknown_of(record))


def _failure(record: pb.TaskErrorRecord) -> TaskFailure:
    metadata = tuple(sorted(record.metadata.items()))
    kind, reason = Kind(record.kind), Reason(record.reason)
    return TaskFailure(kind, reason, record.message, metadata, unknown_of(record))

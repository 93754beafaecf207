"""Tasks and looks at tasks as KV values."""

import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId, TaskId, UserId
from tarn.core.task import Quota, Task, TaskFailure, TaskProgress, TaskState
from tarn.kv.drop_records import Drop, TaskOwner, decode_drop, encode_drop
from tarn.kv.port import Partition, PartitionKind
from tarn.kv.task_records import decode_quota, decode_task, encode_quota, encode_task
from tarn_proto.store.v1 import tasks_pb2 as pb

TASK = Task(
    task_id=TaskId("1" * 32),
    repository_id=RepositoryId("lake"),
    instance_uid="uid",
    user_id=UserId("ann"),
    user_uid=b"u",
    roles=("Developer", "Analyst"),
    kind="merge",
    subject="Merge a into b",
    request=b"request",
    digest=b"digest",
    create_time_us=1,
    begin_sequence=2,
    incarnation=b"\x03" * 16,
    state=TaskState.FAILED,
    epoch=3,
    runner=b"runner",
    lease_until_us=4,
    is_cancel_requested=True,
    progress=TaskProgress(5, 6),
    end_time_us=7,
    result=b"result",
    session_key_id="TARNSESSION",
    failure=TaskFailure(Kind.CONFLICT, Reason.REF_MOVED, "text", (("a", "1"), ("b", "2"))),
)


def test_a_task_is_decoded_as_it_was_encoded() -> None:
    assert decode_task(encode_task(TASK)) == TASK


@pytest.mark.parametrize(
    "value",
    [
        b"\xff",
        pb.TaskRecord(state="unheard of").SerializeToString(),
        pb.TaskRecord(
            state="failed", error=pb.TaskErrorRecord(kind="x", reason="REF_MOVED")
        ).SerializeToString(),
    ],
)
def test_what_is_no_task_is_corrupt(value: bytes) -> None:
    with pytest.raises(TarnError) as caught:
        decode_task(value)
    assert caught.value.kind is Kind.CORRUPT


def test_a_quota_is_decoded_as_it_was_encoded() -> None:
    quota = Quota(7, (TaskId("1" * 32), TaskId("0f" * 16)))
    assert decode_quota(encode_quota(quota)) == quota
    assert decode_quota(b"") == Quota()
    with pytest.raises(TarnError) as caught:
        decode_quota(b"\xff")
    assert caught.value.kind is Kind.CORRUPT


def test_a_look_is_decoded_as_it_was_encoded() -> None:
    partition = Partition("test/lake-1/task/2", PartitionKind.PLAIN)
    look = Drop(partition, 7, task=TaskOwner("test/lake-1", TaskId("2")))
    assert decode_drop(encode_drop(look)) == look

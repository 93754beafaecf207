from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tarn.rpc.wire.batch import BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, Batch
from tarn_proto.graveler.v1 import entry_service_pb2 as pb


@given(st.lists(st.sampled_from([0, 1, 100, 127, 128, 300, 16_383, 16_384, 70_000]), max_size=8))
def test_batch_has_the_bytes_that_protobuf_gives_it(sizes: list[int]) -> None:
    operations = [pb.Operation(stage=pb.Stage(entry=bytes(size))) for size in sizes]
    batch = Batch()
    for operation in operations:
        batch.add(operation.SerializeToString())

    assert batch.encode() == pb.OperateRequest(operations=operations).SerializeToString()


def test_message_of_the_greatest_size_fits_alone() -> None:
    batch = Batch()
    greatest = bytes(BATCH_BYTES_MAX)

    assert batch.has_room(greatest)
    batch.add(greatest)

    assert not batch.has_room(b"x")
    assert len(batch.encode()) == BATCH_BYTES_MAX + 4


def test_batch_is_full_at_its_number_of_messages() -> None:
    batch = Batch()
    for _ in range(BATCH_OPERATIONS_MAX):
        assert batch.has_room(b"")
        batch.add(b"")

    assert not batch.has_room(b"")

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.rpc.wire.batch import BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, Batch, refusal_of
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


@given(
    st.integers(0, BATCH_OPERATIONS_MAX),
    st.sampled_from([0, 1, 127, 128, 600, 4000, 16_383, 16_384, BATCH_BYTES_MAX]),
)
def test_whatever_a_batch_holds_may_be_parsed(count: int, size: int) -> None:
    batch = Batch()
    for _ in range(count):
        if batch.has_room(bytes(size)):
            batch.add(bytes(size))

    assert not refusal_of(batch.encode())


def test_a_full_batch_of_the_greatest_size_may_be_parsed() -> None:
    batch = Batch()
    for _ in range(BATCH_OPERATIONS_MAX):
        batch.add(bytes(BATCH_BYTES_MAX // BATCH_OPERATIONS_MAX))

    assert batch.size_bytes == BATCH_BYTES_MAX
    assert not refusal_of(batch.encode())


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"\x0a\x00" * 300_000, "no batch of at most 256 operations"),
        (b"\x8a\x80\x80\x80\x00\x80\x80\x00" * 20_000, "no batch of at most 256 operations"),
        (b"\x12\x7f" + bytes(200_000), "no batch of at most 256 operations"),
        (b"\x0a" + b"\xff" * 200_000, "no batch of at most 256 operations"),
        (
            b"\x0a\x80\x88\x7f" + bytes(132_000),
            "",
        ),  # longer than the message: the parser refuses it
        (bytes(BATCH_BYTES_MAX + 1025), "is larger than"),
    ],
)
def test_other_messages_are_not_even_parsed(message: bytes, text: str) -> None:
    refusal = refusal_of(message)
    assert text in refusal
    assert bool(refusal) == bool(text)

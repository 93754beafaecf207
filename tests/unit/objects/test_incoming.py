from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence

import pytest

from tarn.core.entry import Checksum
from tarn.objects.checksums import Algorithm
from tarn.objects.incoming import (
    THREAD_BYTES,
    BodyMismatchError,
    BodyTooLargeError,
    StreamedBody,
)

MANY = 1 << 40


async def pieces(sizes: Sequence[int]) -> AsyncIterator[bytes]:
    for number, size in enumerate(sizes):
        yield bytes([number % 256]) * size


def joined(sizes: Sequence[int]) -> bytes:
    return b"".join(bytes([number % 256]) * size for number, size in enumerate(sizes))


class Sink:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    async def write(self, piece: memoryview) -> None:
        self.written.append(bytes(piece))


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [0, 0],
        [1],
        [5, 0, 7],
        [THREAD_BYTES],
        [1000] * 600,
        [THREAD_BYTES * 3, 1],
        [1 << 20] * 3,
    ],
)
async def test_the_bytes_are_written_in_order_and_in_pieces_worth_a_thread(
    sizes: list[int],
) -> None:
    whole, sink = joined(sizes), Sink()
    body = StreamedBody(pieces(sizes), bytes_max=MANY, wanted=frozenset({Algorithm.CRC32}))
    sums = await body.pump(sink.write)
    assert b"".join(sink.written) == whole
    assert (sums.size, sums.md5) == (len(whole), hashlib.md5(whole).digest())
    assert [each.algorithm for each in sums.checksums] == ["CRC32"]
    assert isinstance(sums.checksums[0], Checksum)
    assert all(len(piece) >= THREAD_BYTES for piece in sink.written[:-1])


@pytest.mark.parametrize(("sizes", "size"), [([], 0), ([3, 7], 10), ([6, 5], None), ([40], None)])
async def test_a_body_that_ends_early_is_known_to_be_small(
    sizes: list[int], size: int | None
) -> None:
    body = await StreamedBody.begun(pieces(sizes), bytes_max=MANY, small=10)
    assert body.size == size
    sink = Sink()
    await body.pump(sink.write)
    assert b"".join(sink.written) == joined(sizes)


async def test_a_small_body_is_read_at_once() -> None:
    body = await StreamedBody.begun(pieces([3, 7]), bytes_max=MANY, small=10)
    whole, sums = await body.read_all(10)
    assert (whole, sums.size) == (joined([3, 7]), 10)
    with pytest.raises(BodyTooLargeError):
        await StreamedBody(pieces([3, 8]), bytes_max=MANY).read_all(10)


@pytest.mark.parametrize("size", [None, 20])
@pytest.mark.parametrize("sizes", [[11], [5, 5, 5, 5]])
async def test_a_body_has_its_bound(sizes: list[int], size: int | None) -> None:
    with pytest.raises(BodyTooLargeError, match="more than 10 bytes"):
        await StreamedBody(pieces(sizes), bytes_max=10, size=size).pump(Sink().write)


async def test_an_endless_body_is_given_up_soon() -> None:
    received = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal received
        while True:
            received += 1000
            yield bytes(1000)

    with pytest.raises(BodyTooLargeError):
        await StreamedBody(endless(), bytes_max=1000).pump(Sink().write)
    assert received <= THREAD_BYTES + 1000


@pytest.mark.parametrize(("sizes", "told"), [([4], "4 of the 5 bytes"), ([6], "longer than the 5")])
async def test_a_body_has_the_announced_size(sizes: list[int], told: str) -> None:
    with pytest.raises(BodyMismatchError, match=told):
        await StreamedBody(pieces(sizes), bytes_max=10, size=5).pump(Sink().write)


async def test_a_body_has_the_announced_md5() -> None:
    md5 = hashlib.md5(joined([5])).digest()
    sums = await StreamedBody(pieces([5]), bytes_max=10, md5=md5).pump(Sink().write)
    assert sums.md5 == md5
    with pytest.raises(BodyMismatchError, match="MD5"):
        await StreamedBody(pieces([4]), bytes_max=10, md5=md5).pump(Sink().write)


async def test_an_error_of_the_sink_ends_the_transfer() -> None:
    async def full(_: memoryview) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        await StreamedBody(pieces([THREAD_BYTES, 5]), bytes_max=MANY).pump(full)

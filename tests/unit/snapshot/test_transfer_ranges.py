"""Ranges cover a partition, and their digests do not depend on the store that is read."""

from __future__ import annotations

import pytest

from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Partition, PartitionKind, Row
from tarn.snapshot.files import chunks
from tarn.snapshot.files.chunks import cut, rows_in
from tarn.snapshot.files.ranges import digest_of

PLAIN = Partition("i/p", PartitionKind.PLAIN)


async def store_of(rows: list[Row], partition: Partition = PLAIN) -> MemKv:
    kv = MemKv()
    await kv.set_many(partition, [Group(key, ((key, value),)) for key, value in rows])
    return kv


@pytest.mark.parametrize("count", [0, 1, 4096, 9000, 20_000])
async def test_chunks_hold_every_row_once_and_leave_no_gap(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "TEXT_ROWS", 5_000)
    rows = [(b"%06d" % n, b"v") for n in range(count)]
    kv = await store_of(rows)
    found: list[Row] = []
    end: bytes | None = b""
    async for chunk in cut(kv, PLAIN):
        assert chunk.range.start == end
        end = chunk.range.end
        assert chunk.range.rows <= 5_000
        assert chunk.range.digest == await digest_of(kv, PLAIN, chunk.range.start, end)
        found += rows_in(chunk.text, chunk.range)
    assert end is None
    assert found == rows


async def test_a_region_of_a_partition_is_read() -> None:
    kv = await store_of([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    (chunk,) = [each async for each in cut(kv, PLAIN, b"a\0", b"c")]
    assert (chunk.range.start, chunk.range.end, chunk.range.rows) == (b"a\0", b"c", 1)


@pytest.mark.parametrize(
    "other",
    [
        [(b"a", b"1"), (b"b", b"3")],
        [(b"a", b"1"), (b"c", b"2")],
        [(b"a", b"1")],
        [(b"a", b"1"), (b"b", b"2"), (b"c", b"")],
        [(b"a", b"1b"), (b"", b"2")],
        [(b"a1", b""), (b"b", b"2")],
    ],
)
async def test_every_difference_changes_the_digest(other: list[Row]) -> None:
    first = await store_of([(b"a", b"1"), (b"b", b"2")])
    second = await store_of(other)
    ends = (b"", None)
    assert await digest_of(first, PLAIN, *ends) != await digest_of(second, PLAIN, *ends)


async def test_a_digest_names_its_partition_and_kind_but_not_its_buckets() -> None:
    rows = [(b"a", b"1")]
    digests = {
        await digest_of(await store_of(rows, each), each, b"", None)
        for each in (
            PLAIN,
            Partition("i/q", PartitionKind.PLAIN),
            Partition("i/p", PartitionKind.REGISTER),
            Partition("i/p", PartitionKind.PLAIN, 4),
        )
    }
    assert len(digests) == 3


async def test_the_digest_is_what_the_format_says() -> None:
    """docs/formats/snapshot.md; it must never change within a version."""
    import hashlib

    text = b"plain 3 i/p\n" + b"\x01\0\0\0\x02\0\0\0a12"
    kv = await store_of([(b"a", b"12")])
    assert await digest_of(kv, PLAIN, b"", None) == hashlib.sha256(text).hexdigest()

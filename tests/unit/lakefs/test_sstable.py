"""Tables: those of a real lakeFS are read, and no bytes lead further than to a refusal."""

from __future__ import annotations

import random
from pathlib import Path

import peer_tables
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lakefs_lab import recorded
from peer_tables import number, stored_block, table

from tarn.core.errors import Kind, TarnError
from tarn.lakefs import sstable
from tarn.lakefs.sstable import Row, Table

ROWS = [[(b"a", b"1"), (b"ab", b"2")], [(b"b", b""), (b"c", b"4")]]


async def rows_of(data: bytes) -> list[Row]:
    async def read(start: int, length: int) -> bytes:
        return data[start : start + length]

    return [row async for block in Table("t", len(data), read).rows() for row in block]


async def refused(data: bytes, why: str) -> None:
    with pytest.raises(TarnError, match=why) as caught:
        await rows_of(data)
    assert caught.value.kind is Kind.CORRUPT


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The tables of a real lakeFS."""
    folder = recorded(tmp_path_factory.mktemp("recorded")).tables
    return [each.read_bytes() for each in sorted(folder.iterdir()) if len(each.name) == 64]


async def test_every_change_of_a_byte_of_a_real_table_is_found_or_changes_nothing(
    written: list[bytes],
) -> None:
    chosen = random.Random(1)
    assert len(written) > 15
    for data in written:
        whole = await rows_of(data)
        assert whole == sorted(whole)
        for at in chosen.sample(range(len(data)), 60):
            damaged = data[:at] + bytes([data[at] ^ 1 << chosen.randrange(8)]) + data[at + 1 :]
            try:
                found = await rows_of(damaged)
            except TarnError as error:
                assert error.kind is Kind.CORRUPT
            else:  # in the padding of the footer, or in a property that is not read
                assert found == whole


async def test_every_beginning_of_a_real_table_is_refused(written: list[bytes]) -> None:
    for data in written:
        for length in random.Random(2).sample(range(len(data)), 20):
            await refused(data[:length], "of lakeFS cannot be used")


@given(
    st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=99)), max_size=30),
    st.integers(1, 7),
    st.booleans(),
    st.integers(0, 1),
)
async def test_what_is_written_is_read(
    rows: list[Row], block: int, deep: bool, kind: int
) -> None:
    ordered = sorted(dict(rows).items())
    blocks = [ordered[at : at + block] for at in range(0, len(ordered), block)]
    assert await rows_of(table(blocks, deep=deep, kind=kind)) == ordered


async def test_a_table_is_read_through_a_window_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sstable, "_WINDOW_BYTES", 64)
    data = table([[(b"%04d" % each, b"x" * 9)] for each in range(500)])
    spans = []

    async def read(start: int, length: int) -> bytes:
        spans.append((start, length))
        return data[start : start + length]

    found = [row async for block in Table("t", len(data), read).rows() for row in block]
    assert len(found) == 500
    small = [length for _, length in spans if length <= 64]
    assert len(small) >= len(spans) - 2, "only the index and the properties are larger"


async def test_records_out_of_order_of_other_kinds_and_missing_ones_are_refused() -> None:
    await refused(table([ROWS[1], ROWS[0]]), "out of order")
    await refused(table([ROWS[0], ROWS[0]]), "out of order")
    await refused(table(ROWS, key_kind=0), "not a plain one")
    await refused(table(ROWS, properties={b"rocksdb.num.entries": b"\5"}), "4 records instead of 5")
    index_type = {b"rocksdb.block.based.table.index.type": b"\1\0\0\0"}
    await refused(table(ROWS, properties=index_type), "index is of type 1")


async def test_an_index_that_leads_to_one_block_again_and_again_is_refused() -> None:
    block = stored_block(b"\0\x09\0a" + bytes(7) + b"\1" + b"\0" * 8 + b"\1\0\0\0"[:0])
    handle = number(0) + number(len(block) - 5)
    rows = [(b"%03d" % each, handle) for each in range(100)]
    data = _with_index(block, rows)
    await refused(data, "overlap|does not fit|not a plain one|has no end|restarts")
    good = table([[(b"a", b"1")]])
    first = number(0) + number(good.index(b"rocksdb") and _first_length(good))
    await refused(_with_index(good[: _first_length(good) + 5], [(b"a", first)] * 2), "overlap")


def _first_length(data: bytes) -> int:
    """Returns the length of the first block of a table of one record `a: 1`."""
    block = peer_tables._entries([(b"a" + (1).to_bytes(8, "little"), b"1")])
    assert data.startswith(stored_block(block))
    return len(block)


def _with_index(blocks: bytes, rows: list[Row]) -> bytes:
    """Returns a table of stored blocks, with an index that leads where it likes."""
    index = stored_block(peer_tables._entries(rows))
    at = number(len(blocks)) + number(len(index) - 5)
    properties = stored_block(peer_tables._entries([(b"rocksdb.num.entries", number(len(rows)))]))
    place = number(len(blocks + index)) + number(len(properties) - 5)
    meta = stored_block(peer_tables._entries([(b"rocksdb.properties", place)]))
    meta_at = number(len(blocks + index + properties)) + number(len(meta) - 5)
    return blocks + index + properties + meta + peer_tables.end_of(meta_at, at)


async def test_sizes_that_no_block_has_are_refused_before_memory_is_taken() -> None:
    bomb = number(1 << 40) + b"\0" * 64
    body = bomb + b"\1"
    stored = stored_block(body[:-1])[: len(bomb)]
    kind = _resummed(stored, 1)
    handle = number(0) + number(len(bomb))
    await refused(_with_index(kind, [(b"a", handle)]), "claims to have")
    far = number(1 << 62) + number(9)
    await refused(_with_index(b"", [(b"a", far)]), "refers to byte")
    huge = number(0) + number(sstable.BLOCK_BYTES_MAX + 1)
    await refused(_with_index(b"", [(b"a", huge)]), "more than")
    await refused(_with_index(_resummed(b"abc", 7), [(b"a", b"\0\3")]), "compressed in way 7")


def _resummed(body: bytes, kind: int) -> bytes:
    """Returns a block that states a kind of compression which its body need not have."""
    import struct

    from awscrt import checksums

    crc = checksums.crc32c(body + bytes([kind]))
    rotated = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return body + bytes([kind]) + struct.pack("<I", rotated)


async def test_keys_that_unfold_to_more_than_memory_are_refused() -> None:
    long = b"k" * (1 << 20)
    body = b"\0" + number(len(long)) + b"\0" + long
    body += (number(len(long)) + b"\1\0x") * 99 + b"\0" * 4 + b"\1\0\0\0"
    block = stored_block(body)
    handle = number(0) + number(len(body))
    await refused(_with_index(block, [(b"a", handle)]), "does not fit|not a plain one")
    wrapped = _with_index(block, [])
    assert len(wrapped) > len(block)


async def test_other_formats_are_named() -> None:
    data = table(ROWS)
    await refused(data[:-12] + b"\3" + data[-11:], "version 3")
    await refused(data[:-53] + b"\3" + data[-52:], "checksums are of type 3")
    await refused(b"", "does not end as a table does")
    await refused(data[:-1] + b"x", "does not end as a table does")

"""Tables: those of a real lakeFS are read, and no bytes lead further than to a refusal."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lakefs_lab import recorded
from tests.support.peer_tables import entries, number, stored_block, table, table_with_index

from tarn.core.errors import Kind, TarnError
from tarn.lakefs import sstable
from tarn.lakefs.sstable import Row, Table

ROWS = [[(b"a", b"1"), (b"ab", b"2")], [(b"b", b""), (b"c", b"4")]]


async def rows_of(data: bytes) -> list[Row]:
    async def read(start: int, length: int) -> bytes:
        return data[start : start + length]

    return [row async for block in Table("t", len(data), read).rows() for row in block]


async def rows_or_refusal(data: bytes) -> list[Row] | None:
    """Returns the rows; None if they are refused as damaged."""
    try:
        return await rows_of(data)
    except TarnError as error:
        return None if error.kind is Kind.CORRUPT else []


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
        for at in chosen.sample(range(len(data)), 40):
            damaged = data[:at] + bytes([data[at] ^ 1 << chosen.randrange(8)]) + data[at + 1 :]
            # Changes of the padding of the footer, or of a property that is not read, are none.
            if (found := await rows_or_refusal(damaged)) is not None:
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
async def test_what_is_written_is_read(rows: list[Row], block: int, deep: bool, kind: int) -> None:
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


async def test_an_index_that_leads_to_one_block_again_is_refused() -> None:
    block = entries([(b"a" + (1).to_bytes(8, "little"), b"1")])
    handle = number(0) + number(len(block))
    assert await rows_of(table_with_index(stored_block(block), [(b"a", handle)])) == [(b"a", b"1")]
    await refused(table_with_index(stored_block(block), [(b"a", handle)] * 2), "overlap")


async def test_sizes_that_no_block_has_are_refused_before_memory_is_taken() -> None:
    bomb = number(1 << 40) + b"\0" * 64
    handle = number(0) + number(len(bomb))
    await refused(table_with_index(stored_block(bomb, 1), [(b"a", handle)]), "claims to have")
    far = number(1 << 62) + number(9)
    await refused(table_with_index(b"", [(b"a", far)]), "refers to byte")
    huge = number(0) + number(sstable.BLOCK_BYTES_MAX + 1)
    await refused(table_with_index(b"", [(b"a", huge)]), "more than")
    other = table_with_index(stored_block(b"abc", 7), [(b"a", b"\0\3")])
    await refused(other, "compressed in way 7")
    none = table_with_index(stored_block(b"", 0), [(b"a", b"\0\0")])
    await refused(none, "has no end")
    restarts = table_with_index(stored_block(b"\xff\xff\xff\xff"), [(b"a", b"\0\4")])
    await refused(restarts, "restarts")


async def test_keys_that_unfold_to_more_than_memory_are_refused() -> None:
    """Each key repeats a mebibyte of the one before it, by three bytes."""
    long = b"k" * (1 << 20) + (1).to_bytes(8, "little")
    body = b"\0" + number(len(long)) + b"\0" + long
    for each in range(99):
        own = bytes([each]) + (1).to_bytes(8, "little")
        body += number((1 << 20) + each) + number(len(own)) + b"\0" + own
    body += b"\0" * 4 + b"\1\0\0\0"
    index = [(b"a", number(0) + number(len(body)))]
    await refused(table_with_index(stored_block(body), index), "does not fit")


async def test_other_formats_are_named() -> None:
    data = table(ROWS)
    await refused(data[:-12] + b"\3" + data[-11:], "version 3")
    await refused(data[:-53] + b"\3" + data[-52:], "checksums are of type 3")
    await refused(b"", "does not end as a table does")
    await refused(data[:-1] + b"x", "does not end as a table does")

"""`scan_without` of the embedded store: ranges with more rows than one call examines."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from tarn.core.entry import TOMBSTONE, Entry, pack
from tarn.kv.embedded import open_embedded, reader, sql
from tarn.kv.embedded.store import EmbeddedKv
from tarn.kv.port import Group, Partition, PartitionKind, Row, RowFilter, SiftedPage
from tarn_graveler.branch import leaps

PLAIN = Partition("p", PartitionKind.PLAIN)
DEAD = b"\1\2"  # no tombstones: the store has an index that leaves those out
UNWANTED = RowFilter(DEAD)
ROWS = 500


def row(number: int) -> Row:
    return b"%04d" % number, b"\1\0" if number in (7, 444, 499) else DEAD


@pytest.fixture
async def kv(tmp_path: Path) -> AsyncIterator[EmbeddedKv]:
    store = await open_embedded(tmp_path / "kv.db", durability="os")
    await store.set_many(PLAIN, [Group(row(n)[0], (row(n),)) for n in range(ROWS)])
    yield store
    await store.close()


@pytest.fixture
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_QUICK_STEPS", 200)
    monkeypatch.setattr(reader, "_QUICK_STEPS_PER_CALL", 100)
    monkeypatch.setattr(reader, "_EXAMINED_ROWS", 100)
    monkeypatch.setattr(reader, "_STEPS_MAX", 500)
    monkeypatch.setattr(reader, "_STEPS_PER_CALL", 100)


async def pages(
    kv: EmbeddedKv, end: bytes | None, limit: int, unwanted: RowFilter = UNWANTED
) -> list[tuple[list[bytes], bytes | None]]:
    found: list[tuple[list[bytes], bytes | None]] = []
    start = b""
    while True:
        page = await kv.scan_without(PLAIN, start, end, limit, unwanted)
        found.append(([key for key, _ in page.rows], page.upto))
        if page.upto is None:
            return found
        start = page.upto + b"\0"


@pytest.mark.usefixtures("_few_rows")
async def test_a_call_examines_a_bounded_number_of_rows(kv: EmbeddedKv) -> None:
    found = await pages(kv, None, 10)
    assert [key for keys, _ in found for key in keys] == [b"0007", b"0444", b"0499"]
    assert [upto for _, upto in found][:2] == [b"0099", b"0199"]
    assert found[-1][1] is None


@pytest.mark.usefixtures("_few_rows")
async def test_a_bounded_page_that_is_full_ends_with_its_last_row(kv: EmbeddedKv) -> None:
    assert (await pages(kv, None, 1))[0] == ([b"0007"], b"0007")


@pytest.mark.usefixtures("_few_rows")
async def test_a_range_that_just_fits_is_read_whole(kv: EmbeddedKv) -> None:
    """Its statement is interrupted, too, but it has fewer rows than a call examines."""
    assert await pages(kv, b"0099", 10) == [([b"0007"], None)]


@pytest.mark.usefixtures("_few_rows")
@pytest.mark.parametrize("begins", [DEAD, sql.TOMBSTONE_BEGINS])
async def test_a_bounded_call_leaves_out_hidden_rows(kv: EmbeddedKv, begins: bytes) -> None:
    """Read from the table and by the index, by the calls that the event loop hands to the thread."""
    hidden = [row(n)[0] for n in range(ROWS) if n != 7 and (n % 100 < 90 or n == 499)]
    newer = [Partition(kind.value, kind) for kind in PartitionKind]
    for number, key in enumerate(hidden):
        await kv.set_many(newer[number % 2], [Group(key, ((key, b""),))])
    wanted = [
        key
        for key, value in map(row, range(ROWS))
        if not value.startswith(begins) and key not in hidden
    ]
    for limit in (3, ROWS):
        found = await pages(kv, None, limit, RowFilter(begins, newer))
        assert [key for keys, _ in found for key in keys] == wanted
        assert len(found) > 1


@pytest.mark.usefixtures("_few_rows")
async def test_tombstones_are_not_examined(kv: EmbeddedKv) -> None:
    """However many they are: the keys of the other rows lie in an index, which follows each write."""
    begins = sql.TOMBSTONE_BEGINS
    rows = [(b"%04d" % n, begins + b"dead") for n in range(ROWS)]
    await kv.set_many(PLAIN, [Group(key, ((key, value),)) for key, value in rows])
    assert await kv.scan_without(PLAIN, b"", None, 10, RowFilter(begins)) == SiftedPage([], None)
    alive = (rows[300][0], b"\1\0alive")
    await kv.set_many(PLAIN, [Group(alive[0], (alive,))])
    assert await kv.scan_without(PLAIN, b"", None, 10, RowFilter(begins)) == SiftedPage(
        [alive], None
    )


async def test_a_store_of_an_earlier_version_gets_the_index(kv: EmbeddedKv, tmp_path: Path) -> None:
    """When it is opened; the rows that it has are in it."""
    await kv.close()
    with closing(sqlite3.connect(tmp_path / "kv.db")) as earlier:
        earlier.execute("DROP INDEX plains_live")
    again = await open_embedded(tmp_path / "kv.db")
    page = await again.scan_without(PLAIN, b"0400", None, 1, RowFilter(sql.TOMBSTONE_BEGINS))
    assert page == SiftedPage([(b"0400", DEAD)], b"0400")
    await again.close()


def test_the_index_leaves_out_the_tombstones_of_entries() -> None:
    assert TOMBSTONE.startswith(sql.TOMBSTONE_BEGINS)
    assert leaps._TOMBSTONES == sql.TOMBSTONE_BEGINS
    assert not pack(Entry(1, 0, bytes(16), bytes(16))).startswith(sql.TOMBSTONE_BEGINS)


async def test_an_interrupted_call_leaves_no_bound_behind(
    kv: EmbeddedKv, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for name in ("_QUICK_STEPS", "_STEPS_MAX"):
            patch.setattr(reader, name, 100)
        for name in ("_QUICK_STEPS_PER_CALL", "_STEPS_PER_CALL"):
            patch.setattr(reader, name, 10)
        await kv.scan_without(PLAIN, b"", None, 10, UNWANTED)
        assert len(await kv.scan(PLAIN, b"", None, ROWS)) == ROWS
    batches = [batch.num_rows async for batch in kv.scan_arrow(PLAIN, b"", None)]
    assert sum(batches) == ROWS

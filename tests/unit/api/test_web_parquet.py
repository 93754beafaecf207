"""Previews of Parquet files: what they show, and that a hostile file ends no service and takes no memory of one."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rest_service import running_rest
from web_pages import WebUser

from tarn_api.web import parquet
from tarn_api.web.parquet import Facts, parquet_of


def packed(table: pa.Table, **options: object) -> bytes:
    found = io.BytesIO()
    pq.write_table(table, found, **options)
    return found.getvalue()


async def facts_of(body: bytes, reading: asyncio.Lock | None = None) -> Facts | None:
    async def read(begin: int, length: int) -> bytes:
        return body[begin : begin + length]

    return await parquet_of(len(body), read, reading or asyncio.Lock())


LAKES = pa.table({"name": ["Baikal", None, "Aral"], "area": [31722, 59947, 68000]})


async def test_columns_have_statistics_and_rows_are_shown() -> None:
    found = await facts_of(packed(LAKES, row_group_size=2))
    assert found is not None
    assert (found.rows, found.groups, found.column_count) == (3, 2, 2)
    assert [
        (each.name, each.kind, each.nulls, each.least, each.most) for each in found.columns
    ] == [
        ("name", "String", 1, "Aral", "Baikal"),
        ("area", "INT64", 0, "31722", "68000"),
    ]
    assert found.head == ["name", "area"]
    assert found.first == [["Baikal", "31722"], ["", "59947"], ["Aral", "68000"]]
    assert not found.is_cut


async def test_what_is_shown_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = pa.table({f"c{number}": ["x" * 1000] * 300 for number in range(60)})
    body = packed(wide)
    found = await facts_of(body)
    assert found is not None
    assert (len(found.columns), len(found.head), len(found.first)) == (50, 50, 100)
    assert (found.column_count, found.is_cut) == (60, True)
    assert max(len(cell) for row in found.first for cell in row) == 201
    # Of a large file, the footer is read and nothing else.
    monkeypatch.setattr(parquet, "_WHOLE_BYTES_MAX", 100)
    large = await facts_of(body)
    assert large is not None
    assert (large.rows, large.head, large.first) == (300, [], [])
    assert large.columns == found.columns
    monkeypatch.setattr(parquet, "_FOOTER_BYTES_MAX", 100)
    assert await facts_of(body) is None


async def test_a_file_that_stands_for_gigabytes_is_not_decoded() -> None:
    """A hundred times the same long text: some kilobytes."""
    indices = pa.array([0] * 120, pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 40_000_000]))
    options = {"compression": "zstd", "store_schema": False, "dictionary_pagesize_limit": 1 << 30}
    body = packed(pa.table({"a": column}), **options)
    assert len(body) < 100_000
    assert await facts_of(body) is None


async def test_a_damaged_footer_ends_the_child_only() -> None:
    intact = packed(LAKES)
    footer = int.from_bytes(intact[-8:-4], "little")
    found = []
    for at in (2, 20, 60, 120):
        body = bytearray(intact)
        body[len(body) - 8 - footer + at] ^= 0xFF
        found.append(await facts_of(bytes(body)))
    assert None in found
    assert await facts_of(intact) is not None


@pytest.mark.parametrize(
    "body", [b"PAR1", b"PAR1PAR1", b"PAR1" + b"\xff" * 4 + b"PAR1", b"PAR1" * 100]
)
async def test_what_is_no_file_has_no_preview(body: bytes) -> None:
    assert await facts_of(body) is None


async def test_one_file_is_read_at_a_time_also_if_its_reader_goes() -> None:
    reading = asyncio.Lock()
    body = packed(LAKES)
    first = asyncio.ensure_future(facts_of(body, reading))
    await asyncio.sleep(0)
    assert reading.locked()
    assert await facts_of(body, reading) is None
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert reading.locked(), "its child goes on"
    async with reading:
        pass
    assert await facts_of(body, reading) is not None


async def test_a_page_shows_it_as_text(tmp_path: Path) -> None:
    evil = "<script>\u202e</script>"
    async with running_rest(tmp_path) as rest:
        user = WebUser(rest)
        await user.sign_in()
        body = packed(pa.table({evil: [evil]}))
        answer = await user.upload(
            "/repositories/lake/upload?branch=main", "f", body, path="a.parquet"
        )
        assert answer.status == 303
        page = await user.page("/repositories/lake/object?ref=main&path=a.parquet")
        assert "A Parquet file of 1 rows" in page.text
        shown = evil.replace("\u202e", "\\u202e")
        assert page.rows("First rows") == [[shown]]
        assert page.rows("Columns")[0][0] == shown
        assert page.foreign == []

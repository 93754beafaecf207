"""Bulk reads by ADBC: the rows of the store in pages, and clear errors when it cannot be read.

The store is closed before it is scanned: one process must not have it open in both ways.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.embedded import open_embedded, scans
from tarn.kv.embedded.scans import EmbeddedScans, open_embedded_scans
from tarn.kv.port import Group, Partition, PartitionKind, Row

PLAIN = Partition("lake/main:1", PartitionKind.PLAIN)
REGISTER = Partition("lake/main:2", PartitionKind.REGISTER)


async def make(file: Path, rows_of: dict[Partition, Sequence[Row]]) -> None:
    kv = await open_embedded(file, durability="os")
    try:
        for partition, rows in rows_of.items():
            errors = await kv.set_many(
                partition, [Group(key, ((key, value),)) for key, value in rows]
            )
            assert not any(errors)
    finally:
        await kv.close()


async def pages(
    kv: EmbeddedScans, partition: Partition, start: bytes = b"", end: bytes | None = None
) -> list[list[Row]]:
    found = []
    async for batch in kv.scan_arrow(partition, start, end):
        assert batch.schema.names == ["key", "value"]
        columns = (batch.column("key").to_pylist(), batch.column("value").to_pylist())
        found.append(list(zip(*columns, strict=True)))
    return found


def rows_of(count: int, size: int = 5) -> list[Row]:
    return [(b"%06d" % number, bytes([number % 256]) * size) for number in range(count)]


@pytest.mark.parametrize("partition", [PLAIN, REGISTER])
@pytest.mark.parametrize("page_rows", [1, 7, 100, 101, 5000])
async def test_pages_hold_all_rows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition: Partition, page_rows: int
) -> None:
    monkeypatch.setattr(scans, "_FIRST_PAGE_ROWS", page_rows)
    monkeypatch.setattr(scans, "_PAGE_ROWS", page_rows)
    await make(
        tmp_path / "kv", {partition: rows_of(100), Partition("z", partition.kind): rows_of(3)}
    )
    kv = await open_embedded_scans(tmp_path / "kv")
    try:
        found = await pages(kv, partition)
        assert [row for page in found for row in page] == rows_of(100)
        assert max(map(len, found)) == min(page_rows, 100)
    finally:
        await kv.close()


async def test_a_page_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "_PAGE_BYTES", 4000)
    monkeypatch.setattr(scans, "_BATCH_ROWS", 1)
    await make(tmp_path / "kv", {PLAIN: rows_of(20, size=1000)})
    kv = await open_embedded_scans(tmp_path / "kv")
    try:
        found = await pages(kv, PLAIN)
        assert [row for page in found for row in page] == rows_of(20, size=1000)
        assert max(map(len, found)) <= 4
    finally:
        await kv.close()


async def test_bounds_are_those_of_the_port(tmp_path: Path) -> None:
    await make(tmp_path / "kv", {PLAIN: rows_of(10)})
    kv = await open_embedded_scans(tmp_path / "kv")
    try:
        (page,) = await pages(kv, PLAIN, b"000003", b"000006")
        assert [key for key, _ in page] == [b"000003", b"000004", b"000005"]
        assert await pages(kv, PLAIN, b"000010") == []
        assert await pages(kv, PLAIN, b"000006", b"000003") == []
        assert await pages(kv, Partition("never/written:1", PartitionKind.PLAIN)) == []
    finally:
        await kv.close()


async def test_a_partition_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    await make(tmp_path / "kv", {PLAIN: rows_of(1)})
    kv = await open_embedded_scans(tmp_path / "kv")
    try:
        with pytest.raises(TarnError) as caught:
            await pages(kv, Partition(PLAIN.name, PartitionKind.REGISTER))
        assert caught.value.kind is Kind.INVALID
    finally:
        await kv.close()


async def test_rows_written_between_pages_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No snapshot outlives its page: it would keep the write-ahead log from being emptied."""
    await make(tmp_path / "kv", {PLAIN: rows_of(1)})
    kv = await open_embedded_scans(tmp_path / "kv")
    try:
        assert await pages(kv, PLAIN) == [rows_of(1)]
        await in_another_process(tmp_path / "kv", b"000001", b"new")
        assert await pages(kv, PLAIN) == [[*rows_of(1), (b"000001", b"new")]]
    finally:
        await kv.close()


async def in_another_process(file: Path, key: bytes, value: bytes) -> None:
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tarn.kv.embedded import open_embedded\n"
        "from tarn.kv.port import Group, Partition, PartitionKind\n"
        "async def main():\n"
        "    kv = await open_embedded(Path(sys.argv[1]), durability='os')\n"
        f"    rows = (({key!r}, {value!r}),)\n"
        f"    part = Partition({PLAIN.name!r}, PartitionKind.PLAIN)\n"
        f"    assert await kv.set_many(part, [Group({key!r}, rows)]) == [None]\n"
        "    await kv.close()\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(file))
    async with asyncio.timeout(60):
        assert await process.wait() == 0


async def test_a_file_that_is_missing_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TarnError) as caught:
        await open_embedded_scans(tmp_path / "none")
    assert caught.value.kind is Kind.UNAVAILABLE
    assert not (tmp_path / "none").exists()


async def test_damage_is_reported(tmp_path: Path) -> None:
    await make(tmp_path / "kv", {PLAIN: rows_of(2000)})
    size = (tmp_path / "kv").stat().st_size
    with (tmp_path / "kv").open("r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xa5" * (size - 4096 * 2))
    kv = await open_embedded_scans(tmp_path / "kv")
    try:
        with pytest.raises(TarnError) as caught:
            await pages(kv, PLAIN)
        assert caught.value.kind is Kind.CORRUPT
    finally:
        await kv.close()


async def test_after_close_nothing_is_read(tmp_path: Path) -> None:
    await make(tmp_path / "kv", {PLAIN: rows_of(1)})
    kv = await open_embedded_scans(tmp_path / "kv")
    await kv.close()
    await kv.close()
    with pytest.raises(TarnError) as caught:
        await pages(kv, PLAIN)
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_a_scan_that_is_cancelled_or_left_reports_nothing_to_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page that is read ahead has no reader any more, whether it arrives, fails, or is cancelled."""
    monkeypatch.setattr(scans, "_PAGE_ROWS", 10)
    await make(tmp_path / "kv", {PLAIN: rows_of(100)})
    told: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    kv = await open_embedded_scans(tmp_path / "kv")
    read, may_read = kv._page, threading.Event()

    def slow(*arguments: Any) -> Any:
        assert may_read.wait(30)
        return read(*arguments)

    monkeypatch.setattr(kv, "_page", slow)
    try:
        scan = asyncio.ensure_future(pages(kv, PLAIN))
        await asyncio.sleep(0.05)
        scan.cancel()
        may_read.set()
        with pytest.raises(asyncio.CancelledError):
            await scan
        failing = kv.scan_arrow(PLAIN, b"", None)
        assert (await anext(failing)).num_rows == 10
        monkeypatch.setattr(kv, "_page", failed)
        assert (await anext(failing)).num_rows == 10
        await asyncio.sleep(0.05)
        await failing.aclose()
    finally:
        await kv.close()
    gc.collect()
    await asyncio.sleep(0)
    assert told == []


def failed(*_: object) -> None:
    raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the disk is gone")


async def test_pages_grow_so_that_the_first_one_comes_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans, "_FIRST_PAGE_ROWS", 2)
    monkeypatch.setattr(scans, "_PAGE_ROWS", 7)
    await make(tmp_path / "kv", {PLAIN: rows_of(22)})
    kv = await open_embedded_scans(tmp_path / "kv")
    try:
        found = await pages(kv, PLAIN)
        assert [row for page in found for row in page] == rows_of(22)
        assert list(map(len, found)) == [2, 4, 7, 7, 2]
    finally:
        await kv.close()

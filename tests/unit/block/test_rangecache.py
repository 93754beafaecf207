"""The local cache: search, sharing, eviction, torn files, and a single fetch for concurrent callers."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listings import Listing, listings, paths, run_of, sample_entry

from tarn.block import rangecache
from tarn.block.rangecache import CachedRange, RangeCache
from tarn.core.ids import RangeId
from tarn.core.listing.run import RUN_SCHEMA, Run

ONE, TWO, THREE = (RangeId(digit * 64) for digit in "123")


def rows_of(number: int) -> Run:
    return run_of({f"k{number}-{row:03}": sample_entry(row) for row in range(50)})


def files_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def unsigned(run: Run) -> bytes:
    """Returns a file of these rows without a checksum."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, RUN_SCHEMA) as writer:
        writer.write_batch(run.batch())
    body: bytes = sink.getvalue().to_pybytes()
    return body


class Source:
    """A source of rows that counts fetches."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.fetched = 0

    async def __call__(self) -> Run:
        self.fetched += 1
        await asyncio.sleep(0)
        return self.run


@given(listings().filter(bool), paths(), st.integers(1, 8))
def test_search_agrees_with_a_dict(listing: Listing, path: str, marks: int) -> None:
    with patch.object(rangecache, "_MARKS_MAX", marks):
        cached = CachedRange(run_of(listing))
    assert cached.find(path) == sum(other < path for other in listing)
    assert cached.get(path) == listing.get(path)
    assert all(cached.get(name) == value for name, value in listing.items())
    assert list(zip(*cached.rows(0, len(cached)), strict=True)) == sorted(listing.items())


def test_a_slice_is_searched_in_its_own_rows() -> None:
    cached = CachedRange(rows_of(1).slice(10, 20))
    assert cached.get("k1-009") is None
    assert cached.get("k1-020") is None
    assert cached.get("k1-015") == sample_entry(15)
    assert cached.find("k1-015") == 5


async def test_a_fetched_range_is_found_by_the_next_process(tmp_path: Path) -> None:
    source = Source(rows_of(1))
    first, second = RangeCache(tmp_path), RangeCache(tmp_path)
    assert (await first.get(ONE, source)).run.batch().equals(source.run.batch())
    assert (await second.get(ONE, source)).run.batch().equals(source.run.batch())
    assert source.fetched == 1


async def test_an_added_range_needs_no_fetch(tmp_path: Path) -> None:
    cache, source = RangeCache(tmp_path), Source(rows_of(1))
    # A slice: only its own rows are kept.
    await cache.add(ONE, rows_of(1).slice(10, 20))
    assert len(await cache.get(ONE, source)) == 10
    assert source.fetched == 0


async def test_a_range_that_is_being_added_is_waited_for(tmp_path: Path) -> None:
    source = Source(rows_of(1))
    with ThreadPoolExecutor(2) as executor:
        cache, may_write = RangeCache(tmp_path, executor=executor), threading.Event()
        write = rangecache._write

        def wait_and_write(path: Path, run: Run) -> None:
            may_write.wait(10)
            write(path, run)

        with patch.object(rangecache, "_write", wait_and_write):
            adding = cache.add(ONE, rows_of(1))
            finding = asyncio.ensure_future(cache.get(ONE, source))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not adding.done()
            may_write.set()
            assert (await finding).run.batch().equals(rows_of(1).batch())
    assert source.fetched == 0


async def test_a_range_is_fetched_once_however_many_ask(tmp_path: Path) -> None:
    cache, source = RangeCache(tmp_path), Source(rows_of(1))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(cache.get(ONE, source)) for _ in range(20)]
    assert source.fetched == 1
    assert len({id(task.result()) for task in tasks}) == 1


async def test_the_next_caller_fetches_if_the_first_is_cancelled(tmp_path: Path) -> None:
    cache, source = RangeCache(tmp_path), Source(rows_of(1))
    entered, never = asyncio.Event(), asyncio.Event()

    async def hang() -> Run:
        entered.set()
        await never.wait()
        raise AssertionError

    async with asyncio.TaskGroup() as group:
        stuck = group.create_task(cache.get(ONE, hang))
        await entered.wait()
        waiting = group.create_task(cache.get(ONE, source))
        await asyncio.sleep(0)
        stuck.cancel()
    assert len(waiting.result()) == 50


async def test_a_failed_fetch_is_not_remembered(tmp_path: Path) -> None:
    cache, source = RangeCache(tmp_path), Source(rows_of(1))

    async def fail() -> Run:
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        await cache.get(ONE, fail)
    assert len(await cache.get(ONE, source)) == 50


@pytest.mark.parametrize("damage", ["empty", "cut", "zeros", "flip", "unsigned", "other"])
async def test_a_torn_file_is_fetched_again(tmp_path: Path, damage: str) -> None:
    source = Source(rows_of(1))
    await RangeCache(tmp_path).get(ONE, source)
    (file,) = files_in(tmp_path)
    body = bytearray(file.read_bytes())
    match damage:
        case "empty":
            body = bytearray()
        case "cut":
            body = body[:-100]
        case "zeros":
            body[1000:2000] = bytes(1000)
        case "flip":
            body[body.index(b"k1-020")] ^= 1
        case "unsigned":
            body = bytearray(unsigned(source.run))
        case _:
            body = bytearray(b"no such file" * 100)
    file.unlink()
    file.write_bytes(body)
    again = RangeCache(tmp_path)
    assert (await again.get(ONE, source)).run.batch().equals(source.run.batch())
    assert source.fetched == 2
    assert len(await RangeCache(tmp_path).get(ONE, source)) == 50
    assert source.fetched == 2


async def test_the_least_recently_opened_files_are_evicted(tmp_path: Path) -> None:
    size = await _size_of_one(tmp_path / "probe")
    cache = RangeCache(tmp_path / "cache", bytes_max=int(size * 2.5))
    for age, name in ((3, ONE), (2, TWO)):
        await cache.add(name, rows_of(1))
        os.utime(tmp_path / "cache" / f"{name}.arrow", (1000 - age, 1000 - age))
    # Another process opens the older file, which makes it the more recently used one.
    await RangeCache(tmp_path / "cache").get(ONE, Source(rows_of(1)))
    await cache.add(THREE, rows_of(1))
    assert {file.stem for file in files_in(tmp_path / "cache")} == {ONE, THREE}


async def test_an_evicted_range_stays_readable_where_it_is_mapped(tmp_path: Path) -> None:
    size = await _size_of_one(tmp_path / "probe")
    cache = RangeCache(tmp_path / "cache", bytes_max=size)
    mapped = await cache.get(ONE, Source(rows_of(1)))
    os.utime(tmp_path / "cache" / f"{ONE}.arrow", (1, 1))
    await cache.add(TWO, rows_of(2))
    assert not (tmp_path / "cache" / f"{ONE}.arrow").exists()
    assert mapped.get("k1-049") == sample_entry(49)


async def _size_of_one(directory: Path) -> int:
    await RangeCache(directory).add(ONE, rows_of(1))
    (file,) = files_in(directory)
    return file.stat().st_size


async def test_only_so_many_ranges_are_kept_mapped(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, open_max=2)
    for name in (ONE, TWO):
        await cache.get(name, Source(rows_of(1)))
    assert cache.opened(ONE) is not None
    await cache.get(THREE, Source(rows_of(1)))
    assert cache.opened(TWO) is None
    assert cache.opened(ONE) is not None
    cache.close()
    assert cache.opened(ONE) is None


async def test_a_disk_that_takes_nothing_is_no_failure(tmp_path: Path) -> None:
    cache, source = RangeCache(tmp_path / "gone"), Source(rows_of(1))
    (tmp_path / "gone").rmdir()
    assert len(await cache.get(ONE, source)) == 50
    await cache.add(TWO, rows_of(2))
    assert cache.opened(TWO) is None


async def test_processes_that_write_one_range_do_not_disturb_each_other(tmp_path: Path) -> None:
    caches = [RangeCache(tmp_path) for _ in range(4)]
    sources = [Source(rows_of(1)) for _ in caches]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(cache.get(ONE, source))
            for cache, source in zip(caches, sources, strict=True)
        ]
    assert all(task.result().get("k1-007") == sample_entry(7) for task in tasks)
    assert [file.name for file in files_in(tmp_path)] == [f"{ONE}.arrow"]


async def test_caches_of_one_process_id_write_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers that share a directory may all have process 1; one file of both would be torn."""
    names = set()
    write = rangecache._write

    def noted(path: Path, run: Run) -> None:
        names.add(path.name)
        write(path, run)

    monkeypatch.setattr(rangecache, "_write", noted)
    for _ in range(3):
        await RangeCache(tmp_path).add(ONE, rows_of(1))
    assert len(names) == 3

"""The local store: the places of blocks, opening and closing, and bounds."""

import asyncio
import errno
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from local_blocks import Clock, files, key, local_store

from tarn.block.local import LocalBlockStore, intake, open_local
from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.core.errors import Kind, Reason, TarnError
from tarn.testing.contract.block_samples import data_path, sample

HOUR_US = 3_600_000_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalBlockStore]:
    async with local_store(tmp_path) as store:
        yield store


def rows(root: Path) -> list[str]:
    connection = sqlite3.connect(root / ".tarn" / "small.sqlite")
    found = connection.execute("SELECT path FROM blocks ORDER BY path").fetchall()
    connection.close()
    return [path for (path,) in found]


async def write(store: LocalBlockStore, where: BlockKey, body: bytes) -> None:
    async with await store.open_write(where) as writer:
        await writer.write(body)
        await writer.finish()


def descriptors_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# Memory


async def test_all_open_bodies_together_hold_a_bounded_number_of_bytes(
    store: LocalBlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound a body goes to its file at once; each is stored as it was sent."""
    monkeypatch.setattr(intake, "HELD_BYTES_MAX", 300_000)
    held = store._intake
    writers = [await store.open_write(key(data_path(each))) for each in range(8)]
    bodies = [bytes([each]) * 130_000 for each in range(8)]
    for half in (slice(None, 65_000), slice(65_000, None)):
        for writer, body in zip(writers, bodies, strict=True):
            await writer.write(body[half])
            assert held.held_bytes <= 300_000
            assert held.held_bytes == sum(len(each._held) for each in held.writers)
    await writers[0].abort()
    for writer in writers[1:]:
        await writer.finish()
    assert held.held_bytes == 0
    for each, body in enumerate(bodies[1:], 1):
        assert await store.read(key(data_path(each))) == body


# The places of blocks


@pytest.mark.parametrize("put", [LocalBlockStore.put, write])
async def test_size_and_path_decide_the_place(
    store: LocalBlockStore,
    tmp_path: Path,
    put: Callable[..., "asyncio.Future[None]"],
) -> None:
    await put(store, key(data_path(1)), bytes(65_536))
    await put(store, key(data_path(2)), bytes(65_537))
    await put(store, key("_tarn/commits/ab"), b"tiny")
    await store.close()
    assert files(tmp_path) == ["lake/_tarn/commits/ab", f"lake/{data_path(2)}"]
    assert rows(tmp_path) == [data_path(1)]
    assert (tmp_path / "lake/_tarn/commits/ab").read_bytes() == b"tiny"


async def test_both_kinds_are_dated_by_the_clock(store: LocalBlockStore) -> None:
    now_us = Clock().now_us()
    await store.put(key(data_path(1)), b"row")
    await store.put(key(data_path(2)), bytes(100_000))
    async with await store.uploads.open_part(key(data_path(3)), "u", 1, "a") as part:
        await part.write(b"part")
        await part.finish()
    await store.uploads.complete(key(data_path(3)), "u", [(1, "a")])
    for number in (1, 2, 3):
        assert (await store.stat(key(data_path(number)))).mtime_us == now_us


@pytest.mark.parametrize("hours", [2, -2])
async def test_metadata_that_is_put_again_gets_the_time_of_the_clock_and_never_an_older_one(
    tmp_path: Path, hours: int
) -> None:
    first, later = Clock(), Clock(Clock().now_us() + hours * HOUR_US)
    mtime_us = 0
    for clock in (first, later):
        store = await open_local(tmp_path, clock=clock)
        await store.put(key("_tarn/commits/ab"), b"tiny")
        mtime_us = (await store.stat(key("_tarn/commits/ab"))).mtime_us
        await store.close()
    assert mtime_us == max(first.now_us(), later.now_us())


async def test_only_the_owner_may_read(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        store = await open_local(tmp_path / "root", clock=Clock())
        for number, size in enumerate((10, 100_000)):
            await store.put(key(data_path(number)), bytes(size))
        modes = {
            (path.is_dir(), path.stat().st_mode & 0o777)
            for path in [tmp_path / "root", *(tmp_path / "root").rglob("*")]
        }
        await store.close()
    finally:
        os.umask(mask)
    assert modes == {(True, 0o700), (False, 0o600)}


async def test_upload_leaves_only_the_block(store: LocalBlockStore, tmp_path: Path) -> None:
    where = key(data_path(1))
    for number in (1, 2):
        async with await store.uploads.open_part(where, "u", number, "a") as part:
            await part.write(bytes(1000))
            await part.finish()
    assert files(tmp_path) == ["lake/.uploads/u/00001-a", "lake/.uploads/u/00002-a"]
    await store.uploads.complete(where, "u", [(1, "a"), (2, "a")])
    await store.uploads.discard(where, "u")
    assert files(tmp_path) == [f"lake/{data_path(1)}"]
    assert list((tmp_path / "lake" / ".uploads").iterdir()) == []


async def test_parts_are_joined_where_the_kernel_cannot_copy(
    store: LocalBlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = 0

    def fails_in_the_middle(source: int, target: int, count: int, offset: int) -> int:
        nonlocal copied
        copied += 1
        if copied > 1:
            raise OSError(errno.EXDEV, "other file system")
        return os.write(target, os.pread(source, 1000, offset))

    monkeypatch.setattr(os, "copy_file_range", fails_in_the_middle)
    for number in (1, 2):
        async with await store.uploads.open_part(key(data_path(1)), "u", number, "a") as part:
            await part.write(sample((2 << 20) + 1, number))
            await part.finish()
    await store.uploads.complete(key(data_path(1)), "u", [(2, "a"), (1, "a")])
    expected = sample((2 << 20) + 1, 2) + sample((2 << 20) + 1, 1)
    assert await store.read(key(data_path(1))) == expected


async def test_deleting_cleans_directories(store: LocalBlockStore, tmp_path: Path) -> None:
    await store.put(key(data_path(1)), bytes(100_000))
    await store.delete_many("local://lake", [data_path(1)])
    assert not (tmp_path / "lake" / "data").exists()
    await store.put(key(data_path(2)), bytes(100_000))
    assert files(tmp_path) == [f"lake/{data_path(2)}"]


async def test_overlapping_namespaces_are_refused(store: LocalBlockStore, tmp_path: Path) -> None:
    await store.put(key("x", "a/b"), b"x")
    for name in ("a", "a/b/c"):
        with pytest.raises(TarnError, match="overlap") as caught:
            await store.put(key("x", name), b"x")
        assert caught.value.kind is Kind.INVALID
    await store.put(key("x", "a/c"), b"x")
    other = await open_local(tmp_path, clock=Clock())  # another process sees the same namespaces
    with pytest.raises(TarnError, match="overlap"):
        await other.put(key("x", "a"), b"x")
    assert await other.read(key("x", "a/b")) == b"x"
    await other.close()


async def test_large_blocks_are_files_to_send(store: LocalBlockStore) -> None:
    body = sample(100_000)
    await store.put(key(data_path(1)), body)
    await store.put(key(data_path(2)), b"small")
    await store.put(key("_tarn/x"), b"meta")
    assert await store.open_file(key(data_path(2))) is None
    with pytest.raises(BlockNotFoundError):
        await store.open_file(key(data_path(3)))
    file = await store.open_file(key(data_path(1)))
    assert file is not None
    with file:
        await store.delete_many("local://lake", [data_path(1)])
        assert os.pread(file.fileno(), 200_000, 0) == body
        assert file.read() == body
    meta = await store.open_file(key("_tarn/x"))
    assert meta is not None
    with meta:
        assert meta.read() == b"meta"


# Opening and closing


async def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    for size, count in ((-1, 1), (2 << 20, 1), (0, 0)):
        with pytest.raises(TarnError, match="must be"):
            await open_local(tmp_path, clock=Clock(), small_bytes_max=size, files_max=count)


async def test_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(TarnError, match=str(root)):
            await open_local(root, clock=Clock())


async def test_file_system_without_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", fail)
    descriptors = descriptors_open()
    with pytest.raises(TarnError, match="cannot open the block store"):
        await open_local(tmp_path, clock=Clock())
    assert descriptors_open() == descriptors


async def test_probes_of_the_dead_are_removed_at_open(tmp_path: Path) -> None:
    """The probe is of a process that was killed while it opened the store; no process has its id now."""
    (tmp_path / ".tarn").mkdir()
    for name in ("probe-1", "probe-1-link", "probe-99999999"):
        (tmp_path / ".tarn" / name).touch()
    store = await open_local(tmp_path, clock=Clock())
    await store.close()
    assert sorted(path.name for path in (tmp_path / ".tarn").iterdir()) == [
        "small.lock",
        "small.sqlite",
    ]


@pytest.mark.parametrize("hours", [23, 25])
async def test_old_drafts_of_the_dead_are_removed_at_open(tmp_path: Path, hours: int) -> None:
    store = await open_local(tmp_path, clock=Clock())
    await store.put(key(data_path(1)), b"x")
    living = await store.open_write(key(data_path(2)))
    await living.write(bytes(300_000))
    drafts = tmp_path / "lake" / ".tmp"
    (drafts / "dead").write_text("x")
    now_us = Clock().now_us()
    for draft in drafts.iterdir():
        os.utime(draft, ns=(now_us * 1000, now_us * 1000))
    other = await open_local(tmp_path, clock=Clock(now_us + hours * HOUR_US))
    assert (drafts / "dead").exists() == (hours == 23)
    assert len(list(drafts.iterdir())) == (2 if hours == 23 else 1)
    await living.finish()
    assert (await other.stat(key(data_path(2)))).size == 300_000
    await other.close()
    await store.close()


async def test_blocks_survive_reopening(tmp_path: Path) -> None:
    for turn in range(3):
        store = await open_local(tmp_path, clock=Clock())
        for number in range(turn * 2):
            assert await store.read(key(data_path(number))) == sample(
                100_000 * (number % 2), number
            )
        for number in (turn * 2, turn * 2 + 1):
            await store.put(key(data_path(number)), sample(100_000 * (number % 2), number))
        await store.close()


async def test_close_finishes_what_was_begun(tmp_path: Path) -> None:
    store = await open_local(tmp_path, clock=Clock())
    left = await store.open_write(key(data_path(99)))
    await left.write(bytes(400_000))
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            body = bytes(100_000 if number % 2 else 10)
            group.create_task(store.put(key(data_path(number)), body))
        await asyncio.sleep(0)
        group.create_task(store.close())
    store = await open_local(tmp_path, clock=Clock())
    assert len(await store.list_page("local://lake", "", "", 100)) == 20
    await store.close()
    assert not [name for name in files(tmp_path) if ".tmp" in name]


async def test_no_descriptor_or_thread_survives_close(tmp_path: Path) -> None:
    await asyncio.to_thread(lambda: None)  # the loop's own pool
    descriptors = descriptors_open()
    store = await open_local(tmp_path, clock=Clock())
    for number in range(4):
        await store.put(key(data_path(number)), bytes(number * 100_000))
    stream = store.stream(key(data_path(3)), 0, 300_000)
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    await store.close()
    assert descriptors_open() == descriptors
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tarn-block")]


# Bounds and cancellation


async def test_open_files_are_bounded(tmp_path: Path) -> None:
    store = await open_local(tmp_path, clock=Clock(), files_max=2)
    await store.put(key(data_path(1)), bytes(100_000))
    one = await store.open_file(key(data_path(1)))
    stream = store.stream(key(data_path(1)), 0, 100_000)
    await anext(stream)
    for call in (store.open_file(key(data_path(1))), store.put(key(data_path(2)), bytes(100_000))):
        with pytest.raises(TarnError) as caught:
            await call
        assert (caught.value.kind, caught.value.reason) == (Kind.EXHAUSTED, Reason.OVERLOADED)
    await store.put(key(data_path(3)), b"rows need none")
    assert one is not None
    one.close()
    one.close()
    await stream.aclose()  # type: ignore[attr-defined]
    await store.put(key(data_path(2)), bytes(100_000))
    await store.close()


@pytest.mark.parametrize("size", [100, 100_000, 3 << 20])
async def test_cancelled_put_leaves_all_or_nothing(
    store: LocalBlockStore, tmp_path: Path, size: int
) -> None:
    await store.put(key(data_path(0)), bytes(size))
    for turn in range(1, 30):
        buffer = bytearray(b"x" * size)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(store.put(key(data_path(turn)), buffer))
            for _ in range(turn):
                await asyncio.sleep(0)
            task.cancel()
        buffer[:] = bytes(size)  # the buffer belongs to the caller again
        try:
            assert await store.read(key(data_path(turn))) == b"x" * size
        except BlockNotFoundError:
            continue
    assert store._files.count == 0
    assert not [name for name in files(tmp_path) if ".tmp" in name]


async def test_loop_runs_on_while_a_disk_is_slow(
    store: LocalBlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(key(data_path(1)), bytes(300_000))
    waiting, go = threading.Event(), threading.Event()
    pread = os.pread

    def slow(*arguments: int) -> bytes:
        waiting.set()
        assert go.wait(10)
        return pread(*arguments)

    monkeypatch.setattr(os, "pread", slow)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(store.read(key(data_path(1))))
        assert await asyncio.to_thread(waiting.wait, 10)
        await store.put(key(data_path(2)), b"meanwhile")
        assert not task.done()
        go.set()
    assert task.result() == bytes(300_000)


async def test_left_stream_waits_for_its_read_ahead(
    store: LocalBlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(key(data_path(1)), bytes(4 << 20))
    reads = 0
    waiting, go = threading.Event(), threading.Event()
    pread = os.pread

    def second_is_slow(fd: int, *arguments: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads == 2:
            waiting.set()
            assert go.wait(10)
        os.fstat(fd)  # still open
        return pread(fd, *arguments)

    monkeypatch.setattr(os, "pread", second_is_slow)
    stream = store.stream(key(data_path(1)), 0, 4 << 20)
    await anext(stream)
    assert await asyncio.to_thread(waiting.wait, 10)
    async with asyncio.TaskGroup() as group:
        leaving = group.create_task(stream.aclose())  # type: ignore[attr-defined]
        for _ in range(5):
            await asyncio.sleep(0)
        leaving.cancel()  # despite the open stream
        await asyncio.sleep(0)
        assert not leaving.done()
        assert store._files.count == 1
        go.set()
    assert store._files.count == 0

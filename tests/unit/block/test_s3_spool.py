"""Parts are kept in memory or in a file, with the same content."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from pathlib import Path

import pytest

from tarn.block.s3.spool import Spool
from tarn.core.errors import Kind, TarnError
from tarn.testing.contract.block_samples import sample

MEMORY = 2 << 20


async def filled(spool: Spool, body: bytes, step: int = 100_000) -> Spool:
    for at in range(0, len(body), step):
        await spool.write(memoryview(body)[at : at + step])
    return spool


@pytest.mark.parametrize("size", [0, 1, MEMORY, MEMORY + 1, 3 * MEMORY + 5])
async def test_every_reader_reads_all_from_the_start(tmp_path: Path, size: int) -> None:
    """Two readers read concurrently, like an attempt that timed out and the next one."""
    spool = await filled(Spool(tmp_path, MEMORY), sample(size))
    body = await spool.body()
    assert body.size == spool.size == size
    with body.open() as one, body.open() as two:
        assert (one.read(10) or b"") == sample(size)[:10]
        assert two.read() == sample(size)
        one.seek(0)
        assert one.read() == sample(size)
        assert one.seek(0, os.SEEK_END) == one.tell() == size
        assert one.read(1) == b""
    spool.close()
    spool.close()


async def test_reader_outlives_the_spool(tmp_path: Path) -> None:
    """A thread cannot be stopped, and the number of a closed descriptor may name another file."""
    spool = await filled(Spool(tmp_path, MEMORY), sample(MEMORY + 9))
    with (await spool.body()).open() as source:
        spool.close()
        other = os.open(tmp_path, os.O_RDONLY)
        try:
            assert source.read() == sample(MEMORY + 9)
        finally:
            os.close(other)


async def test_file_has_no_name(tmp_path: Path) -> None:
    """So it vanishes with the process, however that ends."""
    spool = await filled(Spool(tmp_path, MEMORY), sample(3 * MEMORY))
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - async code takes no pathlib
    spool.close()


async def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "absent", MEMORY)
    with pytest.raises(TarnError, match="absent") as caught:
        await filled(spool, sample(MEMORY + 1))
    assert caught.value.kind is Kind.INTERNAL


async def test_a_cancelled_writer_waits_for_the_thread_that_writes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise `close` may come before the thread has opened the file, which then stays open for ever, or while the
    thread writes, when the descriptor may already belong to another file."""
    runs, may_go_on = threading.Event(), threading.Event()
    made: list[int] = []
    make = tempfile.mkstemp

    def mkstemp(prefix: str, dir: str) -> tuple[int, str]:  # noqa: A002 - the real one's name
        runs.set()
        assert may_go_on.wait(10)
        fd, name = make(prefix=prefix, dir=dir)
        made.append(fd)
        return fd, name

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    spool = Spool(tmp_path, 10)

    async def write() -> None:
        try:
            await spool.write(memoryview(bytes(100)))
        finally:
            spool.close()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(write())
        await asyncio.to_thread(runs.wait, 10)
        task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not task.done()
        may_go_on.set()
    assert task.cancelled()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made[0])

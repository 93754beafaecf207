"""Parts wait in memory or in a file, and read the same from both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tarn.block.s3.spool import Spool
from tarn.core.errors import Kind, TarnError
from tarn.testing.block_samples import sample

MEMORY = 2 << 20


async def filled(spool: Spool, body: bytes, step: int = 100_000) -> Spool:
    for at in range(0, len(body), step):
        await spool.write(memoryview(body)[at : at + step])
    return spool


@pytest.mark.parametrize("size", [0, 1, MEMORY, MEMORY + 1, 3 * MEMORY + 5])
async def test_every_reader_reads_all_from_the_start(tmp_path: Path, size: int) -> None:
    """Two at a time, as an attempt that timed out and the one after it."""
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
    """So that it is gone with the process, however that ends."""
    spool = await filled(Spool(tmp_path, MEMORY), sample(3 * MEMORY))
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - async code takes no pathlib
    spool.close()


async def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "absent", MEMORY)
    with pytest.raises(TarnError, match="absent") as caught:
        await filled(spool, sample(MEMORY + 1))
    assert caught.value.kind is Kind.INTERNAL

"""A disk that is nearly full refuses objects and takes metadata."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from local_blocks import Clock, files, key

from tarn.block.local import open_local
from tarn.block.local.reserve import DiskReserve
from tarn.core.errors import Kind, TarnError
from tarn.testing.contract.block_samples import data_path

MIB = 1 << 20


class Disk:
    """A disk with so many free bytes, and a clock for the looks at it."""

    def __init__(self, free: int, size: int = 100_000 * MIB) -> None:
        self.free, self.size, self.now, self.looks = free, size, 0.0, 0

    def look(self) -> tuple[int, int]:
        self.looks += 1
        return self.free, self.size

    def reserve(self, reserve_bytes: int = 256 * MIB) -> DiskReserve:
        return DiskReserve(self.look, reserve_bytes, monotonic=lambda: self.now)


def refuses(reserve: DiskReserve) -> bool:
    try:
        reserve.check("write block a")
    except TarnError as error:
        return error.kind is Kind.UNAVAILABLE and "cannot write block a: the disk is" in str(error)
    return False


@pytest.mark.parametrize(
    ("free", "size", "expected"),
    [
        (256 * MIB + 1, 100_000 * MIB, False),
        (256 * MIB, 100_000 * MIB, True),
        (0, 100_000 * MIB, True),
        (6 * MIB, 100 * MIB, False),  # of a small disk a twentieth
        (5 * MIB, 100 * MIB, True),
    ],
)
def test_objects_leave_the_reserve_free(free: int, size: int, expected: bool) -> None:
    assert refuses(Disk(free, size).reserve()) is expected


def test_the_disk_is_looked_at_a_few_times_a_second() -> None:
    disk = Disk(1000 * MIB)
    reserve = disk.reserve()
    assert not any(refuses(reserve) for _ in range(100))
    assert disk.looks == 1
    disk.free, disk.now = 0, 0.3
    assert refuses(reserve)
    disk.free, disk.now = 1000 * MIB, 0.6
    assert not refuses(reserve)
    assert disk.looks == 3


def test_without_a_reserve_nothing_is_looked_at() -> None:
    disk = Disk(0)
    assert not refuses(disk.reserve(0))
    assert disk.looks == 0


async def test_a_store_on_a_full_disk_takes_metadata_and_deletes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_local(tmp_path, clock=Clock(), reserve_bytes=256 * MIB)
    try:
        await store.put(key(data_path(1)), b"before")
        full = SimpleNamespace(f_bavail=255 * MIB, f_frsize=1, f_blocks=100_000 * MIB)
        monkeypatch.setattr(os, "fstatvfs", lambda _: full)
        monkeypatch.setattr("tarn.block.local.reserve._LOOK_SECONDS", 0.0)
        for size in (10, 100_000, 1_000_000):
            with pytest.raises(TarnError, match="255 MiB are free") as caught:
                await store.put(key(data_path(2)), bytes(size))
            assert caught.value.kind is Kind.UNAVAILABLE
        writer = await store.open_write(key(data_path(3)))
        with pytest.raises(TarnError, match="the disk is full"):
            await writer.write(bytes(1_000_000))
        await writer.abort()
        part = await store.uploads.open_part(key(data_path(4)), "u", 1, "a")
        with pytest.raises(TarnError, match="the disk is full"):
            await part.finish_with(b"part")

        await store.put(key("_tarn/ranges/ab"), bytes(100_000))
        assert await store.read(key("_tarn/ranges/ab")) == bytes(100_000)
        await store.delete_many(key("a").namespace, [data_path(1)])
        assert files(tmp_path) == ["lake/_tarn/ranges/ab"]
    finally:
        await store.close()

"""A process that is killed, or whose disk is full, loses no acknowledged write.

This file is also the program that is killed: it writes groups and compare-and-sets for ever and prints each
number once it is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tarn.core.errors import Kind
from tarn.kv.embedded import EmbeddedKv, open_embedded
from tarn.kv.port import (
    Group,
    OutcomeUnknownError,
    Partition,
    PartitionKind,
    PredicateFailedError,
)

PLAIN = Partition("p", PartitionKind.PLAIN)
REGISTER = Partition("r", PartitionKind.REGISTER)


async def write_for_ever(path: Path, life: int) -> None:
    kv = await open_embedded(path)

    async def work(task: int) -> None:
        for number in range(1 << 40):
            name = b"%d/%d/%d" % (life, task, number)
            group = Group(name, ((name, b"v" * 300), (name + b"/event", b"e")))
            assert await kv.set_many(PLAIN, [group]) == [None]
            if task == 0:
                await add_one(kv)
            os.write(1, name + b"\n")

    async with asyncio.TaskGroup() as tasks:
        for task in range(8):
            tasks.create_task(work(task))


async def add_one(kv: EmbeddedKv) -> None:
    while True:
        (found,) = await kv.get_many(REGISTER, [b"counter"])
        value = b"%d" % (int(found.value) + 1 if found else 1)
        try:
            await kv.set_if(REGISTER, b"counter", value, found.predicate if found else None)
        except PredicateFailedError:
            continue
        return


def run_until_killed(path: Path, life: int, acknowledged_min: int) -> list[bytes]:
    """Returns the numbers that a writer printed before it was killed."""
    names: list[bytes] = []
    with subprocess.Popen(
        [sys.executable, __file__, str(path), str(life)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            names.append(line)
            if len(names) == acknowledged_min:
                writer.kill()
        assert writer.wait() == -9
    # The last line may be cut.
    return [name[:-1] for name in names if name.endswith(b"\n")]


@pytest.mark.system
@pytest.mark.timeout(120)
async def test_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    """A writer is killed and restarted several times on one file, while another process keeps running."""
    path = tmp_path / "kv.db"
    chance = random.Random(5)
    acknowledged: list[bytes] = []
    counted = 0
    survivor = await open_embedded(path)
    for life in range(6):
        names = await asyncio.to_thread(run_until_killed, path, life, chance.randint(1, 3000))
        acknowledged += names
        counted += sum(b"/0/" in name for name in names)
        async with asyncio.timeout(10):  # the lock of the dead process is released
            await add_one(survivor)
        counted += 1
        found = await survivor.get_many(PLAIN, acknowledged)
        assert [name for name, value in zip(acknowledged, found, strict=True) if not value] == []
    await survivor.close()

    kv = await open_embedded(path)
    (counter,) = await kv.get_many(REGISTER, [b"counter"])
    assert counter is not None
    # A killed writer may have added one that it did not print.
    assert counted <= int(counter.value) <= counted + 6
    rows: set[bytes] = set()
    async for batch in kv.scan_arrow(PLAIN, b"", None):
        rows.update(batch.column(0).to_pylist())
    assert set(acknowledged) <= rows
    assert {row for row in rows if not row.endswith(b"/event")} == {
        row.removesuffix(b"/event") for row in rows if row.endswith(b"/event")
    }
    await kv.close()


async def fill_disk(path: Path) -> None:
    """Fills the disk, simulated by the process's limit on file sizes, and continues with space again."""
    kv = await open_embedded(path)

    async def put(name: bytes) -> bool:
        group = Group(name, ((name, bytes(3000)), (name + b"/event", bytes(3000))))
        (outcome,) = await kv.set_many(PLAIN, [group])
        if outcome is not None:
            assert outcome.kind in {Kind.UNAVAILABLE, Kind.UNKNOWN_OUTCOME}
            outcomes.add(type(outcome))
        return outcome is None

    outcomes: set[type] = set()
    acknowledged = []
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    for number in range(40):
        if number % 20 == 10:
            log = path.with_name(path.name + "-wal").stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (log + 20_000, unlimited[1]))
        if number % 20 == 19:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        name = b"%03d" % number
        if await put(name):
            acknowledged.append(name)
    assert OutcomeUnknownError in outcomes
    assert b"039" in acknowledged
    found = await kv.get_many(PLAIN, acknowledged, settle=True)
    assert None not in found
    os.write(1, b"\n".join(acknowledged))
    os._exit(0)  # no orderly end: recovery must work with the log alone


@pytest.mark.system
async def test_full_disk_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "kv.db"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, __file__, str(path), "full"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=50,
    )
    acknowledged = done.stdout.split(b"\n")
    assert len(acknowledged) >= 20
    kv = await open_embedded(path)
    assert None not in await kv.get_many(PLAIN, acknowledged)
    rows = {key for key, _ in await kv.scan(PLAIN, b"", None, 10_000)}
    assert {row.removesuffix(b"/event") + b"/event" for row in rows} <= rows
    await kv.close()


if __name__ == "__main__":
    if sys.argv[2] == "full":
        asyncio.run(fill_disk(Path(sys.argv[1])))
    else:
        asyncio.run(write_for_ever(Path(sys.argv[1]), int(sys.argv[2])))

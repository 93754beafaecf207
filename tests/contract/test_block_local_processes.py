"""The local store with real processes: killed ones, several on one store, and a full disk."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tarn.block.local import open_local
from tarn.block.port import BlockKey
from tarn.testing.contract.block_samples import data_path

pytestmark = pytest.mark.system

NAMESPACE = "local://lake"

CLOCK = """
import asyncio, sys, time
from pathlib import Path
from tarn.block.local import open_local
from tarn.block.port import BlockExistsError, BlockKey
from tarn.core.errors import TarnError
from tarn.testing.contract.block_samples import data_path, sample

class Clock:
    def now_us(self): return time.time_ns() // 1000
    def monotonic(self): return time.monotonic()

def key(path): return BlockKey("local://lake", path)
"""

WRITE_FOR_EVER = """
async def work(store, worker):
    number = worker
    while True:
        size = (1000, 100_000, 3 << 20)[number % 3]
        if number % 7 == 6:
            async with await store.uploads.open_part(key(data_path(number)), f"u{number}", 1, "a") as part:
                await part.write(sample(size, number))
                await part.finish()
            await store.uploads.complete(key(data_path(number)), f"u{number}", [(1, "a")])
        else:
            await store.put(key(data_path(number)), sample(size, number))
        print(number, flush=True)
        number += 8

async def main():
    store = await open_local(Path(sys.argv[1]), clock=Clock())
    async with asyncio.TaskGroup() as group:
        for worker in range(8):
            group.create_task(work(store, worker))
asyncio.run(main())
"""

PUT_THE_SAME = """
async def main():
    store = await open_local(Path(sys.argv[1]), clock=Clock())
    me = int(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    async def put(number):
        size = 1000 if (number + me) % 3 else 100_000
        try:
            await store.put(key(data_path(number)), bytes([me]) * size)
            print(number, flush=True)
        except BlockExistsError:
            pass
    order = range(200) if me == 1 else reversed(range(200))
    async with asyncio.TaskGroup() as group:
        for number in order:
            group.create_task(put(number))
    await store.close()
asyncio.run(main())
"""

FILL = """
async def main():
    root = Path(sys.argv[1])
    store = await open_local(root, clock=Clock())
    await store.put(key(data_path(0)), b"first")
    await store.put(key(data_path(1)), bytes(100_000))
    writer = await store.open_write(key(data_path(2)))
    refused = 0
    try:
        for _ in range(64):
            await writer.write(bytes(1 << 20))
        await writer.finish()
    except TarnError as error:
        assert error.kind.name == "UNAVAILABLE" and "full" in error.message, error
        refused += 1
    await writer.abort()
    for number, size in ((3, 64 << 20), (4, 300_000)):
        try:
            await store.put(key(data_path(number)), bytes(size))
        except TarnError as error:
            assert error.kind.name == "UNAVAILABLE" and "full" in error.message, error
            refused += 1
    for number in range(100, 400):
        try:
            await store.put(key(data_path(number)), bytes(60_000))
        except TarnError as error:
            assert error.kind.name == "UNAVAILABLE", error
            refused += 1
            break
    files = [path.name for path in (root / "lake").rglob("*") if path.is_file()]
    assert set(files) <= {f"{number:032x}" for number in (1, 4)}, files
    listed = [info.path for info in await store.list_page("local://lake", "", "", 1000)]
    assert listed[:2] == [data_path(0), data_path(1)] and data_path(2) not in listed, listed
    assert number not in [int(path[-32:], 16) for path in listed]
    assert await store.read(key(data_path(0))) == b"first"
    await store.delete_many("local://lake", listed)
    await store.put(key(data_path(5)), b"room again")
    await store.close()
    assert refused >= 3
    print("done")
asyncio.run(main())
"""

OPEN = """
import os
async def main():
    if os.geteuid() == 0:  # root may write everywhere
        os.seteuid(65534)
    try:
        await open_local(Path(sys.argv[1]), clock=Clock())
    except TarnError as error:
        print(error.message)
asyncio.run(main())
"""


class _Clock:
    def __init__(self, ahead_us: int = 0) -> None:
        self._ahead_us = ahead_us

    def now_us(self) -> int:
        return time.time_ns() // 1000 + self._ahead_us

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def _command(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", CLOCK + program, *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _spawn(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        _command(program, *arguments),
        env=_environment(),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _sample() -> Callable[[int], bytes]:
    from tarn.testing.contract.block_samples import sample

    return lambda number: sample((1000, 100_000, 3 << 20)[number % 3], number)


@pytest.mark.parametrize("acknowledged", [1, 40])
def test_kill_loses_nothing_acknowledged(tmp_path: Path, acknowledged: int) -> None:
    with _spawn(WRITE_FOR_EVER, str(tmp_path)) as child:
        assert child.stdout is not None
        numbers = [int(child.stdout.readline()) for _ in range(acknowledged)]
        child.kill()
        numbers += [int(line) for line in child.stdout if line.endswith("\n")]
    body = _sample()

    async def check() -> None:
        day_us = 25 * 3600 * 1_000_000
        store = await open_local(tmp_path, clock=_Clock())
        for number in numbers:
            assert await store.read(BlockKey(NAMESPACE, data_path(number))) == body(number)
        for info in await store.list_page(NAMESPACE, "", "", 10_000):  # unanswered writes, too
            number = int(info.path[-32:], 16)
            assert await store.read(BlockKey(NAMESPACE, info.path)) == body(number)
        await store.close()
        await (await open_local(tmp_path, clock=_Clock(day_us))).close()

    asyncio.run(check())
    assert not list((tmp_path / "lake" / ".tmp").iterdir())


def test_processes_share_a_store(tmp_path: Path) -> None:
    with (
        _spawn(PUT_THE_SAME, str(tmp_path), "1") as one,
        _spawn(PUT_THE_SAME, str(tmp_path), "2") as two,
    ):
        winners: dict[int, int] = {}
        for child in (one, two):
            assert child.stdout is not None
            assert child.stdin is not None
            assert child.stdout.readline() == "ready\n"
        for child in (one, two):
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        for me, child in ((1, one), (2, two)):
            out, _ = child.communicate(timeout=30)
            for line in out.split():
                assert int(line) not in winners
                winners[int(line)] = me
    assert sorted(winners) == list(range(200))

    async def check() -> None:
        store = await open_local(tmp_path, clock=_Clock())
        for number, me in winners.items():
            body = await store.read(BlockKey(NAMESPACE, data_path(number)))
            assert set(body) == {me}
        assert len(await store.list_page(NAMESPACE, "", "", 1000)) == 200
        await store.close()

    asyncio.run(check())


def test_full_disk_refuses_and_leaves_nothing(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare(1)")
    mount = f'mount -t tmpfs -o size=4m none "{tmp_path}"'
    inside = [unshare, "-rm", "sh", "-c"]
    if subprocess.run([*inside, mount], check=False, capture_output=True).returncode != 0:
        pytest.skip("may not mount in a user namespace")
    script = f'{mount} && exec "$@"'
    result = subprocess.run(
        [*inside, script, "sh", *_command(FILL, str(tmp_path))],
        env=_environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (result.stdout, result.returncode) == ("done\n", 0), result.stderr


def test_unwritable_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root").chmod(0o555)
    for path in [tmp_path, *tmp_path.parents][:3]:
        path.chmod(path.stat().st_mode | 0o555)
    result = subprocess.run(
        _command(OPEN, str(tmp_path / "root")),
        env=_environment(),
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "no permission" in result.stdout
    assert str(tmp_path / "root") in result.stdout
    assert not list((tmp_path / "root").iterdir())

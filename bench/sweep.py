"""The rate of a sweep against the S3 server's own rate of deletions: `python -m bench.sweep [--rounds N] [--spark]`.

The server is `rclone serve s3` over a folder. In turns, as many blocks are deleted by plain DeleteObjects requests of
1,000 keys, one after the other and in random order (a sweep goes by hashes), and by a sweep: it reads its quarantine
and the roots, deletes, writes its report and looks at live blocks. Graveler's part, the lease, is left out: the run
asks for it every few seconds. The goal is 0.8 times the server's rate.

With `--spark`, the sweep is that of `tarn_spark` with two executors' threads in this process's session. Its jobs have
a fixed cost of seconds, so the rate of its deletions alone is printed, too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.gc import DAY_US, ListedRoots, addresses, commit
from tests.support.servers.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server

from tarn.block.keys import LIST_LIMIT_MAX
from tarn.block.opening import BlockPlace
from tarn.block.paging import pages_below
from tarn.block.port import BlockStore
from tarn.block.s3 import S3Settings, open_s3
from tarn.collection.block_names import BlockKind, paths_of
from tarn.collection.engine import Engine, InProcess
from tarn.collection.marking import CollectionRun, Lake, mark
from tarn.collection.outcomes import Outcome
from tarn.collection.progress import CollectionProgress
from tarn.collection.sweeping import SweepOptions
from tarn.config import load
from tarn.rpc.process.system import SystemClock

BUCKET = "tarn"
KEYS_PER_REQUEST = 1000
BODY = bytes(1000)


class Steps(CollectionProgress):
    """Knows when each step began."""

    def __init__(self) -> None:
        super().__init__()
        self.began: dict[str, float] = {}

    def begin(self, step: str, total: int | None = None) -> None:
        self.began[step] = time.monotonic()
        super().begin(step, total)


class NoLease:
    """The right to delete, without a question to graveler."""

    async def confirm(self) -> None:
        pass

    async def renew(self) -> None:
        pass

    async def begin_batch(self, block_ids: Sequence[str]) -> None:
        pass

    async def end_batch(self) -> None:
        pass


def fill(server: S3Server, name: str, paths: Sequence[str], mtime_us: int) -> None:
    """Writes old blocks into the server's folder."""
    for folder in {path.rpartition("/")[0] for path in paths}:
        server.file(BUCKET, f"{name}/{folder}").mkdir(parents=True, exist_ok=True)
    for path in paths:
        file = server.file(BUCKET, f"{name}/{path}")
        file.write_bytes(BODY)
        os.utime(file, ns=(mtime_us * 1000, mtime_us * 1000))


async def plain(blocks: BlockStore, namespace: str, paths: list[str], server: S3Server) -> float:
    """Deletes blocks by requests only, in random order as a sweep does; returns the seconds."""
    # The server caches folders. As with the sweep, all are listed before the measurement.
    listed = 0
    async for page in pages_below(blocks, namespace, "data/", LIST_LIMIT_MAX):
        listed += len(page)
    if listed < len(paths):
        raise RuntimeError(f"the server lists {listed} blocks")
    paths = random.sample(paths, len(paths))
    began = time.monotonic()
    for at in range(0, len(paths), KEYS_PER_REQUEST):
        await blocks.delete_many(namespace, paths[at : at + KEYS_PER_REQUEST])
    seconds = time.monotonic() - began
    name = namespace.rpartition("/")[2]
    if left := [path for path in paths if server.file(BUCKET, f"{name}/{path}").exists()]:
        raise RuntimeError(f"the server kept {len(left)} blocks")
    return seconds


async def swept(lake: Lake, roots: ListedRoots, count: int, engine: Engine) -> tuple[float, float]:
    """Marks, which is not measured, and sweeps; returns the seconds of the sweep, and of its deletions."""
    now_us = lake.clock.now_us()
    manifest = await mark(
        lake, CollectionRun("a" * 32, "b" * 32, now_us - DAY_US), roots, CollectionProgress()
    )
    found = manifest.candidates(BlockKind.DATA).count
    if found != count:
        raise RuntimeError(f"the mark found {found} candidates, not {count}")
    run = CollectionRun("c" * 32, "d" * 32, now_us - DAY_US)
    options = SweepOptions(is_confirmed=True)
    steps, began = Steps(), time.monotonic()
    report = await engine.sweep(
        lake, run, manifest, roots, NoLease(), steps, random.Random(1), options
    )
    seconds = time.monotonic() - began
    deleted = report.outcomes[BlockKind.DATA.value][Outcome.DELETED.value].count
    if deleted != count or report.missing:
        raise RuntimeError(f"the sweep deleted {deleted} of {count} blocks: {report}")
    return seconds, steps.began["read live blocks again"] - steps.began["delete"]


@contextmanager
def engine_of(server: S3Server, folder: Path, *, spark: bool) -> Iterator[Engine]:
    """Yields the engine of this process, or one of Spark with two threads."""
    if not spark:
        yield InProcess()
        return
    # A wheel without Spark runs the other case.
    from tarn_spark.collection.engine import SparkEngine
    from tarn_spark.collection.session import session_builder

    values = {
        "TARN_BLOCKSTORE_TYPE": "s3",
        "TARN_BLOCKSTORE_S3_ENDPOINT": server.endpoint,
        "TARN_BLOCKSTORE_S3_FORCE_PATH_STYLE": "true",
        "TARN_BLOCKSTORE_DEFAULT_NAMESPACE_PREFIX": f"s3://{BUCKET}/own",
        "TARN_BLOCKSTORE_S3_CREDENTIALS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "TARN_BLOCKSTORE_S3_CREDENTIALS_ACCESS_SECRET_KEY": SECRET_ACCESS_KEY,
    }
    place = BlockPlace.of(load(None, values))
    builder = session_builder("local[2]").config("spark.local.dir", str(folder / "spark"))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield SparkEngine(session, place)
    finally:
        session.stop()


async def measure(
    server: S3Server, folder: Path, count: int, live: int, rounds: int, engine: Engine
) -> None:
    """Deletes in turns, and prints the rates."""
    clock = SystemClock()
    keys = addresses(count + live, clock.now_us())
    paths = paths_of(BlockKind.DATA, keys).to_pylist()
    old_us = clock.now_us() - 3 * DAY_US
    settings = S3Settings(
        f"s3://{BUCKET}/own",
        endpoint=server.endpoint,
        path_style=True,
        access_key_id=ACCESS_KEY_ID,
        secret_access_key=SECRET_ACCESS_KEY,
    )
    ratios, rates, alone = [], [], []
    blocks = await open_s3(settings, clock=clock, chance=random.SystemRandom())
    try:
        for number in range(rounds):
            seconds, deleting = {}, 0.0
            for what in random.sample(("plain", "sweep"), 2):
                name = f"{what}{number}"
                namespace = f"s3://{BUCKET}/{name}"
                await asyncio.to_thread(fill, server, name, paths, old_us)
                roots = await commit(blocks, namespace, keys[:live])
                if what == "plain":
                    seconds[what] = await plain(blocks, namespace, paths[live:], server)
                    continue
                lake = Lake(name, namespace, blocks, clock, folder)
                seconds[what], deleting = await swept(lake, roots, count, engine)
            alone.append(seconds["plain"] / deleting)
            ratios.append(seconds["plain"] / seconds["sweep"])
            rates.append(count / seconds["sweep"])
            print(
                f"{count / seconds['plain']:.0f} blocks per second by plain requests, "
                f"{rates[-1]:.0f} by the sweep: {ratios[-1]:.2f}, "
                f"{alone[-1]:.2f} in {deleting:.1f} s of deletions alone",
                flush=True,
            )
    finally:
        await blocks.close()
    print(
        f"median of {rounds}: {statistics.median(rates):.0f} blocks per second, "
        f"{statistics.median(ratios):.2f} times the server's rate ({min(ratios):.2f} to {max(ratios):.2f}); "
        f"deletions alone {statistics.median(alone):.2f} ({min(alone):.2f} to {max(alone):.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=20_000)
    parser.add_argument("--live", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spark", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            S3Server(folder, buckets=(BUCKET,)) as server,
            engine_of(server, folder, spark=chosen.spark) as engine,
        ):
            work = measure(server, folder, chosen.blocks, chosen.live, chosen.rounds, engine)
            asyncio.run(work)


if __name__ == "__main__":
    main()

"""Spark replays a journal for a rebuild: the store is then the one that a rebuild in one process makes."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rebuild_lab import RebuildLab, rebuild_lab
from spark_jobs import driver
from spark_lakes import SPARK_HERE, java_home, local_place
from tests.support.clock import ManualClock

from tarn.block.port import BlockKey
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import BranchId
from tarn.core.listing.breaks import BreakRule
from tarn.journal.groups import FileGroups
from tarn.journal.names import base_path
from tarn.journal.replayed import ReplayedJournal, load_replayed, save_replayed
from tarn.journal.source import find_source
from tarn_graveler.rebuild.report import RebuildReport
from tarn_spark.collection.executor import close_stores
from tarn_spark.journal import dividing, rebuild
from tarn_spark.journal.rebuild import SparkReplay

ROOT = Path(__file__).parents[2]
RULE = BreakRule(rows_mean=4)
DEV = BranchId("dev")

pytestmark = SPARK_HERE


@asynccontextmanager
async def busy_lake(folder: Path) -> AsyncIterator[RebuildLab]:
    """A lake on local blocks with commits, and uncommitted changes in several layers of two branches."""
    place = local_place(folder / "blocks")
    blocks = await place.open(ManualClock())
    rng = random.Random(7)
    try:
        async with rebuild_lab(folder, blocks) as lab:
            lake, graveler = lab.lake, lab.lake.graveler
            for number in range(60):
                await lake.put(f"k{number:03}", number)
            await lake.commit("first")
            head = (await graveler.branches.fresh(lake.main)).branch.commit_id
            for name in (DEV, BranchId("quiet"), BranchId("gone")):
                await graveler.branches.create(lake.branch(name), head)
            await lab.drain()
            for number in range(80):
                branch = rng.choice((lake.main.branch_id, DEV))
                path = f"k{rng.randrange(120):03}"
                if rng.random() < 0.3:
                    await lake.delete(path, branch=branch)
                else:
                    await lake.put(path, number, branch)
                if number == 40:
                    await graveler.compacting.compact(lake.branch(DEV))
                if number % 20 == 0:
                    await lab.drain()
            await lake.put("k000", 0, DEV)  # as in the commit
            await lab.drain()
            yield lab
    finally:
        await blocks.close()
        close_stores()


async def replayed(spark: Any, lab: RebuildLab, folder: Path) -> ReplayedJournal:
    """Replays the lake's journal, and sends the result through a file."""
    place = local_place(folder / "blocks")
    namespace = lab.lake.repository.storage_namespace
    job = SparkReplay(spark, place, lab.replicas.blocks, namespace, RULE, span_rows=25)
    save_replayed(folder / "result", await job.run())
    return load_replayed(folder / "result")


async def made(lab: RebuildLab, *ready: ReplayedJournal) -> tuple[dict[str, Any], Any]:
    """Rebuilds into a new store; returns the report, and what users see, with all entries."""
    lab.new_target()
    report: RebuildReport = await lab.rebuild(rule=RULE, ready=ready)
    async with lab.rebuilt() as (graveler, repository):
        assert await lab.fsck() == []
        return report.as_record(), await lab.shown(graveler, repository)


async def damage(lab: RebuildLab, path: str) -> None:
    """Changes the last bytes of a file."""
    key = BlockKey(lab.lake.repository.storage_namespace, path)
    body = await lab.replicas.blocks.read(key)
    await lab.remove(key.namespace, path)
    await lab.replicas.blocks.put(key, body[:-9] + bytes(9))


async def test_a_rebuild_takes_over_what_spark_has_replayed(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with busy_lake(tmp_path) as lab:
        before = await lab.shown(lab.lake.graveler, lab.lake.repository)
        namespace, paths = lab.lake.repository.storage_namespace, await lab.pass_files()
        ready = await replayed(spark, lab, tmp_path)
        assert {each.branch_id for each in ready.listings} == {"main", "dev"}
        found = await made(lab, ready)
        assert found[1] == before
        with monkeypatch.context() as patched:
            patched.setattr(dividing, "_READS_MAX", 0)  # the rows of all files are exchanged
            assert await replayed(spark, lab, tmp_path) == ready
        assert found == await made(lab)
        # Files are lost and damaged: both tell the same, and make the same of the rest.
        await lab.remove(namespace, paths[-3])
        await damage(lab, paths[-1])
        with pytest.raises(TarnError, match=r"other files now.*run tarn_spark.rebuild again"):
            await made(lab, ready)
        damaged = await made(lab, await replayed(spark, lab, tmp_path))
        assert any(paths[-1] in each for each in damaged[0]["repositories"][0]["problems"])
        assert damaged == await made(lab)
        strange = msgspec.structs.replace(ready, namespace="local://other")
        with pytest.raises(TarnError, match="of no repository of this installation"):
            await made(lab, strange)
        # Without an intact base nothing can be replayed, and the error names the file.
        epoch = (await find_source(lab.replicas.blocks, namespace)).epoch
        await damage(lab, base_path(epoch.folder, 1))
        with pytest.raises(TarnError, match="base/0000000001") as caught:
            await replayed(spark, lab, tmp_path)
        assert caught.value.kind is Kind.CORRUPT


async def test_rows_that_no_span_got_end_the_job(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with busy_lake(tmp_path) as lab:
        await replayed(spark, lab, tmp_path)
        former = dividing.by_span

        def without_one(file: FileGroups, ends: Sequence[bytes]) -> dict[int, FileGroups] | None:
            found = former(file, ends)
            if found:
                del found[max(found)]
            return found

        monkeypatch.setattr(rebuild, "by_span", without_one)
        with pytest.raises(TarnError, match="has changed or gone while the journal was read"):
            await replayed(spark, lab, tmp_path)


async def test_a_job_that_is_killed_is_repeated(tmp_path: Path) -> None:
    """It is killed, with its executors, when listings are in the bucket and its result is not written."""
    async with busy_lake(tmp_path) as lab:
        blocks, namespace = lab.replicas.blocks, lab.lake.repository.storage_namespace

        async def listings() -> set[str]:
            found = await blocks.list_page(namespace, "_tarn/metaranges/", "", 10_000)
            return {each.path for each in found}

        before = await listings()
        root = str(tmp_path / "blocks")
        killed = await asyncio.create_subprocess_exec(
            *driver("spark_replay", root, namespace),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(500):
                while await listings() == before:
                    assert killed.returncode is None
                    await asyncio.sleep(0.2)
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
            await killed.wait()
        result = tmp_path / "lake.replayed"
        again = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tarn_spark.rebuild",
            namespace,
            str(result),
            *("--master", "local[2]", "--conf", "spark.driver.memory=1g"),
            env={
                **os.environ,
                "TARN_BLOCKSTORE_LOCAL_PATH": root,
                "JAVA_HOME": java_home(),
                "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            },
        )
        assert await again.wait() == 0
        assert await made(lab, load_replayed(result)) == await made(lab)

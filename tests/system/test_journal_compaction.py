"""`tarn journal compact` on a real Tarn: who may, where the journals are, and what is left."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from running_tarn import RunningTarn, launch, set_up, stop, wait_until_up
from slowness import scaled
from spark_lakes import local_place

from tarn.journal.epochs import Epoch, newest_epoch
from tarn.journal.events import EVENT_SCHEMA
from tarn.journal.names import FOLDER
from tarn.journal.writing import JournalWriter
from tarn.rpc.process.system import SystemClock


async def drained(tarn: RunningTarn, namespace: str) -> tuple[Epoch, list[str]]:
    """Adds an empty pass of a past day to a journal, when its first own pass is there; returns its files."""
    blocks = await local_place(tarn.data / "blocks").open(SystemClock())
    try:
        async with asyncio.timeout(scaled(60)):
            epoch = await newest_epoch(blocks, namespace)
            while epoch is None:
                await asyncio.sleep(0.2)
                epoch = await newest_epoch(blocks, namespace)
        writer = JournalWriter(blocks, namespace, epoch, "f" * 32)
        await writer.write(1, EVENT_SCHEMA.empty_table(), [], is_full=False)
        found = await blocks.list_page(namespace, FOLDER, "", 1000)
        return epoch, [each.path for each in found]
    finally:
        await blocks.close()


def test_past_days_of_all_journals_are_compacted(tmp_path: Path) -> None:
    supervisor = launch(
        tmp_path / "data",
        *("--port", "0", "--rpc-port", "0", "--workers", "1"),
        environment={"TARN_JOURNAL_ENABLED": "true", "TARN_JOURNAL_INTERVAL": "1s"},
    )
    tarn = RunningTarn("single", tmp_path / "data", tmp_path / "credentials", supervisor)
    try:
        wait_until_up(tarn)
        set_up(tarn)
        lake = tarn.new_repository()
        tarn.ok("fs", "upload", "-", f"{lake}/main/a", stdin=b"body")
        shown = tarn.ok("repo", "show", lake, "--json").json
        namespace = shown["storage_namespace"]
        epoch, before = asyncio.run(drained(tarn, namespace))
        command = ("journal", "compact", "--json", "--data-dir", str(tarn.data))
        rows = json.loads(tarn.ok(*command, timeout=120).out)
        assert rows[0]["journal"] == lake
        assert len(rows) == 2, "and the journal of what belongs to no repository"
        assert (rows[0]["compaction"], rows[0]["missing"]) == (1, "")
        assert rows[0]["replaced"] == len(epoch.base) + 1
        _, after = asyncio.run(drained(tarn, namespace))
        assert {*before} < {*after}, "nothing is deleted before its time"
        assert [each for each in after if each.endswith("compactions/0000000001.json")]
        refused = tarn.cli(*command, lake, "nowhere")
        assert refused.code != 0
        assert tarn.ok("fs", "cat", f"{lake}/main/a").out == "body"
    finally:
        stop(tarn)

"""Compacts a journal with Spark, in a process of its own. With `--wait` it stops before it publishes."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from spark_lakes import local_place, spark_session

from tarn.journal.compacting import Leaving, compact
from tarn.journal.compactions import CompactedFile
from tarn.journal.epochs import Epoch
from tarn.journal.reading import Source
from tarn.rpc.process.system import SystemClock
from tarn_spark.journal.compaction import SparkCompaction

DAY_US = 86_400_000_000


class Waiting(SparkCompaction):
    """Writes its files, and then waits."""

    async def write(self, sources: Sequence[Source], leaving: Leaving) -> list[CompactedFile]:
        """See `CompactionRows`."""
        found = await SparkCompaction.write(self, sources, leaving)
        await asyncio.Event().wait()
        return found


async def main(root: Path, namespace: str, *, waits: bool) -> None:
    made = Waiting if waits else SparkCompaction
    place = local_place(root)
    blocks = await place.open(SystemClock())
    with tempfile.TemporaryDirectory() as folder, spark_session(Path(folder)) as spark:

        def rows(epoch: Epoch) -> SparkCompaction:
            return made(spark, place, namespace, epoch)

        done = await compact(blocks, namespace, rows, SystemClock(), keep_us=DAY_US)
    assert done is not None
    await blocks.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], waits="--wait" in sys.argv))

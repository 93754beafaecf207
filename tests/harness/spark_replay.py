"""Replays a journal with Spark, in a process of its own, and never writes the result."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from spark_lakes import local_place, spark_session

from tarn.rpc.process.system import SystemClock
from tarn_spark.journal.rebuild import SparkReplay


async def main(root: Path, namespace: str) -> None:
    place = local_place(root)
    blocks = await place.open(SystemClock())
    with tempfile.TemporaryDirectory() as folder, spark_session(Path(folder)) as spark:
        await SparkReplay(spark, place, blocks, namespace).run()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))

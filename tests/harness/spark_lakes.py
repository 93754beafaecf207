"""A Spark session in the process of a test, and lakes whose blocks executors can open."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from collected_lake import CollectedLake
from pyspark.sql import SparkSession
from spark_jobs import QUICK_JAVA
from tests.support.clock import RestlessClock

from tarn.block.opening import BlockPlace
from tarn.config import load

__all__ = ["SMALL_SESSION", "SPARK_HERE", "java_home", "local_lake", "local_place", "spark_session"]

SMALL_SESSION = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
ROOT = Path(__file__).parents[2]

SPARK_HERE = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # py4j leaves its sockets to Python's garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
"""Marks of tests whose own process has the session."""


def java_home() -> str:
    """Returns the folder of Java."""
    java = subprocess.run(
        [str(ROOT / "tools" / "java-home")], capture_output=True, text=True, check=True
    )
    return java.stdout.strip()


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """Yields a session with two threads; it ends with the block."""
    from tarn_spark.collection.session import session_builder

    os.environ["JAVA_HOME"] = java_home()
    builder = session_builder("local[2]")
    for key, value in SMALL_SESSION.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.local.dir", str(folder)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def local_place(root: Path) -> BlockPlace:
    """Returns the place of a local store."""
    return BlockPlace.of(
        load(None, {"TARN_BLOCKSTORE_LOCAL_PATH": str(root), "TARN_DURABILITY": "os"})
    )


@asynccontextmanager
async def local_lake(folder: Path, place: BlockPlace) -> AsyncIterator[CollectedLake]:
    """Yields a lake on local blocks, whose times are those of the lake's clock."""
    clock = RestlessClock()
    store = await place.open(clock)
    try:
        yield CollectedLake(folder, clock, store=store)
    finally:
        await store.close()

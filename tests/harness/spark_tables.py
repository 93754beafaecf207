"""What Spark jobs of the tests share: Iceberg and Delta, the `tarn` command, and another key in the middle of a job."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tarn_spark.session import Lake, spark_settings

__all__ = ["DELTA", "ICEBERG", "become", "cpu_seconds", "iceberg_in", "lake_of_main", "tarn"]

DELTA = "io.delta.sql.DeltaSparkSessionExtension"
ICEBERG = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def iceberg_in(bucket: str) -> dict[str, str]:
    """Returns the settings of docs/user/spark.md: the catalog `ice` is a folder of the bucket."""
    return {
        "spark.sql.extensions": ICEBERG,
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": f"s3a://{bucket}/warehouse",
    }


def lake_of_main() -> Lake:
    """Returns the lake with the administrator's key, for which a bucket shows what its view says."""
    return Lake(*(os.environ[name] for name in ("LAKE_ENDPOINT", "LAKE_KEY", "LAKE_SECRET")))


def become(spark: SparkSession, lake: Lake) -> SparkSession:
    """Has later requests of this process use another key; returns a session without anything cached.

    Hadoop keeps one file system for each bucket, whatever the key is.
    """
    java: Any = spark
    java._jvm.org.apache.hadoop.fs.FileSystem.closeAll()
    settings = java.sparkContext._jsc.hadoopConfiguration()
    settings.unset("fs.s3a.session.token")
    for name, value in spark_settings(lake).items():
        settings.set(name.removeprefix("spark.hadoop."), value)
    return spark.newSession()


def tarn(*arguments: str) -> Any:
    """Runs a command of the administrator; it must succeed."""
    folder = Path(os.environ["LAKE_BIN"])
    command = [str(folder / "tarn"), "--settings", os.environ["LAKE_SETTINGS"], "--json"]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"tarn {' '.join(arguments)}: {done.stderr}"
    return json.loads(done.stdout) if done.stdout.strip() else None


def cpu_seconds(spark: SparkSession) -> float:
    """Returns the processor time of the driver's Java."""
    java: Any = spark
    handle = java._jvm.java.lang.ProcessHandle.current()
    return float(handle.info().totalCpuDuration().get().toMillis()) / 1000

"""The Spark session of a garbage collection: `tarn gc run --spark` (docs/operate/gc.md)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["session_builder", "started"]

_LOCAL: Final = "local"


def started(master: str, settings: Mapping[str, str], *, is_local_store: bool) -> SparkSession:
    """Starts Spark.

    Args:
        master: see `session_builder`.
        settings: of Spark.
        is_local_store: the blocks are in a folder of this machine.

    Raises:
        TarnError: INVALID, the executors could not reach the block store.
    """
    if master and is_local_store:
        _refuse_far(master)
    builder = session_builder(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    if is_local_store:
        try:
            _refuse_far(str(spark.sparkContext.master))
        except TarnError:
            spark.stop()
            raise
    return spark


def session_builder(master: str = "") -> SparkSession.Builder:
    """Returns the builder of the job's session.

    Args:
        master: where Spark runs; empty: what spark-submit says, and without it this machine.
    """
    builder = SparkSession.builder.appName("tarn-gc").config(
        "spark.ui.showConsoleProgress", "false"
    )
    if not master and "PYSPARK_GATEWAY_PORT" not in os.environ:  # not started by spark-submit
        master = "local[*]"
    if master:
        builder = builder.master(master)
    if _is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need the same packages
        builder = (
            builder.config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
        )
    return builder


def _is_local(master: str) -> bool:
    """Returns whether the executors are threads of the driver."""
    return master == _LOCAL or master.startswith(f"{_LOCAL}[")


def _refuse_far(master: str) -> None:
    if not _is_local(master):
        text = (
            f"the blocks are in a folder of this machine, which executors of {master} do not have; "
            "run it with --master local[*], or without --spark"
        )
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)

"""Garbage collection on Spark: `tarn gc run` for large lakes (docs/operate/gc.md).

    python -m tarn_spark.gc --repository lake --dry-run
    spark-submit --master MASTER jobs/tarn_spark/gc.py --config tarn.yaml --repository lake

It takes the settings and options of `tarn gc run`, and ends with its exit codes. A mark of one can be swept by the
other. Executors need the package `tarn`, and reach the block store; only the driver talks to graveler.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tarn_cli.__main__ import run_command
from tarn_cli.app import open_session, session_options
from tarn_cli.collecting import (
    COLLECTION_NAMES,
    CollectionPlan,
    collect,
    collection_options,
    plan_of,
)
from tarn_cli.exits import CliError, Exit

if TYPE_CHECKING:  # Spark takes a second to import; `--help` does without
    from pyspark.sql import SparkSession

__all__ = ["gc", "main", "session_builder"]


def _pairs(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Parses KEY=VALUE."""
    for each in given:
        if "=" not in each:
            raise click.UsageError(f"--conf takes KEY=VALUE, not {each!r}")
    return tuple((key, value) for key, _, value in (each.partition("=") for each in given))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@session_options
@click.option(
    "--repository",
    "repositories",
    multiple=True,
    help="A repository; may be given more than once.  [default: all]",
)
@collection_options
@click.option(
    "--master",
    default="",
    help="Where Spark runs.  [default: what spark-submit says; without it local[*]]",
)
@click.option(
    "--conf",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_pairs,
    help="A setting of Spark; may be given more than once.",
)
@click.pass_context
def gc(
    context: click.Context,
    /,
    repositories: tuple[str, ...],
    master: str,
    settings: tuple[tuple[str, str], ...],
    **values: Any,  # noqa: ANN401 - click's values
) -> None:
    """Do the phase that is due in these repositories, or in all, on Spark: sweep the last mark, or mark.

    Ctrl-C stops it between two requests; the next run goes on.
    """
    own = {name: values.pop(name) for name in COLLECTION_NAMES}
    session = open_session(context, **values)
    plan = plan_of(session, repositories, own)
    from tarn.block.opening import BlockPlace
    from tarn_spark.collection.engine import SparkEngine

    spark = _started(plan, master, settings)
    try:
        collect(session, plan, SparkEngine(spark, BlockPlace.of(plan.config)))
    finally:
        spark.stop()


def session_builder(master: str = "") -> SparkSession.Builder:
    """Returns the builder of the job's session.

    Args:
        master: where Spark runs; empty: what spark-submit says, and without it this machine.
    """
    from pyspark.sql import SparkSession

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
    return master == "local" or master.startswith("local[")


def _started(
    plan: CollectionPlan, master: str, settings: Sequence[tuple[str, str]]
) -> SparkSession:
    """Starts Spark.

    Raises:
        CliError: USAGE, the executors could not reach the block store.
    """
    if master:
        _refuse_far(plan, master)
    builder = session_builder(master)
    for key, value in settings:
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    try:
        _refuse_far(plan, str(spark.sparkContext.master))
    except CliError:
        spark.stop()
        raise
    return spark


def _refuse_far(plan: CollectionPlan, master: str) -> None:
    """Refuses executors on other machines if the blocks are on this one.

    Raises:
        CliError: USAGE.
    """
    if plan.config.blockstore.type == "local" and not _is_local(master):
        text = (
            f"the blocks are in a folder of this machine, which executors of {master} do not have"
        )
        raise CliError(Exit.USAGE, text, "run it with --master local[*], or use `tarn gc run`")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the job. Exits the process."""
    sys.exit(run_command(gc, "tarn_spark.gc", sys.argv[1:] if arguments is None else arguments))


if __name__ == "__main__":
    main()

"""The options of commands that may run on Spark, and its session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tarn_cli.exits import CliError, Exit

if TYPE_CHECKING:  # imported when a command runs
    from pyspark.sql import SparkSession

    from tarn.config import Config

__all__ = ["check_spark_options", "spark_on", "spark_options"]


def _pairs(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """Parses KEY=VALUE."""
    for each in given:
        if "=" not in each:
            raise click.UsageError(f"--conf takes KEY=VALUE, not {each!r}")
    return {key: value for key, _, value in (each.partition("=") for each in given)}


def spark_options(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that adds `--spark`, `--master` and `--conf` to a command, as `on_spark`, `master` and
    `settings`; `text` is the help of the first."""
    options = (
        click.option("--spark", "on_spark", is_flag=True, help=text),
        click.option(
            "--master",
            default="",
            help="With --spark: where Spark runs.  [default: what spark-submit says; without it local[*]]",
        ),
        click.option(
            "--conf",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            callback=_pairs,
            help="With --spark: a setting of Spark; may be given more than once.",
        ),
    )

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def check_spark_options(*, on_spark: bool, master: str, settings: Mapping[str, str]) -> None:
    """Does nothing if the options go together.

    Raises:
        UsageError: they do not.
    """
    if not on_spark and (master or settings):
        raise click.UsageError("--master and --conf go with --spark")


@contextmanager
def spark_on(config: Config, master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Starts Spark for the block, whose executors reach the block store of a configuration.

    Raises:
        CliError: USAGE, PySpark is not installed.
        TarnError: INVALID, the executors could not reach the block store.
    """
    try:
        from tarn_spark.collection.session import started
    except ModuleNotFoundError as error:
        text = f"--spark needs the package {error.name}, which is not installed"
        raise CliError(Exit.USAGE, text, "install tarn with its extra `jobs`") from error
    spark = started(master, settings, is_local_store=config.blockstore.type == "local")
    try:
        yield spark
    finally:
        spark.stop()

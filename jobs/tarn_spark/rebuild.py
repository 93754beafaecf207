"""Replays the journal of a large repository in Spark, for `tarn rebuild` and `tarn repo rebuild`.

    python -m tarn_spark.rebuild s3://bucket/lake-1f2e3d4c lake.replayed --config tarn.yaml
    spark-submit --master spark://head:7077 --conf spark.executor.memory=4g jobs/tarn_spark/rebuild.py …

Writes the listings of uncommitted changes into the bucket, and a small file here: `tarn rebuild --replayed` takes it
over (docs/operate/disaster.md). It needs the bucket alone. If it dies, run it again.

Exit code 7: files are damaged or missing; the rest is replayed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from tarn.block.opening import BlockPlace
from tarn.config import Config, ConfigError, load
from tarn.core.errors import TarnError
from tarn.core.moments import iso_seconds
from tarn.journal.replayed import ReplayedJournal, save_replayed
from tarn.rpc.process.system import SystemClock
from tarn_spark.collection.session import started
from tarn_spark.journal.rebuild import SESSION_SETTINGS, SparkReplay

__all__ = ["main"]

_FINDINGS: Final = 7


def parse_arguments() -> argparse.Namespace:
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tarn_spark.rebuild",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("storage_namespace", help="where the repository's blocks are")
    parser.add_argument("result", type=Path, help="the file for --replayed; replaced if it exists")
    parser.add_argument("--config", type=Path, help="configuration of the services, YAML")
    parser.add_argument("--data-dir", type=Path, help="data folder, as in `tarn up`")
    parser.add_argument("--master", default="", help="where Spark runs, without spark-submit")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark"
    )
    return parser.parse_args()


def main() -> None:
    """Runs the job."""
    arguments = parse_arguments()
    if unclear := [each for each in arguments.conf if "=" not in each]:
        raise SystemExit(f"--conf takes KEY=VALUE, not {unclear[0]!r}")
    settings = SESSION_SETTINGS | dict(each.split("=", 1) for each in arguments.conf)
    variables = dict(os.environ)
    if arguments.data_dir is not None:
        variables["TARN_DATA_DIR"] = str(arguments.data_dir)
    try:
        config = load(arguments.config, variables)
        replayed = replay(config, arguments.storage_namespace, arguments.master, settings)
        save_replayed(arguments.result, replayed)
    except (ConfigError, TarnError, OSError) as error:
        raise SystemExit(f"error: {error}") from error
    report = replayed.report
    lines = [*report.lines()]
    lines += [
        f"uncommitted changes of branch {each.branch_id} are lost: {each.problem}"
        for each in replayed.listings
        if each.metarange_id is None
    ]
    print(
        f"replayed {report.events} events: {len(replayed.records)} records, "
        f"{sum(each.rows for each in replayed.listings)} uncommitted changes of {len(replayed.listings)} branches; "
        f"complete up to {iso_seconds(report.drained_until_us)}"
    )
    for line in lines:
        print(f"damaged: {line}")
    print(f"take it over with `tarn rebuild --replayed {arguments.result}`, or `tarn repo rebuild`")
    sys.exit(_FINDINGS if lines else 0)


def replay(
    config: Config, namespace: str, master: str, settings: dict[str, str]
) -> ReplayedJournal:
    """Replays the journal in a namespace.

    Raises:
        TarnError: as `SparkReplay.run`; INVALID: the executors could not reach the block store.
    """
    spark = started(master, settings, is_local_store=config.blockstore.type == "local")
    place = BlockPlace.of(config)

    async def work() -> ReplayedJournal:
        blocks = await place.open(SystemClock())
        try:
            return await SparkReplay(spark, place, blocks, namespace.rstrip("/")).run()
        finally:
            await blocks.close()

    try:
        return asyncio.run(work())
    finally:
        spark.stop()


if __name__ == "__main__":
    main()

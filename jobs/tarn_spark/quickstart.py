"""The main job: demonstrates branches with Spark on real files.

    python -m tarn_spark.quickstart --settings .tarn/credentials --jars FOLDER --tarn .venv/bin/tarn

Writes trips to `main` as partitioned Parquet and commits them. Creates a branch, rewrites one day and
drops another there, and commits that. Reads both versions in one Spark query. Then merges the branch into `main`.
The next run does the same on a new branch. The job uses the `tarn` command, as a person would, to commit,
branch, compare and merge.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tarn_spark.session import Lake, spark_session

__all__ = ["main"]

DAYS = ("2026-05-01", "2026-05-02", "2026-05-03")
TRIPS_PER_DAY = 10_000


@dataclass(frozen=True, slots=True)
class Tarn:
    """The `tarn` command with its settings."""

    program: str
    settings: Path

    def __call__(self, *arguments: str) -> Any:  # noqa: ANN401 - any JSON
        """Runs a command and returns its JSON output; exits if the command fails."""
        command = [self.program, "--settings", str(self.settings), *arguments, "--json"]
        print(f"$ tarn {' '.join(arguments)}", flush=True)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise SystemExit(f"tarn {arguments[0]} failed: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else None


def trips(spark: SparkSession, days: tuple[str, ...], fare: float) -> DataFrame:
    """Generated taxi trips, the same on every run: columns `trip` (int), `fare` (number), `day` (string).

    Args:
        spark: session.
        days: the days, as `yyyy-mm-dd`; each gets `TRIPS_PER_DAY` rows.
        fare: lowest fare; fares are up to 16 higher.
    """
    rows = spark.range(len(days) * TRIPS_PER_DAY)
    day = f.element_at(f.array(*map(f.lit, days)), (f.col("id") % len(days) + 1).cast("int"))
    return rows.select(
        f.col("id").alias("trip"),
        (f.lit(fare) + f.col("id") % 17).alias("fare"),
        day.alias("day"),
    )


def write(frame: DataFrame, where: str) -> None:
    """Writes one folder per day and replaces the existing data.

    Args:
        frame: columns of `trips`.
        where: `s3a://` URL of the table.
    """
    frame.write.mode("overwrite").partitionBy("day").parquet(where)


def load_main(spark: SparkSession, tarn: Tarn, repository: str) -> None:
    """Writes and commits the first version, on `main`."""
    write(trips(spark, DAYS, 10.0), f"s3a://{repository}/main/trips")
    made = tarn("commit", f"{repository}/main", "-m", "Load three days of trips", "--allow-empty")
    print(
        f"  {made['commit'][:12]}: {made['added']} new objects, {made['changed']} changed, {made['removed']} removed\n"
    )


def fix_on_branch(spark: SparkSession, tarn: Tarn, repository: str, branch: str) -> None:
    """Writes and commits the second version, on a branch; `main` stays unchanged."""
    tarn("branch", "create", f"{repository}/{branch}", "--from", "main")
    folder = f"{repository}/{branch}/trips"
    fixed = trips(spark, DAYS[1:2], 20.0).drop("day")
    fixed.write.mode("overwrite").parquet(f"s3a://{folder}/day={DAYS[1]}")
    tarn("fs", "rm", "-r", f"{folder}/day={DAYS[2]}/")
    tarn("commit", f"{repository}/{branch}", "-m", f"Correct {DAYS[1]}, drop {DAYS[2]}")


def show_diff(tarn: Tarn, repository: str, branch: str) -> None:
    """Prints the files that the branch changes."""
    signs = {"added": "+", "removed": "-", "changed": "~"}
    for change in tarn("diff", f"{repository}/main", f"{repository}/{branch}"):
        print(f"  {signs[change['change']]} {change['path']}")
    print()


def compare(spark: SparkSession, repository: str, branch: str) -> list[tuple[str, Any, Any]]:
    """Compares both versions in one query.

    Returns:
        One row per day in order: the day, its average fare on `main`, and its average fare on the branch,
        None if the branch has no such day.
    """
    main = (
        spark.read.parquet(f"s3a://{repository}/main/trips")
        .groupBy("day")
        .agg(f.round(f.avg("fare"), 2).alias("on_main"))
    )
    fixed = (
        spark.read.parquet(f"s3a://{repository}/{branch}/trips")
        .groupBy("day")
        .agg(f.round(f.avg("fare"), 2).alias("on_branch"))
    )
    rows = main.join(fixed, "day", "left").orderBy("day").collect()
    return [(str(row["day"]), row["on_main"], row["on_branch"]) for row in rows]


def merge_into_main(spark: SparkSession, tarn: Tarn, repository: str, branch: str) -> list[str]:
    """Merges the branch; returns the days that `main` has now."""
    names = (f"{repository}/{branch}", f"{repository}/main")
    made = tarn("merge", *names, "-m", f"Take the corrections of {branch}")
    print(f"  {made['commit'][:12]} merges {branch} into main")
    days = spark.read.parquet(f"s3a://{repository}/main/trips").select("day").distinct()
    return sorted(str(row["day"]) for row in days.collect())


def next_branch(tarn: Tarn, repository: str) -> str:
    """The first of `fix-1`, `fix-2`, … that does not exist."""
    taken = {each["branch"] for each in tarn("branch", "list", repository, "--prefix", "fix-")}
    return next(name for n in range(1, len(taken) + 2) if (name := f"fix-{n}") not in taken)


def parse_arguments() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description="Shows branches of a data lake with Spark.")
    parser.add_argument("--settings", type=Path, required=True, help="settings file of `tarn`")
    parser.add_argument(
        "--jars", type=Path, required=True, help="folder that tools/jars-dir prints"
    )
    parser.add_argument("--tarn", default="tarn", help="the command to run")
    parser.add_argument("--repository", default="lake")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark"
    )
    return parser.parse_args()


def main() -> None:
    """Runs the job."""
    arguments = parse_arguments()
    settings = yaml.safe_load(arguments.settings.read_text())
    lake = Lake(settings["endpoint"], settings["access_key_id"], settings["secret_access_key"])
    tarn, repository = Tarn(arguments.tarn, arguments.settings), arguments.repository
    tarn("repo", "create", repository, "--if-absent")
    branch = next_branch(tarn, repository)
    settings = dict(each.split("=", 1) for each in arguments.conf)
    spark = spark_session("tarn quickstart", lake, arguments.jars, settings=settings)
    try:
        load_main(spark, tarn, repository)
        fix_on_branch(spark, tarn, repository, branch)
        show_diff(tarn, repository, branch)
        compared = compare(spark, repository, branch)
        print(f"  average fare   main   {branch}")
        for day, on_main, on_branch in compared:
            print(f"  {day:<12} {on_main:>6} {on_branch if on_branch is not None else '-':>7}")
        print()
        days = merge_into_main(spark, tarn, repository, branch)
    finally:
        spark.stop()
    print(f"  days on main: {', '.join(days)}")
    expected = [(DAYS[0], False), (DAYS[1], True), (DAYS[2], True)]
    if [(day, on_main != on_branch) for day, on_main, on_branch in compared] != expected:
        raise SystemExit("the two versions differ from the data that this job wrote")
    if days != list(DAYS[:2]):
        raise SystemExit(f"after the merge main has the days {days}, not {list(DAYS[:2])}")


if __name__ == "__main__":
    main()

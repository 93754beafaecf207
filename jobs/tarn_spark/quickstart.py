"""The main job: what a branch is good for, shown with Spark on real files.

    python -m tarn_spark.quickstart --settings .tarn/credentials --jars FOLDER --tarn .venv/bin/tarn

Writes trips to `main` as partitioned Parquet and commits them; makes a branch; rewrites one day and drops
another on the branch and commits that; then reads both versions at once, in one Spark query. Run again, it
does the same on the next branch. Everything that it does to versions it does by the `tarn` command, as a
person would.
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

    def __call__(self, *arguments: str) -> Any:  # noqa: ANN401 - whatever the command's JSON is
        """Runs a command and returns what it prints; ends the job when it fails."""
        command = [self.program, "--settings", str(self.settings), *arguments, "--json"]
        print(f"$ tarn {' '.join(arguments)}", flush=True)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise SystemExit(f"tarn {arguments[0]} failed: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else None


def trips(spark: SparkSession, days: tuple[str, ...], fare: float) -> DataFrame:
    """Made-up taxi trips; the same on every run."""
    rows = spark.range(len(days) * TRIPS_PER_DAY)
    day = f.element_at(f.array(*map(f.lit, days)), (f.col("id") % len(days) + 1).cast("int"))
    return rows.select(
        f.col("id").alias("trip"),
        (f.lit(fare) + f.col("id") % 17).alias("fare"),
        day.alias("day"),
    )


def write(frame: DataFrame, where: str) -> None:
    """One folder per day, replacing what is there."""
    frame.write.mode("overwrite").partitionBy("day").parquet(where)


def load_main(spark: SparkSession, tarn: Tarn, repository: str) -> None:
    """The first version, on `main`."""
    write(trips(spark, DAYS, 10.0), f"s3a://{repository}/main/trips")
    made = tarn("commit", f"{repository}/main", "-m", "Load three days of trips", "--allow-empty")
    print(
        f"  {made['commit'][:12]}: {made['added']} new objects, {made['changed']} changed, {made['removed']} removed\n"
    )


def fix_on_branch(spark: SparkSession, tarn: Tarn, repository: str, branch: str) -> None:
    """The second version, on a branch: `main` does not see it."""
    tarn("branch", "create", f"{repository}/{branch}", "--from", "main")
    folder = f"{repository}/{branch}/trips"
    fixed = trips(spark, DAYS[1:2], 20.0).drop("day")
    fixed.write.mode("overwrite").parquet(f"s3a://{folder}/day={DAYS[1]}")
    tarn("fs", "rm", "-r", f"{folder}/day={DAYS[2]}/")
    tarn("commit", f"{repository}/{branch}", "-m", f"Correct {DAYS[1]}, drop {DAYS[2]}")


def show_diff(tarn: Tarn, repository: str, branch: str) -> None:
    """What the branch changes, by file."""
    signs = {"added": "+", "removed": "-", "changed": "~"}
    for change in tarn("diff", f"{repository}/main", f"{repository}/{branch}"):
        print(f"  {signs[change['change']]} {change['path']}")
    print()


def compare(spark: SparkSession, repository: str, branch: str) -> list[tuple[str, Any, Any]]:
    """Both versions in one query: average fare by day on `main` and on the branch."""
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


def next_branch(tarn: Tarn, repository: str) -> str:
    """`fix-1`, `fix-2`, …: the first that does not exist."""
    taken = {each["branch"] for each in tarn("branch", "list", repository, "--prefix", "fix-")}
    return next(name for n in range(1, len(taken) + 2) if (name := f"fix-{n}") not in taken)


def parse_arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description="Shows branches of a data lake with Spark.")
    parser.add_argument("--settings", type=Path, required=True, help="settings file of `tarn`")
    parser.add_argument(
        "--jars", type=Path, required=True, help="folder that tools/jars-dir prints"
    )
    parser.add_argument("--tarn", default="tarn", help="the command to run")
    parser.add_argument("--repository", default="lake")
    return parser.parse_args()


def main() -> None:
    """Runs the job."""
    arguments = parse_arguments()
    settings = yaml.safe_load(arguments.settings.read_text())
    lake = Lake(settings["endpoint"], settings["access_key_id"], settings["secret_access_key"])
    tarn, repository = Tarn(arguments.tarn, arguments.settings), arguments.repository
    tarn("repo", "create", repository, "--if-absent")
    branch = next_branch(tarn, repository)
    spark = spark_session("tarn quickstart", lake, arguments.jars)
    try:
        load_main(spark, tarn, repository)
        fix_on_branch(spark, tarn, repository, branch)
        show_diff(tarn, repository, branch)
        compared = compare(spark, repository, branch)
    finally:
        spark.stop()
    print(f"  average fare   main   {branch}")
    for day, on_main, on_branch in compared:
        print(f"  {day:<12} {on_main:>6} {on_branch if on_branch is not None else '-':>7}")
    expected = [(DAYS[0], False), (DAYS[1], True), (DAYS[2], True)]
    if [(day, on_main != on_branch) for day, on_main, on_branch in compared] != expected:
        raise SystemExit("the two versions are not what was written")


if __name__ == "__main__":
    main()

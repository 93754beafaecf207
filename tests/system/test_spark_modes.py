"""Spark's committers, table formats and streams, each in every mode.

On a branch through a bucket that a session key binds to it, and after the merge on `main` by the same addresses.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from running_tarn import RunningTarn
from slowness import scaled
from spark_jobs import as_admin, assert_nothing_is_left, driver, jars_of, run_job, set_up

JOB_SECONDS = 600

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(scaled(JOB_SECONDS) + 700),
    pytest.mark.in_form("single"),
]


class Job:
    """A branch, a bucket that shows `main`, and a session key for which the bucket shows the branch."""

    def __init__(self, tarn: RunningTarn, repository: str, folder: Path, line: str) -> None:
        self.tarn = tarn
        self.line = line
        self.repository = repository
        self.bucket = f"{repository}-sales"
        self.branch = "experiment"
        self.folder = folder

    def run(self, kind: str) -> dict[str, Any]:
        """Runs a job of `spark_modes.py`; returns what it has read."""
        bound = f"{self.repository}/{self.branch}"
        self.tarn.ok("branch", "create", bound, "--from", "main")
        self.tarn.ok("bucket", "create", self.bucket, "--to", f"{self.repository}/main")
        session = ("auth", "session", "create", "--bind", f"{self.bucket}={bound}")
        key = self.tarn.ok("--json", *session).json
        names = ("access_key_id", "secret_access_key", "session_token")
        if self.line == "3.5":
            python = f"{set_up('spark-3.5').splitlines()[-1]}/bin/python"
            jars = (jars_of("3.5"), jars_of("3.5") / "3.5")
        else:
            set_up("tables")
            python, jars = sys.executable, (jars_of(), jars_of("tables") / "tables")
        arguments = (kind, *map(str, jars), self.bucket, self.repository, self.branch)
        out = run_job(
            driver("spark_modes", *arguments, python=python),
            self.folder,
            {"SESSION_KEY": json.dumps([key[name] for name in names]), **as_admin(self.tarn)},
            seconds=JOB_SECONDS,
        )
        told: dict[str, Any] = json.loads(out.splitlines()[-1])
        assert told["main"] == told["branch"]
        return told


@pytest.fixture(params=["4.1", "3.5"])
def job(tarn: RunningTarn, repository: str, tmp_path: Path, request: pytest.FixtureRequest) -> Job:
    """Once for each line of Spark."""
    return Job(tarn, repository, tmp_path, request.param)


def ids(part: int, end: int) -> list[int]:
    """What `parts` of the job shows of the numbers of a partition that is a remainder by 5."""
    numbers = range(part, end, 5)
    return [part, len(numbers), sum(numbers)]


def test_each_committer_in_each_mode(job: Job, s3: Any) -> None:
    told = job.run("committers")
    kept = {part: ids(part, 50) for part in range(5)}
    appended = kept | {9: [9, 7, 21]}
    dynamic = appended | {2: [2, 10, sum(range(1000, 1010))]}
    replaced = dynamic | {9: [9, 3, 3]}
    by_sql = replaced | {1: [1, 4, 6], 3: [3, 5, 10]}
    written = {part: ids(part, 100) for part in range(5)}
    wanted = [list(each.values()) for each in (written, kept, appended, dynamic, replaced, by_sql)]
    steps = told["steps"]
    assert steps.pop("refused") == ["directory", "partitioned", "magic"]
    assert steps == dict.fromkeys(("file1", "file2", "directory", "partitioned", "magic"), wanted)
    assert told["main"]["tables"] == dict.fromkeys(steps, wanted[-1])
    moved = {part: [part % 8, 250, sum(range(part, 2000, 8))] for part in range(1, 8)}
    moved[7][0] = 8
    assert told["main"]["moved"] == list(moved.values())
    assert_nothing_is_left(s3, job.repository, ("main/", "experiment/"))


def test_tables_of_iceberg_and_delta(job: Job) -> None:
    told = job.run("tables")
    before = [[part, len(range(part, 100, 3)), sum(range(part, 100, 3))] for part in range(3)]
    assert told["main"]["iceberg_before"] == before
    assert told["main"]["delta_before"] == [*before, [9, 4, 6]]
    # Partition 1 was replaced, one row of 9 deleted, row 2 of partition 2 changed, and row 0 inserted there.
    wanted = [before[0], [1, 5, 10], [2, 34, before[2][2] + 1000], [9, 3, 3]]
    assert (told["main"]["delta"], told["main"]["iceberg"]) == (wanted, wanted)
    later = [*wanted[:3], [7, 2, 1], wanted[3]]
    assert (told["later"]["delta"], told["later"]["iceberg"]) == (later, later)
    from deltalake import DeltaTable

    options = {
        "AWS_ENDPOINT_URL": job.tarn.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": job.tarn.access_key_id,
        "AWS_SECRET_ACCESS_KEY": job.tarn.secret_access_key,
    }
    table = DeltaTable(f"s3://{job.bucket}/delta", storage_options=options)
    assert table.to_pyarrow_table().num_rows == sum(count for _, count, _ in later)


def test_a_stream_that_fails_goes_on_and_writes_each_row_once(job: Job) -> None:
    told = job.run("stream")
    assert told["steps"]["broken"] == ["renamed", "uploaded"]
    assert told["main"] == {name: list(range(20)) for name in ("renamed", "uploaded")}
    assert told["later"] == {name: list(range(30)) for name in ("renamed", "uploaded")}

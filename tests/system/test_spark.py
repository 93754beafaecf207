"""Spark on Tarn through S3A, with both committers, and the job of the quickstart."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from eager_tarn import fsck
from online_tarn import online_tarn, until_judged
from running_compactor import admin_of, eventually, listed, staging, status
from running_tarn import BIN, RunningTarn
from slowness import scaled
from spark_jobs import as_admin, assert_nothing_is_left, driver, jars_of, run_job, set_up

TASKS = int(os.environ.get("SPARK_TASKS", "60"))
"""Tasks of the job that churns; `make spark-churn` runs 10,000."""
JOB_SECONDS = max(240, TASKS // 2)
WORK = ("compactions", "rows_read", "rows_written", "tombstones_removed")
"""What `tarn compact status` counts."""

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(scaled(JOB_SECONDS) + 60)]


@pytest.fixture(scope="session")
def jars() -> Path:
    """The folder of Spark's S3 jars; `tools/setup jars` downloads them."""
    return jars_of()


@pytest.mark.in_form
@pytest.mark.on_cassandra("three")
def test_a_job_works_on_a_branch_and_later_in_main_by_the_same_addresses(
    tarn: RunningTarn, s3: Any, repository: str, jars: Path, tmp_path: Path
) -> None:
    """Every mode of the magic committer, dynamic partition overwrite, and an Iceberg table, whose metadata names its
    files by absolute addresses."""
    branch, bucket = "experiment", f"{repository}-sales"
    tarn.ok("branch", "create", f"{repository}/{branch}", "--from", "main")
    tarn.ok("bucket", "create", bucket, "--to", f"{repository}/main")
    bind = ("--bind", f"{bucket}={repository}/{branch}")
    key = tarn.ok("--json", "auth", "session", "create", *bind).json
    set_up("tables")
    arguments = (str(jars), str(jars_of("tables")), bucket, repository, branch)
    session = {
        "AWS_ACCESS_KEY_ID": key["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": key["secret_access_key"],
        "AWS_SESSION_TOKEN": key["session_token"],
    }
    command = driver("spark_branch_job", *arguments)
    out = run_job(command, tmp_path, session | as_admin(tarn))
    told = json.loads(out.splitlines()[-1])
    sys.stdout.write(f"cpu_seconds {told['cpu_seconds']}\n")
    assert told["written"] == [[part, 4000, sum(range(part, 20_000, 5))] for part in range(5)]
    kept = [[part, 20, sum(range(part, 100, 5))] for part in (0, 1, 3, 4)]
    wanted = [*kept[:2], [2, 10, sum(range(1000, 1010))], *kept[2:], [9, 7, 21]]
    assert told["parts"] == told["main_parts"] == wanted
    assert told["of_nothing"] == "PATH_NOT_FOUND"
    assert told["days"] == told["main_days"] == [["may", 6]]
    assert told["main_later"] == [["july", 1], ["may", 6]]
    success = s3.get_object(Bucket=bucket, Key="table/_SUCCESS")["Body"].read()
    assert json.loads(success)["committer"] == "magic", "of the last write, an append"
    assert_nothing_is_left(s3, repository, ("main/", f"{branch}/"))


@pytest.mark.long
@pytest.mark.on_cassandra("three", long=True)
def test_spark_round_trip(
    tarn: RunningTarn,
    s3: Any,
    repository: str,
    jars: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Separate services on the embedded store see the classic committer, the other forms the magic one."""
    committer = "classic" if request.node.callspec.params["tarn"] == "separate" else "magic"
    command = driver("spark_round_trip", str(jars), committer, repository)
    out = run_job(command, tmp_path, as_admin(tarn))
    told = json.loads(out.splitlines()[-1])
    assert told["first"] == [20_000, sum(range(20_000))]
    assert told["second"] == [[part, 20] for part in range(5)]
    assert told["third"] == 7
    success = s3.get_object(Bucket=repository, Key="main/table/_SUCCESS")["Body"].read()
    if committer == "magic":
        assert json.loads(success)["committer"] == "magic"
    else:
        assert success == b""
    assert_nothing_is_left(s3, repository, ("main/",))


@pytest.mark.long
@pytest.mark.in_form("separate")
@pytest.mark.on_cassandra("one", long=True)
def test_a_job_of_many_tasks_leaves_a_branch_that_lists_reads_and_commits_as_before(
    tarn: RunningTarn, s3: Any, repository: str, jars: Path, tmp_path: Path
) -> None:
    """Each task writes to `_temporary/`, renames its file, and the job renames it once more and deletes the folder.
    Nothing is committed meanwhile; the compactor folds the deletes. The test compares rows, not times."""
    for number in range(20):
        s3.put_object(Bucket=repository, Key=f"main/other/{number}", Body=b"x")
    tarn.ok("commit", f"{repository}/main", "-m", "before the job")
    costs = {"before": listing_cost(tarn, s3, repository)}
    before = status(tarn)
    began = time.monotonic()
    command = driver("spark_many_tasks", str(jars), repository, str(TASKS))
    out = run_job(command, tmp_path, as_admin(tarn), seconds=JOB_SECONDS)
    seconds = round(time.monotonic() - began)
    assert json.loads(out.splitlines()[-1]) == [TASKS, sum(range(TASKS))]
    eventually(lambda: staging(tarn, repository)["tombstones"] < 10, tarn)
    after = status(tarn)
    # Each task leaves two tombstones or more: of its attempt, and of the file that the job renamed.
    assert after["compactions"] > before["compactions"]
    assert after["tombstones_removed"] - before["tombstones_removed"] > TASKS
    costs["after"] = listing_cost(tarn, s3, repository)
    keys = listed(s3, repository)
    assert [key for key in keys if "_temporary" in key] == []
    files = [key for key in keys if key.startswith("main/table/part-")]
    assert (len(files), len(keys)) == (TASKS, TASKS + 22)
    # One row of a table file is read in as many layers as after a commit: its token, and one listing beneath.
    staged = staging(tarn, repository)
    assert (staged["sealed_tokens"], staged["complete"]) == (0, True)
    assert staged["staged_rows"] < 20, "the rows that a commit has to read"
    made = tarn.ok("--json", "commit", f"{repository}/main", "-m", "the job").json
    assert (made["added"], made["changed"], made["removed"]) == (TASKS + 2, 0, 0)
    assert listed(s3, repository) == keys
    costs["committed"] = listing_cost(tarn, s3, repository)
    told = {"tasks": TASKS, "seconds": seconds, "listings": costs, "staged": staged["staged_rows"]}
    told |= {name: after[name] - before[name] for name in WORK}
    sys.stdout.write(json.dumps(told) + "\n")
    assert [returned for _, returned in costs.values()] == [21, TASKS + 22, TASKS + 22]
    # The page before the job reads as many rows more than it returns as one after it, but there are more pages.
    extra = [read - returned for read, returned in costs.values()]
    pages = -(-len(keys) // 1000)
    assert extra[1] <= extra[0] + staged["staged_rows"] + 40 * pages
    # A few rows may be younger than the compaction; otherwise the listing reads what it reads after the commit.
    assert extra[1] <= extra[2] + 2 * staged["staged_rows"] + 10 * pages


def listing_cost(tarn: RunningTarn, s3: Any, repository: str) -> tuple[int, int]:
    """Returns the rows that a listing of `main` reads, and those that it returns."""

    async def cost() -> tuple[int, int]:
        async with admin_of(tarn) as admin:
            return await admin.listing_cost(s3, repository)

    return asyncio.run(cost())


@pytest.mark.in_form("single")
def test_the_job_of_the_quickstart_can_be_run_again(
    tarn: RunningTarn, jars: Path, tmp_path: Path
) -> None:
    repository = f"quick-{os.getpid()}-{tarn.form}"
    command = [
        *(sys.executable, "-m", "tarn_spark.quickstart", "--settings", str(tarn.settings)),
        *("--jars", str(jars), "--tarn", str(BIN / "tarn"), "--repository", repository),
    ]
    first = run_job(command, tmp_path)
    assert "days on main: 2026-05-01, 2026-05-02\n" in first
    run_job(command, tmp_path)
    branches = tarn.ok("--json", "branch", "list", repository).json
    assert [each["branch"] for each in branches] == ["fix-1", "fix-2", "main"]
    changes = tarn.ok("--json", "diff", f"{repository}/main~1", f"{repository}/fix-1").json
    assert {each["path"].split("/")[1] for each in changes} >= {"day=2026-05-02", "day=2026-05-03"}
    commits = tarn.ok("--json", "log", f"{repository}/main", "--first-parent").json
    assert [len(each["parents"]) for each in commits] == [2, 1, 2, 1, 0]


@pytest.mark.long
def test_the_temporary_objects_of_a_job_go(tmp_path: Path, jars: Path) -> None:
    """The classic committer makes folders and renames files. Renamed files are left to the garbage collection."""
    with online_tarn(tmp_path, "single") as tarn:
        lake = tarn.new_repository()
        command = driver("spark_round_trip", str(jars), "classic", lake)
        out = run_job(command, tmp_path, as_admin(tarn))
        told = json.loads(out.splitlines()[-1])
        assert told["second"] == [[part, 20] for part in range(5)]
        found = until_judged(tarn)
        codes = fsck(tarn)
        assert set(codes) <= {"block-orphan"}, "nothing live is missing"
        # The rest are files that the job renamed, and then overwrote.
        assert len(codes) <= found["copied"]
        # docs/design/online-deletion.md: with one replica more than half of the garbage, counted in blocks.
        assert found["deleted"] > len(codes)
        assert found["token-left"] == found["failed"] == found["queue-full"] == 0
        tarn.ok("commit", f"{lake}/main", "-m", "the table")

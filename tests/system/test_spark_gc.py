"""`tarn gc run --spark` as a process, on a real Tarn: killed, resumed, swept; on local blocks and in a bucket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from eager_tarn import GRACE_S, eager_tarn, fsck
from forgotten_reflogs import forget_reflog
from running_tarn import RunningTarn, clean_environment
from spark_lakes import SMALL_SESSION
from tests.support.servers.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server

ROOT = Path(__file__).parents[2]
CONFIG = """\
blockstore:
  type: s3
  default_namespace_prefix: s3://tarn/lakes
  s3:
    endpoint: {endpoint}
    force_path_style: true
    credentials:
      access_key_id: {key}
      access_secret_key: {secret}
"""
JOB_S = 200
LEASE_S = 20.0

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


class Job:
    """Runs `tarn gc run --spark` on a Tarn."""

    def __init__(self, tarn: RunningTarn, folder: Path, config: tuple[str, ...]) -> None:
        self._tarn = tarn
        self._folder = folder
        self.config = ("--data-dir", str(tarn.data), *config)

    @contextmanager
    def started(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Starts a job; kills it and its Java at the end, if they still run."""
        java = subprocess.run(
            [str(ROOT / "tools" / "java-home")], capture_output=True, text=True, check=True
        )
        settings = [f"--conf={key}={value}" for key, value in SMALL_SESSION.items()]
        with (self._folder / "spark.log").open("ab") as errors:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tarn_cli.node.lifeline", str(os.getpid())),
                    *(sys.executable, "-m", "tarn_cli", "--json"),
                    *("--settings", str(self._tarn.settings)),
                    *("gc", "run", "--spark", "--master", "local[2]"),
                    *settings,
                    *self.config,
                    *options,
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self._folder,
                env=clean_environment(
                    JAVA_HOME=java.stdout.strip(),
                    SPARK_LOCAL_IP="127.0.0.1",
                ),
                start_new_session=True,
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()

    def run(self, *options: str, code: int = 0) -> dict[str, object]:
        """Runs a job to its end; returns what it did in the one repository, or {} if it failed."""
        with self.started(*options) as process:
            out, _ = process.communicate(timeout=JOB_S)
        assert process.returncode == code, self.errors()
        rows = json.loads(out) if out.strip() else [{}]
        assert isinstance(rows[0], dict)
        return rows[0]

    def errors(self) -> str:
        return (self._folder / "spark.log").read_text(errors="replace")[-6000:]


@contextmanager
def lake_on(blocks: str, folder: Path) -> Iterator[tuple[RunningTarn, Job, Path]]:
    """Yields a Tarn, its job, and the folder below which its blocks are files."""
    if blocks == "local":
        with eager_tarn(folder, "single", lease_s=LEASE_S) as tarn:
            yield tarn, Job(tarn, folder, ()), tarn.data / "blocks"
        return
    with S3Server(folder / "s3") as server:
        config = folder / "tarn.yaml"
        keys = {"key": ACCESS_KEY_ID, "secret": SECRET_ACCESS_KEY}
        config.write_text(CONFIG.format(endpoint=server.endpoint, **keys))
        options = ("--config", str(config))
        with eager_tarn(folder, "single", *options, lease_s=LEASE_S) as tarn:
            yield tarn, Job(tarn, folder, options), folder / "s3"


def let_a_commit_expire(tarn: RunningTarn, lake: str, folder: Path) -> str:
    """Makes commits and rules by which the next mark lets one expire; returns it. It has two objects of its own."""
    rules = {
        "branches": [{"match": "main", "keep_commits": 1}],
        "objects": {"keep_listed_on": ["main"]},
    }
    (folder / "rules.json").write_text(json.dumps(rules))
    tarn.ok("retention", "set", lake, str(folder / "rules.json"))
    s3 = tarn.s3()
    s3.put_object(Bucket=lake, Key="main/listed", Body=b"1")
    s3.put_object(Bucket=lake, Key="main/gone", Body=b"1")
    old = tarn.ok("commit", f"{lake}/main", "-m", "old", "--json").json["commit"]
    s3.delete_object(Bucket=lake, Key="main/gone")
    for body in (b"2", b"3"):  # the record of the branch names the last two commits
        s3.put_object(Bucket=lake, Key="main/listed", Body=body)
        tarn.ok("commit", f"{lake}/main", "-m", "newer")
    forget_reflog(tarn, lake)
    return str(old)


def check_expired(tarn: RunningTarn, lake: str, old: str) -> None:
    """Checks what a sweep left of the commit of `let_a_commit_expire`."""
    s3 = tarn.s3()
    kept = s3.get_object(Bucket=lake, Key=f"{old}/listed")["Body"].read()
    assert kept == b"1", "main has the path"
    with pytest.raises(ClientError, match="keep_commits 1") as refused:
        s3.get_object(Bucket=lake, Key=f"{old}/gone")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 410


def kill_a_mark(job: Job, lake: str, files: Path) -> None:
    """Kills a mark after it wrote its roots, and waits until its lease has ended."""
    with job.started(lake) as mark:
        deadline = time.monotonic() + JOB_S
        while not list(files.rglob("collection/*/roots/*")):
            assert mark.poll() is None, job.errors()
            assert time.monotonic() < deadline, job.errors()
            time.sleep(0.02)
    assert not list(files.rglob("collection/*/manifest.json")), "it was killed too late"
    time.sleep(LEASE_S + 0.5)


def kill_a_sweep(job: Job, lake: str, files: Path, doomed: int) -> None:
    """Kills a sweep after it deleted an object, and waits until its lease has ended. It deletes one in two seconds."""

    def objects() -> set[str]:
        found = (path for path in files.rglob("data/*/*") if "_tarn" not in path.parts)
        return {path.name for path in found}

    before = objects()
    options = ("--only", "sweep", "--batch", "1", "--rate", "0.5")
    with job.started(lake, *options) as sweep:
        deadline = time.monotonic() + JOB_S
        while before <= objects():
            assert sweep.poll() is None, job.errors()
            assert time.monotonic() < deadline, job.errors()
            time.sleep(0.02)
    assert 0 < len(before - objects()) < doomed, "it was killed too late"
    time.sleep(LEASE_S + 0.5)


@pytest.mark.parametrize(
    ("blocks", "killed"),
    [
        ("local", "mark"),
        pytest.param("s3", "sweep", marks=pytest.mark.long),  # four minutes
        pytest.param("s3", "mark", marks=pytest.mark.long),
    ],
)
def test_garbage_goes_although_a_run_is_killed(tmp_path: Path, blocks: str, killed: str) -> None:
    """Bodies of 10 bytes are rows of the sqlite file, those of 100,000 bytes are files.

    With local blocks, a commit expires, too; both engines take and keep the same of it, and the sweep is made without
    Spark. Rules do not depend on the store.
    """
    has_rules = blocks == "local"
    doomed, listed = (5, 13) if has_rules else (4, 9)
    with lake_on(blocks, tmp_path) as (tarn, job, files):
        lake = tarn.new_repository()
        bodies = {f"{size}/{name}": name.encode() * size for size in (10, 100_000) for name in "ab"}
        for path, body in bodies.items():
            tarn.ok("fs", "upload", "-", f"{lake}/main/{path}", stdin=b"x" * len(body))
            tarn.ok("fs", "upload", "-", f"{lake}/main/{path}", stdin=body)
        tarn.ok("commit", f"{lake}/main", "-m", "two sizes")
        old = let_a_commit_expire(tarn, lake, tmp_path) if has_rules else ""
        tarn.ok("fs", "upload", "-", f"{lake}/main/new", stdin=b"new")
        time.sleep(1.5)

        if killed == "mark":
            kill_a_mark(job, lake, files)
        marked = job.run()
        assert marked["did"] == "mark"
        assert str(marked["data_candidates"]).startswith(f"{doomed} of {listed} "), marked
        if has_rules:
            options = ("--dry-run", "--json", "--data-dir", str(tarn.data))
            planned = tarn.ok("gc", "run", lake, *options, timeout=120).json[0]
            assert planned["data_candidates"] == marked["data_candidates"], "without Spark"
        time.sleep(GRACE_S + 0.5)
        if has_rules:  # what Spark has marked is swept without Spark
            sweep = ("--only", "sweep", "--json", "--data-dir", str(tarn.data))
            swept = tarn.ok("gc", "run", lake, *sweep, timeout=120).json[0]
        else:
            if killed == "sweep":
                kill_a_sweep(job, lake, files, doomed)
            swept = job.run("--only", "sweep", lake)
        assert str(swept["deleted"]).startswith(f"{doomed} (195.3 KiB"), swept
        if has_rules:
            check_expired(tarn, lake, old)
        assert fsck(tarn, *job.config) == []
        for path, body in {**bodies, "new": b"new"}.items():
            assert tarn.ok("fs", "cat", f"{lake}/main/{path}").out.encode() == body
        status = tarn.ok("gc", "status", lake, "--json").json
        assert (status["last_sweep"]["deleted"], status["phase"]) == (doomed, "idle")
        told = tarn.ok("gc", "report", lake, "--json", *job.config).json
        assert (told["mark"], told["deleted"]) == (marked["mark"], f"{doomed} (195.3 KiB)")


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_mark_releases_its_lease(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """The lease is longer than the test."""
    with eager_tarn(tmp_path, "single", lease_s=600) as tarn:
        lake, job = tarn.new_repository(), Job(tarn, tmp_path, ())
        for body in (b"old", b"new"):
            tarn.ok("fs", "upload", "-", f"{lake}/main/a", stdin=body)
        tarn.ok("commit", f"{lake}/main", "-m", "one")
        files = tarn.data / "blocks"
        with job.started(lake) as mark:
            deadline = time.monotonic() + JOB_S
            while tarn.ok("gc", "status", lake, "--json").json["phase"] == "idle":
                assert mark.poll() is None, job.errors()
                assert time.monotonic() < deadline, job.errors()
            mark.send_signal(number)
            assert mark.wait(JOB_S) == code, job.errors()
        assert not list(files.rglob("collection/*/*"))
        assert tarn.ok("gc", "status", lake, "--json").json["phase"] == "idle"
        done = tarn.ok("gc", "run", "--json", lake, "--data-dir", str(tarn.data), timeout=120)
        assert json.loads(done.out)[0]["did"] == "mark"

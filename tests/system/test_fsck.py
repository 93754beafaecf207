"""`tarn fsck` on real stores: while Tarn runs, after it has stopped, and on Cassandra."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from cassandra_proxies import kv_url
from running_tarn import BIN, Done, RunningTarn, clean_environment, running_tarn
from tests.support.servers.cassandra_nodes import CassandraNodes


def fsck(data: Path, *options: str, timeout: float = 120) -> Done:
    """Runs the command without the settings of a running Tarn, which it does not need."""
    command = [str(BIN / "tarn"), "fsck", "--data-dir", str(data), *options]
    done = subprocess.run(
        command, capture_output=True, timeout=timeout, env=clean_environment(), check=False
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def codes(done: Done) -> list[str]:
    """Returns the findings."""
    return [each["code"] for each in done.json["findings"]]


def test_a_running_tarn_is_clean(tarn: RunningTarn, repository: str) -> None:
    for name in ("a", "b"):
        tarn.ok("fs", "upload", "-", f"{repository}/main/{name}", stdin=name.encode() * 100_000)
    tarn.ok("commit", f"{repository}/main", "-m", "two")
    tarn.ok("fs", "upload", "-", f"{repository}/main/c", stdin=b"c")
    done = fsck(tarn.data, "--repository", repository, "--verify-data", "--grace-hours", "0")
    assert (done.code, done.out) == (0, ""), done.err
    assert "no data is missing or inconsistent" in done.err


def test_damage_is_found_while_tarn_runs_and_after_it_stopped(tmp_path: Path) -> None:
    with running_tarn(tmp_path, "single") as tarn:
        repository = tarn.new_repository()
        tarn.ok("fs", "upload", "-", f"{repository}/main/raw/a", stdin=b"a" * 100_000)
        tarn.ok("fs", "upload", "-", f"{repository}/main/raw/b", stdin=b"b")
        tarn.ok("commit", f"{repository}/main", "-m", "two")
        assert fsck(tarn.data).code == 0
        (block,) = (tarn.data / "blocks").glob("*/data/*/*")
        body = block.read_bytes()
        block.write_bytes(body[:-1])
        running = fsck(tarn.data, "--json")
        assert (running.code, codes(running)) == (7, ["block-size"])
        assert "'raw/a'" in running.json["findings"][0]["detail"]
    block.unlink()
    before = snapshot(tarn.data)
    stopped = fsck(tarn.data, "--json")
    assert (stopped.code, codes(stopped)) == (7, ["block-missing"])
    assert snapshot(tarn.data) == before, "a check changes nothing"


@pytest.mark.cassandra
def test_damage_is_found_on_cassandra(tmp_path: Path, cassandra_nodes: CassandraNodes) -> None:
    kv = ("--kv", kv_url(cassandra_nodes, f"fsck_{os.getpid()}"))
    with running_tarn(tmp_path, "single", *kv) as tarn:
        repository = tarn.new_repository()
        tarn.ok("fs", "upload", "-", f"{repository}/main/raw/a", stdin=b"a" * 100_000)
        tarn.ok("commit", f"{repository}/main", "-m", "one")
        tarn.ok("fs", "upload", "-", f"{repository}/main/raw/b", stdin=b"b" * 100_000)
        clean = fsck(tarn.data, *kv, "--verify-data", "--json", "--strict")
        assert (clean.code, codes(clean)) == (0, []), clean.err
        for block in (tarn.data / "blocks").glob("*/data/*/*"):
            block.unlink()
    stopped = fsck(tarn.data, *kv, "--json")
    assert (stopped.code, codes(stopped)) == (7, ["block-missing"] * 2)


def snapshot(data: Path) -> dict[str, bytes]:
    """Returns the stored files. sqlite's side files are left out: they hold no data after a checkpoint."""
    files = (path for folder in ("kv", "blocks") for path in (data / folder).rglob("*"))
    return {
        str(path): path.read_bytes()
        for path in files
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


def test_an_interrupted_check_resumes(tarn: RunningTarn, repository: str, tmp_path: Path) -> None:
    tarn.ok("fs", "upload", "-", f"{repository}/main/a", stdin=b"a")
    tarn.ok("commit", f"{repository}/main", "-m", "one")
    options = ("--repository", repository, "--state", str(tmp_path / "state"))
    command = [str(BIN / "tarn"), "fsck", "--data-dir", str(tarn.data), *options, "--rate", "0.5"]
    process = subprocess.Popen(command, env=clean_environment(), stderr=subprocess.PIPE)
    try:
        while not catches(process, signal.SIGTERM):
            assert process.poll() is None
            os.sched_yield()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, b"resumes from here" in said) == (128 + signal.SIGTERM, True), said
    done = fsck(tarn.data, *options, "--json")
    assert (done.code, codes(done)) == (0, [])


def catches(process: subprocess.Popen[bytes], number: int) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_a_missing_repository_ref_or_store_is_reported(tmp_path: Path, tarn: RunningTarn) -> None:
    nowhere = fsck(tmp_path / "nowhere")
    assert (nowhere.code, "there is no metadata store" in nowhere.err) == (3, True)
    assert not (tmp_path / "nowhere").exists(), "a check creates nothing"
    assert fsck(tarn.data, "--repository", "missing").code == 3

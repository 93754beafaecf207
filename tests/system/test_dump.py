"""`tarn repo dump`, `restore` and `recover` from the command line, on one node and against separate services."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from running_tarn import RunningTarn


@pytest.fixture
def filled(tarn: RunningTarn, s3: Any, repository: str) -> str:
    """A repository with two branches, a tag, a rule, and an object that is large enough to be a file."""
    for path, body in {"raw/a": b"1", "raw/é": b"x" * 100_000}.items():
        s3.put_object(Bucket=repository, Key=f"main/{path}", Body=body)
    tarn.ok("commit", f"{repository}/main", "-m", "one")
    tarn.ok("branch", "create", f"{repository}/dev", "--from", "main")
    s3.put_object(Bucket=repository, Key="dev/raw/a", Body=b"2")
    tarn.ok("commit", f"{repository}/dev", "-m", "two")
    tarn.ok("tag", "create", f"{repository}/v1", "--from", "dev")
    tarn.ok("repo", "protect", repository, "main", "--block", "force")
    return repository


def seen(tarn: RunningTarn, s3: Any, name: str) -> list[object]:
    log = tarn.ok("--json", "log", f"{name}/dev").json
    bodies = [
        s3.get_object(Bucket=name, Key=key)["Body"].read()
        for key in ("main/raw/a", "dev/raw/a", "main/raw/é")
    ]
    return [[each["commit"] for each in log], bodies]


def wait_for_caches() -> None:
    """Waits until every worker knows that a repository is there again: it may remember the deletion for 5 s."""
    time.sleep(6)


@pytest.mark.in_form("separate")
def test_a_repository_is_dumped_deleted_and_restored(
    tarn: RunningTarn, s3: Any, filled: str, tmp_path: Path
) -> None:
    before = seen(tarn, s3, filled)
    rules = tarn.ok("--json", "repo", "rules", filled).json
    file = tmp_path / "lake.dump"
    made = tarn.ok("--json", "repo", "dump", filled, str(file)).json
    assert made["branches"] == 2
    again = tarn.ok("--json", "repo", "dump", filled, str(file)).json
    assert again["dump"] > made["dump"]
    assert tarn.cli("repo", "dump", filled, str(tmp_path)).code == 5, "it holds something else"
    assert tarn.cli("repo", "restore", filled, str(file)).code == 5
    tarn.ok("repo", "delete", filled, "--yes")
    done = tarn.ok("--json", "repo", "restore", filled, str(file)).json
    assert (done["branches"], done["tags"], done["commits"]) == (2, 1, 3)
    wait_for_caches()
    assert seen(tarn, s3, filled) == before
    rules_again = tarn.ok("--json", "repo", "rules", filled).json
    assert rules_again["protections"] == rules["protections"]
    s3.put_object(Bucket=filled, Key="dev/raw/new", Body=b"3")
    tarn.ok("commit", f"{filled}/dev", "-m", "after the restore")
    tarn.ok("merge", f"{filled}/dev", f"{filled}/main", "-m", "merge")
    chunk = max((file / "content").rglob("*.zst"), key=lambda each: each.stat().st_size)
    chunk.write_bytes(chunk.read_bytes()[:-20])
    assert tarn.cli("repo", "restore", "other", str(file)).code == 1
    assert tarn.cli("repo", "restore", "other", str(tmp_path / "absent")).code == 3


def test_a_repository_is_recovered_from_its_namespace(
    tarn: RunningTarn, s3: Any, filled: str
) -> None:
    before = seen(tarn, s3, filled)
    namespace = tarn.ok("--json", "repo", "show", filled).json["storage_namespace"]
    tarn.ok("repo", "delete", filled, "--yes")
    done = tarn.ok(*("--json", "repo", "recover", filled, "--storage-namespace", namespace)).json
    assert (done["branches"], done["commits"], done["damaged"]) == (2, 3, [])
    wait_for_caches()
    assert seen(tarn, s3, filled) == before

"""`tarn doctor` beside a running Tarn."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from running_tarn import RunningTarn

pytestmark = pytest.mark.every_form


def test_a_running_tarn_is_well(tarn: RunningTarn) -> None:
    done = tarn.cli("--json", "doctor", "--data-dir", str(tarn.data))
    findings = {each["check"]: each for each in json.loads(done.out)}
    assert done.code == 0, done.out
    assert {each["result"] for each in findings.values()} <= {"ok", "warning"}
    for name in ("metadata store", "block store", "versions"):
        assert findings[name]["result"] == "ok", findings[name]
    processes = {f"process {name}" for name in tarn.state()["admin_addresses"]}
    assert processes <= findings.keys()
    assert all(findings[name]["result"] == "ok" for name in processes)


def test_an_error_is_told_by_the_exit_code(tarn: RunningTarn) -> None:
    done = tarn.cli("--json", "doctor", "--data-dir", str(tarn.data), "--admin", "127.0.0.1:1")
    assert done.code == 1
    assert "127.0.0.1:1" in done.out


def test_a_bundle_of_a_running_tarn_holds_no_secret(tarn: RunningTarn, tmp_path: Path) -> None:
    out = tmp_path / "bundle.tar.gz"
    done = tarn.ok("--json", "debug", "bundle", str(out), "--data-dir", str(tarn.data))
    files = set(json.loads(done.out)["files"])
    for folder in ("metrics", "stacks"):
        assert {f"{folder}/{name}.txt" for name in tarn.state()["admin_addresses"]} <= files
    secret = (tarn.data / "secret").read_text().strip()
    with gzip.open(out) as stream:
        body = stream.read().decode(errors="replace")
    assert "tarn_process_resident_memory_bytes" in body
    assert secret not in body
    assert tarn.secret_access_key not in body


def test_stacks_and_profiles_of_all_processes(tarn: RunningTarn, tmp_path: Path) -> None:
    processes = set(tarn.state()["admin_addresses"])
    pages = json.loads(tarn.ok("--json", "debug", "stacks", "--data-dir", str(tarn.data)).out)
    assert set(pages) == processes
    assert all("thread MainThread" in page for page in pages.values())
    out = tmp_path / "profiles"
    tarn.ok("debug", "profile", "--seconds", "1", str(out), "--data-dir", str(tarn.data))
    for name in processes:
        lines = (out / f"{name}.folded").read_text().splitlines()
        assert any(line.startswith("MainThread;") for line in lines)
    nothing = tarn.cli("debug", "stacks", "--data-dir", str(tmp_path / "none"))
    assert nothing.code == 6
    assert "--admin" in nothing.err

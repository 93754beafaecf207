"""`tarn doctor` beside a running Tarn."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cassandra_lake import ShiftedClock
from running_tarn import RunningTarn
from tests.support.faults.http_fault_proxy import Answer, Request
from tests.support.servers.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server

from tarn.config import load
from tarn.rpc.process.system import SystemIds
from tarn_cli.doctor import Finding, Level, examine

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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


async def block_store(
    folder: Path, server: S3Server, clock: ShiftedClock | None = None, **more: str
) -> Finding:
    section = "TARN_BLOCKSTORE"
    variables = {
        "TARN_DATA_DIR": str(folder),
        "HOME": str(folder),
        f"{section}_TYPE": "s3",
        f"{section}_DEFAULT_NAMESPACE_PREFIX": "s3://tarn/doctor",
        f"{section}_S3_ENDPOINT": server.endpoint,
        f"{section}_S3_FORCE_PATH_STYLE": "true",
        f"{section}_S3_CREDENTIALS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        f"{section}_S3_CREDENTIALS_ACCESS_SECRET_KEY": SECRET_ACCESS_KEY,
        **more,
    }
    clock = clock or ShiftedClock()
    found = {
        each.check: each async for each in examine(load(None, variables), clock, SystemIds(clock))
    }
    return found["block store"]


def objects_of(server: S3Server) -> list[Path]:
    bucket = server.folder / "data" / "tarn"
    return [path for path in bucket.rglob("*") if path.is_file()]


async def test_a_healthy_bucket_is_well_and_nothing_is_left_in_it(
    tmp_path: Path, server: S3Server
) -> None:
    finding = await block_store(tmp_path, server)
    assert finding.level is Level.OK, finding
    assert "written, read and removed in s3://tarn/doctor" in finding.text
    assert objects_of(server) == []
    for seconds in (-60, 60):
        finding = await block_store(tmp_path, server, ShiftedClock(seconds))
        assert finding.level is Level.WARNING
        assert "its clock differs by" in finding.text


DENIED = Answer(
    "403 Forbidden",
    (("Content-Type", "application/xml"),),
    b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>no</Message></Error>",
)


@pytest.mark.parametrize(
    ("method", "part", "permission"),
    [
        ("GET", "", "s3:GetObject"),
        ("GET", "list-type=2", "s3:ListBucket"),
        ("PUT", "", "s3:PutObject"),
        ("POST", "delete", "s3:DeleteObject"),
        ("POST", "uploads", "s3:PutObject"),
        ("DELETE", "uploadId=", "s3:AbortMultipartUpload"),
    ],
)
async def test_the_permission_that_a_bucket_lacks_is_named(
    tmp_path: Path, server: S3Server, method: str, part: str, permission: str
) -> None:
    usual = server.proxy.before

    def before(request: Request) -> Answer | None:
        fits = part in request.query if part else not request.query
        if request.method == method and fits:
            return DENIED
        return usual(request) if usual is not None else None

    server.proxy.before = before
    try:
        finding = await block_store(tmp_path, server)
    finally:
        server.proxy.before = usual
    assert finding.level is Level.ERROR
    assert f"they need {permission}" in finding.text, finding
    assert "AccessDenied" in finding.text


async def test_wrong_keys_and_a_missing_bucket_are_told_as_such(
    tmp_path: Path, server: S3Server
) -> None:
    secret = "TARN_BLOCKSTORE_S3_CREDENTIALS_ACCESS_SECRET_KEY"
    finding = await block_store(tmp_path, server, None, **{secret: "another"})
    assert finding.level is Level.ERROR
    assert "they need" not in finding.text
    assert "blockstore.s3.credentials" in finding.text
    prefix = "TARN_BLOCKSTORE_DEFAULT_NAMESPACE_PREFIX"
    finding = await block_store(tmp_path, server, None, **{prefix: "s3://no-such-bucket/x"})
    assert finding.level is Level.ERROR
    assert "there is no such bucket" in finding.text

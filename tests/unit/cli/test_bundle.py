"""A support bundle tells everything but secrets."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path

import pytest
from tests.support.clock import ManualClock

from tarn.config import KEYS, Config, load
from tarn.telemetry.admin import AdminServer
from tarn.telemetry.meters import Meters
from tarn_cli.bundle import LOG_BYTES_MAX, write_bundle
from tarn_cli.doctor import Finding, Level

MARK = "5ec7e7"
HEX = MARK * 11


def config_with_every_secret(folder: Path) -> Config:
    """Returns a configuration in which every secret is set."""
    secrets = {key.variable: HEX[:64] for key in KEYS if key.is_secret}
    assert len(secrets) >= 5
    others = {
        "TARN_DATA_DIR": str(folder),
        "TARN_METADATA_DB_TYPE": "cassandra",
        "TARN_METADATA_DB_CASSANDRA_USERNAME": "tarn",
        "TARN_BLOCKSTORE_TYPE": "s3",
        "TARN_BLOCKSTORE_DEFAULT_NAMESPACE_PREFIX": "s3://bucket/tarn",
        "TARN_BLOCKSTORE_S3_CREDENTIALS_ACCESS_KEY_ID": "AKIA1",
        "HOME": str(folder),
    }
    return load(None, {**others, **secrets})


def content(out: Path) -> dict[str, str]:
    with tarfile.open(out) as archive:
        found = {}
        for entry in archive.getmembers():
            stream = archive.extractfile(entry)
            assert stream is not None
            found[entry.name.removeprefix("tarn-bundle/")] = stream.read().decode()
    return found


def test_no_secret_of_the_configuration_is_in_the_bundle(tmp_path: Path) -> None:
    config = config_with_every_secret(tmp_path)
    out = tmp_path / "bundle.tar.gz"
    write_bundle(out, config, [], {}, tmp_path / "none", ManualClock())
    files = content(out)
    assert all(MARK not in text for text in files.values())
    assert MARK.encode() not in out.read_bytes()
    lines = dict(line.split(": ", 1) for line in files["configuration.txt"].splitlines())
    assert set(lines) == {key.name for key in KEYS}
    for key in KEYS:
        assert (lines[key.name] == "(set; not in the bundle)") is key.is_secret, key.name
    assert lines["metadata.db.cassandra.username"] == "tarn"
    assert lines["blockstore.s3.profile"] == "(not set)"


async def test_the_bundle_holds_findings_metrics_and_the_end_of_the_log(tmp_path: Path) -> None:
    config = load(None, {"TARN_DATA_DIR": str(tmp_path), "HOME": str(tmp_path)})
    log = tmp_path / "tarn.log"
    log.write_text("begin\n" + "x" * LOG_BYTES_MAX + "\nend\n")
    findings = [Finding("disk", Level.WARNING, "full")]
    out = tmp_path / "bundle.tar.gz"
    meters = Meters()
    meters.counter("gateway.sent").add(7)
    async with AdminServer(meters) as server:
        ports = {"worker-0": await server.listen("127.0.0.1:0"), "gone": "127.0.0.1:1"}
        names = await asyncio.to_thread(
            write_bundle, out, config, findings, ports, log, ManualClock()
        )
    files = content(out)
    assert list(files) == names
    assert json.loads(files["doctor.json"]) == [
        {"check": "disk", "result": "warning", "text": "full"}
    ]
    assert "tarn_gateway_sent_bytes_total 7" in files["metrics/worker-0.txt"]
    assert "no answer" in files["metrics/gone.txt"]
    assert len(files["tarn.log"]) == LOG_BYTES_MAX
    assert files["tarn.log"].endswith("\nend\n")
    assert "begin" not in files["tarn.log"]
    assert "Python 3" in files["versions.txt"]
    assert out.stat().st_mode & 0o777 == 0o600


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "bundle.tar.gz"
    out.write_text("mine")
    config = load(None, {"TARN_DATA_DIR": str(tmp_path), "HOME": str(tmp_path)})
    with pytest.raises(FileExistsError):
        write_bundle(out, config, [], {}, tmp_path / "none", ManualClock())
    assert out.read_text() == "mine"

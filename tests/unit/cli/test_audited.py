"""Commands that change or copy a store without a service leave records in the audit log."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from installation_rows import INSTALLATION, sample_installation, write_rows

from tarn.config import Config, load
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.embedded import open_embedded
from tarn.rpc.process.system import SystemClock
from tarn_cli.app import cli
from tarn_cli.audited import audited

VARIABLES = {"HOME": "/nonexistent", "TARN_AUDIT_OUTPUT": "file"}


async def fill(folder: Path) -> None:
    kv = await open_embedded(folder / "tarn.db", durability="os")
    await write_rows(kv, sample_installation())
    await kv.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    asyncio.run(fill(tmp_path / "data" / "kv"))
    (tmp_path / "data" / "blocks").mkdir()
    return tmp_path / "data"


def tarn(data: Path, *arguments: object, **more: str) -> Result:
    variables = {**VARIABLES, "TARN_AUDIT_FOLDER": str(data / "audit"), **more}
    return CliRunner().invoke(cli, ["--quiet", *map(str, arguments)], env=variables)


def records(data: Path) -> list[dict[str, Any]]:
    """Returns the records, and removes them."""
    file = data / "audit" / "command-0.jsonl"
    if not file.exists():
        return []
    lines = file.read_text().splitlines()
    file.unlink()
    return [json.loads(line) for line in lines]


def steps(data: Path) -> list[tuple[str, str, str]]:
    return [(each["operation"], each["details"]["step"], each["outcome"]) for each in records(data)]


def both(command: str, outcome: str = "ok") -> list[tuple[str, str, str]]:
    return [(f"command:{command}", "begin", "unknown"), (f"command:{command}", "end", outcome)]


def test_every_command_that_changes_or_copies_a_store_is_recorded(
    data: Path, tmp_path: Path
) -> None:
    store, other = f"embedded://{data / 'kv'}", f"embedded://{tmp_path / 'other'}"
    dump, backup = tmp_path / "dump", tmp_path / "backup"
    secret = {"TARN_INSTALLATION_SECRET": "5" * 64}
    restored = tmp_path / "restored"
    here = ("--data-dir", data)
    for arguments, expected in (
        (("kv", "dump", "--config", store, dump), both("kv dump")),
        (("kv", "load", "--config", other, dump), both("kv load")),
        (("kv", "reopen", store), both("kv reopen")),
        (("kv", "settings", "--config", store, "--forget"), both("kv settings --forget")),
        (("kv", "settings", "--config", store), []),
        (("kv", "verify", store, other), []),
        (("backup", "create", backup, *here), both("backup create")),
        (("backup", "list", backup, *here), []),
        (("backup", "prune", backup, "--keep", 1, *here), both("backup prune")),
        (
            ("backup", "restore", backup, "--without-secret", "--data-dir", restored),
            both("backup restore"),
        ),
        (("upgrade", "status", *here), []),
        (("upgrade", "finish", *here), both("upgrade finish")),
        (("auth", "rotate-master-key", "--status", *here), []),
        (("auth", "rotate-master-key", *here), both("auth rotate-master-key")),
        (
            ("kv", "migrate", "--from", store, "--to", f"embedded://{tmp_path / 'new'}"),
            both("kv migrate"),
        ),
    ):
        done = tarn(data, *arguments, **secret)
        assert done.exception is None, (arguments, done.exception, done.output)
        assert steps(data) == expected, arguments


def test_a_record_says_who_and_what_and_no_secret(data: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    store = f"embedded://{data / 'kv'}"
    tarn(data, "kv", "dump", "--config", store, dump)
    file = data / "audit" / "command-0.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    _, end = records(data)
    assert (end["service"], end["principal"]) == ("command", "")
    details = end["details"]
    assert (details["store"], details["to"]) == (store, str(dump))
    assert details["pid"] == os.getpid()
    assert details["os_user"]


def test_a_command_that_fails_has_the_outcome_unknown_and_its_reason(
    data: Path, tmp_path: Path
) -> None:
    store = f"embedded://{data / 'kv'}?installation={INSTALLATION}"
    dump = tmp_path / "dump"
    assert tarn(data, "kv", "dump", "--config", store, dump).exception is None
    records(data)
    assert tarn(data, "kv", "load", "--config", store, dump).exception is not None
    begin, end = records(data)
    assert begin["outcome"] == end["outcome"] == "unknown"
    assert end["reason"]


def config_of(data: Path, **more: str) -> Config:
    return load(None, {**VARIABLES, "TARN_DATA_DIR": str(data), **more})


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "down"), "UNAVAILABLE"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_an_interrupted_command_is_recorded(
    tmp_path: Path, error: BaseException, reason: str
) -> None:
    with pytest.raises(type(error)), audited(config_of(tmp_path), SystemClock(), "kv load"):
        raise error
    _, end = records(tmp_path)
    assert (end["outcome"], end["reason"]) == ("unknown", reason)


def test_the_begin_is_on_disk_before_the_change(tmp_path: Path) -> None:
    with audited(config_of(tmp_path), SystemClock(), "kv load"):
        assert steps(tmp_path) == both("kv load")[:1]


def test_without_an_audit_log_nothing_is_written(tmp_path: Path) -> None:
    with audited(config_of(tmp_path, TARN_AUDIT_OUTPUT="off"), SystemClock(), "kv load"):
        pass
    assert not (tmp_path / "audit").exists()


def test_with_standard_output_the_records_go_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with audited(config_of(tmp_path, TARN_AUDIT_OUTPUT="stdout"), SystemClock(), "kv load"):
        pass
    shown = capsys.readouterr()
    assert shown.out == ""
    assert [json.loads(line)["audit"] for line in shown.err.splitlines()] == [1, 1]


def test_a_folder_that_cannot_be_written_stops_no_command(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("")
    done = []
    with audited(config_of(tmp_path), SystemClock(), "kv load"):
        done.append(1)
    assert done == [1]

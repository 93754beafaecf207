"""`tarn audit search` reads the files of a data folder, while no Tarn runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tarn.telemetry.audit.files import AuditFile
from tarn.telemetry.audit.record import AuditRecord, Outcome, line_of
from tarn_cli.__main__ import run
from tarn_cli.exits import Exit

DAY_US = 86_400_000_000
BEGIN_US = 1_790_000_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = AuditFile(tmp_path / "audit", "node", 2**20, 8)
    for number in range(5):
        outcome = Outcome.DENIED if number == 3 else Outcome.OK
        record = AuditRecord(
            BEGIN_US + number * DAY_US,
            "s3:PutObject",
            f"repository/lake/branch/main/object/{number}",
            outcome,
            *("", f"user-{number % 2}", "", "", f"r{number}"),
        )
        file.write(line_of("node", record))
    file.close()
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ([], ["r4", "r3", "r2", "r1", "r0"]),
        (["--limit", "2"], ["r4", "r3"]),
        (["--user", "user-1"], ["r3", "r1"]),
        (["--outcome", "denied"], ["r3"]),
        (["--repository", "lake", "--operation", "s3:Get"], []),
        (["--resource", "repository/lake/branch/main/object/2"], ["r2"]),
        (["--from", "2026-09-22", "--to", "2026-09-24"], ["r2", "r1"]),
    ],
)
def test_a_search_shows_what_fits_the_newest_first(
    data: Path, capsys: pytest.CaptureFixture[str], flags: list[str], wanted: list[str]
) -> None:
    assert run(["--json", "audit", "search", "--data-dir", str(data), *flags]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [each["request_id"] for each in shown] == wanted


def test_a_limit_says_that_there_is_more(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "search", "--data-dir", str(data), "--limit", "1"]) == 0
    assert "there are earlier records" in capsys.readouterr().err


def test_a_folder_without_an_audit_log_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", "search", "--data-dir", str(tmp_path)]) == Exit.NOT_FOUND
    assert "there are no files of an audit log" in capsys.readouterr().err


@pytest.mark.parametrize("flag", [["--repository", "a/b"], ["--from", "soon"], ["--limit", "0"]])
def test_what_is_no_search_is_refused(data: Path, flag: list[str]) -> None:
    assert run(["audit", "search", "--data-dir", str(data), *flag]) != 0

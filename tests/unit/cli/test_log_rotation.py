"""The log of a detached Tarn is bounded by size and age."""

from __future__ import annotations

import errno
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tarn_cli.node.log_rotation import LogRotation

DAY = 86_400.0
BEGAN = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
LINE = "2026-11-01T00:00:00.000000Z info    ready service=node\n"


def rotation(path: Path, files: int = 3) -> LogRotation:
    return LogRotation(path, 1000, 7 * DAY, files)


@pytest.mark.parametrize(
    ("text", "age_days", "is_due"),
    [
        (LINE, 6.9, False),
        (LINE, 7, True),
        ("a line without a time\n" + LINE, 7, True),
        ('{"event": "ready", "timestamp": "2026-11-01T00:00:00.000000Z"}\n', 7, True),
        ("no time at all\n", 1000, False),
        ("", 1000, False),
        ("x" * 999, 0, False),
        ("x" * 1000, 0, True),
    ],
)
def test_a_log_is_due_by_its_size_and_by_the_age_of_its_first_line(
    tmp_path: Path, text: str, age_days: float, is_due: bool
) -> None:
    log = tmp_path / "tarn.log"
    log.write_text(text)
    assert rotation(log).is_due(BEGAN + age_days * DAY) is is_due


def test_a_log_that_does_not_exist_is_not_due(tmp_path: Path) -> None:
    assert not rotation(tmp_path / "tarn.log").is_due(BEGAN)


def test_earlier_logs_move_on_and_the_last_one_goes(tmp_path: Path) -> None:
    log = tmp_path / "tarn.log"
    with log.open("ab") as writer:  # as the processes of Tarn have it
        for number in range(5):
            writer.write(f"log {number}\n".encode())
            writer.flush()
            rotation(log).rotate()
            assert log.read_bytes() == b""
        writer.write(b"log 5\n")
    found = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert found == {"tarn.log": "log 5\n", "tarn.log.1": "log 4\n", "tarn.log.2": "log 3\n"}
    assert stat.S_IMODE((tmp_path / "tarn.log.1").stat().st_mode) == 0o600


def test_one_file_means_that_no_earlier_log_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "tarn.log"
    log.write_text("a\n")
    rotation(log, files=1).rotate()
    assert [each.name for each in tmp_path.iterdir()] == ["tarn.log"]
    assert log.read_bytes() == b""


def test_a_log_that_cannot_be_copied_keeps_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "tarn.log"
    log.write_text("a\n")

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", full)
        with pytest.raises(OSError, match="No space left"):
            rotation(log).rotate()
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"tarn.log": "a\n"}

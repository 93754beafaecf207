"""Audit files hold whole lines only, are bounded in number and size, and belong to one process each."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tarn.telemetry.audit.files import AuditFile


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.jsonl*"))


def test_a_full_file_is_renamed_and_the_oldest_one_removed(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit", "gateway", size_max=10, files_max=3)
    for number in range(5):
        file.write(f"line {number}\n")
    file.close()

    folder = tmp_path / "audit"
    assert names(folder) == ["gateway-0.jsonl", "gateway-0.jsonl.1", "gateway-0.jsonl.2"]
    assert [(folder / name).read_text() for name in names(folder)] == [
        "line 4\n",
        "line 3\n",
        "line 2\n",
    ]


def test_a_single_file_begins_anew(tmp_path: Path) -> None:
    file = AuditFile(tmp_path, "gateway", size_max=10, files_max=1)
    file.write("line 0\n")
    file.write("line 1\n")
    file.close()
    assert names(tmp_path) == ["gateway-0.jsonl"]
    assert file.path.read_text() == "line 1\n"


def test_only_the_owner_may_read_them(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit", "gateway", 10, 2)
    file.close()
    assert file.path.parent.stat().st_mode & 0o777 == 0o700
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_two_processes_never_write_one_file_and_a_later_one_continues_it(tmp_path: Path) -> None:
    first = AuditFile(tmp_path, "gateway", 1000, 2)
    second = AuditFile(tmp_path, "gateway", 1000, 2)
    other = AuditFile(tmp_path, "auth", 1000, 2)
    first.write("first\n")
    assert [each.path.name for each in (first, second, other)] == [
        "gateway-0.jsonl",
        "gateway-1.jsonl",
        "auth-0.jsonl",
    ]
    first.close()
    third = AuditFile(tmp_path, "gateway", 1000, 2)
    third.write("third\n")
    assert first.path.read_text() == "first\nthird\n"
    for each in (second, third, other):
        each.close()


def test_half_a_line_of_a_killed_process_does_not_swallow_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "gateway-0.jsonl").write_text('whole\n{"hal')
    file = AuditFile(tmp_path, "gateway", 1000, 2)
    file.write("next\n")
    file.close()
    assert file.path.read_text().splitlines() == ["whole", '{"hal', "next"]


def test_a_failed_write_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AuditFile(tmp_path, "gateway", 1000, 2)
    file.write("whole\n")
    write = os.write
    answers = iter([3])

    def full(fd: int, data: bytes) -> int:
        count = next(answers, None)
        if count is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:count])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            file.write("lost\n")
    file.write("next\n")
    file.close()
    assert file.path.read_text() == "whole\nnext\n"

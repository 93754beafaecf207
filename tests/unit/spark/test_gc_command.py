"""The command line of `tarn_spark.gc`, as far as it needs no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarn_cli.__main__ import run_command
from tarn_spark.gc import gc


def code_of(*arguments: str) -> int:
    return run_command(gc, "tarn_spark.gc", arguments)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--dry-run", "--only", "sweep"), "--dry-run marks"),
        (("--confirm", "a" * 32), "--confirm needs one"),
        (("--repository", "lake", "--only", "mark", "--confirm", "a" * 32), "--confirm sweeps"),
        (("--conf", "spark.driver.memory"), "--conf takes KEY=VALUE"),
        (("--master", "spark://127.0.0.1:7077"), "in a folder of this machine"),
        (("--rate", "-1"), "--rate"),
    ],
)
def test_wrong_options_end_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "blocks").mkdir()
    assert code_of("--data-dir", str(tmp_path), *arguments) == 2
    assert told in capsys.readouterr().err


def test_help_names_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("--help") == 0
    out = capsys.readouterr().out
    for option in ("--repository", "--only", "--dry-run", "--confirm", "--master", "--settings"):
        assert option in out

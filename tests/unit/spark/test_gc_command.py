"""The command line of `tarn gc run --spark`, as far as it needs no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarn_cli.__main__ import run


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--spark", "--dry-run", "--only", "sweep"), "--dry-run marks"),
        (("--spark", "--confirm", "a" * 32), "--confirm needs one"),
        (("--spark", "lake", "--only", "mark", "--confirm", "a" * 32), "--confirm sweeps"),
        (("--spark", "--conf", "spark.driver.memory"), "--conf takes KEY=VALUE"),
        (("--spark", "--master", "spark://127.0.0.1:7077"), "in a folder of this machine"),
        (("--spark", "--rate", "-1"), "--rate"),
        (("--master", "local[*]"), "go with --spark"),
    ],
)
def test_wrong_options_end_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "blocks").mkdir()
    assert run(["gc", "run", "--data-dir", str(tmp_path), *arguments]) == 2
    assert told in capsys.readouterr().err


def test_help_names_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gc", "run", "--help"]) == 0
    out = capsys.readouterr().out
    for option in ("--only", "--dry-run", "--confirm", "--spark", "--master", "--conf"):
        assert option in out

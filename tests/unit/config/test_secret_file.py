"""The installation's secret is given, or created once and kept private."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tarn.config import Config, ConfigError, installation_secret, load

SECRET = "5e" * 32


def config(tmp_path: Path, **env: str) -> Config:
    return load(None, {"HOME": "/", "TARN_DATA_DIR": str(tmp_path / "data"), **env})


def test_a_given_secret_is_used_and_no_file_is_made(tmp_path: Path) -> None:
    given = config(tmp_path, TARN_INSTALLATION_SECRET=SECRET)
    assert installation_secret(given, make=True) == bytes.fromhex(SECRET)
    assert not (tmp_path / "data").exists()


def test_without_one_a_service_of_many_replicas_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"installation\.secret is not set"):
        installation_secret(config(tmp_path))


def test_a_single_node_makes_one_that_lasts(tmp_path: Path) -> None:
    made = installation_secret(config(tmp_path), make=True, random_bytes=lambda n: b"r" * n)
    assert made == b"r" * 32
    assert installation_secret(config(tmp_path), make=True) == made
    mode = (tmp_path / "data" / "secret").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["secret"]


def test_processes_that_start_together_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: installation_secret(config(tmp_path), make=True), range(32)))
    assert len(made) == 1


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    installation_secret(config(tmp_path), make=True)
    (tmp_path / "data" / "secret").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        installation_secret(config(tmp_path), make=True)


def test_a_damaged_file_is_refused_and_not_shown(tmp_path: Path) -> None:
    installation_secret(config(tmp_path), make=True)
    (tmp_path / "data" / "secret").write_text("hunter2")
    with pytest.raises(ConfigError, match="hex digits") as caught:
        installation_secret(config(tmp_path), make=True)
    assert "hunter2" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(ConfigError, match="data"):
        installation_secret(config(tmp_path), make=True)

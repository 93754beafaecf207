import stat
from pathlib import Path

import pytest

from tarn_cli.exits import CliError, Exit
from tarn_cli.node.data_dir import DataDir, State

STATE = State(1, "http://127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:2", {"worker-0": 7})


def test_one_supervisor_at_a_time(tmp_path: Path) -> None:
    where = DataDir(tmp_path / "data")
    assert not where.is_locked()
    with where.locked():
        assert where.is_locked()
        with pytest.raises(CliError) as caught, DataDir(tmp_path / "data").locked():
            pass
        assert caught.value.exit_code is Exit.CONFLICT
    assert not where.is_locked()


def test_a_state_counts_only_while_its_supervisor_lives(tmp_path: Path) -> None:
    where = DataDir(tmp_path)
    with where.locked():
        assert where.state() is None
        where.write_state(STATE)
        assert where.state() == STATE
        left_behind = (tmp_path / "tarn.json").read_text()
    (tmp_path / "tarn.json").write_text(left_behind)
    assert where.state() is None
    with where.locked():
        assert where.state() is None


def test_the_settings_are_those_of_the_running_tarn(tmp_path: Path) -> None:
    where = DataDir(tmp_path)
    assert where.settings().server == ""
    with where.locked():
        where.write_state(STATE)
        assert where.settings().endpoint == STATE.endpoint


def test_other_users_cannot_enter_the_folder(tmp_path: Path) -> None:
    where = DataDir(tmp_path / "data")
    where.create()
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_a_folder_that_other_users_may_enter_is_refused(tmp_path: Path) -> None:
    where = DataDir(tmp_path / "data")
    where.create()
    for mode in (0o701, 0o710, 0o755):
        where.path.chmod(mode)
        with pytest.raises(CliError, match="other users of this machine") as caught:
            where.create()
        assert "chmod 700" in caught.value.hint
    where.path.chmod(0o700)
    where.create()


def test_the_log_is_closed_to_other_users(tmp_path: Path) -> None:
    where = DataDir(tmp_path / "data")
    where.create()
    where.log_file.parent.chmod(0o755)
    where.log_file.write_text("of an earlier version")
    where.log_file.chmod(0o644)
    where.create()
    where.open_log().close()
    assert stat.S_IMODE(where.log_file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(where.log_file.stat().st_mode) == 0o600

"""One context for all commands: searched upwards, never guessed, and never that of another server."""

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tarn_cli.__main__ import run
from tarn_cli.context import data_folder, resolve, store_config
from tarn_cli.exits import CliError, Exit
from tarn_cli.node.data_dir import DataDir, State
from tarn_cli.session import Session
from tarn_cli.settings import Settings, read_file, write_file

KEY = Settings(access_key_id="TARNKEY", secret_access_key="s" * 40)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An empty working directory deep below a project, and an empty home."""
    work = tmp_path / "project" / "a" / "b"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    for name in [name for name in os.environ if name.startswith("TARN_")]:
        monkeypatch.delenv(name)
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path / "home")}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment


@pytest.fixture
def project(tmp_path: Path, home: dict[str, str]) -> Path:
    return tmp_path / "project"


def made(folder: Path) -> Path:
    """A data folder with empty stores."""
    DataDir(folder).create()
    (folder / "kv").mkdir()
    (folder / "blocks").mkdir()
    return folder


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A data folder on which a Tarn runs: its lock is held, and its addresses are in the state file."""
    folder = made(tmp_path / "running")
    with (folder / "tarn.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        DataDir(folder).write_state(
            State(1, "http://127.0.0.1:9000", "127.0.0.1:9002", "127.0.0.1:9001", {})
        )
        yield folder


def session_of(home: dict[str, str], **options: object) -> Session:
    values: dict[str, object] = {"flags": Settings(), "settings_file": None, "timeout_s": 1.0}
    return Session(**{**values, "environment": home, **options})  # type: ignore[arg-type]


def test_the_folder_is_searched_upwards(project: Path, home: dict[str, str]) -> None:
    write_file(project / ".tarn" / "credentials", replace(KEY, server="near:1"))
    found = resolve(Settings(), home, None)
    assert found.folder == project / ".tarn"
    assert found.settings.server == "near:1"
    write_file(project / "a" / ".tarn" / "credentials", replace(KEY, server="nearer:1"))
    assert resolve(Settings(), home, None).settings.server == "nearer:1"


def test_a_folder_of_another_user_is_passed_over(
    project: Path, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that all users may write, another user could name the server and the stores."""
    write_file(project / ".tarn" / "credentials", replace(KEY, server="foreign:1"))
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    found = resolve(Settings(), home, None)
    assert found.folder is None
    assert found.passed_over == (project / ".tarn",)
    assert found.settings.access_key_id == ""


def test_a_folder_that_all_users_may_change_is_passed_over(
    project: Path, home: dict[str, str]
) -> None:
    write_file(project / ".tarn" / "credentials", KEY)
    (project / ".tarn").chmod(0o777)
    assert resolve(Settings(), home, None).passed_over == (project / ".tarn",)


def test_the_default_folder_is_not_that_of_a_server_elsewhere(
    project: Path, home: dict[str, str]
) -> None:
    made(Path(home["HOME"]) / "tarn")
    write_file(project / ".tarn" / "credentials", replace(KEY, server="lake.example.org:8102"))
    assert resolve(Settings(), home, None).data_dir is None


def test_a_data_folder_is_a_context_of_its_own(project: Path, home: dict[str, str]) -> None:
    made(project / ".tarn")
    found = resolve(Settings(), home, None)
    assert found.data_dir == project / ".tarn"
    write_file(project / ".tarn" / "credentials", KEY)
    found = resolve(Settings(), home, None)
    assert (found.data_dir, found.settings.access_key_id) == (project / ".tarn", "TARNKEY")


def test_saved_addresses_give_way_to_those_of_the_running_tarn(
    project: Path, home: dict[str, str], running: Path
) -> None:
    saved = replace(KEY, server="127.0.0.1:1", endpoint="http://old", data_dir=str(running))
    write_file(project / ".tarn" / "credentials", saved)
    found = resolve(Settings(), home, None)
    assert (found.settings.server, found.settings.auth_server) == (
        "127.0.0.1:9002",
        "127.0.0.1:9001",
    )
    assert (found.settings.endpoint, found.settings.access_key_id) == (
        "http://127.0.0.1:9000",
        "TARNKEY",
    )
    assert (found.data_dir, found.is_refreshed) == (running, True)
    other = resolve(Settings(server="else:1"), home, None)
    assert (other.settings.server, other.data_dir) == ("else:1", None)
    assert not other.is_refreshed


def test_a_command_on_stores_needs_a_configuration_or_data_folder(
    home: dict[str, str], tmp_path: Path
) -> None:
    session = session_of(home)
    with pytest.raises(CliError, match="nothing names the stores") as caught:
        store_config(session, None, None)
    assert caught.value.exit_code is Exit.NOT_FOUND
    with pytest.raises(CliError, match="there is no") as caught:
        store_config(session, None, tmp_path / "none")
    assert caught.value.exit_code is Exit.NOT_FOUND
    assert not (tmp_path / "none").exists()
    assert (
        store_config(session, None, tmp_path / "none", may_be_new=True).data_dir
        == tmp_path / "none"
    )
    named = made(tmp_path / "named")
    assert store_config(session, None, named).data_dir == named
    variables = {**home, "TARN_DATA_DIR": str(named)}
    assert store_config(session_of(variables), None, None).data_dir == named


@pytest.mark.parametrize(
    "words",
    [
        ["gc", "run"],
        ["erase", "plan", "lake", "a/**"],
        ["erase", "run", "lake", "--plan", "x", "--yes"],
        ["erase", "repair", "lake"],
        ["retention", "preview", "lake"],
        ["fsck"],
        ["doctor"],
        ["backup", "create", "file:///nowhere"],
        ["backup", "restore", "file:///nowhere"],
        ["upgrade", "status"],
        ["auth", "rotate-master-key"],
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_a_command_without_its_stores_says_so_and_makes_nothing(
    words: list[str],
    named: bool,
    home: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`tarn gc run` looked at ~/tarn and reported that data was lost; `tarn doctor` made that folder."""
    place = ["--data-dir", str(tmp_path / "none")] if named and words[1:2] != ["restore"] else []
    assert run([*words, *place]) == Exit.NOT_FOUND
    assert "stores" in capsys.readouterr().err or place
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project"]


def test_the_default_folder_serves_only_the_tarn_that_runs_on_it(
    home: dict[str, str], tmp_path: Path
) -> None:
    folder = made(Path(home["HOME"]) / "tarn")
    session = session_of(home)
    assert store_config(session, None, None).data_dir == folder
    with pytest.raises(CliError, match="the default folder") as caught:
        store_config(session, None, None, beside_server=True)
    assert caught.value.exit_code is Exit.CONFLICT
    with (folder / "tarn.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        DataDir(folder).write_state(State(1, "http://127.0.0.1:9000", "127.0.0.1:9002", "", {}))
        assert session.settings().server == "127.0.0.1:9002"
        assert store_config(session, None, None, beside_server=True).data_dir == folder


def test_the_stores_of_another_server_are_refused(home: dict[str, str], running: Path) -> None:
    session = session_of(home, flags=Settings(server="127.0.0.1:5"))
    with pytest.raises(CliError, match=r"not of 127\.0\.0\.1:5") as caught:
        store_config(session, None, running, beside_server=True)
    assert caught.value.exit_code is Exit.CONFLICT
    same = session_of(home, flags=Settings(server="localhost:9002"))
    assert store_config(same, None, running, beside_server=True).data_dir == running


def test_a_data_folder_is_known_without_valid_settings(
    home: dict[str, str], tmp_path: Path
) -> None:
    """`tarn down` refused to stop a Tarn for settings that it does not use."""
    file = tmp_path / "tarn.yaml"
    file.write_text(f"data_dir: {tmp_path}/data\nno_such: 1\n")
    environment = {**home, "TARN_LOGGING_LEVEL": "nonsense"}
    session = session_of(environment)
    assert data_folder(session, file, None) == tmp_path / "data"
    assert data_folder(session, None, tmp_path / "flag") == tmp_path / "flag"
    assert data_folder(session, None, None) == Path(home["HOME"]) / "tarn"
    assert data_folder(session_of({**home, "TARN_DATA_DIR": "/env"}), None, None) == Path("/env")


def test_the_context_is_shown(
    project: Path, home: dict[str, str], running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = replace(KEY, server="127.0.0.1:1", data_dir=str(running))
    write_file(project / ".tarn" / "credentials", saved)
    assert run(["context"]) == 0
    said = capsys.readouterr()
    assert "those of the running Tarn" in said.err
    assert KEY.secret_access_key not in said.out
    assert run(["--json", "context"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["folder"] == str(project / ".tarn")
    assert told["data_dir"] == str(running)
    assert told["data_dir_from"] == str(project / ".tarn" / "credentials")
    assert (told["server"], told["runs"]) == ("127.0.0.1:9002", True)


def test_a_set_up_saves_the_addresses_of_the_configuration(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, secret = tmp_path / "tarn.yaml", "5" * 64
    file.write_text(
        f"installation: {{secret: '{secret}'}}\n"
        "services: {graveler: {addresses: ['graveler:8102']}, auth: {addresses: ['auth:8101']}}\n"
        "gateways: {s3: {listen_address: '0.0.0.0:9100'}}\n"
    )
    seen: list[Settings] = []

    def answered(
        _session: Session, _work: object, *, settings: Settings, **_options: object
    ) -> None:
        seen.append(settings)

    monkeypatch.setattr("tarn_cli.session.Session.run", answered)
    write_file(tmp_path / "saved", KEY)
    arguments = ["auth", "setup", "--config", str(file), "--save", str(tmp_path / "saved")]
    assert run(arguments) == 0
    assert (seen[0].server, seen[0].auth_server) == ("graveler:8102", "auth:8101")
    saved = read_file(tmp_path / "saved")
    assert (saved.server, saved.endpoint) == ("graveler:8102", "http://127.0.0.1:9100")
    assert saved.config_file == str(file)
    assert run(["--server", "flag:1", *arguments]) == 0
    assert (seen[1].server, seen[1].auth_server) == ("flag:1", "")

import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from tarn_cli.context import resolve
from tarn_cli.exits import CliError, Exit
from tarn_cli.settings import (
    DEFAULT_ENDPOINT,
    DEFAULT_SERVER,
    Settings,
    read_file,
    write_file,
)

LOCAL_FILE = Path(".tarn/credentials")
KEY = Settings(access_key_id="TARNKEY", secret_access_key="s" * 40)


def load(flags: Settings, environment: Mapping[str, str], file: Path | None) -> Settings:
    return resolve(flags, environment, file).settings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An empty working directory, and an environment with an empty configuration folder."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}


def test_the_default_is_a_local_tarn_without_a_key(home: dict[str, str]) -> None:
    settings = load(Settings(), home, None)
    assert settings == Settings(server=DEFAULT_SERVER, endpoint=DEFAULT_ENDPOINT)
    with pytest.raises(CliError) as caught:
        settings.require_key()
    assert caught.value.exit_code is Exit.DENIED


def test_flags_beat_the_environment_which_beats_the_local_file_which_beats_the_users(
    home: dict[str, str],
) -> None:
    user = Path(home["XDG_CONFIG_HOME"]) / "tarn" / "config.yaml"
    write_file(user, Settings("user:1", "user:2", "http://user", "USER", "user-secret"))
    assert load(Settings(), home, None).server == "user:1"
    write_file(LOCAL_FILE, Settings(server="local:1", endpoint="http://local"))
    assert load(Settings(), home, None).server == "local:1"
    environment = {**home, "TARN_SERVER": "environment:1"}
    found = load(Settings(), environment, None)
    assert (found.server, found.endpoint) == ("environment:1", "http://local")
    assert load(Settings(server="flag:1"), environment, None).server == "flag:1"


def test_the_authority_of_an_endpoint_is_not_used_for_another(home: dict[str, str]) -> None:
    kept = Settings(endpoint="https://lake", endpoint_ca="/ca.pem")
    assert Settings(endpoint="https://lake").over(kept).endpoint_ca == "/ca.pem"
    assert Settings(endpoint="https://other").over(kept).endpoint_ca == ""
    environment = {**home, "TARN_ENDPOINT_CA": "/environment.pem"}
    write_file(LOCAL_FILE, kept)
    assert load(Settings(), environment, None).endpoint_ca == "/environment.pem"


def test_a_missing_file_of_authorities_is_named(tmp_path: Path) -> None:
    assert Settings().endpoint_authorities() is None
    with pytest.raises(CliError, match=r"no such file: /no/ca\.pem") as caught:
        Settings(endpoint_ca="/no/ca.pem").endpoint_authorities()
    assert caught.value.exit_code is Exit.NOT_FOUND
    file = tmp_path / "ca.pem"
    file.touch()
    assert Settings(endpoint_ca=str(file)).endpoint_authorities() == str(file)


def test_a_secret_is_never_joined_to_the_key_of_another_place(home: dict[str, str]) -> None:
    write_file(LOCAL_FILE, KEY)
    found = load(Settings(access_key_id="OTHER"), home, None)
    assert found.secret_access_key == ""
    assert load(Settings(access_key_id="TARNKEY"), home, None) == KEY.with_defaults()


def test_another_server_does_not_keep_the_auth_of_the_first(home: dict[str, str]) -> None:
    write_file(LOCAL_FILE, Settings(server="a:1", auth_server="a:2"))
    assert load(Settings(), home, None).auth_server == "a:2"
    assert load(Settings(server="b:1"), home, None).auth_server == ""


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "config.yaml"
    write_file(file, KEY)
    write_file(file, KEY)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_file(file) == KEY
    assert [each.name for each in file.parent.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("text", ["[1]", "server: [1]", "sever: a:1", "a: b: c", "server: 8001"])
def test_a_file_that_is_not_settings_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(CliError, match=r"config\.yaml") as caught:
        read_file(file)
    assert caught.value.exit_code is Exit.USAGE


def test_a_named_file_must_exist(home: dict[str, str]) -> None:
    with pytest.raises(CliError) as caught:
        load(Settings(), home, Path("nowhere.yaml"))
    assert caught.value.exit_code is Exit.NOT_FOUND


def test_the_secret_is_not_in_the_representation() -> None:
    assert KEY.secret_access_key not in repr(KEY)


def test_the_files_for_tls_come_from_the_variables_of_the_services(home: dict[str, str]) -> None:
    assert load(Settings(), home, None).tls() is None
    names = ("CA", "CERT", "KEY")
    files = {f"TARN_RPC_TLS_{name}": str(Path(name.lower()).absolute()) for name in names}
    settings = load(Settings(server="flag:1"), {**home, **files}, None)
    with pytest.raises(CliError, match="no such file") as caught:
        settings.tls()
    assert caught.value.exit_code is Exit.NOT_FOUND
    for path in files.values():
        Path(path).touch()
    found = settings.tls()
    assert found is not None
    assert [str(path) for path in (found.authority, found.certificate, found.key)] == [
        *files.values()
    ]


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    for settings in (Settings(rpc_tls_cert=str(tmp_path)), Settings(rpc_tls_key=str(tmp_path))):
        with pytest.raises(CliError, match="belong together") as caught:
            settings.tls()
        assert caught.value.exit_code is Exit.USAGE

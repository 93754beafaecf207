"""The stores that the arguments of `tarn kv` name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarn_cli.exits import CliError, Exit
from tarn_cli.kv_place import about, check_apart, config_of, secret_of


def test_urls_name_stores_and_installations(tmp_path: Path) -> None:
    one = config_of(f"embedded://{tmp_path}/kv?installation=lake", {})
    assert (one.metadata.db.type, one.installation.id) == ("embedded", "lake")
    assert one.metadata.db.embedded.file == tmp_path / "kv" / "tarn.db"
    url = "cassandra://a:1,b/lakes?installation=x&datacenter=dc2&replicas=2"
    two = config_of(url, {"TARN_METADATA_DB_CASSANDRA_USERNAME": "u"} | _password(tmp_path))
    section = two.metadata.db.cassandra
    assert (section.contact_points, section.keyspace) == (("a:1", "b:9042"), "lakes")
    assert (section.local_datacenter, section.replication_factor) == ("dc2", 2)
    assert (two.installation.id, section.username) == ("x", "u")
    assert about(two) == "cassandra://a:1,b:9042/lakes"


def _password(folder: Path) -> dict[str, str]:
    (folder / "password").write_text("secret")
    return {"TARN_METADATA_DB_CASSANDRA_PASSWORD_FILE": str(folder / "password")}


def test_a_file_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "tarn.yaml"
    file.write_text(f"data_dir: {tmp_path}\ninstallation: {{id: lake}}\n")
    found = config_of(str(file), {})
    assert found.installation.id == "lake"
    assert about(found) == f"embedded://{tmp_path}/kv"


@pytest.mark.parametrize(
    "where",
    [
        "embedded:///x?instalation=y",
        "embedded:///x?installation",
        "embedded://host/x",
        "embedded:///",
        "sqlite:///x",
        "cassandra://u:p@host/x",
    ],
)
def test_other_urls_are_refused(where: str) -> None:
    with pytest.raises(CliError) as caught:
        config_of(where, {})
    assert caught.value.exit_code is Exit.USAGE
    assert "u:p" not in caught.value.message


def test_a_data_folder_is_not_taken_for_the_store_in_it(tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir()
    (tmp_path / "kv" / "tarn.db").touch()
    with pytest.raises(CliError, match="is a data folder") as caught:
        config_of(f"embedded://{tmp_path}", {})
    assert str(tmp_path / "kv") in caught.value.hint


def test_a_missing_file_says_what_may_be_given() -> None:
    with pytest.raises(CliError, match="no such configuration file") as caught:
        config_of("absent.yaml", {})
    assert caught.value.exit_code is Exit.NOT_FOUND


def test_one_store_is_not_moved_onto_itself(tmp_path: Path) -> None:
    """Two files name different stores, and a variable overrides both."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"data_dir: {tmp_path / name}.d\n")
    first, second = (config_of(str(tmp_path / name), {}) for name in ("a", "b"))
    check_apart(first, second)
    beats = {"TARN_METADATA_DB_EMBEDDED_PATH": str(tmp_path)}
    with pytest.raises(CliError, match="the same store"):
        check_apart(config_of(str(tmp_path / "a"), beats), config_of(str(tmp_path / "b"), beats))


def test_a_secret_is_found_but_never_made(tmp_path: Path) -> None:
    config = config_of(f"embedded://{tmp_path}/kv", {"TARN_DATA_DIR": str(tmp_path)})
    assert secret_of(config) is None
    assert not (tmp_path / "secret").exists()
    (tmp_path / "secret").write_text("ab" * 32)
    (tmp_path / "secret").chmod(0o600)
    assert secret_of(config) == b"\xab" * 32

"""The files of secrets are read again; everything else stays as it was at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarn.config import ConfigError, SecretFiles, changed_secrets, load

OLD, NEW = "aa" * 32, "bb" * 32
BUCKET = "TARN_BLOCKSTORE_S3_CREDENTIALS_"


class Mounted:
    """A folder of secret files, and the environment that names them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.put(secret=OLD)
        self.environment = {
            "HOME": "/",
            "TARN_LOGGING_LEVEL": "WARN",
            "TARN_INSTALLATION_SECRET_FILE": str(folder / "secret"),
            "TARN_INSTALLATION_PREVIOUS_SECRET_FILE": str(folder / "previous"),
            BUCKET + "ACCESS_KEY_ID_FILE": str(folder / "id"),
            BUCKET + "ACCESS_SECRET_KEY_FILE": str(folder / "key"),
        }
        self.config = load(None, self.environment)
        self.files = SecretFiles(self.config, self.environment)

    def put(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.folder / name).write_text(text)


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


def test_the_same_files_give_the_same_configuration(mounted: Mounted) -> None:
    assert mounted.files.load() == mounted.config
    assert len(mounted.files.paths) == 4


def test_the_certificates_for_the_stores_in_use_are_watched(tmp_path: Path) -> None:
    variables = {
        "HOME": "/",
        "TARN_METADATA_DB_TYPE": "cassandra",
        "TARN_METADATA_DB_CASSANDRA_CONTACT_POINTS": "127.0.0.1:9042",
        "TARN_METADATA_DB_CASSANDRA_TLS_ENABLED": "true",
        "TARN_METADATA_DB_CASSANDRA_TLS_CA": str(tmp_path / "nodes"),
        "TARN_METADATA_DB_CASSANDRA_TLS_CERT": str(tmp_path / "cert"),
        "TARN_METADATA_DB_CASSANDRA_TLS_KEY": str(tmp_path / "key"),
        "TARN_BLOCKSTORE_TYPE": "s3",
        "TARN_BLOCKSTORE_DEFAULT_NAMESPACE_PREFIX": "s3://bucket",
        "TARN_BLOCKSTORE_S3_TLS_CA": str(tmp_path / "bucket"),
    }
    files = SecretFiles(load(None, variables), variables)
    assert {path.name for path in files.paths} == {"nodes", "cert", "key", "bucket"}
    before = files.contents()
    (tmp_path / "bucket").write_text("another authority")
    assert files.contents() != before
    assert files.load() == load(None, variables)
    local = {
        **variables,
        "TARN_METADATA_DB_TYPE": "embedded",
        "TARN_BLOCKSTORE_TYPE": "local",
        "TARN_BLOCKSTORE_DEFAULT_NAMESPACE_PREFIX": "local://lake/data",
    }
    assert SecretFiles(load(None, local), local).paths == ()


def test_new_contents_change_the_secrets_and_nothing_else(mounted: Mounted) -> None:
    before = mounted.files.contents()
    mounted.put(secret=NEW, previous=OLD, id="AKID", key="s3cret")
    mounted.environment["TARN_LOGGING_LEVEL"] = "DEBUG"
    found = mounted.files.load()
    assert mounted.files.contents() != before
    assert found.installation.secret is not None
    assert found.installation.secret.reveal() == NEW
    assert found.blockstore.s3.credentials.access_key_id == "AKID"
    assert found.logging == mounted.config.logging
    assert changed_secrets(mounted.config, found) == [
        "installation.secret",
        "installation.previous_secret",
        "blockstore.s3.credentials.access_key_id",
        "blockstore.s3.credentials.access_secret_key",
    ]


def test_a_secret_ends_with_its_file(mounted: Mounted) -> None:
    mounted.put(previous=NEW)
    assert mounted.files.load().installation.previous_secret is not None
    (mounted.folder / "previous").unlink()
    assert mounted.files.load() == mounted.config


def test_damage_is_told_without_the_secret(mounted: Mounted) -> None:
    mounted.put(secret=OLD[:-2])
    with pytest.raises(ConfigError) as caught:
        mounted.files.load()
    assert "TARN_INSTALLATION_SECRET_FILE" in caught.value.message
    assert OLD[:16] not in caught.value.message
    (mounted.folder / "secret").unlink()
    with pytest.raises(ConfigError, match="does not exist"):
        mounted.files.load()


def test_half_of_a_pair_is_refused(mounted: Mounted) -> None:
    mounted.put(id="AKID")
    with pytest.raises(ConfigError, match="access_secret_key is missing"):
        mounted.files.load()


def test_child_processes_get_the_files_and_not_their_contents(mounted: Mounted) -> None:
    assert OLD not in mounted.files.variables.values()
    assert load(None, mounted.files.variables) == mounted.config

"""Archives of Java's classes are used if they fit, and hinder nothing otherwise."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support.servers import java_archives
from tests.support.servers.java_archives import cassandra_options, spark_options

JAVA_HOME = Path(__file__).parents[3] / "tools" / "java-home"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives are kept."""
    monkeypatch.setattr(java_archives, "_FOLDER", tmp_path)
    return tmp_path


def test_without_archives_java_starts_as_ever(folder: Path) -> None:
    assert not list(folder.iterdir())
    assert cassandra_options() == spark_options() == ()


def test_a_java_that_an_archive_does_not_fit_starts_and_says_nothing(folder: Path) -> None:
    found = subprocess.run([str(JAVA_HOME)], capture_output=True, text=True, check=True)
    java = Path(found.stdout.strip()) / "bin" / "java"
    for name, options in (("cassandra", cassandra_options), ("spark", spark_options)):
        archive = folder / f"{name}.jsa"
        archive.write_bytes(b"of another Java" * 1000)
        given = options()
        assert f"-XX:SharedArchiveFile={archive}" in given
        told = [
            subprocess.run([str(java), *each, "--version"], capture_output=True, check=True)
            for each in (given, ())
        ]
        assert (told[0].stdout, told[0].stderr) == (told[1].stdout.replace(b", sharing", b""), b"")

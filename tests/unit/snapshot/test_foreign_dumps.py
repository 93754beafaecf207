"""Folders of snapshots that someone else made: links and devices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.snapshot.files.plain_files import read_plain


def refused(root: Path, name: str, most: int = 100) -> str:
    with pytest.raises(TarnError) as caught:
        read_plain(root, name, most)
    assert caught.value.kind is Kind.CORRUPT
    return caught.value.message


def test_plain_files_are_read_up_to_their_bound(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a").write_bytes(b"x" * 100)
    assert read_plain(tmp_path, "parts/a", 100) == b"x" * 100
    message = refused(tmp_path, "parts/a", 99)
    assert f"{tmp_path}/parts/a has more than 99 bytes" in message
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path, "parts/b", 100)
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path, "other/a", 100)


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    assert read_plain(tmp_path / "link", "a", 1) == b"x"


def test_nothing_behind_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_bytes(b"key")
    root = tmp_path / "dump"
    root.mkdir()
    (root / "file").symlink_to("../secret/key")
    (root / "gone").symlink_to("../nothing")
    (root / "parts").symlink_to("../secret")
    assert "symbolic link" in refused(root, "file")
    assert "symbolic link" in refused(root, "gone")
    refused(root, "parts/key")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../secret/key", "a//b", "a/../b", "/etc/passwd", "a/"]
)
def test_names_that_lead_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    assert "names no file" in refused(tmp_path, name)


def test_pipes_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    """Opening a pipe would wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert "not a plain file" in refused(tmp_path, "pipe")
    refused(tmp_path, "folder")
    refused(tmp_path, "pipe/a")

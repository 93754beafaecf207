"""`tarn up` says so when it starts empty beside the objects of an earlier installation."""

from __future__ import annotations

from pathlib import Path

from tarn.config import load
from tarn_cli.commands.up import lost_metadata


def test_objects_without_metadata_are_reported(tmp_path: Path) -> None:
    config = load(None, {"TARN_DATA_DIR": str(tmp_path)})
    assert lost_metadata(config) == ""
    blocks = tmp_path / "blocks"
    (blocks / ".tarn").mkdir(parents=True)
    assert lost_metadata(config) == "", "a folder of the store itself is no repository"
    journal = blocks / "tarn-journal-tarn"
    journal.mkdir()
    assert "has a journal. If the metadata" in lost_metadata(config)
    journal.rmdir()
    (blocks / "lake-1").mkdir()
    (blocks / "shop-2").mkdir()
    warning = lost_metadata(config)
    assert "objects of 2 repositories, such as lake-1. If the metadata" in warning
    assert "tarn backup restore" in warning
    journal.mkdir()
    warning = lost_metadata(config)
    assert "objects of 2 repositories, such as lake-1, and a journal. If the metadata" in warning
    file = config.metadata.db.embedded.file
    file.parent.mkdir()
    file.touch()
    assert lost_metadata(config) == ""

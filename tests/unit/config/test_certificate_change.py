"""A store reads its certificates again when their files changed, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarn.config import contents_of, load
from tarn.config.certificate_change import CertificateChange
from tarn.core.errors import Kind, Reason, TarnError


class Store:
    """Counts how often it read its certificates; refuses the text `damaged`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.read: list[str] = []

    async def reload(self) -> None:
        text = self.file.read_text()
        if text == "damaged":
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, "the certificate is damaged")
        self.read.append(text)


async def test_changed_files_are_read_once_and_refused_ones_again(tmp_path: Path) -> None:
    file, config = tmp_path / "ca.pem", load(None, {"HOME": "/"})
    file.write_text("first")
    store = Store(file)
    change = CertificateChange("s3", (file,), contents_of((file,)), store.reload)
    await change.use(config)
    assert store.read == []
    file.write_text("second")
    await change.use(config)
    await change.use(config)
    assert store.read == ["second"]
    file.write_text("damaged")
    for _ in range(2):
        with pytest.raises(TarnError, match="damaged"):
            await change.use(config)
    file.write_text("third")
    await change.use(config)
    assert store.read == ["second", "third"]


async def test_a_change_while_the_store_opens_is_not_missed(tmp_path: Path) -> None:
    file, config = tmp_path / "ca.pem", load(None, {"HOME": "/"})
    before = contents_of((file,))
    file.write_text("written while the store opened")
    store = Store(file)
    await CertificateChange("s3", (file,), before, store.reload).use(config)
    assert store.read == ["written while the store opened"]

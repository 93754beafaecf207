"""A lake and its backups; the two places where backups may be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from backup_lab import BackupLab, backup_lab
from tests.support.clock import ManualClock

from tarn.block.mem import MemBlockStore
from tarn.snapshot.files.bucket import BucketTarget
from tarn.snapshot.files.target import FolderTarget, Target


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[BackupLab]:
    async with backup_lab(tmp_path) as made:
        yield made


@pytest.fixture(params=["folder", "bucket"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "folder":
        return FolderTarget(tmp_path / "target")
    return BucketTarget(MemBlockStore(ManualClock()), "mem://backups")

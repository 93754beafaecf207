"""A lake and its backups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from backup_lab import BackupLab, backup_lab


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[BackupLab]:
    async with backup_lab(tmp_path) as made:
        yield made

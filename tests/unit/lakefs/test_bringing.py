"""A recorded repository of lakeFS, brought over with its history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from graveler_service import Service, running_service
from lakefs_lab import Recorded, opened, recorded, shown


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path / "service") as made:
        yield made


@pytest.fixture
def record(tmp_path: Path) -> Recorded:
    return recorded(tmp_path)


async def test_all_refs_show_in_tarn_what_they_show_in_lakefs(
    service: Service, record: Recorded, tmp_path: Path
) -> None:
    async with opened(service, record, tmp_path / "work") as (bringing, history, _):
        done = await bringing.run()
    assert (done.branches, done.tags, done.commits) == (3, 2, 8)
    assert await shown(service) == record.seen
    assert history.progress.unverified == 0

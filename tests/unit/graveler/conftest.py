"""Fixtures: a repository, and replicas that serve it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from graveler_service import Service, running_service
from lake import MAIN, Lake, Replicas, Running, create_repository
from lake_upload import Upload

from tarn_graveler.uploads.state import NewUpload


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    made = Replicas(tmp_path)
    yield made
    await made.tasks.close()
    await made.kv.close()
    await made.blocks.close()


@pytest.fixture
async def lake(replicas: Replicas) -> AsyncIterator[Lake]:
    async with replicas.replica() as graveler:
        repository = await create_repository(graveler)
        yield Lake(graveler, repository, replicas.kv, replicas.clock, replicas.meters)


@pytest.fixture
async def other(replicas: Replicas, lake: Lake) -> AsyncIterator[Lake]:
    """The same repository through another replica, which has its own caches."""
    async with replicas.replica() as graveler:
        yield replace(lake, graveler=graveler)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    made = Running()
    yield made
    await made.close()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path) as made:
        yield made


@pytest.fixture
async def upload(lake: Lake, other: Lake) -> Upload:
    """An upload whose completion has begun; both replicas know the branch."""
    uploads = lake.graveler.uploads
    new = NewUpload(MAIN, "k", b"", "ann", "", is_full_object_checksum=False)
    made = await uploads.create(lake.repository, new)
    claim = await uploads.begin_complete(lake.repository, made.upload_id, bytes(32))
    await lake.put("warm", 0)
    await other.put("warm", 0)
    return Upload(lake, made.upload_id, claim)

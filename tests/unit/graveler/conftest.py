"""Fixtures: a repository, and replicas that serve it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from graveler_service import Service, running_service
from lake import Lake, Replicas, Running, create_repository


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
        yield Lake(graveler, repository, replicas.kv, replicas.clock)


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

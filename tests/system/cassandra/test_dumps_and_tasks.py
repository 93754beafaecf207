"""Dumps, restores and tasks on a real node: their rows, pages, settling reads and compare-and-sets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from dumped_lake import dump, fill, restore, shown
from graveler_service import Service
from lake_tasks import LEASE_S, MAIN_KEY, a_merge, done, head, kill, look, merges_of, task_id

from tarn_proto.graveler.v1 import task_service_pb2 as pb

pytestmark = [pytest.mark.cassandra, pytest.mark.timeout(180)]


async def test_dump_and_restore(service: Service, tmp_path: Path) -> None:
    await fill(service)
    before = await shown(service)
    await dump(service, tmp_path / "lake.tar")
    await service.graveler.delete_repository(service.admin, "lake")
    done = await restore(service, tmp_path / "lake.tar")
    assert (done.branches, done.tags, done.left_out) == (2, 1, 0)
    assert await shown(service) == before


async def test_merge_is_found_by_another_replica(service: Service) -> None:
    await service.graveler.create_branch(service.admin, "lake", "side", "main")
    await service.put("a", 1, "side")
    await service.graveler.create_commit(service.admin, "lake", "side", "a")
    name = task_id(service)
    gate = service.replicas.kv.hold("set_if", MAIN_KEY, after=True)
    await service.graveler.start_merge(service.admin, a_merge(), task_id=name)
    async with asyncio.timeout(60):
        await gate.reached.wait()
    await kill(service)
    made = await head(service)
    await service.put("b", 2)  # a second merge would be refused
    service.clock.advance(LEASE_S + 1)
    async with service.another_replica() as other:
        await look(other)
        task = await done(other, name)
        assert (task.state, task.run_count) == (pb.TASK_STATE_SUCCEEDED, 2)
        assert task.merge.commit.commit_id == made == await head(service)
        assert len(await merges_of(service, name)) == 1
        (listed,) = (await other.graveler.list_tasks(service.admin, "lake")).tasks
        assert listed.task_id == name

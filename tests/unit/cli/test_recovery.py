"""Restores into another installation, and recoveries from the bucket alone, over graveler's real services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from dumped_lake import another_installation, commit, dump, fill, restore, shown, transfer
from graveler_service import Service, running_service

from tarn.block.port import BlockKey
from tarn.core.commit import commit_id_of, from_json, to_json
from tarn.core.errors import TarnError


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path) as made:
        yield made


async def test_another_installation_restores_a_dump(service: Service, tmp_path: Path) -> None:
    await fill(service)
    before = await shown(service)
    await dump(service, tmp_path / "lake.tar")
    async with another_installation(service, tmp_path / "other") as other:
        await restore(other, tmp_path / "lake.tar")
        assert await shown(other) == before
        assert await other.size("main", "c") == 3


async def test_what_commits_left_in_the_bucket_is_recovered(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    before = await shown(service, of_bucket=True)
    namespace = (await service.graveler.get_repository(service.admin, "lake")).storage_namespace
    async with another_installation(service, tmp_path / "other") as other:
        done = await transfer(other, page_size=2).recover("lake", namespace, "main")
        after = await shown(other, of_bucket=True)
        assert set(after["heads"]) == {"main", "dev", "gone"}, "deleted branches come back"
        del after["heads"]["gone"]
        assert after == before
        assert (done.damaged, done.left_out, done.unheaded) == ([], 0, [])
        assert await other.size("main", "c") == 3


async def test_a_recovery_leaves_out_damaged_commits_and_what_descends_from_them(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    blocks = service.replicas.blocks
    namespace = (await service.graveler.get_repository(service.admin, "lake")).storage_namespace
    good = (await service.graveler.get_branch(service.admin, "lake", "main")).commit_id
    bad = await commit(service, "main", "x", 7)
    await commit(service, "main", "x", 8)
    await service.graveler.create_branch(service.admin, "lake", "lost", bad)
    await commit(service, "lost", "y", 1)
    path = f"_tarn/commits/{bad}.json"
    data = await blocks.read(BlockKey(namespace, path))
    await blocks.delete_many(namespace, [path])
    await blocks.put(BlockKey(namespace, path), data.replace(b'"x 7"', b'"x 9"'))
    await blocks.put(BlockKey(namespace, "_tarn/refs/main/notes.txt"), b"")
    misnamed = f"_tarn/commits/{'0' * 64}.json"
    await blocks.put(BlockKey(namespace, misnamed), data)
    # Intact by its id, but of a time that no clock shows.
    forged = replace(from_json(data), create_time_us=1 << 60)
    of_forged = f"_tarn/commits/{commit_id_of(forged)}.json"
    await blocks.put(BlockKey(namespace, of_forged), to_json(forged))
    of_note = f"_tarn/refs/main/{'9' * 20}-{good}.json"
    await blocks.put(BlockKey(namespace, of_note), b"{}")
    async with another_installation(service, tmp_path / "other") as other:
        done = await transfer(other).recover("lake", namespace, "main")
        notes = [of_note, "_tarn/refs/main/notes.txt"]
        assert done.damaged == [*sorted([path, misnamed, of_forged]), *notes]
        assert (done.left_out, done.unheaded) == (2, ["lost"])
        assert (await other.graveler.get_branch(other.admin, "lake", "main")).commit_id == good


async def test_a_recovery_without_its_default_branch_names_the_others_and_stays_invisible(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    namespace = (await service.graveler.get_repository(service.admin, "lake")).storage_namespace
    async with another_installation(service, tmp_path / "other") as other:
        with pytest.raises(TarnError, match="no intact note of branch trunk") as raised:
            await transfer(other).recover("lake", namespace, "trunk")
        assert "dev, gone, main" in raised.value.message
        assert not (await other.graveler.list_repositories(other.admin)).repositories
        await other.graveler.delete_repository(other.admin, "lake")
        await transfer(other).recover("lake", namespace, "dev")

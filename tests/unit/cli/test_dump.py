"""Dump, restore and recovery of a repository, as the command line does them, over graveler's real services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from graveler_service import Service, running_service

from tarn_cli.dump_file import DumpFile, DumpFolder
from tarn_cli.dump_transfer import Restored, Transfer
from tarn_proto.graveler.v1 import settings_service_pb2 as settings_pb


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path) as made:
        yield made


def transfer(service: Service) -> Transfer:
    return Transfer(service.graveler, lambda: service.admin)


async def commit(service: Service, branch: str, path: str, size: int) -> str:
    service.clock.advance(60)
    await service.put(path, size, branch)
    made = await service.graveler.create_commit(service.admin, "lake", branch, f"{path} {size}")
    return made.commit.commit_id


async def fill(service: Service) -> None:
    """Gives the lake a merge, a tag, rules, metadata, a deleted branch and an uncommitted object."""
    graveler, admin = service.graveler, service.admin
    await commit(service, "main", "a", 1)
    await graveler.create_branch(admin, "lake", "dev", "main")
    await commit(service, "dev", "b", 2)
    await commit(service, "main", "c", 3)
    await graveler.merge(admin, "lake", "main", "dev")
    await graveler.create_tag(admin, "lake", "v1", "dev")
    await graveler.create_branch(admin, "lake", "gone", "main")
    await commit(service, "gone", "d", 4)
    await graveler.delete_branch(admin, "lake", "gone")
    protection = settings_pb.Protection(pattern="main", blocked=[settings_pb.CHANGE_KIND_FORCE])
    etag = (await graveler.get_settings(admin, "lake")).etag
    etag = await graveler.set_rules(
        admin, "lake", protections=[protection], hidden_patterns=["tmp-*"], if_match=etag
    )
    await graveler.set_metadata(admin, "lake", {"owner": "ann"}, if_match=etag)
    await service.put("e", 5)


async def shown(service: Service, *, of_bucket: bool = False) -> dict[str, object]:
    """Returns all that users see of the lake; with `of_bucket`, only what a recovery can know."""
    graveler, admin = service.graveler, service.admin
    branches = (await graveler.list_branches(admin, "lake")).branches
    commits = (await graveler.list_commits(admin, "lake", "main")).commits
    paths = (await graveler.list_entries(admin, "lake", "main~0")).paths
    found: dict[str, object] = {
        "heads": {each.branch_id: each.commit_id for each in branches},
        "log": [(each.commit_id, each.message, list(each.parent_ids)) for each in commits],
        "paths": list(paths),
    }
    if not of_bucket:
        found_settings = await graveler.get_settings(admin, "lake")
        found_settings.ClearField("etag")
        found["settings"] = str(found_settings)
        tags = (await graveler.list_tags(admin, "lake")).tags
        found["tags"] = [(each.tag_id, each.commit_id) for each in tags]
        deleted = (await graveler.list_deleted_branches(admin, "lake")).branches
        found["deleted"] = [(each.branch_id, each.commit_id) for each in deleted]
        reflog = (await graveler.list_reflog(admin, "lake", "main")).entries
        found["reflog"] = [
            (each.time.ToMicroseconds(), each.operation, each.new_commit_id)
            for each in reflog
            if each.operation != 8  # the restore itself
        ]
    return found


async def dump(service: Service, path: Path) -> None:
    folder = DumpFolder(path, "lake")
    await transfer(service).dump("lake", folder)
    folder.finish(0)
    folder.close()


async def restore(service: Service, path: Path, name: str = "lake") -> Restored:
    with DumpFile(path) as file:
        return await transfer(service).restore(name, file)


async def test_a_restored_repository_shows_what_the_dumped_one_did(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    before = await shown(service)
    long_ago = (await service.graveler.get_commit(service.admin, "lake", "main@{2}")).commit_id
    await dump(service, tmp_path / "lake.tar")
    await service.graveler.delete_repository(service.admin, "lake")
    done = await restore(service, tmp_path / "lake.tar")
    assert (done.branches, done.tags, done.left_out) == (2, 1, 0)
    assert await shown(service) == before
    assert await service.size("main", "b") == 2
    again = (await service.graveler.get_commit(service.admin, "lake", "main@{3}")).commit_id
    assert again == long_ago, "the restore itself is one more change"

"""A lake with all that a dump holds, and what users see of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from graveler_service import Service
from lake import Replicas
from tests.support.clock import SeededIds

from tarn.client.collections import CollectionClient
from tarn.client.graveler import GravelerClient
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import CommitId
from tarn.gate.access import Access
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.snapshot.files.stored import StoredSnapshot
from tarn.snapshot.files.target import FolderTarget
from tarn.snapshot.files.work import RateLimiter, TransferOptions
from tarn.snapshot.repository.dumping import RepositoryDump, lines_of, own_folder
from tarn.snapshot.repository.transfer import Restored, Transfer, checked
from tarn_graveler.application import endpoints_of
from tarn_proto.graveler.v1 import collection_service_pb2 as collection_pb
from tarn_proto.graveler.v1 import settings_service_pb2 as settings_pb

__all__ = [
    "another_installation",
    "begin",
    "commit",
    "dump",
    "fill",
    "lines",
    "opened",
    "restore",
    "shown",
    "transfer",
]


def transfer(service: Service, page_size: int = 1000) -> Transfer:
    return Transfer(service.graveler, lambda: service.admin, page_size=page_size)


async def commit(service: Service, branch: str, path: str, size: int) -> str:
    service.clock.advance(1)
    await service.put(path, size, branch)
    made = await service.graveler.create_commit(service.admin, "lake", branch, f"{path} {size}")
    return made.commit.commit_id


async def fill(service: Service) -> None:
    """Gives the lake a merge, a tag, rules, metadata, a deleted branch and an uncommitted object."""
    graveler, admin = service.graveler, service.admin
    first = await commit(service, "main", "a", 1)
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
    rules = '{"branches": [{"match": "main", "keep_days": 7}]}'
    etag = (await graveler.get_settings(admin, "lake")).etag
    await graveler.set_retention(admin, "lake", rules, if_match=etag)
    await expire(service, first)


async def expire(service: Service, commit_id: str) -> None:
    collector, run_id = CollectionClient(service.transport), "e" * 32
    await collector.begin(service.admin, "lake", run_id, collection_pb.COLLECTION_PHASE_MARK)
    await collector.expire_commits(service.admin, "lake", run_id, {CommitId(commit_id): "a rule"})
    totals = collection_pb.CollectionTotals()
    await collector.end(service.admin, "lake", run_id, totals, is_complete=False)


async def expired(service: Service, commit_ids: Iterable[str]) -> list[str]:
    """Returns why commits cannot be read."""
    found = []
    for commit_id in commit_ids:
        try:
            await service.graveler.list_entries(service.admin, "lake", commit_id)
        except TarnError as error:
            if error.reason is not Reason.EXPIRED_COMMIT:
                raise
            found.append(error.message)
    return found


async def shown(service: Service, *, of_bucket: bool = False) -> dict[str, Any]:
    """Returns all that users see of the lake; with `of_bucket`, only what a recovery can know."""
    graveler, admin = service.graveler, service.admin
    branches = (await graveler.list_branches(admin, "lake")).branches
    commits = (await graveler.list_commits(admin, "lake", "main")).commits
    paths = (await graveler.list_entries(admin, "lake", "main~0")).paths
    found: dict[str, Any] = {
        "heads": {each.branch_id: each.commit_id for each in branches},
        "log": [(each.commit_id, each.message, list(each.parent_ids)) for each in commits],
        "paths": list(paths),
    }
    if not of_bucket:
        found_settings = await graveler.get_settings(admin, "lake")
        found_settings.ClearField("etag")
        found["settings"] = str(found_settings)
        tags = (await graveler.list_tags(admin, "lake")).tags
        found["retention"] = (await graveler.get_retention(admin, "lake")).rules_json
        found["expired"] = await expired(service, [each.commit_id for each in commits])
        assert len(found["expired"]) == 1
        found["tags"] = [(each.tag_id, each.commit_id) for each in tags]
        times = [each.create_time.ToMicroseconds() for each in branches]
        found["times"] = times + [each.create_time.ToMicroseconds() for each in tags]
        deleted = (await graveler.list_deleted_branches(admin, "lake")).branches
        found["deleted"] = [(each.branch_id, each.commit_id) for each in deleted]
        reflog = (await graveler.list_reflog(admin, "lake", "main")).entries
        found["reflog"] = [
            (each.time.ToMicroseconds(), each.operation, each.new_commit_id)
            for each in reflog
            if each.operation != 8  # the restore itself
        ]
    return found


def options(service: Service) -> TransferOptions:
    return TransferOptions(service.clock, RateLimiter(service.clock))


async def begin(
    service: Service, path: Path, *, restart: bool = False, repository: str = "lake"
) -> RepositoryDump:
    """Begins or continues a dump of the lake."""
    ids = SeededIds(service.clock, 77)
    return await RepositoryDump.begin(
        own_folder(path), repository, ids, options(service), restart=restart
    )


async def dump(service: Service, path: Path) -> None:
    begun = await begin(service, path)
    await transfer(service).dump("lake", begun)
    await begun.finish()


async def opened(service: Service, path: Path) -> StoredSnapshot:
    """The newest dump in a folder, checked."""
    return await checked(FolderTarget(path), options(service))


async def lines(service: Service, path: Path, kind: str) -> list[str]:
    """The lines of a kind of the newest dump in a folder."""
    return [line async for line in lines_of(await opened(service, path), kind)]


async def restore(service: Service, path: Path, name: str = "lake") -> Restored:
    return await transfer(service).restore(name, await opened(service, path))


@asynccontextmanager
async def another_installation(service: Service, folder: Path) -> AsyncIterator[Service]:
    """Yields an empty installation over the same blocks."""
    replicas = Replicas(folder)
    replicas.clock, replicas.blocks = service.clock, service.replicas.blocks
    replicas.count = 50  # other random ids
    async with replicas.replica() as graveler:
        endpoints = endpoints_of(graveler, Access(service.auth, service.clock))
        transport = InProcessTransport(endpoints, service.clock)
        yield replace(service, graveler=GravelerClient(transport), replicas=replicas)
        await transport.close()
    await replicas.tasks.close()

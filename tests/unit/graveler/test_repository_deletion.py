"""A deleted repository or branch leaves nothing that can be read or written, or that stays for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from lake import Lake, Replicas, Running, entry
from permits import permit_for
from pull_records import new_pull

from tarn.core.condition import WriteCondition
from tarn.core.entry import pack, unpack
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId, CommitId
from tarn.kv.mem import MemKv
from tarn_graveler.handlers.branches import BranchHandler
from tarn_graveler.handlers.repositories import RepositoryHandler
from tarn_graveler.uploads.state import NewUpload
from tarn_proto.graveler.v1 import branch_service_pb2 as branches
from tarn_proto.graveler.v1 import repository_service_pb2 as repositories

LIMIT_SECONDS = 5.0
DEV = BranchId("dev")


async def delete_repository(lake: Lake) -> None:
    handler = RepositoryHandler(lake.graveler)
    request = repositories.DeleteRepositoryRequest(repository_id="lake")
    await handler.DeleteRepository(request, permit_for(request, lake.repository))


async def delete_branch(lake: Lake, branch_id: str) -> None:
    handler = BranchHandler(lake.graveler)
    request = branches.DeleteBranchRequest(repository_id="lake", branch_id=branch_id)
    await handler.DeleteBranch(request, permit_for(request, lake.repository))


async def head(lake: Lake) -> CommitId:
    return (await lake.graveler.branches.fresh(lake.main)).branch.commit_id


async def kept(replicas: Replicas, lake: Lake) -> list[str]:
    """Returns the partitions of the repository that still hold rows."""
    root = lake.graveler.repositories.keys_of(lake.repository).root
    store = replicas.kv._kv
    assert isinstance(store, MemKv)
    return [listed.name async for listed in store.partitions(root)]


async def test_a_deleted_repository_leaves_no_row(replicas: Replicas, lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.commit()
    await lake.put("b", 1)
    await lake.graveler.branches.create(lake.branch(DEV), await head(lake))
    await lake.put("c", 1, DEV)
    new = NewUpload(DEV, "d", entry(0), "ann", "", is_full_object_checksum=False)
    await lake.graveler.uploads.create(lake.repository, new)
    await lake.graveler.pulls.create(lake.repository, new_pull("dev"))
    assert len(await kept(replicas, lake)) >= 6
    await delete_repository(lake)
    await lake.drop_everything_removed()
    assert await kept(replicas, lake) == []


async def test_a_deleted_branch_leaves_no_row_and_touches_no_other_branch(
    replicas: Replicas, lake: Lake
) -> None:
    await lake.put("a", 1)
    await lake.graveler.branches.create(lake.branch(DEV), await head(lake))
    before = await kept(replicas, lake)
    await lake.put("b", 1, DEV)
    assert len(await kept(replicas, lake)) == len(before) + 1
    await delete_branch(lake, "dev")
    await lake.drop_everything_removed()
    reflog = lake.graveler.repositories.keys_of(lake.repository).reflog.name
    assert set(await kept(replicas, lake)) == {*before, reflog}, "the branch can be restored"
    assert await lake.get("a") == 1


async def test_a_branch_that_changed_under_its_deletion_leaves_its_new_token_no_row_either(
    replicas: Replicas, lake: Lake, other: Lake, running: Running
) -> None:
    """The deletion is a compare-and-set, so it drops the tokens of the record that it removed."""
    await lake.graveler.branches.create(lake.branch(DEV), await head(lake))
    await lake.put("a", 1, DEV)
    removal = lake.kv.hold("delete_if")
    deletion = running.start(delete_branch(lake, "dev"))
    async with asyncio.timeout(LIMIT_SECONDS):
        await removal.reached.wait()
    # A conditional write seals the token; its row is in a token that the deletion has not read.
    named = pack(replace(unpack(entry(2)), operation_id="op"))
    condition = WriteCondition(if_none_match=True)
    await other.graveler.conditional.stage(lake.branch(DEV), "b", named, condition)
    assert await other.get("b", "dev") == 2
    removal.open()
    await deletion
    await lake.drop_everything_removed()
    assert not [name for name in await kept(replicas, lake) if "/dev:" in name]
    with pytest.raises(TarnError) as raised:
        await lake.get("a", "dev")
    assert raised.value.reason in (Reason.BRANCH_NOT_FOUND, Reason.REF_NOT_FOUND)

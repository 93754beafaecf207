"""Merges on a lake in memory: branches to merge, changes of the record to hold."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest
from lake import MAIN, Lake
from tests.support.faults.gates import HeldOperation

from tarn.core.branch import Branch
from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, pack
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId, CommitId
from tarn.core.listing.choice import REFUSE, Choice
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.graph.walk import Span
from tarn_graveler.versioning.merges import MergeRequest

__all__ = [
    "NEW",
    "SIDE",
    "branch_with",
    "head",
    "history",
    "hold_change",
    "merge",
    "mine",
    "record",
    "refused",
    "uncommitted",
]

SIDE = BranchId("side")
NEW = WriteCondition(if_none_match=True)


async def record(lake: Lake, branch: BranchId = MAIN) -> Branch:
    return (await lake.graveler.branches.fresh(lake.branch(branch))).branch


async def head(lake: Lake, branch: BranchId = MAIN) -> CommitId:
    return (await record(lake, branch)).commit_id


async def branch_with(
    lake: Lake, changes: dict[str, int | None], name: BranchId = SIDE
) -> CommitId:
    """Creates a branch at the head of main and commits changes to it; None deletes. Returns its head."""
    await lake.graveler.branches.create(lake.branch(name), await head(lake))
    for path, size in changes.items():
        if size is None:
            await lake.delete(path, branch=name)
        else:
            await lake.put(path, size, name)
    request = CommitRequest("bob", f"changes of {name}")
    return (await lake.graveler.committing.commit(lake.branch(name), request)).commit_id


async def merge(
    lake: Lake, source: CommitId, *, choice: Choice = REFUSE, allow_empty: bool = False
) -> NewHead:
    request = MergeRequest(source, "ann", "merge", choice=choice, allow_empty=allow_empty)
    return await lake.graveler.merges.merge(lake.main, request)


async def refused(work: Awaitable[object]) -> Reason:
    with pytest.raises(TarnError) as caught:
        await work
    return caught.value.reason


def mine(size: int, operation: str, mtime_us: int = 0) -> bytes:
    md5 = size.to_bytes(16, "big")
    return pack(Entry(size, mtime_us, bytes(16), md5, operation_id=operation))


def hold_change(lake: Lake, number: int = 1) -> HeldOperation:
    """Holds the `number`th compare-and-set of main's record from now on, before it is sent."""
    return lake.kv.hold("set_if", lake.branch_key, number=number)


async def uncommitted(lake: Lake) -> list[str]:
    page = await lake.graveler.diffing.uncommitted(lake.main, prefix="", after="", limit=100)
    return page.paths


async def history(lake: Lake) -> list[CommitId]:
    page = await lake.graveler.history.page(
        lake.repository, Span.of(await head(lake), first_parent=True), 100
    )
    return [commit_id for commit_id, _ in page.commits]

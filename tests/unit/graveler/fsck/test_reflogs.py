"""`tarn fsck` and reflogs: their rows are checked, and the commits that they name are in use."""

from __future__ import annotations

from functools import partial

import pytest
from fsck_lab import FsckLab
from lake import MAIN

from tarn.core.ids import BranchId
from tarn.fsck.finding import Code
from tarn.kv.records import decode_head_change, encode_head_change
from tarn_graveler.branch.committing import CommitRequest

DEV = BranchId("dev")


async def delete_dev(lab: FsckLab) -> str:
    """Deletes a branch with a commit that nothing else leads to; returns the commit."""
    branches, dev = lab.lake.graveler.branches, lab.lake.branch(DEV)
    await branches.create(dev, (await lab.branch()).commit_id)
    await lab.put("only-on-dev", branch=DEV)
    made = await lab.lake.graveler.committing.commit(dev, CommitRequest("ann", "on dev"))
    await branches.delete(dev, partial(lab.lake.graveler.drops.announce, dev))
    await lab.lake.graveler.names.release(lab.lake.repository, DEV)
    return made.commit_id


async def test_the_commits_of_a_deleted_branch_are_in_use_while_it_can_be_restored(
    lab: FsckLab,
) -> None:
    await delete_dev(lab)
    assert await lab.check() == []


async def test_a_commit_that_only_a_reflog_names_is_reported_if_it_is_missing(lab: FsckLab) -> None:
    commit_id = await delete_dev(lab)
    await lab.kv.delete_many(lab.keys.commits, [lab.keys.commit(commit_id)])
    await lab.remove_block(f"_tarn/commits/{commit_id}.json")
    found = await lab.check()
    assert (Code.COMMIT_MISSING.label, f"commit {commit_id}") in found
    assert any("the reflog of branch dev" in detail for detail in lab.details)


@pytest.mark.parametrize("damage", ["garbage", "misplaced", "unknown"])
async def test_damaged_rows_are_reported(lab: FsckLab, damage: str) -> None:
    await delete_dev(lab)
    (key, value), *_ = await lab.kv.scan(lab.keys.reflog, b"", None, 1)
    entry = decode_head_change(value)
    match damage:
        case "garbage":
            expected = Code.RECORD_DAMAGED
            await lab.set(lab.keys.reflog, key, b"\x08")
        case "misplaced":
            expected = Code.RECORD_DAMAGED
            key = lab.keys.reflog_row(MAIN, entry) + b"0"
            await lab.set(lab.keys.reflog, key, encode_head_change(entry))
        case _:
            expected = Code.KEY_UNKNOWN
            key = b"other/x"
            await lab.set(lab.keys.reflog, key, value)
    assert await lab.check() == [(expected.label, f"{lab.keys.reflog.name} {key.decode()}")]

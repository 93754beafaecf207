"""Blocks that only expired commits name may be missing, and all others may not."""

from __future__ import annotations

from fsck_lab import FsckLab

from tarn.block.port import BlockKey
from tarn.core.expiry import Expiry
from tarn.core.ids import CommitId, TagId
from tarn.fsck.finding import Code
from tarn.fsck.session import FsckOptions


async def test_missing_blocks_of_expired_commits_are_no_damage(lab: FsckLab) -> None:
    gone, old = await committed(lab, "a", b"1")
    second, kept = await committed(lab, "a", b"2")
    await committed(lab, "a", b"3")
    expired, graveler = lab.lake.graveler.expired, lab.lake.graveler
    rows = [(each, Expiry("rule", 1)) for each in (old, kept)]
    await graveler.tags.create(lab.lake.repository, TagId("v1"), kept)
    await forget_reflog(lab)
    assert await codes(lab) == set()
    await lab.blocks.delete_many(lab.namespace, [gone])
    assert await codes(lab) == {Code.BLOCK_MISSING.label}
    await expired.expire(lab.lake.repository, rows)
    assert await codes(lab) == set()
    await lab.blocks.delete_many(lab.namespace, [second])
    assert await codes(lab) == {Code.BLOCK_MISSING.label}, "a tag names the commit"


async def test_blocks_of_expired_commits_are_no_orphans(lab: FsckLab) -> None:
    block, old = await committed(lab, "a", b"1")
    await committed(lab, "a", b"2")
    await committed(lab, "a", b"3")
    await forget_reflog(lab)
    await lab.lake.graveler.expired.expire(lab.lake.repository, [(old, Expiry("rule", 1))])
    key = BlockKey(lab.namespace, block)
    assert await codes(lab) == set()
    assert await codes(lab, verify_data=True) == set()
    await lab.blocks.delete_many(lab.namespace, [block])
    assert await codes(lab, verify_data=True) == set(), "it may be missing"
    await lab.blocks.put(key, b"2")
    found = await codes(lab, verify_data=True)
    assert found == {Code.BLOCK_DAMAGED.label}, "a rule of objects may keep it"


async def committed(lab: FsckLab, path: str, body: bytes) -> tuple[str, CommitId]:
    block = await lab.put(path, body)
    return block, (await lab.lake.commit(path)).commit_id


async def forget_reflog(lab: FsckLab) -> None:
    await lab.kv.drop_partition(lab.keys.reflog)


async def codes(lab: FsckLab, *, verify_data: bool = False) -> set[str]:
    return {code for code, _ in await lab.check(FsckOptions(verify_data=verify_data))}

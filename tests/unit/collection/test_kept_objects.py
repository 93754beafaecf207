"""Rules of objects: which objects of expired commits stay, and that they can be read."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from collected_lake import CollectedLake
from collector_lab import NO_LIMITS, CollectorLab, collector_lab
from expiring_lab import commit, forget_reflog, set_rules
from graveler_service import reason_of

from tarn.block.rangefile import metarange_path, range_path
from tarn.collection.block_names import BlockKind
from tarn.collection.references import ranges_of_metarange
from tarn.core.entry import unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RangeId, physical_path

LISTED = (
    '{"branches": [{"match": "*", "keep_commits": 1}], "objects": {"keep_listed_on": ["main"]}}'
)
WRITTEN = '{"branches": [{"match": "*", "keep_commits": 1}], "objects": {"keep_written_days": 10}}'
NOTHING = '{"branches": [{"match": "*", "keep_commits": 1}]}'


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[CollectorLab]:
    async with collector_lab(tmp_path) as lab:
        yield lab


async def block_of(lab: CollectorLab, ref: str, path: str) -> str | Reason:
    """Returns the block that a reader finds at a path, or why not."""
    graveler = lab.service.graveler
    try:
        found = await graveler.lookup(lab.admin, "lake", ref, path)
    except TarnError as error:
        return error.reason
    return physical_path(unpack(found.entry).address)


async def remove(lab: CollectorLab, path: str) -> None:
    await lab.service.graveler.unstage(lab.admin, "lake", "main", path)


async def test_versions_of_what_main_lists_stay_until_it_is_deleted_there(
    lab: CollectorLab,
) -> None:
    first, a = await commit(lab, "main", "a")
    second, b = await commit(lab, "main", "b")
    await commit(lab, "main", "a")
    await remove(lab, "b")
    await lab.commit("main")
    await commit(lab, "main", "other")
    await forget_reflog(lab)
    await set_rules(lab, LISTED)
    await lab.pass_days(2)
    await lab.collect()
    assert a in await lab.blocks(), "main has another version of a"
    assert b not in await lab.blocks(), "b is deleted on main"
    assert await block_of(lab, first, "a") == a
    assert await block_of(lab, second, "a") == a
    assert await block_of(lab, second, "b") is Reason.EXPIRED_COMMIT
    assert await block_of(lab, second, "c") is Reason.EXPIRED_COMMIT
    assert await reason_of(lab.readable(first)) is Reason.EXPIRED_COMMIT, "no listing has holes"
    # The path comes back, and the block does not.
    await commit(lab, "main", "b")
    assert await block_of(lab, second, "b") is Reason.EXPIRED_COMMIT
    await remove(lab, "a")
    assert await block_of(lab, first, "a") == a, "the head of main lists it still"
    await lab.commit("main")
    assert await block_of(lab, first, "a") is Reason.EXPIRED_COMMIT
    await commit(lab, "main", "other")
    await forget_reflog(lab)
    await lab.pass_days(2)
    await lab.collect()
    assert a not in await lab.blocks()


async def test_a_sweep_keeps_what_is_listed_again_since_its_mark(lab: CollectorLab) -> None:
    _, a = await commit(lab, "main", "a")
    await remove(lab, "a")
    await commit(lab, "main", "b")
    await commit(lab, "main", "b")
    await forget_reflog(lab)
    await set_rules(lab, LISTED)
    await lab.pass_days(2)
    manifest = await lab.collector.mark("lake")
    assert manifest.candidates(BlockKind.DATA).count >= 1
    await commit(lab, "main", "a")
    await lab.pass_days(1)
    await lab.collector.sweep("lake", NO_LIMITS)
    assert a in await lab.blocks()


async def test_what_was_written_lately_stays(lab: CollectorLab) -> None:
    _, old = await commit(lab, "main", "a")
    await lab.pass_days(5)
    late, young = await commit(lab, "main", "a")
    for _ in range(2):  # the newest entry of the reflog is in the branch record
        await commit(lab, "main", "a")
    await forget_reflog(lab)
    await set_rules(lab, WRITTEN)
    await lab.pass_days(6)
    await lab.collect()
    blocks = await lab.blocks()
    assert (old in blocks, young in blocks) == (False, True)
    assert await block_of(lab, late, "a") == young
    await lab.pass_days(5)
    assert await block_of(lab, late, "a") is Reason.EXPIRED_COMMIT
    await lab.collect()
    assert young not in await lab.blocks()


async def test_rules_of_objects_let_nothing_expire_by_themselves(lab: CollectorLab) -> None:
    made = [await commit(lab, "main", "a") for _ in range(3)]
    await forget_reflog(lab)
    await set_rules(
        lab, '{"objects": {"keep_listed_on": ["main", "gone"], "keep_written_days": 1}}'
    )
    await lab.pass_days(30)
    await lab.collect()
    assert {block for _, block in made} <= await lab.blocks()
    assert await lab.readable(made[0][0]) == {"a": made[0][1]}


@pytest.mark.parametrize("seed", range(6))
async def test_random_histories_keep_what_the_rules_say(lab: CollectorLab, seed: int) -> None:
    """The oracle looks at each object of each expired commit, by the definition of the rules."""
    rng = random.Random(seed)
    graveler, admin = lab.service.graveler, lab.admin
    await graveler.create_branch(admin, "lake", "dev", "main")
    made: dict[str, dict[str, tuple[str, int]]] = {}
    written: dict[str, int] = {}
    for _ in range(14):
        branch = rng.choice(["main", "dev"])
        for _ in range(rng.randint(1, 3)):
            block = await lab.put(branch, f"p{rng.randint(0, 6)}")
            written[block] = lab.service.clock.now_us()
        if rng.random() < 0.4:
            path = f"p{rng.randint(0, 6)}"
            await graveler.unstage(lab.admin, "lake", branch, path)
        found = await graveler.create_commit(lab.admin, "lake", branch, "m", allow_empty=True)
        entries = await lab.readable(found.commit.commit_id)
        made[found.commit.commit_id] = {
            path: (block, written[block]) for path, block in entries.items()
        }
        await lab.pass_days(rng.choice([0.2, 1, 2]))
    await forget_reflog(lab)
    await set_rules(lab, LISTED[:-2] + ', "keep_written_days": 9}}')
    await lab.pass_days(2)
    await lab.collector.mark("lake")
    await lab.pass_days(1)
    await lab.collector.sweep("lake", NO_LIMITS)
    now_us = lab.service.clock.now_us()
    heads = {each: await lab.readable(each) for each in ("main", "dev")}
    live = {block for head in heads.values() for block in head.values()}
    expired = {}
    for commit_id, listing in made.items():
        if (await graveler.get_commit(lab.admin, "lake", commit_id)).expired_by:
            expired[commit_id] = listing
        else:
            live |= {block for block, _ in listing.values()}
    assert len(expired) >= len(made) - 4, (
        "each branch has its head, and the one before in its outbox"
    )
    kept = set[str]()
    for commit_id, listing in expired.items():
        for path, (block, time_us) in listing.items():
            is_kept = path in heads["main"] or time_us >= now_us - 9 * 86_400_000_000
            if is_kept:
                kept.add(block)
            told = block if is_kept else Reason.EXPIRED_COMMIT
            assert await block_of(lab, commit_id, path) == told
    gone = {block for listing in expired.values() for block, _ in listing.values()} - kept - live
    young = {block for block in gone if written[block] >= now_us - 10 * 86_400_000_000}
    blocks = await lab.blocks()
    assert kept | live <= blocks
    assert not (gone - young) & blocks
    assert seed or gone - young, "nothing went"


@pytest.mark.parametrize("lost", ["range", "metarange"])
async def test_a_listing_that_is_missing_ends_the_run(tmp_path: Path, lost: str) -> None:
    """Its objects are not known, and may be kept."""
    lake = CollectedLake(tmp_path)
    listing = await lake.listing([[await lake.object()]])
    lake.emptied, lake.written_since_us = [listing], 1
    (key,) = await ranges_of_metarange(lake.blocks, lake.namespace, listing)
    ranges = range_path(RangeId(key.tobytes().hex()))
    path = ranges if lost == "range" else metarange_path(listing)
    await lake.blocks.delete_many(lake.namespace, [path])
    lake.clock.advance(2 * 86_400)
    with pytest.raises(TarnError) as raised:
        await lake.mark()
    assert raised.value.kind is Kind.CORRUPT

"""Plans of erasures: what they find in all history, compared with what readers find."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from collector_lab import NO_LIMITS, CollectorLab, collector_lab, play
from erasure_lab import eraser_of, history
from expiring_lab import commit, forget_reflog, set_rules
from graveler_service import reason_of

from tarn.block.port import BlockKey
from tarn.collection.erasure_files import read_list
from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, pack
from tarn.core.errors import Reason
from tarn.core.ids import physical_path


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[CollectorLab]:
    async with collector_lab(tmp_path) as lab:
        yield lab


async def test_other_paths_of_the_same_data_are_told(lab: CollectorLab) -> None:
    """A copy by reference loses its content, too: committed, staged, and in a branch of its own."""
    blocks = await history(lab)
    page = await lab.service.graveler.list_entries(lab.admin, "lake", "main")
    assert page.paths[0] == "users/7/a"
    for branch, path in (("main", "copy/a"), ("side", "copy/b"), ("main", "users/8/c")):
        await lab.service.stage(path, page.entries[0], branch, call=lab.admin)
    await lab.commit("main")
    await lab.pass_days(2)
    made = await eraser_of(lab).plan("lake", "users/7/**")
    assert (made.others, made.erasable.count) == (3, 4)
    objects = await read_list(lab.collector.blocks, lab.namespace, made)
    rows = [row for row in objects.to_pylist() if not row["matches"]]
    assert [row["path"] for row in rows] == ["copy/a", "copy/b", "users/8/c"]
    assert {physical_path(row["address"]) for row in rows} == {blocks["new"]}


async def test_a_plan_sees_compacted_listings(lab: CollectorLab) -> None:
    compacted = await lab.put("main", "users/7/a")
    await lab.service.graveler.compact_branch(lab.admin, "lake", "main")
    await lab.pass_days(2)
    made = await eraser_of(lab).plan("lake", "users/?/*")
    assert (made.erasable.count, made.uncommitted) == (1, {"main": 1})
    await lab.commit("main")
    done = await eraser_of(lab).run("lake", made.plan_id)
    assert compacted not in await lab.blocks()
    assert done.discarded == {}, "a commit came first"
    assert "users/7/a" in await lab.readable("main")


@pytest.mark.parametrize("pattern", ["**", "*", "u*/7/**", "users*", "?sers/7", "**/7"])
async def test_a_pattern_that_could_be_everything_needs_to_be_said(
    lab: CollectorLab, pattern: str
) -> None:
    await history(lab)
    assert await reason_of(eraser_of(lab).plan("lake", pattern)) is Reason.INVALID_ARGUMENT
    await lab.pass_days(2)
    await eraser_of(lab).plan("lake", pattern, everything=True)


async def test_rows_of_older_tokens_are_found(lab: CollectorLab) -> None:
    """A conditional write begins a new token; the row that it hides has a block, too."""
    hidden = await lab.put("main", "users/7/a", b"hidden")
    address = lab.ids.uuid7()
    newer = physical_path(address)
    await lab.collector.blocks.put(BlockKey(lab.namespace, newer), b"new")
    entry = pack(Entry(3, lab.service.clock.now_us(), address, address, operation_id="one"))
    condition = WriteCondition(if_match="*")
    await lab.service.stage("users/7/a", entry, condition=condition, call=lab.admin)
    await lab.pass_days(2)
    made = await eraser_of(lab).plan("lake", "users/7/a")
    assert made.staged == {"main": 2}
    await eraser_of(lab).run("lake", made.plan_id)
    assert await lab.blocks() & {hidden, newer} == set()


async def test_objects_of_expired_commits_are_found(lab: CollectorLab) -> None:
    """A mark let the commits expire, and no sweep has deleted their objects yet."""
    made = [await commit(lab, "main", "users/7/a") for _ in range(3)]
    await forget_reflog(lab)
    await set_rules(lab, '{"branches": [{"match": "*", "keep_commits": 1}]}')
    await lab.pass_days(6)
    await lab.collector.mark("lake")
    assert await reason_of(lab.readable(made[0][0])) is Reason.EXPIRED_COMMIT
    plan = await eraser_of(lab).plan("lake", "users/7/*")
    assert (plan.erasable.count, plan.heads) == (3, {"main": 1})
    await eraser_of(lab).run("lake", plan.plan_id)
    assert await lab.blocks() == set()
    await lab.pass_days(1)
    report = await lab.collector.sweep("lake", NO_LIMITS)
    assert not report.missing


@pytest.mark.parametrize("seed", range(3))
async def test_a_plan_finds_what_readers_find(lab: CollectorLab, seed: int) -> None:
    """Random histories, compared with every ref and every commit read path by path."""
    refs = await play(lab, seed)
    commits = [
        path.removeprefix("_tarn/commits/").removesuffix(".json")
        for path in await lab.blocks("_tarn/commits/")
    ]
    pairs: set[tuple[str, str]] = set()
    for ref in [*refs, *commits]:
        pairs |= set((await lab.readable(ref)).items())
    await lab.pass_days(2)
    made = None
    for pattern, first in (("p[", ""), ("p3", "p3"), ("p*", "p"), ("*", "")):
        made = await eraser_of(lab).plan("lake", pattern, everything=True)
        rows = (await read_list(lab.collector.blocks, lab.namespace, made)).to_pylist()
        found = {(row["path"], physical_path(row["address"])) for row in rows if row["matches"]}
        wanted = {pair for pair in pairs if pair[0].startswith(first) and pattern != "p["}
        assert found >= wanted, pattern
        assert all(path == pattern or "*" in pattern for path, _ in found)
    assert made is not None
    done = await eraser_of(lab).run("lake", made.plan_id)
    assert (done.came_since, done.failed.count) == (0, 0)
    assert await lab.blocks() & {block for _, block in pairs} == set()

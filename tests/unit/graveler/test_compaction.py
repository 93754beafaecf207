"""Compactions of branches (docs/design/compaction.md; rule 6 of docs/design/protocol.md)."""

from dataclasses import replace

import pytest
from lake import ADDRESS, DELAY, Lake, Replicas
from lake_merges import NEW, branch_with, head, merge, mine, record, refused, uncommitted
from lake_parts import listing
from tests.support.clock import SeededIds

from tarn.block.committed import BuildResult
from tarn.core.branch import TokenKind
from tarn.core.entry import Entry, pack, unpack
from tarn.core.errors import Reason
from tarn_graveler.assembly import GravelerSettings, assemble
from tarn_graveler.branch.building import BuildOrder, InlineBuilder
from tarn_graveler.compaction.compacting import CompactionOutcome, CompactionResult
from tarn_graveler.config import open_committed


async def compact(lake: Lake, *, force: bool = False) -> CompactionResult:
    return await lake.graveler.compacting.compact(lake.main, force=force)


async def test_a_compaction_folds_writes_and_deletes_and_changes_no_listing(lake: Lake) -> None:
    for number in range(12):
        await lake.put(f"kept/{number:02}", 1)
    made = await lake.commit()
    await lake.put("kept/03", 2)
    await lake.delete("kept/05")
    await lake.put("gone", 1)
    await lake.delete("gone")
    await lake.put("new", 3)
    before, changes = await listing(lake), await uncommitted(lake)
    done = await compact(lake)
    assert done.outcome is CompactionOutcome.COMPACTED
    assert (done.rows_read, done.tombstones_removed, done.tokens_taken) == (4, 2, 1)
    assert done.rows_written > 0
    await lake.drop_everything_removed()
    assert await listing(lake) == before
    assert await uncommitted(lake) == changes == ["kept/03", "kept/05", "new"]
    assert await head(lake) == made.commit_id
    after = await record(lake)
    assert after.sealed == ()
    assert after.compacted_metarange_id == done.compacted
    assert await lake.get("kept/05") is None
    assert await lake.get("kept/03") == 2


async def test_changes_that_are_undone_leave_the_commits_listing(lake: Lake) -> None:
    """The object is written again with the content of the commit, in another block, after a compaction."""
    for name in ("a", "b", "c"):
        await lake.put(name, 1)
    made = await lake.commit()
    await lake.put("a", 2)
    await lake.delete("b")
    assert (await compact(lake)).compacted is not None
    for name in ("a", "b"):
        again = pack(Entry(1, 0, ADDRESS, bytes(16)))
        await lake.graveler.staging.stage(lake.main, name, again)
    done = await compact(lake)
    assert (done.outcome, done.compacted) == (CompactionOutcome.COMPACTED, None)
    assert (await record(lake)).compacted_metarange_id is None
    assert await refused(lake.commit()) is Reason.NOTHING_TO_COMMIT
    assert await head(lake) == made.commit_id
    source = await branch_with(lake, {"s": 1})
    await merge(lake, source)
    assert await listing(lake) == {"a": 1, "b": 1, "c": 1, "s": 1}


async def test_a_branch_without_staged_rows_is_left_as_it_is(lake: Lake) -> None:
    before = await record(lake)
    assert (await compact(lake)).outcome is CompactionOutcome.NOTHING_TO_DO
    assert await record(lake) == before
    await lake.put("a", 1)
    await compact(lake)
    before = await record(lake)
    assert (await compact(lake)).outcome is CompactionOutcome.NOTHING_TO_DO
    assert await record(lake) == before


async def test_sealed_tokens_without_rows_are_removed(lake: Lake) -> None:
    """As refused merges and conditional writes leave them."""
    await lake.put("a", 1)
    await lake.delete("a")
    await lake.graveler.conditional.stage(lake.main, "b", mine(2, "two"), NEW)
    await lake.delete("b")
    assert len((await record(lake)).sealed) == 1
    done = await compact(lake)
    assert (done.outcome, done.tokens_taken, done.tombstones_removed) == (
        CompactionOutcome.COMPACTED,
        2,
        2,
    )
    after = await record(lake)
    assert (after.sealed, after.compacted_metarange_id) == ((), None)
    assert after.staging.kind is TokenKind.PLAIN


async def test_a_commit_after_a_compaction_holds_what_was_folded(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.put("b", 1)
    await lake.commit()
    await lake.delete("a")
    await compact(lake)
    await lake.put("c", 1)
    made = await lake.commit()
    assert await listing(lake, "main@") == {"b": 1, "c": 1}
    assert (made.built.added, made.built.updated, made.built.removed) == (1, 0, 1)
    assert (await record(lake)).compacted_metarange_id is None
    assert await refused(lake.commit()) is Reason.NOTHING_TO_COMMIT


async def test_the_build_of_a_compaction_leaves_room_for_commits_unless_somebody_waits(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder, orders = lake.graveler.committing._builder, []
    build = builder.build

    async def noted(order: BuildOrder) -> BuildResult:
        orders.append(order.is_background)
        return await build(order)

    monkeypatch.setattr(builder, "build", noted)
    await lake.put("a", 1)
    await lake.graveler.compacting.compact(lake.main, is_background=True)
    await lake.put("b", 1)
    await compact(lake)
    await lake.put("c", 1)
    await lake.commit()
    assert orders == [True, False, False]


async def test_an_object_that_equals_the_commits_again_is_the_commits_after_a_compaction(
    lake: Lake,
) -> None:
    """As after a commit: its time goes back. A create of it that is repeated does not know its own object any more."""
    await lake.put("a", 1)
    await lake.commit()
    await lake.delete("a")
    later = pack(Entry(1, 7_000_000, ADDRESS, bytes(16), operation_id="mine"))
    stage = lake.graveler.conditional.stage
    await stage(lake.main, "a", later, NEW)
    assert await stage(lake.main, "a", later, NEW) is False

    async def found() -> Entry:
        return unpack(await lake.graveler.reading.lookup(lake.repository, "main", "a"))

    assert (await found()).mtime_us == 7_000_000
    await compact(lake)
    assert (await found()).mtime_us == 0
    assert await refused(stage(lake.main, "a", later, NEW)) is Reason.PRECONDITION_FAILED


async def test_a_compaction_is_built_by_the_builder_of_commits(
    lake: Lake, replicas: Replicas
) -> None:
    """So a large one runs in the heavy process, and a small one here."""

    class Recording(InlineBuilder):
        async def build(self, order: BuildOrder) -> BuildResult:
            orders.append(order)
            return await super().build(order)

    orders: list[BuildOrder] = []
    kv, blocks = lake.kv, replicas.blocks
    async with (
        open_committed(blocks, replicas.directory / "built") as committed,
        replicas.tasks.another() as tasks,
    ):
        graveler = assemble(
            settings=GravelerSettings("test", drop_delay_seconds=DELAY),
            kv=kv,
            blocks=blocks,
            committed=committed,
            clock=lake.clock,
            ids=SeededIds(lake.clock, seed=9),
            tasks=tasks,
            builder=Recording(kv, committed),
        )
        there = replace(lake, graveler=graveler)
        for number in range(2):
            await there.put(f"a{number}", 1)
            assert (await compact(there)).outcome is CompactionOutcome.COMPACTED
        await there.put("b", 1)
        await there.commit()
    assert [len(order.tokens) for order in orders] == [1, 1, 1]
    assert [order.head is not None for order in orders] == [False, True, True]
    # Only the commit compares the whole compacted listing with its head.
    assert [order.counts_changes for order in orders] == [False, False, True]
    # Only the listing of a commit is cut by the rule of commits.
    assert [order.finely for order in orders] == [True, True, False]

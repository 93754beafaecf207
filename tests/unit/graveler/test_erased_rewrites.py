"""An object that is written again after its erasure is a change: everywhere, and only then (docs/design/erase.md)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import pyarrow as pa
import pytest
from lake import Lake
from lake_erasures import Writer
from lake_merges import NEW, SIDE, branch_with, head, merge, record, refused, uncommitted
from lake_parts import reset_path

from tarn.core.entry import Entry, pack, unpack
from tarn.core.errors import Reason
from tarn.kv.port import Partition
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.compaction.discarding import Discarded, Discarding

MANY = 20
"""More objects than are looked up one by one."""


@pytest.fixture
def writer(lake: Lake) -> Writer:
    return Writer(lake)


async def nothing(writer: Writer) -> None:
    """Goes on without anything between the write and the commit."""


async def compaction(writer: Writer) -> None:
    await writer.compact()


async def compactions(writer: Writer) -> None:
    """Folds the object over a compacted listing that has others, and then again."""
    await writer.lake.put("x", 2)
    await writer.compact()
    await writer.lake.put("x", 3)
    await writer.compact()


async def part_reset(writer: Writer) -> None:
    await writer.lake.put("x", 2)
    await reset_path(writer.lake, "x")


async def discard(writer: Writer) -> None:
    """Folds the object while another one is discarded."""
    other = await writer.put("other")
    graveler = writer.lake.graveler
    discarding = Discarding(graveler.branches, graveler.layers, graveler.part_resets)
    assert await discarding.discard(writer.lake.main, [("other", other)]) == [Discarded.DISCARDED]


Between = Callable[[Writer], Awaitable[None]]


@pytest.mark.parametrize("between", [nothing, compaction, compactions, part_reset, discard])
@pytest.mark.parametrize("compacted_before", [False, True])
async def test_a_commit_has_what_was_written_after_the_erasure(
    writer: Writer, between: Between, *, compacted_before: bool
) -> None:
    lake = writer.lake
    old = await writer.committed()
    if compacted_before:
        await lake.put("beneath", 1)
        await writer.compact()
    await writer.erase(old)
    new = await writer.put()
    await between(writer)
    assert await writer.at("main") == new
    assert "p" in await uncommitted(lake)
    before = await head(lake)
    made = await lake.commit()
    assert await writer.at("main@") == new
    assert made.built.updated == 1
    assert await uncommitted(lake) == []
    older, newer = [
        (await lake.graveler.commits.get(lake.repository, each)).metarange_id
        for each in (before, made.commit_id)
    ]
    page = await lake.graveler.committed.differences.page(
        lake.repository.storage_namespace, older, newer
    )
    assert "p" in page.paths
    assert unpack(page.rights[page.paths.index("p")]).replaced_address == old


@pytest.mark.parametrize("between", [nothing, compaction])
async def test_an_equal_object_whose_like_is_not_erased_is_no_change(
    writer: Writer, between: Between
) -> None:
    """Although another address of the repository is erased."""
    old, other = await writer.committed(), await writer.committed("other")
    await writer.erase(other)
    await writer.put()
    await between(writer)
    assert await uncommitted(writer.lake) == []
    assert await refused(writer.lake.commit()) is Reason.NOTHING_TO_COMMIT
    assert await writer.at("main@") == old


async def test_a_path_that_was_deleted_since_its_erasure_gets_the_new_object(
    writer: Writer,
) -> None:
    """Also if the deletion was folded into a compacted listing, beneath which the commit still has the path."""
    old = await writer.committed()
    await writer.erase(old)
    await writer.lake.delete("p")
    await writer.compact()
    new = await writer.put()
    await writer.compact()
    assert await writer.at("main") == new
    await writer.lake.commit()
    assert await writer.at("main@") == new


async def test_a_branch_with_such_an_object_is_not_clean(writer: Writer) -> None:
    """Else a merge would drop its row."""
    lake = writer.lake
    old = await writer.committed()
    source = await branch_with(lake, {"other": 1})
    await writer.erase(old)
    new = await writer.put()
    assert await refused(merge(lake, source)) is Reason.BRANCH_DIRTY
    await writer.compact()
    assert await refused(merge(lake, source)) is Reason.BRANCH_DIRTY
    await lake.commit()
    await merge(lake, source)
    assert await writer.at("main@") == new


async def test_a_merge_brings_it_to_another_branch(writer: Writer) -> None:
    lake = writer.lake
    old = await writer.committed()
    await branch_with(lake, {"other": 1})
    await writer.erase(old)
    new = await writer.put(branch=SIDE)
    made = await lake.graveler.committing.commit(lake.branch(SIDE), CommitRequest("bob", "again"))
    assert await writer.at("main@") == old
    await merge(lake, made.commit_id)
    assert await writer.at("main@") == new


async def test_what_two_branches_wrote_again_is_no_conflict(writer: Writer) -> None:
    lake = writer.lake
    old = await writer.committed()
    await branch_with(lake, {"other": 1})
    await writer.erase(old)
    await writer.put(branch=SIDE)
    made = await lake.graveler.committing.commit(lake.branch(SIDE), CommitRequest("bob", "again"))
    mine = await writer.committed()
    await merge(lake, made.commit_id)
    assert await writer.at("main@") == mine


async def test_what_was_written_again_may_be_erased_and_written_again(writer: Writer) -> None:
    addresses = [await writer.committed()]
    for number in range(3):
        await writer.erase(addresses[-1])
        addresses.append(await writer.put())
        if number:
            await writer.compact()
        await writer.lake.commit()
        assert await writer.at("main@") == addresses[-1]
        assert await writer.replaced() == addresses[-2]


async def test_a_conditional_write_is_recognized_after_it_was_folded(writer: Writer) -> None:
    """A client that repeats it is not refused: the gateway would delete the block of the object that is there."""
    lake = writer.lake
    old = await writer.committed()
    await writer.erase(old)
    await lake.delete("p")
    new, again = writer.address(), writer.address()
    packed = pack(Entry(7, 0, new, b"p".ljust(16), operation_id="one"))
    assert not await lake.graveler.conditional.stage(lake.main, "p", packed, NEW)
    await writer.compact()
    assert await lake.graveler.conditional.stage(lake.main, "p", packed, NEW) is False
    assert await writer.at("main") == new
    other = pack(Entry(7, 0, again, b"p".ljust(16), operation_id="two"))
    assert (
        await refused(lake.graveler.conditional.stage(lake.main, "p", other, NEW))
        is Reason.PRECONDITION_FAILED
    )
    await lake.commit()
    assert await writer.at("main@") == new


async def test_many_objects_are_looked_up_together(writer: Writer) -> None:
    lake = writer.lake
    paths = [f"p{number:02}" for number in range(MANY)]
    old = {path: await writer.put(path) for path in paths}
    await lake.commit()
    gone = paths[::3]
    await writer.erase(*(old[path] for path in gone))
    new = {path: await writer.put(path) for path in paths}
    assert await uncommitted(lake) == gone
    assert (await lake.commit()).built.updated == len(gone)
    for path in paths:
        assert await writer.at("main@", path) == (new if path in gone else old)[path]


async def test_the_rows_are_read_after_the_staged_ones(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure that ends while a commit reads its rows is seen: one of these rows may be of a later write."""
    lake = writer.lake
    old, other = await writer.committed(), await writer.committed("other")
    await writer.erase(other)
    new = await writer.put()
    token = (await record(lake)).staging.token_id
    scan_arrow = lake.kv.scan_arrow

    async def scanned(
        partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        async for batch in scan_arrow(partition, start, end):
            if token in partition.name and batch.num_rows:
                await writer.erase(old)
            yield batch

    monkeypatch.setattr(lake.kv, "scan_arrow", scanned)
    await lake.commit()
    assert await writer.at("main@") == new


async def test_what_is_staged_again_after_a_commit_took_it_is_no_change(writer: Writer) -> None:
    """A write whose token was sealed is written again (rule 1): both copies count as one."""
    lake = writer.lake
    old = await writer.committed()
    await writer.erase(old)
    packed = pack(Entry(7, 0, writer.address(), b"p".ljust(16)))
    await lake.graveler.staging.stage(lake.main, "p", packed)
    await lake.commit()
    await lake.graveler.staging.stage(lake.main, "p", packed)
    assert await uncommitted(lake) == []
    assert await refused(lake.commit()) is Reason.NOTHING_TO_COMMIT


@pytest.mark.parametrize("between", [nothing, compaction])
async def test_another_object_that_is_the_same_keeps_the_committed_one(
    writer: Writer, between: Between
) -> None:
    lake = writer.lake
    await writer.erase(await writer.committed())
    new = await writer.committed()
    await writer.put()
    await between(writer)
    assert await uncommitted(lake) == []
    assert await refused(lake.commit()) is Reason.NOTHING_TO_COMMIT
    assert await writer.at("main@") == new

"""Fresh reads: no caller gets what was read before it asked, whether its row is read alone or beside another one."""

from __future__ import annotations

import pytest
from lake import Running, reached
from tests.support.faults.gates import GatedKv

from tarn.aio.task_set import TaskSet
from tarn.core.errors import Kind, Reason, TarnError
from tarn.gate.permits import Begun
from tarn.kv.mem import MemKv
from tarn.kv.port import Partition, PartitionKind, ReadsTogether
from tarn_graveler.records.fresh_reads import Beside, FreshReads

REFS = Partition("refs", PartitionKind.REGISTER)
NAMES = Partition("names", PartitionKind.REGISTER)
BRANCH, VIEW = b"branch", b"view"


class Apart:
    """A store that reads partitions one by one: a view on another store."""

    def __init__(self, kv: GatedKv) -> None:
        self.get_many = kv.get_many


@pytest.fixture
async def kv() -> GatedKv:
    made = GatedKv(MemKv())
    for partition, key in ((REFS, BRANCH), (REFS, b"other"), (NAMES, VIEW)):
        await made.set_if(partition, key, key, None)
    made.calls.clear()
    return made


@pytest.fixture
async def reads(kv: GatedKv) -> FreshReads:
    return FreshReads(kv, TaskSet())


async def change(kv: GatedKv, value: bytes) -> None:
    (found,) = await kv.get_many(NAMES, [VIEW])
    assert found is not None
    await kv.set_if(NAMES, VIEW, value, found.predicate)


async def value_of(reads: FreshReads, view: Beside, begun: Begun) -> bytes | None:
    found = await reads.found_beside(view, begun)
    return None if found is None else found.value


async def test_a_row_beside_others_is_one_read_with_them(kv: GatedKv, reads: FreshReads) -> None:
    view, gone = Beside((NAMES, VIEW)), Beside((NAMES, b"gone"))
    for each, value in ((view, VIEW), (gone, None)):
        kv.calls.clear()
        begun = reads.begin_beside(each, REFS)
        rows = [reads.begin(REFS, key) for key in (BRANCH, b"other", BRANCH, b"absent")]
        found = [await row for row in rows]
        assert [row and row.value for row in found] == [BRANCH, b"other", BRANCH, None]
        assert await value_of(reads, each, begun) == value
        assert len(kv.calls) == 1


async def test_a_row_is_read_alone_if_nothing_was_read_beside_it(
    kv: GatedKv, reads: FreshReads
) -> None:
    view = Beside((NAMES, VIEW))
    begun = reads.begin_beside(view, REFS)
    assert await value_of(reads, view, begun) == VIEW
    assert kv.calls == [("get_many", NAMES.name)]


async def test_rows_that_wait_where_nobody_reads_are_bounded(
    kv: GatedKv, reads: FreshReads
) -> None:
    view = Beside((NAMES, VIEW))
    begun = reads.begin_beside(view, REFS)
    for number in range(3_000):
        reads.begin_beside(view, Partition(f"refs/{number}", PartitionKind.REGISTER))
    assert len(reads._beside) <= 1_000
    assert (await reads.begin(REFS, BRANCH)) is not None
    assert await value_of(reads, view, begun) == VIEW


async def test_only_one_row_is_read_beside_others(kv: GatedKv, reads: FreshReads) -> None:
    """A second one is read by itself: each gets what is there."""
    one, other = Beside((NAMES, VIEW)), Beside((NAMES, b"gone"))
    first, second = reads.begin_beside(one, REFS), reads.begin_beside(other, REFS)
    await reads.begin(REFS, BRANCH)
    assert await value_of(reads, one, first) == VIEW
    assert await value_of(reads, other, second) is None


async def test_no_caller_gets_what_was_read_before_it_asked(
    kv: GatedKv, reads: FreshReads, running: Running
) -> None:
    view = Beside((NAMES, VIEW))
    gate = kv.hold("get_many", VIEW, after=True)
    reads.begin_beside(view, REFS)
    early = running.start(reads.found_beside(view, 0))
    branch = reads.begin(REFS, BRANCH)
    await reached(gate)
    await change(kv, b"new")
    begun = reads.begin_beside(view, REFS)
    gate.open()
    await branch
    assert view.found is not None, "the earlier read has come back"
    assert view.found.value == VIEW
    assert await value_of(reads, view, begun) == b"new"
    found = await early
    assert found is not None


async def test_a_read_that_was_overtaken_does_not_hide_the_later_one(
    kv: GatedKv, reads: FreshReads
) -> None:
    view = Beside((NAMES, VIEW))
    gate = kv.hold("get_many", VIEW, after=True)
    reads.begin_beside(view, REFS)
    slow = reads.begin(REFS, BRANCH)
    await reached(gate)
    await change(kv, b"new")
    begun = reads.begin_beside(view, REFS)
    await reads.begin(REFS, BRANCH)
    gate.open()
    await slow
    assert await value_of(reads, view, begun) == b"new"


async def test_a_failed_read_of_both_leaves_the_row_to_be_read_alone(
    kv: GatedKv, reads: FreshReads
) -> None:
    view = Beside((NAMES, VIEW))
    kv.lose("get_many", VIEW, applied=False)
    begun = reads.begin_beside(view, REFS)
    with pytest.raises(TarnError):
        await reads.begin(REFS, BRANCH)
    assert await value_of(reads, view, begun) == VIEW


async def test_partitions_that_are_read_apart_do_not_wait_for_each_other(kv: GatedKv) -> None:
    apart = Apart(kv)
    assert not isinstance(apart, ReadsTogether)
    reads = FreshReads(apart, TaskSet())  # type: ignore[arg-type]
    view = Beside((NAMES, VIEW))
    gate = kv.hold("get_many", VIEW)
    begun = reads.begin_beside(view, REFS)
    found = await reads.begin(REFS, BRANCH)
    assert (found and found.value, gate.reached.is_set()) == (BRANCH, True)
    await change(kv, b"new")
    gate.open()
    assert await value_of(reads, view, begun) == b"new"


async def test_the_error_of_a_row_that_is_read_apart_is_its_own(kv: GatedKv) -> None:
    reads = FreshReads(Apart(kv), TaskSet())  # type: ignore[arg-type]
    view = Beside((NAMES, VIEW))
    kv.lose("get_many", VIEW, applied=False)
    begun = reads.begin_beside(view, REFS)
    found = await reads.begin(REFS, BRANCH)
    assert found is not None
    assert found.value == BRANCH
    with pytest.raises(TarnError) as failed:
        await reads.found_beside(view, begun)
    assert (failed.value.kind, failed.value.reason) == (
        Kind.UNKNOWN_OUTCOME,
        Reason.OUTCOME_UNKNOWN,
    )

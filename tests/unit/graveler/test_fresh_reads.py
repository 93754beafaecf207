"""Fresh reads: no caller gets what was read before it asked, whether its row is read alone or beside another one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from lake import Running, reached
from tests.support.at_once import AtOnceKv
from tests.support.faults.gates import GatedKv

from tarn.aio.task_set import TaskSet
from tarn.core.errors import Kind, Reason, TarnError
from tarn.gate.permits import Begun
from tarn.kv.mem import MemKv
from tarn.kv.port import ROWS_AT_ONCE_MAX, Partition, PartitionKind, ReadsTogether, RowName
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
        begun = reads.begin_beside(each)
        rows = [reads.begin(REFS, key) for key in (BRANCH, b"other", BRANCH, b"absent")]
        found = [await row for row in rows]
        assert [row and row.value for row in found] == [BRANCH, b"other", BRANCH, None]
        assert await value_of(reads, each, begun) == value
        assert len(kv.calls) == 1


async def test_a_row_is_read_alone_if_nothing_was_read_beside_it(
    kv: GatedKv, reads: FreshReads
) -> None:
    view = Beside((NAMES, VIEW))
    begun = reads.begin_beside(view)
    assert await value_of(reads, view, begun) == VIEW
    assert kv.calls == [("get_many", NAMES.name)]


async def test_rows_that_wait_where_nobody_reads_are_bounded(
    kv: GatedKv, reads: FreshReads
) -> None:
    view = Beside((NAMES, VIEW))
    begun = reads.begin_beside(view)
    for number in range(3_000):
        reads.begin_beside(Beside((NAMES, f"{number}".encode())))
    assert len(reads._beside) <= 1_000
    assert (await reads.begin(REFS, BRANCH)) is not None
    assert await value_of(reads, view, begun) == VIEW


async def test_only_one_row_is_read_beside_others(kv: GatedKv, reads: FreshReads) -> None:
    """A second one is read by itself: each gets what is there."""
    one, other = Beside((NAMES, VIEW)), Beside((NAMES, b"gone"))
    first, second = reads.begin_beside(one), reads.begin_beside(other)
    await reads.begin(REFS, BRANCH)
    assert await value_of(reads, one, first) == VIEW
    assert await value_of(reads, other, second) is None


async def test_no_caller_gets_what_was_read_before_it_asked(
    kv: GatedKv, reads: FreshReads, running: Running
) -> None:
    view = Beside((NAMES, VIEW))
    gate = kv.hold("get_many", VIEW, after=True)
    reads.begin_beside(view)
    branch = reads.begin(REFS, BRANCH)
    await reached(gate)
    early = running.start(reads.found_beside(view, 0))
    await change(kv, b"new")
    begun = reads.begin_beside(view)
    gate.open()
    await branch
    assert view.known is not None, "the earlier read has come back"
    assert view.known.value == VIEW
    assert await value_of(reads, view, begun) == b"new"
    found = await early
    assert found is not None


async def test_a_read_that_was_overtaken_does_not_hide_the_later_one(
    kv: GatedKv, reads: FreshReads
) -> None:
    view = Beside((NAMES, VIEW))
    gate = kv.hold("get_many", VIEW, after=True)
    reads.begin_beside(view)
    slow = reads.begin(REFS, BRANCH)
    await reached(gate)
    await change(kv, b"new")
    begun = reads.begin_beside(view)
    await reads.begin(REFS, BRANCH)
    gate.open()
    await slow
    assert await value_of(reads, view, begun) == b"new"


async def test_a_failed_read_of_both_leaves_the_row_to_be_read_alone(
    kv: GatedKv, reads: FreshReads
) -> None:
    view = Beside((NAMES, VIEW))
    kv.lose("get_many", VIEW, applied=False)
    begun = reads.begin_beside(view)
    with pytest.raises(TarnError):
        await reads.begin(REFS, BRANCH)
    assert await value_of(reads, view, begun) == VIEW


async def test_partitions_that_are_read_apart_do_not_wait_for_each_other(kv: GatedKv) -> None:
    apart = Apart(kv)
    assert not isinstance(apart, ReadsTogether)
    reads = FreshReads(apart, TaskSet())  # type: ignore[arg-type]
    view = Beside((NAMES, VIEW))
    gate = kv.hold("get_many", VIEW)
    begun = reads.begin_beside(view)
    found = await reads.begin(REFS, BRANCH)
    assert (found and found.value, gate.reached.is_set()) == (BRANCH, True)
    await change(kv, b"new")
    gate.open()
    assert await value_of(reads, view, begun) == b"new"


async def test_the_error_of_a_row_that_is_read_apart_is_its_own(kv: GatedKv) -> None:
    reads = FreshReads(Apart(kv), TaskSet())  # type: ignore[arg-type]
    view = Beside((NAMES, VIEW))
    kv.lose("get_many", VIEW, applied=False)
    begun = reads.begin_beside(view)
    found = await reads.begin(REFS, BRANCH)
    assert found is not None
    assert found.value == BRANCH
    with pytest.raises(TarnError) as failed:
        await reads.found_beside(view, begun)
    assert (failed.value.kind, failed.value.reason) == (
        Kind.UNKNOWN_OUTCOME,
        Reason.OUTCOME_UNKNOWN,
    )


# ---- a store that reads at once

RECORD: RowName = REFS, BRANCH


@pytest.fixture
async def quick() -> AtOnceKv:
    made = AtOnceKv(MemKv())
    for partition, key in ((REFS, BRANCH), (NAMES, VIEW)):
        await made.set_if(partition, key, key, None)
    return made


async def read(reads: FreshReads, *rows: RowName) -> list[bytes | None]:
    found = reads.at_once(*rows) or await reads.together(*rows)
    return [None if each is None else each.value for each in found]


async def read_all(
    reads: FreshReads, *wanted: Sequence[RowName]
) -> list[list[bytes | None] | TarnError]:
    """Reads for several callers at the same time; an error is its caller's answer."""

    async def answer(rows: Sequence[RowName]) -> list[bytes | None] | TarnError:
        try:
            return await read(reads, *rows)
        except TarnError as error:
            return error

    async with asyncio.TaskGroup() as tasks:
        callers = [tasks.create_task(answer(rows)) for rows in wanted]
    return [each.result() for each in callers]


async def come_together(reads: FreshReads) -> None:
    """Leaves a tick behind in which several callers read."""
    await read_all(reads, [RECORD], [RECORD])
    await asyncio.sleep(0)


async def test_a_lone_caller_reads_at_once_and_waits_for_no_tick(quick: AtOnceKv) -> None:
    reads = FreshReads(quick, TaskSet())
    for _ in range(3):
        assert reads.at_once(RECORD) is not None
        await asyncio.sleep(0)


async def test_callers_of_a_tick_share_a_read_after_a_tick_that_had_several(
    quick: AtOnceKv,
) -> None:
    reads = FreshReads(quick, TaskSet())
    await come_together(reads)
    quick.reads.clear()
    rows = [(RECORD, (REFS, b"%d" % number)) for number in range(8)]
    found = await read_all(reads, *rows)
    assert found == [[BRANCH, None]] * 8
    assert [len(each) for each in quick.reads] == [9], "the record once"
    await read(reads, RECORD)  # it still waits for its tick, alone
    assert reads.at_once(RECORD) is not None


async def test_a_shared_read_begins_after_all_its_callers_asked(quick: AtOnceKv) -> None:
    """A writer asks after its write was acknowledged, in a tick in which others have asked before (rule 1)."""
    reads = FreshReads(quick, TaskSet())
    await come_together(reads)
    (before,) = await quick.get_many(REFS, [BRANCH])
    assert before is not None
    early = asyncio.ensure_future(read(reads, RECORD))
    await asyncio.sleep(0)
    await quick.set_if(REFS, BRANCH, b"new", before.predicate)
    late = asyncio.ensure_future(read(reads, RECORD))
    assert await late == [b"new"]
    assert await early in ([BRANCH], [b"new"])


async def test_callers_whose_rows_are_too_many_for_one_read_take_several(quick: AtOnceKv) -> None:
    reads = FreshReads(quick, TaskSet())
    await come_together(reads)
    quick.reads.clear()
    rows = [(REFS, b"%d" % number) for number in range(4 * ROWS_AT_ONCE_MAX)]
    found = await read_all(reads, *((RECORD, row) for row in rows))
    assert found == [[BRANCH, None]] * len(rows)
    assert len(quick.reads) <= 8
    assert all(len(each) <= ROWS_AT_ONCE_MAX for each in quick.reads)


async def test_an_error_of_a_shared_read_is_of_the_caller_whose_row_it_is(quick: AtOnceKv) -> None:
    reads = FreshReads(quick, TaskSet())
    await come_together(reads)
    wrong = TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, "a key of 5,000 bytes")
    quick.failing[b"wrong"] = wrong
    rows = [RECORD, (REFS, b"wrong"), RECORD, (REFS, b"absent"), RECORD]
    found = await read_all(reads, *([row] for row in rows))
    assert found == [[BRANCH], wrong, [BRANCH], [None], [BRANCH]]


async def test_a_caller_that_is_cancelled_leaves_the_shared_read_to_the_others(
    quick: AtOnceKv,
) -> None:
    reads = FreshReads(quick, TaskSet())
    await come_together(reads)
    quick.failing[b"wrong"] = TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, "a wrong key")
    for rows in ((RECORD, RECORD), (RECORD, (REFS, b"wrong"))):
        staying, leaving = (asyncio.ensure_future(read(reads, row)) for row in rows)
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == [BRANCH]
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await come_together(reads)


@pytest.mark.parametrize("together", [False, True])
async def test_a_row_beside_others_is_in_their_read(quick: AtOnceKv, together: bool) -> None:
    reads = FreshReads(quick, TaskSet())
    view, gone = Beside((NAMES, VIEW)), Beside((NAMES, b"gone"))
    begun = reads.begin_beside(view)
    await read_all(reads, [RECORD])
    assert await value_of(reads, view, begun) == VIEW, "from here on its value is known"
    if together:
        await come_together(reads)
    elsewhere = Partition("elsewhere", PartitionKind.REGISTER)
    quick.reads.clear()
    quick.calls.clear()
    first, second = reads.begin_beside(view), reads.begin_beside(gone)
    found = await read_all(reads, [RECORD], [(elsewhere, b"absent")])
    assert found == [[BRANCH], [None]]
    assert await value_of(reads, view, first) == VIEW
    assert await value_of(reads, gone, second) is None
    assert len(quick.reads) == (1 if together else 2)
    assert not quick.calls, "no row was read by itself"


@pytest.mark.parametrize("together", [False, True])
async def test_a_row_beside_others_that_was_changed_is_the_new_one(
    quick: AtOnceKv, together: bool
) -> None:
    """Also where only its version is read: the value of the former version is known, and is not it."""
    reads = FreshReads(quick, TaskSet())
    view = Beside((NAMES, VIEW))
    for value in (VIEW, b"new", b"newer"):
        await change(quick, value)
        if together:
            await come_together(reads)
        begun = reads.begin_beside(view)
        await read_all(reads, [RECORD])
        assert await value_of(reads, view, begun) == value
    (found,) = await quick.get_many(NAMES, [VIEW])
    assert found is not None
    await quick.delete_if(NAMES, VIEW, found.predicate)
    begun = reads.begin_beside(view)
    await read_all(reads, [RECORD])
    assert await value_of(reads, view, begun) is None


async def test_more_rows_beside_others_than_fit_are_read_by_themselves(quick: AtOnceKv) -> None:
    reads = FreshReads(quick, TaskSet())
    await come_together(reads)
    refs = [
        Partition(f"refs/{each}", PartitionKind.REGISTER) for each in range(ROWS_AT_ONCE_MAX - 1)
    ]
    views = [Beside((NAMES, VIEW)) for _ in refs]
    begun = [reads.begin_beside(view) for view in views]
    await read_all(reads, *([(each, b"absent")] for each in refs))
    for view, each in zip(views, begun, strict=True):
        assert await value_of(reads, view, each) == VIEW

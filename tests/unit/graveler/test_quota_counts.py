"""How a replica counts what a repository uses: when, what, and beside writes that are under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from graveler_service import Service, running_service
from lake import MAIN, Lake, Replicas, Running, entry, reached
from lake_links import Bucket, issue, link, written
from tests.support.faults.gates import HeldOperation

from tarn.core.condition import WriteCondition
from tarn.core.entry import pack, unpack
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId
from tarn.core.quota import Limits, Quota, QuotaKind
from tarn_graveler.uploads.state import NewUpload
from tarn_graveler.usage import admission as admission_module
from tarn_graveler.usage import usage
from tarn_graveler.usage.admission import COUNT_SECONDS


async def limit(lake: Lake, **limits: int) -> None:
    quota = Quota(QuotaKind.REPOSITORY, "lake", Limits(**limits))
    await lake.graveler.admission.records.set(quota)


async def put(lake: Lake, path: str, size: int = 1) -> None:
    with await lake.graveler.admission.object(lake.repository, size):
        await lake.put(path, size)


async def refused(work: Awaitable[object]) -> str:
    """Returns the name of the limit that refuses the work."""
    with pytest.raises(TarnError) as raised:
        await work
    assert raised.value.reason is Reason.QUOTA_EXCEEDED
    return raised.value.metadata["limit"]


async def counts(lake: Lake) -> int:
    """Returns how many scans the token of `main`, which fits into a page, has seen."""
    return lake.kv.calls.count(("scan", (await lake.staging_rows()).name))


def held_count(lake: Lake) -> tuple[HeldOperation, HeldOperation]:
    """Holds the next count before it reads the branches, and when it has read the rows of the first one."""
    return lake.kv.hold("scan"), lake.kv.hold("scan", after=True)


async def put_with_a_count_of(lake: Lake, running: Running, seconds: float) -> None:
    gate = lake.kv.hold("scan")
    first = running.start(put(lake, "first"))
    await reached(gate)
    lake.clock.advance(seconds)
    gate.open()
    await first


async def rest() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_limit_refuses_only_what_uses_more_of_it(lake: Lake) -> None:
    uploads = lake.graveler.uploads
    for path in ("a", "b"):
        new = NewUpload(MAIN, path, b"", "ann", "", is_full_object_checksum=False)
        await uploads.create(lake.repository, new)
    await limit(lake, uploads=1, staged_objects=1)
    await put(lake, "x")
    assert await refused(lake.graveler.admission.upload(lake.repository)) == "staged_objects"
    await limit(lake, uploads=1, staged_objects=5)
    assert await refused(lake.graveler.admission.upload(lake.repository)) == "uploads"
    await put(lake, "y")


async def test_uploads_under_way_beyond_a_lowered_limit_refuse_no_object(lake: Lake) -> None:
    admission = lake.graveler.admission
    await limit(lake, uploads=2)
    with await admission.upload(lake.repository), await admission.upload(lake.repository):
        await limit(lake, uploads=1, staged_objects=1)
        await put(lake, "x")
        assert await refused(put(lake, "y")) == "staged_objects"


async def test_an_object_without_bytes_is_refused_once_the_bytes_are_used_up(lake: Lake) -> None:
    await limit(lake, staged_bytes=5)
    await put(lake, "a", 5)
    assert await refused(put(lake, "b", 0)) == "staged_bytes"


async def test_a_refusal_is_by_a_count_that_began_after_the_request(
    lake: Lake, other: Lake, running: Running
) -> None:
    """A count that is under way may have read a branch before its commit made room."""
    await limit(lake, staged_objects=1)
    await put(lake, "a")
    before, after = held_count(lake)
    early = running.start(put(lake, "early"))
    await reached(before)
    before.open()
    await reached(after)
    await other.commit("room")
    late = running.start(put(lake, "late"))
    await rest()
    after.open()
    assert await refused(early) == "staged_objects"
    await late


async def test_a_count_is_used_for_twenty_times_its_duration(lake: Lake, running: Running) -> None:
    await limit(lake, staged_objects=100)
    await put_with_a_count_of(lake, running, 1.0)
    lake.clock.advance(10)
    await put(lake, "a")
    await rest()
    assert await counts(lake) == 1
    lake.clock.advance(10)
    await put(lake, "b")
    await rest()
    assert await counts(lake) == 2


async def test_writes_beside_a_slow_count_begin_no_other_one(
    lake: Lake, replicas: Replicas
) -> None:
    await limit(lake, staged_objects=100)
    await put(lake, "first")
    for number in (2, 3):
        lake.clock.advance(COUNT_SECONDS + 1)
        gate = lake.kv.hold("scan")
        idle = len(replicas.tasks)
        for path in "abcde":
            await put(lake, path)
        await reached(gate)
        assert len(replicas.tasks) == idle + 1
        gate.open()
        await rest()
        assert await counts(lake) == number


@pytest.mark.parametrize(("took", "pause"), [(1.0, 4.0), (100.0, 5.0)])
async def test_counts_for_refusals_pause_in_between(
    lake: Lake, running: Running, took: float, pause: float
) -> None:
    await limit(lake, staged_objects=1)
    await put_with_a_count_of(lake, running, took)
    beyond = running.start(put(lake, "beyond"))
    await rest()
    lake.clock.advance(pause - 0.1)
    await rest()
    assert (await counts(lake), beyond.done()) == (1, False)
    lake.clock.advance(0.2)
    assert await refused(beyond) == "staged_objects"
    assert await counts(lake) == 2


async def test_what_is_written_during_a_count_is_added_to_it(lake: Lake) -> None:
    await limit(lake, staged_objects=3)
    await put(lake, "first")
    await lake.delete("first")
    lake.clock.advance(COUNT_SECONDS + 1)
    before, after = held_count(lake)
    await put(lake, "a")  # it has the count begun
    await reached(before)
    before.open()
    await reached(after)
    await put(lake, "b")
    after.open()
    await rest()
    await put(lake, "c")
    assert await refused(put(lake, "d")) == "staged_objects"


async def test_what_is_counted_is_not_added_for_ever(lake: Lake) -> None:
    """Also not what was admitted, and then failed."""
    await limit(lake, staged_objects=2)
    with pytest.raises(TarnError), await lake.graveler.admission.object(lake.repository, 1):
        await lake.put("x", 1, BranchId("no-such-branch"))
    for _ in range(3):
        await put(lake, "a")
    await put(lake, "b")
    assert await refused(put(lake, "c")) == "staged_objects"


async def test_an_upload_under_way_takes_no_object(lake: Lake) -> None:
    """Neither does the question whether there is room for one."""
    await limit(lake, staged_objects=1, uploads=5)
    admission = lake.graveler.admission
    for _ in range(2):
        await admission.room(lake.repository)
    with await admission.upload(lake.repository):
        await put(lake, "a")
        assert await refused(admission.room(lake.repository)) == "staged_objects"


async def test_a_write_waits_for_a_count_of_others_for_a_bounded_time(
    lake: Lake, running: Running
) -> None:
    """Then what is known decides."""
    await limit(lake, staged_objects=2)
    gate = lake.kv.hold("scan")
    with mock.patch.object(admission_module, "_WAIT_SECONDS", 0.01):
        first = running.start(put(lake, "first"))
        await reached(gate)
        await put(lake, "a")
        await put(lake, "b")
        assert await refused(put(lake, "c")) == "staged_objects"
    gate.open()
    assert await refused(first) == "staged_objects"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path, store=Bucket) as service:
        yield service


Way = Callable[[Service], Awaitable[Callable[[], Awaitable[object]]]]


async def _put(service: Service) -> Callable[[], Awaitable[object]]:
    return lambda: service.put("new", 1)


async def _conditional(service: Service) -> Callable[[], Awaitable[object]]:
    absent = WriteCondition(if_none_match=True)
    return lambda: service.stage("new", service.entry(1, "op"), condition=absent)


async def _completion(service: Service) -> Callable[[], Awaitable[object]]:
    graveler, admin = service.graveler, service.admin
    upload = await graveler.create_upload(admin, "lake", "main", "new", template=entry(0))
    begun = await graveler.begin_complete_upload(admin, "lake", upload.upload_id, bytes(32))
    made = replace(unpack(entry(1)), address=upload.address, operation_id=upload.upload_id)
    return lambda: graveler.finish_complete_upload(
        admin, "lake", upload.upload_id, begun.claim, pack(made)
    )


async def _link(service: Service) -> Callable[[], Awaitable[object]]:
    issued = await issue(service)
    await written(service, issued)
    return lambda: link(service, issued.token)


async def _upload(service: Service) -> Callable[[], Awaitable[object]]:
    return lambda: service.graveler.create_upload(
        service.admin, "lake", "main", "new", template=entry(0)
    )


async def _issue(service: Service) -> Callable[[], Awaitable[object]]:
    return lambda: issue(service, "new")


@pytest.mark.parametrize(
    ("way", "write", "limits"),
    [
        (_put, "set_many", Limits(staged_objects=1)),
        (_conditional, "set_if", Limits(staged_objects=1)),
        (_completion, "set_if", Limits(staged_objects=1)),
        (_link, "set_if", Limits(staged_objects=1)),
        (_upload, "set_if", Limits(uploads=1)),
        (_issue, "set_if", Limits(uploads=1)),
    ],
)
async def test_a_change_under_way_counts_although_no_count_sees_its_row(
    service: Service, running: Running, way: Way, write: str, limits: Limits
) -> None:
    """A count that begins after a write was admitted may read before the row is there."""
    work = await way(service)
    await service.graveler.set_quota(service.admin, QuotaKind.REPOSITORY, "lake", limits)
    gate = service.replicas.kv.hold(write)
    under_way = running.start(_awaited(work()))
    await reached(gate)
    second = await (_upload if limits.uploads else _put)(service)
    await refused(second())
    gate.open()
    await under_way


async def _awaited(work: Awaitable[object]) -> None:
    await work


async def staged(lake: Lake, **limits: int) -> tuple[int, int]:
    return await lake.graveler.admission.counter.staged(lake.repository, Limits(**limits))


@pytest.mark.parametrize("rows", [2, 3, 4, 6, 7])
async def test_a_count_reads_all_pages_and_skips_tombstones(lake: Lake, rows: int) -> None:
    await lake.put("gone", 9)
    await lake.commit()
    await lake.delete("gone")
    for number in range(rows):
        await lake.put(f"p{number}", number + 1)
    with mock.patch.object(usage, "_PAGE_ROWS", 3):
        assert await staged(lake) == (rows, rows * (rows + 1) // 2)


async def test_a_count_ends_with_the_branch_that_is_beyond_a_limit(lake: Lake) -> None:
    """`tarn quota show`, which has no limit, counts everything."""
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    for number in range(4):
        branch_id = BranchId(f"b{number}")
        await lake.graveler.branches.create(lake.branch(branch_id), head)
        await lake.put("x", 5, branch_id)
        await lake.put("y", 5, branch_id)
    assert await staged(lake) == (8, 40)
    assert await staged(lake, staged_objects=1) == (2, 10)
    assert await staged(lake, staged_bytes=9) == (2, 10)
    assert await staged(lake, staged_objects=2, staged_bytes=10) == (4, 20)
    assert await staged(lake, staged_objects=8, staged_bytes=40) == (8, 40)


async def test_a_compacted_listing_counts_what_it_has_more_than_its_commit(lake: Lake) -> None:
    """With fewer objects than the commit it makes no room for those of other branches."""
    await lake.put("a", 10)
    await lake.put("b", 10)
    await lake.commit()
    dev = BranchId("dev")
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    await lake.graveler.branches.create(lake.branch(dev), head)
    await lake.put("c", 5, dev)
    await lake.put("d", 6, dev)
    await lake.graveler.compacting.compact(lake.branch(dev))
    assert await staged(lake) == (2, 11)
    await lake.delete("a", "b")
    await lake.graveler.compacting.compact(lake.main)
    assert await staged(lake) == (2, 11)
    await lake.put("e", 1)
    assert await staged(lake) == (3, 12)


async def test_the_count_of_a_token_is_kept_once_it_is_sealed(lake: Lake, running: Running) -> None:
    await lake.put("a", 1)
    assert await staged(lake) == (1, 1)
    await lake.put("b", 1)
    sealed = (await lake.staging_rows()).name
    gate = lake.kv.hold("scan_arrow")
    commit = running.start(lake.commit())
    await reached(gate)  # the commit has sealed the token
    await lake.put("c", 1)
    assert await staged(lake) == (3, 3)
    before = lake.kv.calls.count(("scan", sealed))
    await lake.put("d", 1)
    assert await staged(lake) == (4, 4)
    assert lake.kv.calls.count(("scan", sealed)) == before
    gate.open()
    await commit
    assert await staged(lake) == (2, 2)

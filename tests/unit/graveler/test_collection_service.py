"""CollectionService as a collector sees it: over the in-process transport, with the real auth."""

from __future__ import annotations

import pytest
from graveler_service import Service, reason_of

from tarn.client.collections import CollectionClient
from tarn.core.collection import LIMITS
from tarn.core.entry import Entry, pack
from tarn.core.errors import Reason, TarnError
from tarn.core.expiry import EXPIRE_MAX
from tarn.core.ids import BranchId, CommitId
from tarn.kv.keys import RepositoryKeys, path_key
from tarn.kv.port import Group
from tarn.rpc.rules import rules_of
from tarn_graveler.records.branches import BranchName
from tarn_proto.graveler.v1 import collection_service_pb2 as pb

MARK, SWEEP = pb.COLLECTION_PHASE_MARK, pb.COLLECTION_PHASE_SWEEP
A, B = "a" * 32, "b" * 32


def address_of(number: int) -> bytes:
    """An address that no other object has; the clock of the service begins at this time."""
    return (1_793_491_200_000).to_bytes(6, "big") + number.to_bytes(10, "big")


@pytest.fixture
def collector(service: Service) -> CollectionClient:
    return CollectionClient(service.transport)


async def stage(service: Service, branch: str, path: str, number: int) -> None:
    await service.stage(path, pack(Entry(number, 0, address_of(number), bytes(16))), branch)


async def all_roots(
    service: Service, collector: CollectionClient, page_size: int = 0
) -> tuple[set[bytes], set[str], list[str]]:
    """Returns the addresses, the metaranges, and the stages of the pages in their order."""
    addresses: set[bytes] = set()
    metaranges: set[str] = set()
    stages: list[str] = []
    token = ""
    while True:
        page = await collector.list_roots(
            service.admin, "lake", A, page_size=page_size, page_token=token
        )
        found = page.addresses
        addresses |= {found[at : at + 16] for at in range(0, len(found), 16)}
        metaranges |= set(page.metarange_ids)
        stages += [page.stage] if page.stage not in stages[-1:] else []
        token = page.next_page_token
        if not token:
            return addresses, metaranges, stages


@pytest.mark.parametrize("page_size", [1, 2, 0])
async def test_the_roots_are_uploads_staged_rows_compacted_listings_and_all_commits(
    service: Service, collector: CollectionClient, page_size: int
) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_branch(admin, "lake", "dev", "main")
    await graveler.create_branch(admin, "lake", "gone", "main")
    for number in range(1, 4):
        await stage(service, "main", f"p{number}", number)
    first = (await graveler.create_commit(admin, "lake", "main", "m")).commit
    await stage(service, "gone", "lost", 9)
    lost = (await graveler.create_commit(admin, "lake", "gone", "m")).commit
    await graveler.delete_branch(admin, "lake", "gone")
    await graveler.create_tag(admin, "lake", "v1", "main")
    await stage(service, "dev", "folded", 4)
    done = await graveler.compact_branch(admin, "lake", "dev")
    for number in range(5, 8):
        await stage(service, "dev", f"p{number}", number)
    await graveler.unstage(admin, "lake", "dev", "p5")
    await collector.begin(admin, "lake", A, MARK)
    addresses, metaranges, stages = await all_roots(service, collector, page_size)
    assert addresses == {address_of(6), address_of(7)}
    wanted = {each.metarange_id for each in (first, lost)} | {done.compacted_metarange_id}
    assert wanted <= metaranges
    assert len(metaranges - wanted) == 1, "the empty listing of the first commit"
    assert stages == ["uploads", "staged", "branches", "tags", "reflogs", "commits", "reads"]


async def test_branches_without_staged_rows_share_a_page(
    service: Service, collector: CollectionClient
) -> None:
    """A repository of 10,000 branches would take 20,000 rpcs otherwise. A page with rows still ends at its limit."""
    for number in range(40):
        await service.graveler.create_branch(service.admin, "lake", f"b{number:02}", "main")
    for number in range(1, 6):
        await stage(service, "b39", f"p{number}", number)
    await collector.begin(service.admin, "lake", A, MARK)
    counts: list[int] = []
    token = ""
    while True:
        page = await collector.list_roots(service.admin, "lake", A, page_size=2, page_token=token)
        counts += [len(page.addresses) // 16] if page.stage == "staged" else []
        token = page.next_page_token
        if not token:
            break
    assert sum(counts) == 5
    assert max(counts) == 2
    assert len(counts) <= 6


async def test_rows_that_move_while_the_roots_are_read_are_found_in_a_later_stage(
    service: Service, collector: CollectionClient
) -> None:
    """They are committed, and their token dropped, after its page was requested and before it was read."""
    graveler, admin = service.graveler, service.admin
    await stage(service, "main", "a", 1)
    await collector.begin(admin, "lake", A, MARK)
    page = await collector.list_roots(admin, "lake", A)
    while page.stage != "staged":
        page = await collector.list_roots(admin, "lake", A, page_token=page.next_page_token)
    made = (await graveler.create_commit(admin, "lake", "main", "m")).commit
    async with service.replicas.replica() as replica:
        for _ in range(3):
            service.clock.advance(61)
            await replica.cleaner.drop_due()
    metaranges = set[str]()
    while page.next_page_token:
        page = await collector.list_roots(admin, "lake", A, page_token=page.next_page_token)
        metaranges |= set(page.metarange_ids)
    assert made.metarange_id in metaranges


async def test_a_ref_without_its_commit_ends_the_run(
    service: Service, collector: CollectionClient
) -> None:
    """Fewer roots than there are would delete live blocks."""
    graveler, admin = service.graveler, service.admin
    await stage(service, "main", "a", 1)
    made = (await graveler.create_commit(admin, "lake", "main", "m")).commit
    await collector.begin(admin, "lake", A, MARK)
    async with service.replicas.replica() as replica:
        repository = await replica.repositories.get("lake")
        keys = replica.repositories.keys_of(repository)
        await service.replicas.kv.delete_many(
            keys.commits, [RepositoryKeys.commit(CommitId(made.commit_id))]
        )
    with pytest.raises(TarnError) as raised:
        await all_roots(service, collector)
    assert raised.value.reason is Reason.DATA_CORRUPT
    assert "tarn fsck" in raised.value.message


@pytest.mark.parametrize("damage", ["key", "length", "version"])
async def test_a_staged_row_that_is_no_entry_ends_the_run(
    service: Service, collector: CollectionClient, damage: str
) -> None:
    """Its address is not known, so its object, or another one, would be deleted."""
    graveler = service.replica
    repository = await graveler.repositories.get("lake")
    branch = (await graveler.branches.fresh(BranchName(repository, BranchId("main")))).branch
    packed = pack(Entry(1, 0, address_of(1), bytes(16)))
    row = {
        "key": (b"\x01a", packed),
        "length": (path_key("a"), packed[:20]),
        "version": (path_key("a"), bytes([packed[0] + 1]) + packed[1:]),
    }[damage]
    token = graveler.repositories.keys_of(repository).token(BranchId("main"), branch.staging)
    assert await service.replicas.kv.set_many(token, [Group(row[0], (row,))]) == [None]
    await collector.begin(service.admin, "lake", A, MARK)
    with pytest.raises(TarnError) as raised:
        await all_roots(service, collector)
    assert raised.value.reason is Reason.DATA_CORRUPT
    assert "tarn fsck" in raised.value.message


def test_only_reads_are_sent_again_by_the_transport() -> None:
    rules = rules_of(pb.DESCRIPTOR.services_by_name["CollectionService"])
    assert {name for name, rule in rules.items() if rule.read_only} == {
        "GetCollection",
        "ListRoots",
        "FindListingsInUse",
        "ListHistory",
    }


async def test_a_repository_is_idle_before_its_first_run(
    service: Service, collector: CollectionClient
) -> None:
    """GetCollection does not need a record."""
    found = await collector.get(service.admin, "lake")
    assert found.phase == pb.COLLECTION_PHASE_IDLE
    assert (found.run_id, found.mark_run_id, found.fence_count) == ("", "", 0)
    assert not found.HasField("last_mark")


async def test_only_an_admin_collects(service: Service, collector: CollectionClient) -> None:
    dee = await service.as_user("dee", "Developer")
    for attempt in (
        collector.get(dee, "lake"),
        collector.begin(dee, "lake", A, MARK),
        collector.renew(dee, "lake", A),
        collector.list_roots(dee, "lake", A),
        collector.listings_in_use(dee, "lake", A, []),
        collector.begin_batch(dee, "lake", A, ["1" * 64]),
        collector.end_batch(dee, "lake", A),
        collector.end(dee, "lake", A, pb.CollectionTotals(), is_complete=True),
        collector.hold(dee, "lake", 60),
    ):
        assert await reason_of(attempt) is Reason.ACCESS_DENIED


async def test_a_mark_is_begun_ended_and_told(
    service: Service, collector: CollectionClient
) -> None:
    admin, clock = service.admin, service.clock
    never = await collector.get(admin, "lake")
    assert never.phase == pb.COLLECTION_PHASE_IDLE
    assert not never.HasField("last_mark")
    begun = await collector.begin(admin, "lake", A, MARK)
    age_us = clock.now_us() - begun.cutoff_time.ToMicroseconds()
    assert (begun.run_id, age_us) == (A, LIMITS.cutoff_us)
    assert begun.storage_namespace
    assert await reason_of(collector.begin(admin, "lake", B, MARK)) is Reason.COLLECTION_RUNNING
    clock.advance(60)
    renewed = await collector.renew(admin, "lake", A)
    assert renewed.lease_end_time.ToMicroseconds() == clock.now_us() + begun.lease_ms * 1000
    totals = pb.CollectionTotals(live_count=5, candidate_count=2, note="quarantine 2")
    marked = await collector.end(admin, "lake", A, totals, is_complete=True)
    assert (marked.mark_run_id, marked.last_mark.live_count) == (A, 5)
    assert marked == await collector.end(admin, "lake", A, totals, is_complete=True)
    early = collector.begin(admin, "lake", B, SWEEP, A)
    assert await reason_of(early) is Reason.COLLECTION_TOO_EARLY
    clock.advance(LIMITS.grace_us / 1e6)


async def test_an_erasure_is_told(service: Service, collector: CollectionClient) -> None:
    admin = service.admin
    begun = await collector.begin(admin, "lake", A, MARK, is_erasure=True)
    assert (begun.phase, begun.is_erasure) == (MARK, True)
    assert (await collector.get(admin, "lake")).is_erasure
    totals = pb.CollectionTotals()
    ended = await collector.end(admin, "lake", A, totals, is_complete=False)
    assert (ended.is_erasure, ended.mark_run_id) == (False, "")
    assert not (await collector.begin(admin, "lake", B, MARK)).is_erasure


async def test_a_run_that_is_not_the_records_run_reads_no_roots(
    service: Service, collector: CollectionClient
) -> None:
    admin = service.admin
    assert await reason_of(collector.list_roots(admin, "lake", A)) is Reason.COLLECTION_LOST
    begun = await collector.begin(admin, "lake", A, MARK)
    page = await collector.list_roots(admin, "lake", A)
    service.clock.advance(begun.lease_ms / 1000)
    await collector.begin(admin, "lake", B, MARK)
    lost = collector.list_roots(admin, "lake", A, page_token=page.next_page_token)
    assert await reason_of(lost) is Reason.COLLECTION_LOST
    # Nor may another run go on where the lost one was: it has not seen the earlier pages.
    stolen = collector.list_roots(admin, "lake", B, page_token=page.next_page_token)
    assert await reason_of(stolen) is Reason.INVALID_PAGE_TOKEN


async def test_a_request_lets_as_many_tags_expire_as_a_collector_sends(
    service: Service, collector: CollectionClient
) -> None:
    await collector.begin(service.admin, "lake", A, MARK)
    gone = pb.ExpiringTag(tag=pb.HistoryTag(tag_id="gone", nonce=b"1"), rule="tags *: keep_days 1")
    assert await collector.expire_tags(service.admin, "lake", A, [gone] * EXPIRE_MAX) == 0
    more = collector.expire_tags(service.admin, "lake", A, [gone] * (EXPIRE_MAX + 1))
    assert await reason_of(more) is Reason.INVALID_ARGUMENT


async def test_a_hold_stops_the_run(service: Service, collector: CollectionClient) -> None:
    admin = service.admin
    await collector.begin(admin, "lake", A, MARK)
    held = await collector.hold(admin, "lake", 120)
    assert held.HasField("hold_end_time")
    for attempt in (
        collector.renew(admin, "lake", A),
        collector.list_roots(admin, "lake", A),
        collector.begin(admin, "lake", A, MARK),
    ):
        assert await reason_of(attempt) is Reason.COLLECTION_HELD
    released = await collector.hold(admin, "lake", 0)
    assert not released.HasField("hold_end_time")
    await collector.renew(admin, "lake", A)


async def test_counts_that_are_negative_are_refused(
    service: Service, collector: CollectionClient
) -> None:
    await collector.begin(service.admin, "lake", A, MARK)
    totals = pb.CollectionTotals(deleted_count=-1)
    ended = collector.end(service.admin, "lake", A, totals, is_complete=True)
    assert await reason_of(ended) is Reason.INVALID_ARGUMENT

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from graveler_service import Service, reason_of, running_service
from lake import Lake, entry
from tests.support.clock import ManualClock, SeededIds

from tarn.client.staging_events import StagingEventClient
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, TokenId
from tarn.core.listing.metarange import Metarange
from tarn.core.listing.pages import PageRequest
from tarn_graveler.records.staging_events import PAGE_MAX, Changes, StagingEvents
from tarn_proto.graveler.v1 import staging_event_service_pb2 as pb


async def seen(events: StagingEvents, after: int = 0) -> Changes:
    """The changes that a watcher gets; does not wait for further ones."""
    return await events.watch(events.start_id, after, 0.0)


def events_of(tokens_max: int = 100) -> StagingEvents:
    clock = ManualClock()
    return StagingEvents(SeededIds(clock), clock, tokens_max)


def write(events: StagingEvents, token: str, rows: int = 1) -> None:
    events.wrote("lake", "main", TokenId(token), 10 * rows, rows)


async def test_totals_grow_and_a_watcher_gets_only_what_changed() -> None:
    events = events_of()
    write(events, "a", 2)
    write(events, "b")
    first = await seen(events)
    assert [(each.token_id, each.rows, each.size_bytes) for each in first.tokens] == [
        ("a", 2, 20),
        ("b", 1, 10),
    ]
    write(events, "a")
    second = await seen(events, first.sequence)
    assert [(each.token_id, each.rows) for each in second.tokens] == [("a", 3)]
    assert (await seen(events, second.sequence)).tokens == []


async def test_a_lost_answer_is_repeated() -> None:
    events = events_of()
    write(events, "a")
    lost = await seen(events)
    write(events, "b")
    again = await seen(events)  # with the sequence of the answer before the lost one
    assert {each.token_id for each in again.tokens} >= {each.token_id for each in lost.tokens}


async def test_two_watchers_do_not_take_changes_from_each_other() -> None:
    events = events_of()
    write(events, "a")
    for _ in range(2):
        assert [each.token_id for each in (await seen(events)).tokens] == ["a"]


async def test_a_watcher_of_an_earlier_run_gets_everything() -> None:
    events = events_of()
    write(events, "a")
    await seen(events)
    changes = await events.watch(b"earlier run", 1000, 0.0)
    assert [each.token_id for each in changes.tokens] == ["a"]


async def test_forgotten_tokens_are_told() -> None:
    events = events_of(tokens_max=10)
    for number in range(10):
        write(events, f"token {number}")
    known = await seen(events)
    assert not known.is_incomplete
    for number in range(10, 15):
        write(events, f"token {number}")
    late = await seen(events, 1)
    assert late.is_incomplete
    assert len(late.tokens) <= 10
    assert not (await seen(events, known.sequence)).is_incomplete


async def test_a_burst_of_new_tokens_between_two_answers_is_bounded_and_told() -> None:
    events = events_of(tokens_max=10)
    known = await seen(events)
    for number in range(1000):
        write(events, f"token {number}")
    changes = await seen(events, known.sequence)
    assert changes.is_incomplete
    assert len(changes.tokens) <= 10


async def test_many_changes_come_in_pages() -> None:
    events = events_of(tokens_max=2 * PAGE_MAX)
    for number in range(PAGE_MAX + 5):
        write(events, f"token {number}")
    await seen(events, 1)  # gives the changes their sequence
    first = await seen(events)
    rest = await seen(events, first.sequence)
    assert (len(first.tokens), len(rest.tokens)) == (PAGE_MAX, 5)


async def test_a_waiting_watcher_is_answered_after_a_change() -> None:
    clock = ManualClock()
    events = StagingEvents(SeededIds(clock), clock)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiting = group.create_task(events.watch(events.start_id, 0, 4.0))
        await asyncio.sleep(0)
        write(events, "a")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done(), "changes are gathered for a moment"
        write(events, "a")
        while not waiting.done():
            clock.advance(0.1)
            await asyncio.sleep(0)
    assert [each.rows for each in waiting.result().tokens] == [2]


async def test_a_stop_answers_watchers_at_once() -> None:
    events = events_of()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiting = group.create_task(events.watch(events.start_id, 0, 1000.0))
        await asyncio.sleep(0)
        events.close()
    assert waiting.result().tokens == []


async def test_watchers_are_limited() -> None:
    events = events_of()
    async with asyncio.TaskGroup() as group:
        for _ in range(64):
            group.create_task(events.watch(events.start_id, 0, 1000.0))
        await asyncio.sleep(0)
        with pytest.raises(TarnError, match="watchers"):
            await events.watch(events.start_id, 0, 1000.0)
        events.close()


# ---- what writers and operations tell


async def test_writes_and_deletes_are_counted(lake: Lake) -> None:
    events = lake.graveler.branches.events
    await lake.put("a", 1)
    await lake.put("b", 2)
    await lake.delete("a", "not there")
    (token,) = [each for each in (await seen(events)).tokens if each.rows]
    assert (token.repository_id, token.branch_id) == ("lake", "main")
    assert (token.rows, token.tombstones) == (3, 1)
    assert token.size_bytes > len(entry(1))


async def test_a_commit_seals_and_removes_its_token(lake: Lake) -> None:
    events = lake.graveler.branches.events
    await lake.put("a", 1)
    await lake.commit()
    (token,) = [each for each in (await seen(events)).tokens if each.rows]
    assert token.is_sealed
    assert token.is_removed
    assert token.is_committed


async def test_the_rows_that_a_listing_reads_are_counted(lake: Lake) -> None:
    for number in range(10):
        await lake.put(f"a{number}", 1)
    await lake.commit()
    await lake.delete(*(f"a{number}" for number in range(9)))
    page = await lake.graveler.reading.page(lake.repository, "main", PageRequest())
    assert page.paths == ["a9"]
    (token,) = [
        each for each in (await seen(lake.graveler.branches.events)).tokens if each.rows_read
    ]
    assert (token.rows_read, token.rows_returned) == (19, 1)


async def test_a_listing_in_pages_reads_hardly_more_than_it_returns(lake: Lake) -> None:
    """Otherwise a compactor would take every large branch for one that is slow to list."""
    for number in range(2500):
        await lake.put(f"a/{number:04}", 1)
    assert (await lake.graveler.compacting.compact(lake.main)).compacted is not None
    await lake.put("b", 1)
    request, count, pages = PageRequest(), 0, 0
    while True:
        page = await lake.graveler.reading.page(lake.repository, "main", request)
        count += len(page.paths)
        pages += 1
        if page.next_after is None:
            break
        request = PageRequest(after=page.next_after)
    assert count == 2501
    found = await seen(lake.graveler.branches.events)
    (token,) = [each for each in found.tokens if each.rows_returned]
    assert token.rows_returned == count
    # Of each of the two layers, a page reads at most the row that shows that another page follows, and of the listing
    # one row in 32 more, in case that some of the page's rows are hidden.
    beyond = 2 + request.limit // 32
    assert count <= token.rows_read <= count + pages * beyond


# ---- the service


@pytest.fixture
async def service(tmp_path: Path) -> object:
    async with running_service(tmp_path) as service:
        yield service


async def test_the_service_tells_what_was_staged(service: Service) -> None:
    client = StagingEventClient(service.transport)
    await service.put("a", 1)
    answer = await client.watch_staging(service.admin, b"", 0, 0)
    assert [(each.branch_id, each.rows) for each in answer.tokens] == [("main", 1)]
    again = await client.watch_staging(service.admin, answer.start_id, answer.sequence, 0)
    assert list(again.tokens) == []


async def test_the_compactor_may_watch_and_others_may_not(service: Service) -> None:
    client = StagingEventClient(service.transport)
    grant = await service.auth.authorize_service(service.anonymous, "compactor")
    compactor = replace(service.anonymous, caller_token=grant.caller_token)
    await service.put("a", 1)
    assert (await client.watch_staging(compactor, b"", 0, 0)).tokens
    assert (await client.list_staged_branches(compactor, "", "")).branches
    assert await reason_of(service.graveler.get_repository(compactor, "lake")) == "ACCESS_DENIED"
    assert await reason_of(service.auth.get_caller(compactor)) == "CALLER_TOKEN_INVALID"
    for role in ("Developer", "Analyst"):
        user = await service.as_user(role.lower(), role)
        assert await reason_of(client.watch_staging(user, b"", 0, 0)) == "ACCESS_DENIED"
        assert await reason_of(client.list_staged_branches(user, "", "")) == "ACCESS_DENIED"


async def test_staged_branches_are_found_page_by_page(service: Service) -> None:
    client = StagingEventClient(service.transport)
    admin = service.admin
    for repository in ("first", "other"):
        await service.graveler.create_repository(admin, repository)
    for number in range(5):
        await service.graveler.create_branch(admin, "lake", f"b{number}", "main")
        if number % 2:
            await service.put("a", 1, f"b{number}")
    found, after = [], ("", "")
    for _ in range(20):
        page = await client.list_staged_branches(admin, *after, page_size=2)
        assert isinstance(page, pb.ListStagedBranchesResponse)
        found += [(each.repository_id, each.branch_id) for each in page.branches]
        after = (page.next_repository_id, page.next_branch_id)
        if not after[0]:
            break
    assert found == [("lake", "b1"), ("lake", "b3")]
    with pytest.raises(TarnError):
        await client.list_staged_branches(admin, "", "", page_size=-1)


async def test_a_damaged_branch_record_hides_no_branch_of_another_repository(
    service: Service,
) -> None:
    from tarn.kv.keys import RepositoryKeys

    client = StagingEventClient(service.transport)
    for name in ("aaa", "zzz"):
        await service.graveler.create_repository(service.admin, name)
        await service.stage("a", service.entry(1), repository=name)
    async with service.replicas.replica() as graveler:
        repository = await graveler.repositories.get("lake")
        refs = graveler.repositories.keys_of(repository).refs
        key = RepositoryKeys.branch(BranchId("broken"))
    await service.replicas.kv.set_if(refs, key, b"\xff", None)
    page = await client.list_staged_branches(service.admin, "", "")
    assert [each.repository_id for each in page.branches] == ["aaa", "zzz"]
    assert not page.next_repository_id


async def test_a_measurement_needs_no_file_of_the_compacted_listing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost file fails compactions, and must not hide that the branch has rows."""
    await lake.put("a", 1)
    await lake.graveler.compacting.compact(lake.main)
    await lake.put("b", 1)
    statistics = lake.graveler.staging_statistics

    async def lost(*_: object) -> Metarange:
        raise TarnError(Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, "no block")

    monkeypatch.setattr(lake.graveler.committed, "metarange", lost)
    assert (await statistics.count(lake.main, 10, with_compacted=False)).rows == 1
    assert await reason_of(statistics.count(lake.main, 10)) == "BLOCK_NOT_FOUND"


async def test_staged_branches_of_later_repositories_are_found_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that begins behind a branch of one repository begins at the first branch of the next one."""
    monkeypatch.setattr("tarn_graveler.compaction.staged_branches._REPOSITORIES_MAX", 2)
    client, admin = StagingEventClient(service.transport), service.admin
    staged = [("lake", "b1"), ("zoo1", "a1"), ("zoo2", "a1"), ("zoo3", "main")]
    for repository, branch in staged:
        if repository != "lake":
            await service.graveler.create_repository(admin, repository)
        if branch != "main":
            await service.graveler.create_branch(admin, repository, branch, "main")
        await service.stage("a", service.entry(1), branch, repository=repository)
    for page_size in (1, 3, 100):
        found: list[tuple[str, str]] = []
        after = ("", "")
        for _ in range(30):
            page = await client.list_staged_branches(admin, *after, page_size=page_size)
            found += [(each.repository_id, each.branch_id) for each in page.branches]
            after = (page.next_repository_id, page.next_branch_id)
            if not after[0]:
                break
        assert found == staged


async def test_a_watcher_is_answered_before_its_deadline(service: Service) -> None:
    client, clock = StagingEventClient(service.transport), service.clock
    known = await client.watch_staging(service.admin, b"", 0, 0)
    soon = replace(service.admin, deadline=clock.monotonic() + 1.1)
    async with asyncio.timeout(10.0):
        answer = await client.watch_staging(soon, known.start_id, known.sequence, 20_000)
    assert not answer.tokens

"""A name belongs to a branch or a tag, never to both, even if requests are lost, late or interrupted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lake import Lake, Replicas, Running, create_repository, keep_tokens, reached
from late_kv import LateKv
from permits import permit_for
from tests.support.clock import RestlessClock
from tests.support.faults.gates import GatedKv

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, TagId
from tarn.kv.embedded import open_embedded
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import OutcomeUnknownError, Partition, Predicate
from tarn.kv.records import decode_branch, decode_tag
from tarn_graveler.handlers.branches import BranchHandler
from tarn_graveler.records.claiming import PATIENCE_SECONDS
from tarn_proto.graveler.v1 import branch_service_pb2 as pb

Make = Callable[..., Coroutine[object, object, object]]

NAME = BranchId("v1")
ROWS = {
    "record": RepositoryKeys.branch(NAME),
    "tag": RepositoryKeys.tag(NAME),
    "name": RepositoryKeys.name(NAME),
}


def commit(number: int) -> CommitId:
    """Returns a commit id; the commit need not exist, because it is never read."""
    return CommitId(f"{number:064x}")


async def branch(lake: Lake, number: int = 1) -> object:
    return await lake.graveler.branches.create(lake.branch(NAME), commit(number))


async def tag(lake: Lake, number: int = 2) -> object:
    return await lake.graveler.tags.create(lake.repository, TagId(NAME), commit(number))


async def kinds(lake: Lake) -> list[str]:
    """Returns what the name is now according to reads of branches and of tags."""
    found = []
    reads: list[tuple[str, Awaitable[object]]] = [
        ("branch", lake.graveler.branches.fresh(lake.branch(NAME))),
        ("tag", lake.graveler.tags.get(lake.repository, NAME)),
    ]
    for kind, read in reads:
        try:
            await read
        except TarnError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
        else:
            found.append(kind)
    return found


async def patiently(lake: Lake, work: Awaitable[object]) -> object:
    """Advances the clock while the work waits for other callers."""
    task = asyncio.ensure_future(work)
    async with asyncio.timeout(20.0):
        while not task.done():
            await asyncio.wait([task], timeout=0.001)
            lake.clock.advance(0.05)
    return await task


async def refusal(work: Awaitable[object]) -> TarnError:
    with pytest.raises(TarnError) as raised:
        await work
    return raised.value


@pytest.fixture(params=["mem", "embedded"])
async def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Replicas]:
    made = Replicas(tmp_path)
    if request.param == "embedded":
        made.kv = GatedKv(await open_embedded(tmp_path / "kv.db"))
    yield made
    await made.tasks.close()
    await made.kv.close()
    await made.blocks.close()


MAKERS = pytest.mark.parametrize(
    ("first", "second", "own", "told"),
    [
        (branch, tag, "record", Reason.BRANCH_EXISTS),
        (tag, branch, "tag", Reason.TAG_EXISTS),
    ],
    ids=["branch-first", "tag-first"],
)


@MAKERS
async def test_a_ref_of_the_other_kind_with_the_same_name_is_refused(
    lake: Lake, first: Make, second: Make, own: str, told: Reason
) -> None:
    await first(lake)
    before = await kinds(lake)
    assert (await refusal(second(lake))).reason is told
    assert (await refusal(first(lake))).reason is told
    assert await kinds(lake) == before


@MAKERS
@pytest.mark.parametrize("at", ["place", "name", "finish"])
async def test_a_creation_that_pauses_anywhere_and_one_of_the_other_kind_do_not_both_win(
    lake: Lake,
    other: Lake,
    running: Running,
    first: Make,
    second: Make,
    own: str,
    told: Reason,
    at: str,
) -> None:
    """The second one does not wait for ever, and the first one gets the true outcome when it continues."""
    if at == "finish":
        placed = lake.kv.hold("set_if", ROWS["name"], after=True)
        slow = running.start(first(lake))
        await reached(placed)
        held = lake.kv.hold("set_if", ROWS[own])
        placed.open()
    else:
        held = lake.kv.hold("set_if", ROWS[own if at == "place" else "name"])
        slow = running.start(first(lake))
    await reached(held)
    await patiently(lake, second(other))
    after = await kinds(lake)
    held.open()
    error = await refusal(patiently(lake, slow))
    assert error.kind in {Kind.ALREADY_EXISTS, Kind.UNAVAILABLE}
    assert await kinds(lake) == after
    assert len(after) == 1


@MAKERS
@pytest.mark.parametrize("at", ["place", "name", "finish"])
@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not-applied"])
async def test_a_creator_recognises_its_own_attempt_when_the_answer_is_lost(
    lake: Lake, first: Make, second: Make, own: str, told: Reason, at: str, applied: bool
) -> None:
    if at == "finish":
        placed = lake.kv.hold("set_if", ROWS["name"], after=True)
        making = asyncio.ensure_future(first(lake))
        await reached(placed)
        lake.kv.lose("set_if", ROWS[own], applied=applied)
        placed.open()
    else:
        lake.kv.lose("set_if", ROWS[own if at == "place" else "name"], applied=applied)
        making = asyncio.ensure_future(first(lake))
    async with asyncio.timeout(5.0):
        await making  # the clock is stopped: it does not wait for itself
    assert len(await kinds(lake)) == 1
    assert (await refusal(second(lake))).reason is told


@MAKERS
async def test_a_creation_that_fails_leaves_nothing_that_another_one_waits_for(
    lake: Lake,
    other: Lake,
    first: Make,
    second: Make,
    own: str,
    told: Reason,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = lake.kv.set_if

    async def set_if(partition: Partition, key: bytes, *args: Any) -> Predicate:
        if key == ROWS["name"]:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "refused")
        return await real(partition, key, *args)

    monkeypatch.setattr(lake.kv, "set_if", set_if)
    assert (await refusal(first(lake))).kind is Kind.UNAVAILABLE
    monkeypatch.setattr(lake.kv, "set_if", real)
    async with asyncio.timeout(5.0):
        await first(other)  # the clock is stopped
    assert len(await kinds(lake)) == 1


async def test_no_attempt_to_place_a_record_is_made_twice(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one might be applied after the second one was, and its record removed."""
    real, sent = lake.kv.set_if, []

    async def set_if(partition: Partition, key: bytes, value: bytes, *args: Any) -> Predicate:
        if key == ROWS["record"]:
            sent.append(value)
            if len(sent) < 4:
                raise OutcomeUnknownError("no answer")
        return await real(partition, key, value, *args)

    monkeypatch.setattr(lake.kv, "set_if", set_if)
    await branch(lake)
    assert len(sent) == len(set(sent)) == 5  # three are lost, one lands, and the last one goes live


async def test_a_creation_that_cannot_be_settled_is_unknown_and_not_a_refusal(lake: Lake) -> None:
    """Its last step was lost, and the branch does not exist afterwards: created and deleted, or never created."""
    named = lake.kv.hold("set_if", ROWS["name"], after=True)
    making = asyncio.ensure_future(branch(lake))
    await reached(named)
    lake.kv.lose("set_if", ROWS["record"], applied=True)
    read = lake.kv.hold("get_many", ROWS["record"])
    named.open()
    await reached(read)
    refs = lake.graveler.repositories.keys_of(lake.repository).refs
    await lake.kv.get_many(refs, [ROWS["record"]], settle=True)  # from now on other callers see it
    await lake.graveler.branches.delete(lake.branch(NAME), keep_tokens)
    read.open()
    assert isinstance(await refusal(making), OutcomeUnknownError)


@MAKERS
@pytest.mark.parametrize("at", ["place", "name", "finish"])
@pytest.mark.parametrize("again", ["same", "other"])
async def test_a_creator_that_dies_anywhere_leaves_a_name_that_can_be_used(
    lake: Lake,
    other: Lake,
    running: Running,
    first: Make,
    second: Make,
    own: str,
    told: Reason,
    at: str,
    again: str,
) -> None:
    row = ROWS["name"] if at == "name" else ROWS[own]
    if at == "finish":
        placed = lake.kv.hold("set_if", ROWS["name"], after=True)
        dying = running.start(first(lake))
        await reached(placed)
        step = lake.kv.hold("set_if", row)
        placed.open()
    else:
        step = lake.kv.hold("set_if", row, after=True)
        dying = running.start(first(lake))
    await reached(step)
    dying.cancel()
    await asyncio.wait([dying])
    assert await kinds(lake) == []
    await patiently(lake, (first if again == "same" else second)(other))
    assert len(await kinds(lake)) == 1


@MAKERS
async def test_a_name_is_free_for_either_kind_after_its_ref_is_removed(
    lake: Lake, first: Make, second: Make, own: str, told: Reason
) -> None:
    async def remove() -> None:
        if await kinds(lake) == ["branch"]:
            await lake.graveler.branches.delete(lake.branch(NAME), keep_tokens)
        else:
            await lake.graveler.tags.delete(lake.repository, NAME)

    for make in (first, second, second, first):
        await make(lake)
        await remove()
    assert await kinds(lake) == []


async def test_the_row_of_a_name_goes_with_its_ref_and_only_with_it(lake: Lake) -> None:
    refs = lake.graveler.repositories.keys_of(lake.repository).refs

    async def is_named() -> bool:
        return (await lake.kv.get_many(refs, [ROWS["name"]]))[0] is not None

    await tag(lake)
    await lake.graveler.names.release(lake.repository, NAME)
    assert await is_named()
    await lake.graveler.tags.delete(lake.repository, NAME)
    assert not await is_named()
    await branch(lake)
    handler = BranchHandler(lake.graveler)
    request = pb.DeleteBranchRequest(repository_id="lake", branch_id=NAME)
    await handler.DeleteBranch(request, permit_for(request, lake.repository))
    assert not await is_named()


async def test_a_name_is_not_released_under_a_record_whose_write_no_plain_read_shows_yet(
    lake: Lake,
) -> None:
    """Else another ref could take the name, and the branch and a tag would both have it."""
    await tag(lake)
    refs = lake.graveler.repositories.keys_of(lake.repository).refs
    (record,) = await lake.kv.get_many(refs, [ROWS["tag"]])
    assert record is not None
    await lake.kv.delete_if(refs, ROWS["tag"], record.predicate)
    lake.kv.lose("set_if", ROWS["tag"], applied=True)
    with pytest.raises(OutcomeUnknownError):
        await lake.kv.set_if(refs, ROWS["tag"], record.value, None)
    assert await lake.kv.get_many(refs, [ROWS["tag"]]) == [None]
    await lake.graveler.names.release(lake.repository, NAME)
    assert await lake.kv.get_many(refs, [ROWS["name"]]) != [None]
    assert (await refusal(branch(lake))).reason is Reason.TAG_EXISTS


async def test_a_creator_waits_for_another_one_that_is_alive(
    lake: Lake, other: Lake, running: Running
) -> None:
    """Two calls create one branch: one succeeds, and the other one is told that it exists."""
    named = lake.kv.hold("set_if", ROWS["name"], after=True)
    slow = running.start(branch(lake, 1))
    await reached(named)
    second = running.start(branch(other, 2))
    for _ in range(10):
        lake.clock.advance(PATIENCE_SECONDS / 20)
        for _ in range(20):
            await asyncio.sleep(0.001)
    assert not second.done()
    named.open()
    await slow
    assert (await refusal(patiently(lake, second))).reason is Reason.BRANCH_EXISTS
    made = await lake.graveler.branches.fresh(lake.branch(NAME))
    assert made.branch.commit_id == commit(1)


async def test_an_unfinished_creation_is_invisible(lake: Lake, running: Running) -> None:
    for make in (branch, tag):
        held = lake.kv.hold("set_if", ROWS["name"])
        making = running.start(make(lake))
        await reached(held)
        assert await kinds(lake) == []
        error = await refusal(lake.graveler.refs.resolve(lake.repository, NAME))
        assert error.reason is Reason.REF_NOT_FOUND
        making.cancel()
        await asyncio.wait([making])


async def test_a_branch_does_not_go_live_after_its_repository_was_deleted(
    lake: Lake, other: Lake, running: Running
) -> None:
    """A replica that has the repository in its cache creates a branch while another replica deletes it."""
    held = lake.kv.hold("set_if", ROWS["name"])
    making = running.start(branch(lake))
    await reached(held)
    graveler = other.graveler
    await graveler.repositories.mark_deleted(lake.repository)
    await graveler.branches.mark_deleted(lake.branch(NAME))
    held.open()
    assert (await refusal(making)).reason is Reason.REPOSITORY_NOT_FOUND
    assert await kinds(lake) == []


async def test_a_pending_branch_is_marked_with_its_repository(
    lake: Lake, other: Lake, running: Running
) -> None:
    """The mark is set between the read of the repository and the last step."""
    named = lake.kv.hold("set_if", ROWS["name"], after=True)
    making = running.start(branch(lake))
    await reached(named)
    last = lake.kv.hold("set_if", ROWS["record"])
    named.open()
    await reached(last)
    await other.graveler.branches.mark_deleted(lake.branch(NAME))
    last.open()
    await asyncio.wait([making])
    assert await kinds(lake) == []


# ---- any interleaving, by seed


@dataclass
class Seen:
    """The commits that were ever live under the name, and how often both kinds were live."""

    commits: set[CommitId]
    both: int = 0


class Explored:
    """Clients that create and delete one name through two replicas over a store under injected faults."""

    def __init__(self, lake: Lake, lakes: list[Lake], kv: LateKv, rng: random.Random) -> None:
        self.lake, self.lakes, self.kv, self.rng = lake, lakes, kv, rng
        self.seen = Seen(set())
        self.made: set[CommitId] = set()
        self.refused: set[CommitId] = set()
        self.count = 0

    async def observe(self) -> None:
        refs = self.lake.graveler.repositories.keys_of(self.lake.repository).refs
        record, named = await self.kv._kv.get_many(refs, [ROWS["record"], ROWS["tag"]])
        live = []
        if record is not None and not (found := decode_branch(record.value)).is_deleted:
            live.append(found.commit_id)
        if named is not None and not (tagged := decode_tag(named.value)).is_pending:
            live.append(tagged.commit_id)
        self.seen.commits.update(live)
        self.seen.both += len(live) == 2

    async def create(self) -> None:
        self.count += 1
        wanted = commit(self.count)
        make = self.rng.choice((branch, tag))
        work = asyncio.ensure_future(make(self.rng.choice(self.lakes), self.count))
        if self.rng.random() < 0.2:
            await asyncio.wait([work], timeout=0)
            for _ in range(self.rng.randrange(40)):
                await asyncio.sleep(0)
            work.cancel()
        try:
            await work
        except asyncio.CancelledError:
            return
        except TarnError as error:
            if error.kind is not Kind.UNKNOWN_OUTCOME:
                self.refused.add(wanted)
        else:
            self.made.add(wanted)

    async def delete(self) -> None:
        graveler = self.rng.choice(self.lakes).graveler
        try:
            if self.rng.random() < 0.5:
                await graveler.branches.delete(self.lake.branch(NAME), keep_tokens)
            else:
                await graveler.tags.delete(self.lake.repository, NAME)
            await graveler.names.release(self.lake.repository, NAME)
        except TarnError:
            pass

    async def client(self) -> None:
        for _ in range(8):
            await (self.create() if self.rng.random() < 0.7 else self.delete())


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
async def test_no_interleaving_makes_a_name_both_or_tells_an_outcome_wrong(
    tmp_path: Path, block: int
) -> None:
    made = 0
    for seed in range(block * 50, block * 50 + 50):
        rng = random.Random(seed)
        replicas = Replicas(tmp_path / str(seed))
        replicas.clock = RestlessClock()
        replicas.kv = kv = LateKv(replicas.kv._kv, rng)
        async with replicas.replica() as one, replicas.replica() as two:
            repository = await create_repository(one)
            lakes = [Lake(each, repository, kv, replicas.clock) for each in (one, two)]
            run = Explored(lakes[0], lakes, kv, rng)
            kv.observe, kv.bad = run.observe, rng.choice((0.0, 0.1, 0.3))
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(run.client())
            await kv.settle_down()
            assert not run.seen.both, seed
            assert run.made <= run.seen.commits, seed
            assert not run.refused & run.seen.commits, seed
            made += len(run.made)
            # Leftovers do not matter: the name can be used for either kind.
            for kind in await kinds(lakes[0]):
                if kind == "branch":
                    await one.branches.delete(lakes[0].branch(NAME), keep_tokens)
                else:
                    await one.tags.delete(repository, NAME)
            await tag(lakes[1])
            await two.tags.delete(repository, NAME)
            await branch(lakes[0])
        await replicas.tasks.close()
    assert made >= 100

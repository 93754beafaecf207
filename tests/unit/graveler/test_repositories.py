"""The life of a repository: it is created with its namespace, undone if that fails, and deleted with all data."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from graveler_service import Service, reason_of
from lake import MAIN, Lake, Replicas, Running, create_repository, reached
from late_kv import LateKv
from permits import permit_for
from tests.support.clock import RestlessClock
from tests.support.faults.gates import GatedKv

from tarn.block.committed import Committed
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, RepositoryId
from tarn.kv.drop_records import Drop
from tarn.kv.embedded import open_embedded
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.port import ListingKv, OutcomeUnknownError, Partition
from tarn.kv.records import Repository, decode_bucket
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.repositories import RepositoryHandler
from tarn_graveler.records.drop_list import DropList
from tarn_graveler.records.repositories import Reservation
from tarn_graveler.uploads.state import NewUpload
from tarn_proto.graveler.v1 import repository_service_pb2 as pb

KEYS = InstallationKeys("test")
DEV = BranchId("dev")
HERE = "mem://here"
NEW = RepositoryId("new")
ROWS = {"record": KEYS.repository(NEW), "namespace": KEYS.namespace(HERE)}


@pytest.fixture(params=["mem", "embedded"])
async def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Replicas]:
    made = Replicas(tmp_path)
    if request.param == "embedded":
        made.kv = GatedKv(await open_embedded(tmp_path / "kv.db"))
    yield made
    await made.tasks.close()
    await made.kv.close()
    await made.blocks.close()


def refused() -> TarnError:
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store is away")


async def refusal(work: Awaitable[object]) -> TarnError:
    with pytest.raises(TarnError) as raised:
        await work
    return raised.value


async def reserve(lake: Lake, name: RepositoryId = NEW, where: str = HERE) -> Reservation:
    return await lake.graveler.repositories.reserve(name, where, MAIN)


async def create(lake: Lake, name: RepositoryId = NEW) -> Reservation:
    reservation = await reserve(lake, name)
    await lake.graveler.repositories.publish(reservation)
    return reservation


async def patiently(lake: Lake, work: Awaitable[Any]) -> Any:
    """Advances the clock while the work waits for other callers."""
    task = asyncio.ensure_future(work)
    async with asyncio.timeout(20.0):
        while not task.done():
            await asyncio.wait([task], timeout=0.001)
            lake.clock.advance(0.05)
    return await task


async def holder(lake: Lake) -> bytes | None:
    (found,) = await lake.kv.get_many(KEYS.graveler, [ROWS["namespace"]])
    return None if found is None else found.value


# ---- reading


async def test_a_record_is_known_for_five_seconds(lake: Lake, other: Lake) -> None:
    repositories = lake.graveler.repositories
    assert await repositories.get("lake") == lake.repository
    await other.graveler.repositories.mark_deleted(lake.repository)
    lake.clock.advance(4.9)
    assert await repositories.get("lake") == lake.repository
    lake.clock.advance(0.2)
    assert (await refusal(repositories.get("lake"))).reason is Reason.REPOSITORY_NOT_FOUND


async def test_an_unfinished_creation_is_invisible(lake: Lake) -> None:
    reservation = await reserve(lake)
    repositories = lake.graveler.repositories
    for work in (repositories.get(NEW), repositories.mark_deleted(reservation.repository)):
        assert (await refusal(work)).reason is Reason.REPOSITORY_NOT_FOUND
    await repositories.publish(reservation)
    assert await repositories.get(NEW) == reservation.repository


# ---- creation that fails half-way


async def test_a_creation_that_is_abandoned_gives_name_and_namespace_back(lake: Lake) -> None:
    reservation = await reserve(lake)
    assert await lake.graveler.repositories.abandon(reservation)
    assert await holder(lake) is None
    await create(lake)
    error = await refusal(lake.graveler.repositories.publish(reservation))
    assert (error.reason, error.metadata["repository"]) == (Reason.REPOSITORY_EXISTS, NEW)


@pytest.mark.parametrize("name", [NEW, RepositoryId("another")])
@pytest.mark.parametrize("step", ["record", "namespace", "filled"])
async def test_a_creator_that_dies_leaves_a_namespace_that_can_be_used(
    lake: Lake, other: Lake, running: Running, step: str, name: RepositoryId
) -> None:
    if step == "filled":
        await reserve(lake)
    else:
        held = lake.kv.hold("set_if", ROWS[step], after=True)
        dying = running.start(reserve(lake))
        await reached(held)
        dying.cancel()
        await asyncio.wait([dying])
    made = await patiently(other, create(other, name))
    assert (await other.graveler.repositories.get(name)).storage_namespace == HERE
    assert made.repository.instance_uid.encode() in (await holder(lake) or b"")


@pytest.mark.parametrize("name", [NEW, RepositoryId("another")])
async def test_a_slow_creator_does_not_publish_on_a_namespace_that_it_lost(
    lake: Lake, other: Lake, running: Running, name: RepositoryId
) -> None:
    """It was taken for dead, and continues after another repository got the namespace."""
    slow = await reserve(lake)
    held = lake.kv.hold("set_if", ROWS["record"])
    publishing = running.start(lake.graveler.repositories.publish(slow))
    await reached(held)
    await patiently(other, create(other, name))
    held.open()
    error = await refusal(publishing)
    assert error.kind in {Kind.ALREADY_EXISTS, Kind.UNAVAILABLE}
    served = [each async for _, each in lake.graveler.iterators.repositories()]
    assert [each.repository_id for each in served if each.storage_namespace == HERE] == [name]


async def test_a_namespace_stays_occupied_when_its_repository_is_gone(lake: Lake) -> None:
    made = await create(lake)
    repositories = lake.graveler.repositories
    await repositories.mark_deleted(made.repository)
    await repositories.remove(made.repository)
    for name in (NEW, RepositoryId("another")):
        assert (await refusal(reserve(lake, name))).reason is Reason.REPOSITORY_EXISTS
    assert (await refusal(repositories.get(NEW))).reason is Reason.REPOSITORY_NOT_FOUND
    await reserve(lake, NEW, "mem://elsewhere")  # the name is free, also after the refusals


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not-applied"])
async def test_a_namespace_stays_occupied_although_an_answer_is_lost(
    lake: Lake, applied: bool
) -> None:
    made = await create(lake)
    await lake.graveler.repositories.mark_deleted(made.repository)
    lake.kv.lose("set_if", ROWS["namespace"], applied=applied)
    await lake.graveler.repositories.remove(made.repository)
    again = reserve(lake, RepositoryId("another"))
    assert (await refusal(again)).reason is Reason.REPOSITORY_EXISTS


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not-applied"])
@pytest.mark.parametrize("row", ["record", "namespace"])
async def test_a_creator_recognises_its_own_attempt_when_the_answer_is_lost(
    lake: Lake, row: str, applied: bool
) -> None:
    lake.kv.lose("set_if", ROWS[row], applied=applied)
    async with asyncio.timeout(5.0):  # the clock is stopped: it does not wait for itself
        reservation = await reserve(lake)
    lake.kv.lose("set_if", ROWS["record"], applied=applied)
    await lake.graveler.repositories.publish(reservation)
    assert await lake.graveler.repositories.get(NEW) == reservation.repository


async def test_a_refused_creation_can_be_repeated_at_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the service: the block store is unavailable while the first commit is built."""
    build = Committed.build

    async def away(self: Committed, *args: Any, **kwargs: Any) -> Any:
        raise refused()

    monkeypatch.setattr(Committed, "build", away)
    graveler, admin = service.graveler, service.admin
    error = await refusal(graveler.create_repository(admin, "new", storage_namespace=HERE))
    assert error.kind is Kind.UNAVAILABLE
    assert await reason_of(graveler.get_repository(admin, "new")) is Reason.REPOSITORY_NOT_FOUND
    monkeypatch.setattr(Committed, "build", build)
    async with asyncio.timeout(5.0):
        await graveler.create_repository(admin, "new", storage_namespace=HERE)
    assert (await graveler.get_repository(admin, "new")).storage_namespace == HERE


@pytest.mark.parametrize("applied", [True, False])
async def test_a_creation_whose_first_commit_is_in_doubt_gives_name_and_namespace_back(
    lake: Lake, other: Lake, applied: bool
) -> None:
    async def make(by: Lake) -> None:
        handler = RepositoryHandler(by.graveler)
        request = pb.CreateRepositoryRequest(repository_id=NEW, storage_namespace=HERE)
        await handler.CreateRepository(request, permit_for(request, by.repository))

    lake.kv.lose("set_many", applied=applied)
    assert (await refusal(make(lake))).kind is Kind.UNAVAILABLE
    assert await holder(lake) is None
    async with asyncio.timeout(5.0):
        await make(other)  # the clock is stopped


# ---- deletion


async def test_another_life_of_a_repository_is_not_removed(lake: Lake) -> None:
    """A slow deletion ends after the name was given to another repository."""
    repositories = lake.graveler.repositories
    old = lake.repository
    await repositories.mark_deleted(old)
    await repositories.remove(old)
    new = await create_repository(lake.graveler)
    await repositories.remove(old)
    assert await repositories.get("lake") == new


async def test_a_removal_that_is_overtaken_spares_the_next_repository_of_the_name(
    lake: Lake, other: Lake, running: Running
) -> None:
    """It has seen its own life of the name; another deletion ends that before the removal of the record."""
    repositories = lake.graveler.repositories
    await repositories.mark_deleted(lake.repository)
    held = lake.kv.hold("get_many", KEYS.namespace(lake.repository.storage_namespace))
    slow = running.start(repositories.remove(lake.repository))
    await reached(held)
    await other.graveler.repositories.remove(lake.repository)
    new = await create_repository(lake.graveler)
    held.open()
    assert (await refusal(slow)).reason is Reason.REPOSITORY_NOT_FOUND
    other.graveler.repositories.forget("lake")
    assert await other.graveler.repositories.get("lake") == new


async def test_a_mark_whose_answer_was_lost_spares_the_next_repository_of_the_name(
    lake: Lake, other: Lake, running: Running
) -> None:
    """The mark was made. Another deletion has ended the old life before the settling read, and a new one has begun."""
    key = KEYS.repository(RepositoryId("lake"))
    sent = lake.kv.hold("set_if", key)
    lake.kv.lose("set_if", key, applied=True)
    slow = running.start(lake.graveler.repositories.mark_deleted(lake.repository))
    await reached(sent)
    settles = lake.kv.hold("get_many", key)
    sent.open()
    await reached(settles)
    await other.graveler.repositories.remove(lake.repository)
    new = await create_repository(lake.graveler)
    settles.open()
    assert (await refusal(slow)).reason is Reason.OUTCOME_UNKNOWN
    other.graveler.repositories.forget("lake")
    assert await other.graveler.repositories.get("lake") == new


async def delete(lake: Lake) -> None:
    handler = RepositoryHandler(lake.graveler)
    request = pb.DeleteRepositoryRequest(repository_id="lake")
    await handler.DeleteRepository(request, permit_for(request, lake.repository))


async def fill(lake: Lake) -> set[str]:
    """Two branches, uncommitted rows, a commit and an upload; the names of all partitions."""
    await lake.put("a", 1)
    made = await lake.commit()
    await lake.put("b", 1)
    await lake.graveler.branches.create(lake.branch(DEV), made.commit_id)
    await lake.put("c", 1, DEV)
    new = NewUpload(MAIN, "big", b"", "ann", "", is_full_object_checksum=False)
    await lake.graveler.uploads.create(lake.repository, new)
    found = await partitions(lake)
    assert len(found) >= 5  # refs, commits, a token of each branch, a day of uploads
    return found


async def partitions(lake: Lake) -> set[str]:
    """Returns the partitions of the repository that hold rows."""
    root = lake.graveler.repositories.keys_of(lake.repository).root
    kv = cast("ListingKv", lake.kv._kv)
    found = set()
    async for each in kv.partitions(root):
        if await kv.scan(Partition(each.name, each.kind, each.buckets or 1), b"", None, 1):
            found.add(each.name)
    return found


async def test_a_deleted_repository_s_branches_take_no_writes_from_who_still_knows_it(
    lake: Lake, other: Lake
) -> None:
    """A replica may cache the repository for five more seconds; the marks of the branches stop its writes."""
    await fill(lake)
    await lake.graveler.repositories.get("lake")
    await delete(other)
    for name in (MAIN, DEV):
        error = await refusal(lake.put("late", 1, name))
        assert error.kind is Kind.UNKNOWN_OUTCOME or error.reason is Reason.BRANCH_NOT_FOUND
        read = lake.graveler.reading.lookup(lake.repository, name, "a")
        assert (await refusal(read)).kind is Kind.NOT_FOUND


async def test_all_of_a_deleted_repository_is_dropped(lake: Lake) -> None:
    await fill(lake)
    await delete(lake)
    await lake.drop_everything_removed()
    assert await partitions(lake) == set()


@pytest.mark.parametrize("how", ["told", "raised"])
async def test_a_deletion_keeps_the_record_until_everything_will_be_dropped(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Partitions that could not be registered for dropping are found again only through the record."""
    await fill(lake)
    add = DropList.add

    async def add_but_one(self: DropList, drops: Sequence[Drop]) -> list[TarnError | None]:
        if how == "raised":
            raise refused()
        return [*await add(self, drops[1:]), refused()]

    monkeypatch.setattr(DropList, "add", add_but_one)
    error = await refusal(delete(lake))
    # Users no longer see it, so "surely not done" would be false.
    assert isinstance(error, OutcomeUnknownError)
    assert "delete it again" in error.message
    get = other.graveler.repositories.get("lake")
    assert (await refusal(get)).reason is Reason.REPOSITORY_NOT_FOUND
    monkeypatch.setattr(DropList, "add", add)
    await delete(other)
    await lake.drop_everything_removed()
    assert await partitions(lake) == set()
    assert (await refusal(delete(lake))).reason is Reason.REPOSITORY_NOT_FOUND
    await create_repository(lake.graveler)


async def test_a_deletion_continues_when_a_branch_is_deleted_concurrently(
    lake: Lake, other: Lake, running: Running
) -> None:
    await fill(lake)
    read = lake.kv.hold("get_many", RepositoryKeys.branch(DEV))
    deleting = running.start(delete(lake))
    await reached(read)
    refs = lake.graveler.repositories.keys_of(lake.repository).refs
    await other.kv.delete_many(refs, [RepositoryKeys.branch(DEV)])
    read.open()
    await deleting


@pytest.mark.parametrize(
    ("operation", "key"),
    [("scan", None), ("delete_if", KEYS.repository(RepositoryId("lake")))],
    ids=["listing", "removal"],
)
async def test_the_slower_of_two_deletions_is_told_that_the_repository_is_gone(
    lake: Lake, other: Lake, running: Running, operation: str, key: bytes | None
) -> None:
    held = lake.kv.hold(operation, key)
    slow = running.start(delete(lake))
    await reached(held)
    await delete(other)
    held.open()
    assert (await refusal(slow)).reason is Reason.REPOSITORY_NOT_FOUND


# ---- any interleaving, by seed


class Creators:
    """Two replicas create and delete two repositories in one namespace, under injected faults."""

    def __init__(self, replicas: list[Graveler], kv: LateKv, rng: random.Random) -> None:
        self.replicas, self.kv, self.rng = replicas, kv, rng
        self.served: set[str] = set()
        self.published: set[str] = set()
        self.refused: set[str] = set()

    async def observe(self) -> None:
        rows = await self.kv._kv.scan(KEYS.graveler, b"repos/", b"repos0", 100)
        for _, value in rows:
            found = decode_bucket(value)
            assert isinstance(found, Repository)
            if found.is_served:
                self.served.add(found.instance_uid)

    async def create(self, replica: Graveler, name: RepositoryId) -> None:
        reservation = await replica.repositories.reserve(name, HERE, MAIN)
        uid = reservation.repository.instance_uid
        if self.rng.random() < 0.3:
            self.refused.add(uid)
            if self.rng.random() < 0.5:
                await replica.repositories.abandon(reservation)
            return
        try:
            await replica.repositories.publish(reservation)
        except TarnError as error:
            if error.kind is not Kind.UNKNOWN_OUTCOME:
                self.refused.add(uid)
                await replica.repositories.abandon(reservation)
        else:
            self.published.add(uid)

    async def client(self) -> None:
        for _ in range(6):
            replica = self.rng.choice(self.replicas)
            name = self.rng.choice((NEW, RepositoryId("another")))
            with suppress(TarnError):
                if self.rng.random() < 0.8:
                    await self.create(replica, name)
                else:
                    found = await replica.repositories.read(name)
                    marked = await replica.repositories.mark_deleted(found)
                    await replica.repositories.remove(marked)


@pytest.mark.parametrize("block", range(5))
async def test_no_interleaving_gives_two_repositories_one_namespace(
    tmp_path: Path, block: int
) -> None:
    published = 0
    for seed in range(block * 50, block * 50 + 50):
        rng = random.Random(seed)
        replicas = Replicas(tmp_path / str(seed))
        replicas.clock = RestlessClock()
        replicas.kv = kv = LateKv(replicas.kv._kv, rng)
        async with replicas.replica() as one, replicas.replica() as two:
            run = Creators([one, two], kv, rng)
            kv.observe, kv.bad = run.observe, rng.choice((0.0, 0.1, 0.3))
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(run.client())
            await kv.settle_down()
            assert len(run.served) <= 1, seed  # ever: a namespace is never used again
            assert run.published <= run.served, seed
            assert not run.refused & run.served, seed
            published += len(run.published)
            if not run.served:
                await one.repositories.publish(await one.repositories.reserve(NEW, HERE, MAIN))
        await replicas.tasks.close()
    assert published >= 10


@pytest.mark.parametrize("namespace", ["nowhere", "mem://" + "x" * 2_000])
async def test_a_namespace_that_cannot_be_is_refused_before_anything_is_reserved(
    lake: Lake, namespace: str
) -> None:
    repositories = lake.graveler.repositories
    with pytest.raises(TarnError) as raised:
        await repositories.reserve(RepositoryId("pond"), namespace, MAIN)
    assert raised.value.reason is Reason.INVALID_ARGUMENT
    reservation = await repositories.reserve(RepositoryId("pond"), "mem://pond/", MAIN)
    assert reservation.repository.storage_namespace == "mem://pond"

"""Repositories that are deleted with their data: the data go after the grace time, and nothing else, and no sooner."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dumped_lake import commit, dump, restore
from graveler_service import Service, reason_of, running_service
from lake import Running, reached

from tarn.block.local import open_local
from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey, BlockStore
from tarn.client.erasures import ErasureClient
from tarn.client.graveler import GravelerClient
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import physical_path
from tarn.core.levels import LEVEL_FIRST, check_feature
from tarn.kv.keys import InstallationKeys
from tarn.kv.namespace_records import Namespace, decode_namespace, encode_namespace
from tarn.lifecycle.progress import Progress
from tarn.lifecycle.purging import PURGE_FOLDER, Purger, PurgeReport, is_due
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.testing.clock import ManualClock, SeededIds
from tarn_graveler.application import endpoints_of
from tarn_proto.graveler.v1 import erasure_service_pb2 as pb

KEYS = InstallationKeys("test")
DAY_S = 86_400
ATTEMPT = "a" * 32


class _Hasty:
    """The time of the service; sleeps let it pass."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.now_us, self.monotonic = clock.now_us, clock.monotonic

    async def sleep(self, seconds: float) -> None:
        self._clock.advance(seconds)


@dataclass
class Lab:
    """A service, the blocks of its repository, and what purges them."""

    service: Service
    blocks: BlockStore
    namespace: str
    uid: str
    key: tuple[str, str]

    @property
    def client(self) -> ErasureClient:
        return ErasureClient(self.service.transport)

    @property
    def purger(self) -> Purger:
        return self.over(self.blocks)

    def over(self, blocks: BlockStore, client: ErasureClient | None = None) -> Purger:
        return Purger(
            client or self.client,
            lambda: self.service.admin,
            blocks,
            _Hasty(self.service.clock),
            random.Random(1),
            Progress(),
        )

    async def put(self, path: str, size: int = 4, namespace: str = "") -> str:
        await self.blocks.put(BlockKey(namespace or self.namespace, path), bytes(size))
        return path

    async def paths(self, namespace: str = "") -> set[str]:
        page = await self.blocks.list_page(namespace or self.namespace, "", "", 10_000)
        return {info.path for info in page if not info.path.startswith(PURGE_FOLDER)}

    async def delete(self, *, grace_days: float = 0) -> int:
        return await self.service.graveler.delete_repository(
            self.service.admin, "lake", with_data=True, grace_seconds=int(grace_days * DAY_S)
        )

    async def doomed(self) -> pb.DoomedNamespace:
        (found,) = await self.purger.doomed()
        return found

    async def pass_days(self, days: float) -> None:
        """Lets time pass, and logs in again: a caller token lives for an hour."""
        service = self.service
        service.clock.advance(days * DAY_S)
        session = await service.auth.log_in(
            service.anonymous,
            *self.key,
            now_us=service.clock.now_us(),
            nonce=random.randbytes(16),
        )
        self.service = replace(
            service, admin=replace(service.anonymous, caller_token=session.grant.caller_token)
        )

    async def purge(self, blocks: BlockStore | None = None, attempt: str = ATTEMPT) -> PurgeReport:
        return await self.over(blocks or self.blocks).purge(await self.doomed(), attempt)

    async def row(self) -> Namespace:
        partition, key = KEYS.graveler, KEYS.namespace(self.namespace)
        (found,) = await self.service.replicas.kv.get_many(partition, [key])
        assert found is not None
        return decode_namespace(found.value)

    async def set_row(self, row: Namespace) -> None:
        partition, key = KEYS.graveler, KEYS.namespace(self.namespace)
        (found,) = await self.service.replicas.kv.get_many(partition, [key])
        assert found is not None
        await self.service.replicas.kv.set_if(
            partition, key, encode_namespace(row), found.predicate
        )


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with running_service(tmp_path / "service") as service:
        found = await service.graveler.get_repository(service.admin, "lake")
        made = await service.auth.create_credential(service.admin)
        key = (made.credential.access_key_id, made.secret_access_key)
        blocks = service.replicas.blocks
        yield Lab(service, blocks, found.storage_namespace, found.instance_uid, key)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    made = Running()
    yield made
    await made.close()


async def test_the_data_go_after_the_grace_time(lab: Lab) -> None:
    await commit(lab.service, "main", "a", 1)
    before = await lab.paths()
    assert any(path.startswith("_tarn/commits/") for path in before)
    due_us = await lab.delete()
    assert due_us == lab.service.clock.now_us() + 7 * DAY_S * 1_000_000
    await lab.pass_days(6.9)
    assert not is_due(await lab.doomed(), lab.service.clock.now_us())
    assert await reason_of(lab.purge()) is Reason.COLLECTION_TOO_EARLY
    assert await lab.paths() == before, "nothing was deleted"
    await lab.pass_days(0.2)
    counted = await lab.purger.count(await lab.doomed())
    assert (counted.found.count, await lab.paths()) == (len(before), before)
    report = await lab.purge()
    assert report.is_complete
    assert report.deleted == counted.found
    assert await lab.paths() == set()
    row = await lab.row()
    assert (row.purged_count, row.purged_bytes) == (report.deleted.count, report.deleted.size_bytes)
    assert not is_due(await lab.doomed(), lab.service.clock.now_us())
    told = await lab.blocks.read(BlockKey(lab.namespace, f"{PURGE_FOLDER}{ATTEMPT}-000000.parquet"))
    rows = pq.read_table(pa.BufferReader(told)).to_pylist()
    assert {row["path"] for row in rows} == before
    assert {row["outcome"] for row in rows} == {"deleted"}


async def test_local_files_rows_and_parts_go_and_the_neighbours_stay(
    lab: Lab, tmp_path: Path
) -> None:
    """Bodies in sqlite, bodies in files, and parts of uploads; not those of a namespace whose name begins the same."""
    name = lab.namespace.partition("://")[2]
    store = await open_local(tmp_path / "blocks", clock=lab.service.clock)
    local = replace(lab, blocks=store)
    ids = SeededIds(lab.service.clock, seed=3)
    for namespace in (lab.namespace, f"local://{name}2"):
        for size in (10, 200_000):
            await local.put(physical_path(ids.uuid7()), size, namespace)
        await local.put("_tarn/refs/main/1.json", 5, namespace)
    key = BlockKey(lab.namespace, physical_path(ids.uuid7()))
    await store.uploads.begin(key, "u1")
    part = await store.uploads.open_part(key, "u1", 1, "a")
    await part.write(bytes(100_000))
    await part.finish()
    neighbours = await local.paths(f"local://{name}2")
    await local.delete()
    await local.pass_days(8)
    assert (await local.purge()).is_complete
    assert await local.paths() == set()
    assert await local.paths(f"local://{name}2") == neighbours
    left = [each for each in (tmp_path / "blocks" / name).rglob("*") if each.is_file()]
    assert {each.parent.name for each in left} == {"purge"}
    await store.close()


async def test_a_plain_deletion_keeps_the_data(lab: Lab) -> None:
    before = await lab.paths()
    assert await lab.service.graveler.delete_repository(lab.service.admin, "lake") == 0
    await lab.pass_days(400)
    assert await lab.purger.doomed() == []
    begun = lab.client.begin_purge(lab.service.admin, lab.namespace, lab.uid)
    assert await reason_of(begun) is Reason.NAMESPACE_NOT_DOOMED
    assert await lab.paths() == before


# ---- who may, and when


async def test_a_refused_deletion_with_data_deletes_nothing(lab: Lab) -> None:
    service = lab.service
    developer = await service.as_user("dora", "Developer")
    doomed = service.graveler.delete_repository(developer, "lake", with_data=True)
    assert await reason_of(doomed) is Reason.ACCESS_DENIED
    for seconds in (6 * 3600 - 1, 366 * DAY_S, -1):
        doomed = service.graveler.delete_repository(
            service.admin, "lake", with_data=True, grace_seconds=seconds
        )
        assert await reason_of(doomed) is Reason.INVALID_ARGUMENT
    found = await service.graveler.get_repository(service.admin, "lake")
    assert found.instance_uid == lab.uid


async def test_below_the_feature_level_nothing_is_deleted(lab: Lab) -> None:
    """A replica of the last release would let a creation take a purged namespace, or lose the mark."""
    from tarn.client.access import Access

    service = lab.service
    old = replace(
        service.replicas.made[0], require_feature=lambda each: check_feature(LEVEL_FIRST, each)
    )
    endpoints = endpoints_of(old, Access(service.auth, service.clock))
    transport = InProcessTransport(endpoints, service.clock)
    doomed = GravelerClient(transport).delete_repository(service.admin, "lake", with_data=True)
    assert await reason_of(doomed) is Reason.FEATURE_LEVEL
    found = await service.graveler.get_repository(service.admin, "lake")
    assert found.instance_uid == lab.uid
    await transport.close()


async def test_only_a_collector_may_purge_or_spare(lab: Lab) -> None:
    developer = await lab.service.as_user("dora", "Developer")
    await lab.delete()
    for call in (
        lab.client.begin_purge(developer, lab.namespace, lab.uid),
        lab.client.end_purge(developer, lab.namespace, lab.uid, 0, 0),
        lab.client.spare_namespace(developer, lab.namespace),
    ):
        assert await reason_of(call) is Reason.ACCESS_DENIED


async def test_a_repeated_deletion_keeps_the_first_grace_time(lab: Lab) -> None:
    """The first one died between the mark of its namespace and the end of its record."""
    kv = lab.service.replicas.kv
    kv.lose("delete_if", KEYS.repository("lake"), applied=False)
    assert await reason_of(lab.delete(grace_days=1)) is Reason.OUTCOME_UNKNOWN
    first = (await lab.row()).purge_after_us
    lab.service.clock.advance(60)
    assert await lab.delete(grace_days=300) == first


async def test_a_deletion_that_goes_on_with_data_dooms_them(lab: Lab) -> None:
    kv = lab.service.replicas.kv
    kv.lose("delete_if", KEYS.repository("lake"), applied=False)
    plain = lab.service.graveler.delete_repository(lab.service.admin, "lake")
    assert await reason_of(plain) is Reason.OUTCOME_UNKNOWN
    assert await lab.delete()
    assert (await lab.doomed()).storage_namespace == lab.namespace


# ---- back again


async def test_a_restore_in_the_grace_time_keeps_the_data(lab: Lab, tmp_path: Path) -> None:
    await commit(lab.service, "main", "a", 1)
    await dump(lab.service, tmp_path / "lake.tar")
    await lab.delete()
    await lab.pass_days(1)
    doomed = await lab.doomed()
    before = await lab.paths()
    await restore(lab.service, tmp_path / "lake.tar")
    await lab.pass_days(30)
    assert await reason_of(lab.purger.purge(doomed, ATTEMPT)) is Reason.NAMESPACE_NOT_DOOMED
    assert await lab.paths() == before
    assert await lab.service.size("main", "a") == 1


async def test_a_spared_namespace_keeps_its_data(lab: Lab) -> None:
    await lab.delete()
    doomed = await lab.doomed()
    before = await lab.paths()
    await lab.client.spare_namespace(lab.service.admin, lab.namespace)
    await lab.pass_days(30)
    assert await lab.purger.doomed() == []
    assert await reason_of(lab.purger.purge(doomed, ATTEMPT)) is Reason.NAMESPACE_NOT_DOOMED
    assert await lab.paths() == before
    again = lab.client.spare_namespace(lab.service.admin, lab.namespace)
    assert await reason_of(again) is Reason.NAMESPACE_NOT_DOOMED


async def test_once_a_purge_has_begun_nothing_brings_the_repository_back(
    lab: Lab, tmp_path: Path
) -> None:
    await dump(lab.service, tmp_path / "lake.tar")
    await lab.delete()
    await lab.pass_days(8)
    await lab.client.begin_purge(lab.service.admin, lab.namespace, lab.uid)
    assert await reason_of(restore(lab.service, tmp_path / "lake.tar")) is Reason.REPOSITORY_EXISTS
    spared = lab.client.spare_namespace(lab.service.admin, lab.namespace)
    assert await reason_of(spared) is Reason.NAMESPACE_NOT_DOOMED
    assert (await lab.purge()).is_complete
    assert await lab.paths() == set()


@pytest.mark.parametrize("first", ["restore", "purge"])
async def test_a_restore_and_a_purge_exclude_each_other(
    lab: Lab, tmp_path: Path, running: Running, first: str
) -> None:
    """Each has judged the row before the other one writes it."""
    await commit(lab.service, "main", "a", 1)
    await dump(lab.service, tmp_path / "lake.tar")
    await lab.delete()
    await lab.pass_days(8)
    doomed = await lab.doomed()
    gate = lab.service.replicas.kv.hold("set_if", KEYS.namespace(lab.namespace))
    if first == "restore":
        purging = running.start(lab.purger.purge(doomed, ATTEMPT))
        await reached(gate)
        await restore(lab.service, tmp_path / "lake.tar")
        gate.open()
        assert await reason_of(purging) is Reason.NAMESPACE_NOT_DOOMED
        assert await lab.service.size("main", "a") == 1
        assert await lab.paths() >= {"_tarn/ranges/" + name for name in await ranges(lab)}
    else:
        restoring = running.start(restore(lab.service, tmp_path / "lake.tar"))
        await reached(gate)
        report = await lab.purger.purge(doomed, ATTEMPT)
        gate.open()
        assert await reason_of(restoring) is Reason.REPOSITORY_EXISTS
        assert report.is_complete


async def ranges(lab: Lab) -> set[str]:
    return {path.rpartition("/")[2] for path in await lab.paths() if "/ranges/" in path}


async def test_a_lost_answer_of_the_begin_is_settled(lab: Lab) -> None:
    await lab.delete()
    await lab.pass_days(8)
    lab.service.replicas.kv.lose("set_if", KEYS.namespace(lab.namespace), applied=True)
    assert (await lab.purge()).is_complete


async def test_a_namespace_that_a_repository_uses_is_not_purged(lab: Lab) -> None:
    """Damage: its row says that it is doomed."""
    now_us = lab.service.clock.now_us()
    before = await lab.paths()
    row = await lab.row()
    await lab.set_row(replace(row, is_final=True, doom_time_us=now_us, purge_after_us=now_us))
    with pytest.raises(TarnError, match="uses the storage namespace") as raised:
        await lab.purge()
    assert raised.value.kind is Kind.CORRUPT
    assert await lab.paths() == before


async def test_a_purge_of_another_life_of_the_namespace_is_refused(
    lab: Lab, tmp_path: Path
) -> None:
    """It was listed, then the repository was restored, and deleted with its data again."""
    await dump(lab.service, tmp_path / "lake.tar")
    await lab.delete()
    listed = await lab.doomed()
    await restore(lab.service, tmp_path / "lake.tar")
    await lab.delete(grace_days=30)
    await lab.pass_days(31)
    assert await reason_of(lab.purger.purge(listed, ATTEMPT)) is Reason.NAMESPACE_NOT_DOOMED


# ---- failures


class MortalStore(MemBlockStore):
    """The blocks of another store; the process ends at one of its calls, before or after the call took effect."""

    def __init__(self, blocks: MemBlockStore, dies_at: int, *, dies_after: bool) -> None:
        self.__dict__.update(blocks.__dict__)
        self.calls, self.dies_at, self.dies_after = 0, dies_at, dies_after

    async def _mortal(self, work: Callable[[], Awaitable[None]]) -> None:
        self.calls += 1
        if self.calls == self.dies_at and not self.dies_after:
            raise KeyboardInterrupt
        await work()
        if self.calls == self.dies_at:
            raise KeyboardInterrupt

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        await self._mortal(lambda: MemBlockStore.put(self, key, body))

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        await self._mortal(lambda: MemBlockStore.delete_many(self, namespace, paths))


@pytest.mark.parametrize("dies_after", [False, True])
@pytest.mark.parametrize("dies_at", [1, 2, 3, 4])
async def test_an_interrupted_purge_is_resumed(lab: Lab, dies_at: int, dies_after: bool) -> None:
    await commit(lab.service, "main", "a", 1)
    await lab.put(physical_path(SeededIds(lab.service.clock, seed=4).uuid7()))
    await lab.delete()
    await lab.pass_days(8)
    mortal = MortalStore(lab.service.replicas.blocks, dies_at, dies_after=dies_after)
    with pytest.raises(KeyboardInterrupt):
        await lab.purge(mortal)
    assert (await lab.purge(attempt="b" * 32)).is_complete
    assert await lab.paths() == set()


class StubbornStore(MortalStore):
    """Does not delete one block."""

    stuck = ""

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        if self.stuck in paths:
            raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, "the object is locked")
        await MemBlockStore.delete_many(self, namespace, paths)


async def test_a_block_that_stays_keeps_the_purge_from_its_end(lab: Lab) -> None:
    ids = SeededIds(lab.service.clock, seed=4)
    stuck = await lab.put(physical_path(ids.uuid7()), 9)
    await lab.put(physical_path(ids.uuid7()))
    await lab.delete()
    await lab.pass_days(8)
    stubborn = StubbornStore(lab.service.replicas.blocks, 0, dies_after=False)
    stubborn.stuck = stuck
    report = await lab.purge(stubborn)
    assert not report.is_complete
    assert (report.failed.count, report.failed.size_bytes) == (1, 9)
    assert "locked" in report.error
    assert await lab.paths() == {stuck}, "one block does not keep the others"
    assert is_due(await lab.doomed(), lab.service.clock.now_us())
    assert (await lab.purge(attempt="b" * 32)).is_complete
    assert (await lab.row()).purged_count == report.deleted.count + 1


async def test_a_store_that_lies_about_deletions_is_found_by_the_second_look(lab: Lab) -> None:
    class Lying(MortalStore):
        async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
            pass

    await lab.delete()
    await lab.pass_days(8)
    report = await lab.purge(Lying(lab.service.replicas.blocks, 0, dies_after=False))
    assert report.left.count > 0
    assert not report.is_complete
    assert not (await lab.row()).purge_end_us


async def test_a_purge_asks_again_before_it_goes_on(lab: Lab) -> None:
    """The store of the metadata was replaced by a backup, which does not know of the deletion."""

    class Slow(MortalStore):
        async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
            clock.advance(61)
            row = await lab.row()
            await lab.set_row(replace(row, doom_time_us=0, purge_after_us=0, purge_begin_us=0))
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "try again")

    clock = lab.service.clock
    before = await lab.paths()
    await lab.delete()
    await lab.pass_days(8)
    store = Slow(lab.service.replicas.blocks, 0, dies_after=False)
    assert await reason_of(lab.purge(store)) is Reason.NAMESPACE_NOT_DOOMED
    assert await lab.paths() == before

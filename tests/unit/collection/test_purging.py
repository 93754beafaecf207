"""Repositories that are deleted with their data: the data go after the grace time, and nothing else, and no sooner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dumped_lake import another_installation, commit, dump, restore
from graveler_service import reason_of
from lake import Running, reached
from purge_lab import ATTEMPT, DAY_S, KEYS, PurgeLab, purge_lab
from tests.support.clock import SeededIds

from tarn.block.local import open_local
from tarn.block.port import BlockKey
from tarn.client.graveler import GravelerClient
from tarn.collection.purging import PURGE_FOLDER, is_due
from tarn.core.access.policy import Role, Statement, statements_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UserId, physical_path
from tarn.core.levels import LEVEL_FIRST, FeatureGate
from tarn.kv.register import REGISTER_TRIES
from tarn.rpc.client.inprocess import InProcessTransport
from tarn_auth import authorizer
from tarn_graveler.application import endpoints_of


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[PurgeLab]:
    async with purge_lab(tmp_path) as made:
        yield made


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    made = Running()
    yield made
    await made.close()


async def test_the_data_go_after_the_grace_time(lab: PurgeLab) -> None:
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
    lab: PurgeLab, tmp_path: Path
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


async def test_a_plain_deletion_keeps_the_data(lab: PurgeLab) -> None:
    before = await lab.paths()
    assert await lab.service.graveler.delete_repository(lab.service.admin, "lake") == 0
    await lab.pass_days(400)
    assert await lab.purger.doomed() == []
    begun = lab.client.begin_purge(lab.service.admin, lab.namespace, lab.uid)
    assert await reason_of(begun) is Reason.NAMESPACE_NOT_DOOMED
    assert await lab.paths() == before


# ---- who may, and when


async def test_who_may_only_delete_repositories_may_not_delete_their_data(
    lab: PurgeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scoped(roles: tuple[Role, ...], user_id: UserId) -> tuple[Statement, ...]:
        deleter = Statement(True, ("DeleteRepo", "ReadRepo"), ("repository/*",))
        return (deleter,) if user_id == "dora" else statements_of(roles, user_id)

    monkeypatch.setattr(authorizer, "statements_of", scoped)
    graveler, dora = lab.service.graveler, await lab.service.as_user("dora", "Developer")
    doomed = graveler.delete_repository(dora, "lake", with_data=True)
    assert await reason_of(doomed) is Reason.ACCESS_DENIED
    found = await graveler.get_repository(dora, "lake")
    assert found.instance_uid == lab.uid
    assert await graveler.delete_repository(dora, "lake") == 0


async def test_a_refused_grace_time_deletes_nothing(lab: PurgeLab) -> None:
    service = lab.service
    for seconds in (6 * 3600 - 1, 366 * DAY_S, -1):
        doomed = service.graveler.delete_repository(
            service.admin, "lake", with_data=True, grace_seconds=seconds
        )
        assert await reason_of(doomed) is Reason.INVALID_ARGUMENT
    found = await service.graveler.get_repository(service.admin, "lake")
    assert found.instance_uid == lab.uid


async def test_below_the_feature_level_nothing_is_deleted(lab: PurgeLab) -> None:
    """A replica of the last release would let a creation take a purged namespace, or lose the mark."""
    from tarn.gate.access import Access

    service = lab.service
    old = replace(service.replicas.made[0], features=FeatureGate.at(LEVEL_FIRST))
    endpoints = endpoints_of(old, Access(service.auth, service.clock))
    transport = InProcessTransport(endpoints, service.clock)
    doomed = GravelerClient(transport).delete_repository(service.admin, "lake", with_data=True)
    assert await reason_of(doomed) is Reason.FEATURE_LEVEL
    found = await service.graveler.get_repository(service.admin, "lake")
    assert found.instance_uid == lab.uid
    await transport.close()


async def test_only_a_collector_may_purge_or_spare(lab: PurgeLab) -> None:
    developer = await lab.service.as_user("dora", "Developer")
    await lab.delete()
    for call in (
        lab.client.begin_purge(developer, lab.namespace, lab.uid),
        lab.client.end_purge(developer, lab.namespace, lab.uid, 0, 0),
        lab.client.spare_namespace(developer, lab.namespace),
    ):
        assert await reason_of(call) is Reason.ACCESS_DENIED


async def test_a_repeated_deletion_keeps_the_first_grace_time(lab: PurgeLab) -> None:
    """The first one died between the mark of its namespace and the end of its record."""
    kv = lab.service.replicas.kv
    kv.lose("delete_if", KEYS.repository("lake"), applied=False, times=REGISTER_TRIES)
    assert await reason_of(lab.delete(grace_days=1)) is Reason.OUTCOME_UNKNOWN
    first = (await lab.row()).purge_after_us
    lab.service.clock.advance(60)
    assert await lab.delete(grace_days=300) == first


async def test_a_deletion_that_goes_on_with_data_dooms_them(lab: PurgeLab) -> None:
    kv = lab.service.replicas.kv
    kv.lose("delete_if", KEYS.repository("lake"), applied=False, times=REGISTER_TRIES)
    plain = lab.service.graveler.delete_repository(lab.service.admin, "lake")
    assert await reason_of(plain) is Reason.OUTCOME_UNKNOWN
    assert await lab.delete()
    assert (await lab.doomed()).storage_namespace == lab.namespace


# ---- back again


async def test_a_restore_in_the_grace_time_keeps_the_data(lab: PurgeLab, tmp_path: Path) -> None:
    await commit(lab.service, "main", "a", 1)
    await dump(lab.service, tmp_path / "lake.tar")
    await lab.delete()
    await lab.pass_days(1)
    doomed = await lab.doomed()
    before = await lab.paths()
    await restore(lab.service, tmp_path / "lake.tar")
    assert await lab.purger.doomed() == []
    await lab.pass_days(30)
    begun = lab.client.begin_purge(lab.service.admin, lab.namespace, doomed.instance_uid)
    assert await reason_of(begun) is Reason.NAMESPACE_NOT_DOOMED
    with pytest.raises(TarnError):
        await lab.purger.purge(doomed, ATTEMPT)
    assert await lab.paths() > before, "the note of the restore came"
    assert await lab.service.size("main", "a") == 1


async def test_a_spared_namespace_keeps_its_data(lab: PurgeLab) -> None:
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
    lab: PurgeLab, tmp_path: Path
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
    lab: PurgeLab, tmp_path: Path, running: Running, first: str
) -> None:
    """Each has judged the row before the other one writes it."""
    await commit(lab.service, "main", "a", 1)
    await dump(lab.service, tmp_path / "lake.tar")
    await lab.delete()
    await lab.pass_days(8)
    doomed, before = await lab.doomed(), await lab.paths()
    gate = lab.service.replicas.kv.hold("set_if", KEYS.namespace(lab.namespace))
    if first == "restore":
        purging = running.start(lab.purger.purge(doomed, ATTEMPT))
        await reached(gate)
        await restore(lab.service, tmp_path / "lake.tar")
        gate.open()
        assert await reason_of(purging) is Reason.NAMESPACE_NOT_DOOMED
        assert await lab.service.size("main", "a") == 1
        assert await lab.paths() > before
    else:
        restoring = running.start(restore(lab.service, tmp_path / "lake.tar"))
        await reached(gate)
        report = await lab.purger.purge(doomed, ATTEMPT)
        gate.open()
        assert await reason_of(restoring) is Reason.REPOSITORY_EXISTS
        assert report.is_complete


async def test_a_lost_answer_of_the_begin_is_settled(lab: PurgeLab) -> None:
    await lab.delete()
    await lab.pass_days(8)
    lab.service.replicas.kv.lose("set_if", KEYS.namespace(lab.namespace), applied=True)
    assert (await lab.purge()).is_complete


async def test_a_namespace_that_a_repository_uses_is_not_purged(lab: PurgeLab) -> None:
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
    lab: PurgeLab, tmp_path: Path
) -> None:
    """It was listed, then the repository was restored, and deleted with its data again."""
    await dump(lab.service, tmp_path / "lake.tar")
    await lab.delete()
    listed = await lab.doomed()
    await restore(lab.service, tmp_path / "lake.tar")
    await lab.delete(grace_days=30)
    await lab.pass_days(31)
    begun = lab.client.begin_purge(lab.service.admin, lab.namespace, listed.instance_uid)
    assert await reason_of(begun) is Reason.NAMESPACE_NOT_DOOMED


async def test_an_empty_namespace_is_purged(lab: PurgeLab) -> None:
    await lab.delete()
    await lab.blocks.delete_many(lab.namespace, sorted(await lab.paths()))
    await lab.pass_days(8)
    report = await lab.purge()
    assert (report.is_complete, report.found.count) == (True, 0)
    assert (await lab.doomed()).HasField("purge_end_time")


async def test_what_another_installation_was_restored_from_stays(
    lab: PurgeLab, tmp_path: Path
) -> None:
    """The repository was moved by a dump. The old installation knows nothing of the new one."""
    await commit(lab.service, "main", "a", 1)
    await dump(lab.service, tmp_path / "lake.tar")
    (tmp_path / "new").mkdir()
    async with another_installation(lab.service, tmp_path / "new") as new:
        await restore(new, tmp_path / "lake.tar")
        before = await lab.paths()
        await lab.delete()
        await lab.pass_days(8)
        with pytest.raises(TarnError, match="was restored over") as raised:
            await lab.purge()
        assert raised.value.reason is Reason.PRECONDITION_FAILED
        assert await lab.paths() == before
        assert not (await lab.row()).purge_begin_us, "it can be spared"
        await lab.client.spare_namespace(lab.service.admin, lab.namespace)


async def test_what_was_restored_and_deleted_again_goes(lab: PurgeLab, tmp_path: Path) -> None:
    """The note of a restore is that of the doomed instance."""
    await dump(lab.service, tmp_path / "lake.tar")
    await lab.service.graveler.delete_repository(lab.service.admin, "lake")
    await restore(lab.service, tmp_path / "lake.tar")
    await lab.delete()
    await lab.pass_days(8)
    assert (await lab.purge()).is_complete
    assert await lab.paths() == set()

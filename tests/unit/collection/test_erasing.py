"""Erasures by path over the real graveler: what goes, what stays, who learns what, and every step again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from collector_lab import CollectorLab, collector_lab
from erasure_lab import erased, eraser_of, history, over, planned
from graveler_service import reason_of

from tarn.block.port import BlockKey
from tarn.client.erasures import ErasureClient
from tarn.collection.erasure_files import ERASURE_FOLDER, read_certificate
from tarn.core.entry import Entry, pack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId
from tarn.core.levels import LEVEL_FIRST, FeatureGate
from tarn.gate.access import Access
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Partition
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.snapshot.files.ranges import all_rows
from tarn.snapshot.files.writing import Lines
from tarn.snapshot.installation.history import save_commits
from tarn_graveler.application import endpoints_of
from tarn_proto.graveler.v1 import collection_service_pb2 as pb


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[CollectorLab]:
    async with collector_lab(tmp_path) as lab:
        yield lab


async def test_objects_go_out_of_all_history_and_the_rest_stays(lab: CollectorLab) -> None:
    blocks = await history(lab)
    await lab.pass_days(2)
    young = await lab.put("main", "users/7/young", b"young")
    eraser = eraser_of(lab)
    plan = await eraser.plan("lake", "users/7/**")
    assert (plan.erasable.count, plan.erasable.size_bytes) == (4, 3 + 5 + 1 + 6)
    assert (plan.too_young.count, plan.paths, plan.others, plan.outside) == (1, 4, 0, 0)
    assert plan.heads == {"main": 1, "side": 2}
    assert plan.staged == {"side": 1, "main": 1}
    assert plan.uncommitted == {"side": 1}, "the young one stays"
    assert await lab.blocks() == {*blocks.values(), young}, "a plan deletes nothing"
    done = await eraser.run("lake", plan.plan_id)
    assert await lab.blocks() == {blocks["other"], young}
    assert (done.deleted, done.failed.count, done.error) == (plan.erasable, 0, "")
    assert done.came_since == 1, "the young one"
    assert done.certificate is not None
    found = await read_certificate(lab.collector.blocks, lab.namespace, plan.plan_id)
    assert found == done.certificate
    for name in ("old", "new", "hidden", "staged"):
        assert await erased(lab, blocks[name]) == plan.plan_id
    for block in (blocks["other"], young):
        assert await erased(lab, block) == ""
    assert "users/7/a" in await lab.readable("main"), "commits keep their entries"
    assert sorted(await lab.readable("side")) == ["users/7/a", "users/77/a"]
    assert done.discarded == done.certificate.discarded == {"side": 1}
    assert (await lab.collector.record("lake")).run_id == "", "the lease has ended"
    await lab.pass_days(1.1)
    second = await eraser.plan("lake", "users/7/**")
    assert second.erasable.count == 4, (
        "entries of erased blocks are listed again, if a commit has them"
    )
    await eraser.run("lake", second.plan_id)
    assert await lab.blocks() == {blocks["other"]}
    assert await erased(lab, blocks["old"]) == plan.plan_id, "the first row stays"
    assert await erased(lab, young) == second.plan_id


class DiedError(Exception):
    """The process of a run dies."""


class Broken(ErasureClient):
    """Dies at one call: before it lands, or after."""

    def __init__(self, lab: CollectorLab, *, after: bool) -> None:
        super().__init__(lab.service.transport)
        self.calls, self.after = 0, after

    async def erase_addresses(self, *arguments: object) -> None:
        """Dies instead of the first answer."""
        self.calls += 1
        if self.after:
            await super().erase_addresses(*arguments)  # type: ignore[arg-type]
        raise TarnError(Kind.INTERNAL, Reason.DATA_CORRUPT, "died")


@pytest.mark.parametrize("after", [False, True])
async def test_nothing_is_deleted_before_all_rows_are_durable(
    lab: CollectorLab, after: bool
) -> None:
    """A run that dies while it writes rows deletes nothing; the next one ends it."""
    blocks, plan_id = await planned(lab)
    before = await lab.blocks()
    broken = Broken(lab, after=after)
    with pytest.raises(TarnError, match="died"):
        await replace(eraser_of(lab), client=broken).run("lake", plan_id)
    assert broken.calls == 1
    assert await lab.blocks() == before
    assert (await lab.collector.record("lake")).run_id == "", "the lease has ended"
    done = await eraser_of(lab).run("lake", plan_id)
    assert done.certificate is not None
    assert await lab.blocks() == {blocks["other"]}


async def test_every_row_is_there_when_the_first_block_goes(lab: CollectorLab) -> None:
    """And the record says that an erasure runs."""
    blocks, plan_id = await planned(lab)
    looks: list[str] = []

    async def delete_many(namespace: str, paths: Sequence[str]) -> None:
        assert (await lab.collector.record("lake")).is_erasure
        looks.extend([await erased(lab, blocks[each]) for each in ("old", "new", "hidden")])
        await lab.collector.blocks.delete_many(namespace, paths)

    await over(lab, delete_many=delete_many).run("lake", plan_id)
    assert set(looks) == {plan_id}


async def test_a_run_that_dies_at_any_request_is_resumed(lab: CollectorLab) -> None:
    """The store fails at its n-th request, for every n, until a run ends with a certificate."""
    blocks, plan_id = await planned(lab)
    certificates = 0
    for limit in range(1, 60):
        left = [limit]

        def counted(name: str, left: list[int]) -> Callable[..., Awaitable[object]]:
            async def call(*arguments: object) -> object:
                left[0] -= 1
                if left[0] < 0:
                    raise DiedError(name)
                return await getattr(lab.collector.blocks, name)(*arguments)

            return call

        names = ("put", "read", "stat", "delete_many")
        eraser = over(lab, **{name: counted(name, left) for name in names})
        try:
            done = await eraser.run("lake", plan_id)
        except (DiedError, ExceptionGroup):
            assert await lab.blocks() >= {blocks["other"]}
            continue
        certificates += done.certificate is not None
        if certificates:
            break
    assert certificates == 1, "later requests than these are none"
    assert limit > 10, "several requests died"
    assert await lab.blocks() == {blocks["other"]}
    assert await erased(lab, blocks["old"]) == plan_id


async def test_a_block_that_answers_again_ends_the_run_without_a_certificate(
    lab: CollectorLab,
) -> None:
    blocks, plan_id = await planned(lab)

    async def delete_many(namespace: str, paths: Sequence[str]) -> None:
        """A store that loses a deletion, and says that it was made."""
        await lab.collector.blocks.delete_many(
            namespace, [each for each in paths if each != blocks["new"]]
        )

    done = await over(lab, delete_many=delete_many).run("lake", plan_id)
    assert (done.failed.count, done.certificate) == (1, None)
    assert await read_certificate(lab.collector.blocks, lab.namespace, plan_id) is None
    done = await eraser_of(lab).run("lake", plan_id)
    assert (done.deleted.count, done.failed.count) == (4, 0)
    assert done.certificate is not None


async def test_without_knowledge_of_versions_there_is_no_certificate(lab: CollectorLab) -> None:
    _, plan_id = await planned(lab)
    done = await over(lab, versions="the versioning of the bucket b is enabled").run(
        "lake", plan_id
    )
    assert (done.failed.count, done.certificate) == (0, None)
    assert done.versions == "the versioning of the bucket b is enabled"


async def test_a_collection_and_an_erasure_exclude_each_other(lab: CollectorLab) -> None:
    _, plan_id = await planned(lab)
    before = await lab.blocks()
    client = lab.collector.client
    await client.begin(lab.admin, "lake", "d" * 32, pb.COLLECTION_PHASE_MARK)
    for work in (eraser_of(lab).plan("lake", "users/7/**"), eraser_of(lab).run("lake", plan_id)):
        assert await reason_of(work) is Reason.COLLECTION_RUNNING
    await client.end(lab.admin, "lake", "d" * 32, pb.CollectionTotals(), is_complete=False)
    await client.hold(lab.admin, "lake", 60)
    assert await reason_of(eraser_of(lab).run("lake", plan_id)) is Reason.COLLECTION_HELD
    assert await lab.blocks() == before

    async def delete_many(namespace: str, paths: Sequence[str]) -> None:
        assert await reason_of(lab.collector.mark("lake")) is Reason.COLLECTION_RUNNING
        await lab.collector.blocks.delete_many(namespace, paths)

    lab.service.clock.advance(61)
    done = await over(lab, delete_many=delete_many).run("lake", plan_id)
    assert done.certificate is not None
    await lab.collect()


async def test_a_run_that_lost_its_lease_writes_no_row(lab: CollectorLab) -> None:
    blocks, plan_id = await planned(lab)
    client = ErasureClient(lab.service.transport)
    address = bytes.fromhex(blocks["old"].rpartition("/")[2])
    work = client.erase_addresses(lab.admin, "lake", "d" * 32, plan_id, address)
    assert await reason_of(work) is Reason.COLLECTION_LOST
    work = client.staged_rows(lab.admin, "lake", "d" * 32, "")  # type: ignore[assignment]
    assert await reason_of(work) is Reason.COLLECTION_LOST
    assert await erased(lab, blocks["old"]) == ""


async def test_an_address_that_a_writer_may_stage_is_not_erased(lab: CollectorLab) -> None:
    """Rule 11 refuses an erased address, because only one that is much older is erased."""
    old = await lab.put("main", "a")
    await lab.pass_days(22 / 24)
    young = await lab.put("main", "b")
    lab.service.clock.advance(3600)
    client = ErasureClient(lab.service.transport)
    await lab.collector.client.begin(lab.admin, "lake", "d" * 32, pb.COLLECTION_PHASE_MARK)
    keys = [bytes.fromhex(each.rpartition("/")[2]) for each in (old, young)]
    for addresses in (keys[0], b"".join(keys)):
        work = client.erase_addresses(lab.admin, "lake", "d" * 32, "a" * 32, addresses)
        assert await reason_of(work) is Reason.ADDRESS_TOO_YOUNG
    assert await erased(lab, old) == ""
    await lab.pass_days(1.1 / 24)
    await lab.collector.client.begin(lab.admin, "lake", "e" * 32, pb.COLLECTION_PHASE_MARK)
    await client.erase_addresses(lab.admin, "lake", "e" * 32, "a" * 32, keys[0])
    assert await erased(lab, old) == "a" * 32
    entry = pack(Entry(4, lab.service.clock.now_us(), keys[0], keys[0]))
    staging = lab.service.stage("z", entry, call=lab.admin)
    assert await reason_of(staging) is Reason.ADDRESS_TOO_OLD


async def test_what_came_since_the_plan_is_told(lab: CollectorLab) -> None:
    blocks, plan_id = await planned(lab)
    late = await lab.put("side", "users/7/late")
    done = await eraser_of(lab).run("lake", plan_id)
    assert (done.came_since, done.deleted.count) == (1, 4)
    assert done.certificate is not None
    assert done.certificate.came_since == 1
    assert await lab.blocks() == {blocks["other"], late}


async def test_a_changed_list_is_refused(lab: CollectorLab) -> None:
    _, plan_id = await planned(lab)
    before = await lab.blocks()
    path = f"{ERASURE_FOLDER}{plan_id}/list.parquet"
    key = BlockKey(lab.namespace, path)
    body = await lab.collector.blocks.read(key)
    await lab.collector.blocks.delete_many(lab.namespace, [path])
    assert await reason_of(eraser_of(lab).run("lake", plan_id)) is Reason.DATA_CORRUPT
    await lab.collector.blocks.put(key, body[:-1] + b"!")
    assert await reason_of(eraser_of(lab).run("lake", plan_id)) is Reason.DATA_CORRUPT
    assert await reason_of(eraser_of(lab).run("lake", "f" * 32)) is Reason.BLOCK_NOT_FOUND
    assert await lab.blocks() == before


async def test_the_rows_are_written_again_from_the_lists(lab: CollectorLab) -> None:
    """After a restore of metadata from before the run; a plan that never ran stays a plan."""
    blocks, plan_id = await planned(lab)
    await eraser_of(lab).run("lake", plan_id)
    await eraser_of(lab).plan("lake", "users/77/**")
    rows = RepositoryKeys.erased(bytes.fromhex(blocks["old"].rpartition("/")[2]))
    async with lab.service.replicas.replica() as replica:
        repository = await replica.repositories.get(RepositoryId("lake"))
        partition = replica.repositories.keys_of(repository).commits
    await lab.service.replicas.kv.delete_many(partition, [rows])
    assert await erased(lab, blocks["old"]) == ""
    await lab.collector.client.hold(lab.admin, "lake", 60)  # as a restore does
    assert await eraser_of(lab).repair("lake") == 4
    assert await erased(lab, blocks["old"]) == plan_id
    assert await erased(lab, blocks["other"]) == ""


async def test_who_may_erase(lab: CollectorLab) -> None:
    """No role but Admin, for all rpcs; who reads the object may ask whether it was erased."""
    for role in ("Analyst", "Developer"):
        caller = await lab.service.as_user(f"u{role.lower()}", role)
        client = ErasureClient(lab.service.transport)
        listing = client.staged_rows(caller, "lake", "d" * 32, "")
        assert await reason_of(listing) is Reason.ACCESS_DENIED
        erasing = client.erase_addresses(caller, "lake", "d" * 32, "a" * 32, b"a" * 16)
        assert await reason_of(erasing) is Reason.ACCESS_DENIED
        discarding = client.discard_erased(caller, "lake", "d" * 32, "main", [("a", b"a" * 16)])
        assert await reason_of(discarding) is Reason.ACCESS_DENIED
        found = await lab.service.graveler.find_erased(caller, "lake", "main", "a", b"a" * 16)
        assert found == ""


async def test_no_row_is_written_below_the_feature_level(lab: CollectorLab) -> None:
    """A backup by the last release would fail at the row."""
    blocks, plan_id = await planned(lab)
    service = lab.service
    old = replace(service.replicas.made[0], features=FeatureGate.at(LEVEL_FIRST))
    endpoints = endpoints_of(old, Access(service.auth, service.clock))
    transport = InProcessTransport(endpoints, service.clock)
    eraser = replace(eraser_of(lab), client=ErasureClient(transport))
    assert await reason_of(eraser.run("lake", plan_id)) is Reason.FEATURE_LEVEL
    assert set(blocks.values()) <= await lab.blocks()
    await transport.close()


async def test_a_backup_saves_the_rows(lab: CollectorLab, tmp_path: Path) -> None:
    blocks, plan_id = await planned(lab)
    await eraser_of(lab).run("lake", plan_id)
    async with lab.service.replicas.replica() as replica:
        repository = await replica.repositories.get(RepositoryId("lake"))
        keys = replica.repositories.keys_of(repository)
    saved: list[bytes] = []

    class Writer:
        """A writer of chunks that notes the keys."""

        kv = lab.service.replicas.kv

        async def copy(self, partition: Partition, keep: Callable[[bytes, bytes], bool]) -> Lines:
            async for key, value in all_rows(self.kv, partition):
                if keep(key, value):
                    saved.append(key)
            return Lines()

    writer: Any = Writer()
    _, commits = await save_commits(writer, keys)
    wanted = {RepositoryKeys.erased(bytes.fromhex(blocks[name][-32:])) for name in ("old", "new")}
    assert wanted <= set(saved)
    assert len([key for key in saved if not key.startswith(RepositoryKeys.ERASED)]) == commits


async def test_writers_beside_a_run_lose_nothing(lab: CollectorLab) -> None:
    """At each request of the run to the store, a client writes to a path of the plan, commits or merges."""
    blocks, plan_id = await planned(lab)
    kept = {blocks["other"]}
    turns = iter(range(1_000_000))

    def disturbed(name: str) -> Callable[..., Awaitable[object]]:
        async def call(*arguments: object) -> object:
            turn = next(turns)
            branch = ("main", "side")[turn % 2]
            kept.add(await lab.put(branch, ("users/7/a", "users/7/deep/c", "new")[turn % 3]))
            if turn % 4 == 3:
                await lab.commit(branch)
            if turn % 8 == 7:
                with suppress(TarnError):  # a conflict
                    await lab.service.graveler.merge(lab.admin, "lake", "side", "main")
            return await getattr(lab.collector.blocks, name)(*arguments)

        return call

    names = ("put", "read", "stat", "delete_many")
    done = await over(lab, **{name: disturbed(name) for name in names}).run("lake", plan_id)
    assert next(turns) > 10
    assert done.certificate is not None
    assert done.came_since > 0
    assert await lab.blocks() == kept
    for branch in ("main", "side"):
        there = set((await lab.readable(branch)).values())
        gone = there - await lab.blocks()
        assert gone <= set(blocks.values()), "only what the plan names"

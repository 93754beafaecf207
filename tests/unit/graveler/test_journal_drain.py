"""The drain of the journal, over the embedded store and local blocks: what was acknowledged is in files, and a token is
dropped only afterwards (docs/design/journal.md).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lake import Lake, Replicas, Running, create_repository, ended, entry, reached
from lake_upload import seal_main
from permits import permit_for
from structlog.testing import capture_logs
from tests.support.drained_files import Files, read_files

from tarn.block.local import LocalBlockStore, open_local
from tarn.block.local.reserve import DiskReserve
from tarn.block.port import BlockKey, BlockStore
from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, pack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, TagId
from tarn.core.levels import ALL_FEATURES, LEVEL_FIRST, FeatureGate
from tarn.journal.days import read_manifest
from tarn.journal.epochs import EpochCause, begin_epoch, newest_epoch, next_epoch
from tarn.kv.drop_records import Drop
from tarn.kv.embedded import open_embedded
from tarn.kv.keys import InstallationKeys, RepositoryKeys, path_key
from tarn.kv.port import COMPANION_KEYS, CompanionName, Group, Partition
from tarn.kv.register import require_written
from tarn.kv.registrations import Registration, Registrations, hour_of, new_event_id
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.handlers.collections import CollectionHandler
from tarn_graveler.handlers.erasures import ErasureHandler
from tarn_graveler.journal import passes, scanning
from tarn_graveler.journal.draining import Drain
from tarn_graveler.journal.epochs import end_epochs
from tarn_graveler.journal.records import RecordEvents
from tarn_graveler.journal.scanning import BranchScan
from tarn_proto.graveler.v1 import collection_service_pb2 as pb_collection
from tarn_proto.graveler.v1 import erasure_service_pb2 as pb_erasure

NEW = WriteCondition(if_none_match=True)


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    """Real components: the embedded store, and blocks in files."""
    kv = await open_embedded(tmp_path / "kv.db", durability="os")
    made = Replicas(tmp_path, kv, keeps_events=True)
    await made.blocks.close()
    blocks = await open_local(tmp_path / "blocks", clock=made.clock)
    made.blocks = FaultyBlocks(blocks)  # type: ignore[assignment]
    yield made
    await made.tasks.close()
    await made.kv.close()
    await made.blocks.close()


class FaultyBlocks:
    """A store of blocks whose writes have the faults of a bucket."""

    def __init__(self, blocks: LocalBlockStore) -> None:
        self._blocks = blocks
        self.bucket: Bucket | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blocks, name)

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        if self.bucket is not None and (beside := self.bucket.beside) is not None:
            self.bucket.beside = None
            await beside()
        if self.bucket is not None and self.bucket.is_refused(key):
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the bucket refuses files")
        await self._blocks.put(key, body)
        if self.bucket is not None and self.bucket.loses in key.path:
            raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "the answer is lost")


class Bucket:
    """The files of a lake, and their faults.

    Attributes:
        refuses: names of blocks whose writes fail before they land.
        loses: names of blocks whose writes land, and whose answers are lost.
        closed: a namespace that refuses every write.
        beside: is called once, before the next write.
    """

    def __init__(self, lake: Lake, replicas: Replicas, folder: Path) -> None:
        blocks: object = replicas.blocks
        assert isinstance(blocks, FaultyBlocks)
        self._lake = lake
        self._blocks = blocks
        self._folder = folder
        self._reads = 0
        self.refuses = self.loses = "nothing"
        self.closed = ""
        self.beside: Callable[[], Awaitable[None]] | None = None
        blocks.bucket = self

    def is_refused(self, key: BlockKey) -> bool:
        return self.refuses in key.path or self.closed == key.namespace

    @property
    def blocks(self) -> BlockStore:
        return self._blocks

    async def paths(self, ends: str) -> list[str]:
        """The files of the lake's journal whose names end so."""
        namespace = self._lake.repository.storage_namespace
        found = await self._blocks.list_page(namespace, "_tarn/journal/", "", 1_000)
        return [each.path for each in found if each.path.endswith(ends)]

    async def read(self) -> Files:
        self._reads += 1
        namespace = self._lake.repository.storage_namespace
        return await read_files(self._blocks, namespace, self._folder / f"replay{self._reads}")


@pytest.fixture
async def bucket(lake: Lake, replicas: Replicas, tmp_path: Path) -> Bucket:
    return Bucket(lake, replicas, tmp_path)


def drain_of(lake: Lake) -> Drain:
    drain = lake.graveler.drain
    assert drain is not None
    return drain


async def events_of(lake: Lake, token: Partition) -> int:
    return len(await lake.kv.scan_companions(token, b"", None, 1_000))


async def test_acknowledged_writes_are_in_the_bucket_after_a_round(
    lake: Lake, bucket: Bucket
) -> None:
    """All of them, in the order of the store; a rebuild makes the same listing, with the file's own accounts whole."""
    await lake.put("before the epoch", 1)
    assert await drain_of(lake).round()
    await lake.put("a", 1)
    await lake.put("a", 2)
    await lake.put("b", 3)
    assert await lake.delete("a") == [None]
    assert await drain_of(lake).round()
    files = await bucket.read()
    assert files.sizes == [("before the epoch", 1), ("a", 1), ("a", 2), ("b", 3), ("a", None)]
    assert files.staged == {"main": {"a": None, "b": 3, "before the epoch": 1}}
    assert files.report is not None
    assert files.report.is_whole
    assert files.report.drained_until_us == lake.clock.now_us()


async def test_a_token_is_dropped_only_when_its_events_are_in_the_bucket(
    lake: Lake, bucket: Bucket
) -> None:
    """As long as the bucket refuses files it stays, with its rows; no round is needed before."""
    await lake.put("a", 1)
    token = await lake.staging_rows()
    await lake.commit()
    bucket.refuses = "_tarn/journal/"
    await lake.drop_everything_removed()
    assert await events_of(lake, token) == 1
    assert await lake.kv.scan(token, b"", None, 10)
    assert drain_of(lake).progress.failed_passes > 0
    bucket.refuses = "nothing"
    lake.clock.advance(700)
    await lake.drop_everything_removed()
    assert await events_of(lake, token) == 0
    assert not await lake.kv.scan(token, b"", None, 10)
    assert (await bucket.read()).sizes == [("a", 1)]
    assert drain_of(lake).progress.last_scans == 1


async def test_the_last_scan_of_a_branch_says_nothing_of_the_others(
    lake: Lake, bucket: Bucket
) -> None:
    """A rebuild promises what was acknowledged before the last pass over all branches, and no more."""
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    await lake.graveler.branches.create(lake.branch(BranchId("dev")), head)
    await lake.put("a", 1)
    await drain_of(lake).round()
    round_us = lake.clock.now_us()
    lake.clock.advance(5)
    await lake.graveler.staging.stage(lake.branch(BranchId("dev")), "left", entry(2))
    await lake.commit()
    await lake.drop_everything_removed()
    files = await bucket.read()
    assert drain_of(lake).progress.last_scans == 1
    assert files.report is not None
    assert ("left", 2) not in files.sizes
    assert files.report.branches["main"].drained_until_us > round_us
    assert files.report.drained_until_us == round_us


async def test_a_row_that_lands_late_in_a_sealed_token_is_in_the_last_scan(
    lake: Lake, bucket: Bucket, running: Running
) -> None:
    """Its writer is told to try again in the next token; both rows are in the files, with one id."""
    held = lake.kv.hold("set_many", lake.row_key("late"))
    writer = running.start(lake.put("late", 7))
    await reached(held)
    first = await lake.staging_rows()
    await lake.put("a", 1)
    await lake.commit()
    await drain_of(lake).round()
    held.open()
    await writer
    assert await events_of(lake, first) == 2
    await lake.drop_everything_removed()
    assert await events_of(lake, first) == 0
    await drain_of(lake).round()
    files = await bucket.read()
    late = [row for row in files.events if row.key == "late"]
    assert len({row.token for row in late}) == 2
    assert len({row.event_id for row in late}) == 1


async def test_an_event_is_written_to_files_once_while_nothing_fails(
    lake: Lake, bucket: Bucket
) -> None:
    """Rounds read ten minutes again, and remember what they have written; an idle round writes no file."""
    await lake.put("a", 1)
    for _ in range(3):
        await drain_of(lake).round()
        lake.clock.advance(30)
    await lake.put("b", 2)
    for _ in range(3):
        await drain_of(lake).round()
    files = await bucket.read()
    assert files.sizes == [("a", 1), ("b", 2)]
    assert files.report is not None
    assert files.report.files == 2
    lake.clock.advance(3_600)
    await lake.put("c", 3)
    await drain_of(lake).round()
    assert (await bucket.read()).sizes == [("a", 1), ("b", 2), ("c", 3)]


async def test_a_lost_answer_of_the_bucket_repeats_events_and_loses_none(
    lake: Lake, bucket: Bucket
) -> None:
    """The file may be there: another holder reads everything again. The feed has each event once."""
    await lake.put("a", 1)
    await drain_of(lake).round()
    await lake.put("b", 2)
    bucket.loses = ".parquet"
    await drain_of(lake).round()
    assert drain_of(lake).progress.failed_passes == 1
    bucket.loses = "nothing"
    await lake.put("c", 3)
    await drain_of(lake).round()
    files = await bucket.read()
    assert sorted(set(files.sizes)) == [("a", 1), ("b", 2), ("c", 3)]
    assert len(files.sizes) == 5
    assert files.report is not None
    assert files.report.is_whole
    assert files.staged == {"main": {"a": 1, "b": 2, "c": 3}}


async def test_two_holders_repeat_events_and_lose_none(
    lake: Lake, other: Lake, bucket: Bucket
) -> None:
    """The lease only avoids double work: a replica whose lease has ended goes on, and drops what it has drained."""
    await lake.put("a", 1)
    token = await lake.staging_rows()
    assert await drain_of(lake).round()
    assert not await drain_of(other).round()
    lake.clock.advance(120)
    assert await drain_of(other).round()
    assert not await drain_of(lake).round()
    await lake.commit()
    for _ in range(3):
        lake.clock.advance(61)
        await lake.graveler.cleaner.drop_due()
        await other.graveler.cleaner.drop_due()
    assert await events_of(lake, token) == 0
    files = await bucket.read()
    assert set(files.sizes) == {("a", 1)}
    assert files.report is not None
    assert files.report.is_whole


async def test_a_holder_that_pauses_before_its_file_drops_nothing_that_is_not_in_it(
    lake: Lake, other: Lake, bucket: Bucket, running: Running
) -> None:
    """It reads a branch, and stops; rows that land meanwhile are in the file of the other one, or in the store."""
    await lake.put("a", 1)
    await drain_of(lake).round()
    await lake.put("b", 2)
    held = lake.kv.hold("get_many", lake.branch_key)
    paused = running.start(drain_of(lake).drain(drain_of(lake).place_of(lake.repository)))
    await reached(held)
    await lake.put("c", 3)
    await lake.commit()
    await lake.put("d", 4)
    for _ in range(3):
        lake.clock.advance(61)
        await other.graveler.cleaner.drop_due()
    held.open()
    await paused
    assert {path for path, _ in (await bucket.read()).sizes} == {"a", "b", "c", "d"}


async def test_a_record_that_changes_beside_the_scan_is_read_again(
    lake: Lake, bucket: Bucket
) -> None:
    """A row that hides another one is not missed where that is found; what was read before is kept."""
    await lake.put("x", 1)
    await drain_of(lake).round()
    scan, changes = BranchScan._read_tokens, 0

    async def beside(self: BranchScan, branch: object) -> None:
        nonlocal changes
        await scan(self, branch)  # type: ignore[arg-type]
        changes += 1
        if changes <= 2:
            await lake.put("x", 1 + changes)
            await lake.commit()
            await lake.put(f"new {changes}", 9)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BranchScan, "_read_tokens", beside)
        await drain_of(lake).round()
    assert changes == 3
    files = await bucket.read()
    assert ("new 2", 9) in files.sizes
    assert files.report is not None
    assert not files.report.branches["main"].is_unsettled


async def test_a_record_that_changes_all_the_time_is_told_to_be_unsettled(
    lake: Lake, bucket: Bucket
) -> None:
    """After 16 looks the pass goes on, and its file says so."""
    await drain_of(lake).round()
    lake.clock.advance(1)
    scan, changes = BranchScan._read_tokens, 0

    async def beside(self: BranchScan, branch: object) -> None:
        nonlocal changes
        await scan(self, branch)  # type: ignore[arg-type]
        changes += 1
        await lake.put("x", changes)
        await lake.commit()
        await lake.put("y", changes)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BranchScan, "_read_tokens", beside)
        await drain_of(lake).round()
    assert changes == scanning.LOOKS
    files = await bucket.read()
    assert files.report is not None
    assert files.report.branches["main"].is_unsettled


async def test_conditional_writes_and_other_branches_are_drained_too(
    lake: Lake, bucket: Bucket
) -> None:
    """Tokens of registers as plain ones, and each branch of a repository."""
    branch = await lake.graveler.branches.fresh(lake.main)
    dev = BranchId("dev")
    await lake.graveler.branches.create(lake.branch(dev), branch.branch.commit_id)
    packed = pack(Entry(5, 0, bytes(16), bytes(16), operation_id="op"))
    await lake.graveler.conditional.stage(lake.main, "new", packed, NEW)
    await lake.put("other", 6, branch=dev)
    await drain_of(lake).round()
    files = await bucket.read()
    assert sorted(files.sizes) == [("new", 5), ("other", 6)]
    assert files.staged == {"main": {"new": 5}, "dev": {"other": 6}}


async def test_a_pass_of_many_events_is_written_in_parts(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that memory is bounded; the parts count when the last one names them."""
    monkeypatch.setattr(passes, "_PART_ROWS", 10)
    monkeypatch.setattr(scanning, "_PAGE", 7)
    await drain_of(lake).round()
    for number in range(50):
        await lake.put(f"{number:03}", number)
    bucket.refuses = "-0000000004-"
    await drain_of(lake).round()
    files = await bucket.read()
    assert files.sizes == []
    assert files.report is not None
    assert len(files.report.unfinished) == 2
    bucket.refuses = "nothing"
    await drain_of(lake).round()
    files = await bucket.read()
    assert files.sizes == [(f"{number:03}", number) for number in range(50)]
    assert files.report is not None
    assert files.report.is_whole
    assert files.report.files >= 4


async def test_what_a_holder_remembers_is_bounded(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it writes events again, which changes nothing; it forgets tokens that left their record."""
    monkeypatch.setattr(passes, "_SEEN_MAX", 4)
    for number in range(10):
        await lake.put(f"{number}", number)
    for _ in range(3):
        await drain_of(lake).round()
    files = await bucket.read()
    assert set(files.sizes) == {(f"{number}", number) for number in range(10)}
    journal = drain_of(lake)._journals.passes.values()
    assert sum(len(k.seen) for one in journal for t in one._known.values() for k in t.values()) <= 4
    for number in range(3):
        await lake.put("x", number)
        await lake.commit()
        await drain_of(lake).round()
    one = drain_of(lake)._journals.passes[drain_of(lake).place_of(lake.repository).root]
    assert [len(tokens) for tokens in one._known.values()] == [1]


async def test_a_compaction_frees_the_store_of_overwrites(lake: Lake, bucket: Bucket) -> None:
    """One row with many events is folded; then they leave the store with their token, and are all in the bucket."""
    await drain_of(lake).round()
    for size in range(1, 6):
        await lake.put("a", size)
    token = await lake.staging_rows()
    assert await events_of(lake, token) == 5
    await lake.graveler.compacting.compact(lake.main)
    await lake.drop_everything_removed()
    assert await events_of(lake, token) == 0
    assert await lake.get("a") == 5
    assert (await bucket.read()).sizes == [("a", size) for size in range(1, 6)]


# ---- damage in the store


async def damage(lake: Lake, branch_id: BranchId) -> Callable[[], Awaitable[None]]:
    """Overwrites the record of a branch; returns what brings it back."""
    key = RepositoryKeys.branch(branch_id)
    (found,) = await lake.kv.get_many(refs_of(lake), [key], settle=True)
    assert found is not None
    damaged = await lake.kv.set_if(refs_of(lake), key, b"\xff damaged", found.predicate)

    async def mend() -> None:
        await lake.kv.set_if(refs_of(lake), key, found.value, damaged)

    return mend


async def test_a_damaged_record_costs_only_its_branch(lake: Lake, bucket: Bucket) -> None:
    """The others are drained and dropped; its events and tokens stay, and no block is deleted before it is mended."""
    drain, dev = drain_of(lake), BranchId("dev")
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    made = await lake.graveler.branches.create(lake.branch(dev), head)
    await lake.put("known", 1, branch=dev)
    await drain.round()
    round_us = lake.clock.now_us()
    lake.clock.advance(1)
    await lake.put("d", 2, branch=dev)
    request = CommitRequest("ann", "")
    await lake.graveler.committing.commit(lake.branch(dev), request)
    await lake.put("e", 3, branch=dev)
    await lake.put("m", 4)
    of_main = await lake.staging_rows()
    await lake.commit()
    keys = lake.graveler.repositories.keys_of(lake.repository)
    of_dev = keys.token(dev, made.staging)
    mend = await damage(lake, dev)
    with capture_logs() as logs:
        await drain.round()
        await lake.drop_everything_removed()
    told = [each for each in logs if each["event"].startswith("branches are damaged")]
    assert {tuple(each["branches"]) for each in told} == {("dev",)}
    assert drain.progress.damaged == {drain.place_of(lake.repository).root: 1}
    assert drain.progress.greatest_lag_us(round_us) == 0
    assert await events_of(lake, of_main) == 0, "main is drained, and its token is dropped"
    assert await events_of(lake, of_dev) == 2, "no token of dev is"
    files = await bucket.read()
    assert files.report is not None
    account = files.report.branches["dev"]
    assert account.is_damaged
    assert account.drained_until_us == round_us
    assert ("m", 4) in files.sizes
    assert ("e", 3) not in files.sizes
    (line,) = files.report.lines()
    assert "branch dev was damaged in the store" in line
    # A pass of every ten seconds does not write the same again.
    count = files.report.files
    for _ in range(3):
        await drain.round()
        await lake.drop_everything_removed()
    again = (await bucket.read()).report
    assert again is not None
    assert again.files == count
    with pytest.raises(TarnError, match="branch dev is damaged") as raised:
        await drain.before_deletion(lake.repository, lake.clock.monotonic())
    assert raised.value.kind is Kind.CORRUPT
    await mend()
    lake.clock.advance(1)
    await drain.before_deletion(lake.repository, lake.clock.monotonic())
    for _ in range(12):
        lake.clock.advance(3_600)
        await lake.graveler.cleaner.drop_due()
    assert await events_of(lake, of_dev) == 0
    files = await bucket.read()
    assert files.report is not None
    assert files.report.is_whole
    assert files.staged == {"dev": {"e": 3}}
    assert drain.progress.damaged == {}


async def test_a_damaged_event_costs_only_its_token(lake: Lake, bucket: Bucket) -> None:
    """The others of it are drained once; it is never dropped, and nothing is deleted while its branch needs it."""
    drain = drain_of(lake)
    await drain.round()
    await lake.put("a", 1)
    token = await lake.staging_rows()
    key = COMPANION_KEYS + lake.clock.now_us().to_bytes(8, "big") + bytes(8)
    group = Group(b"anchor", ((path_key("x"), entry(1)),), ((key, b"\xff damaged"),))
    assert await lake.kv.set_many(token, [group]) == [None]
    await lake.put("b", 2)
    for _ in range(3):
        await drain.round()
        lake.clock.advance(700)
    files = await bucket.read()
    assert files.sizes == [("a", 1), ("b", 2)]
    assert files.report is not None
    assert files.report.branches["main"].is_damaged
    with pytest.raises(TarnError, match="main is damaged"):
        await drain.drain(drain.place_of(lake.repository), is_full=True)
    await lake.commit()
    await lake.put("c", 3)
    for _ in range(3):
        await lake.drop_everything_removed()
        await drain.round()
    assert await events_of(lake, token) == 3
    await lake.commit()
    files = await bucket.read()
    assert files.report is not None
    assert [each for each in files.sizes if each == ("c", 3)] == [("c", 3)]
    assert files.report.files <= 7, "what cannot be read is not tried again and again"
    # The record does not name it any more.
    await drain.before_deletion(lake.repository, lake.clock.monotonic())


async def test_a_branch_that_another_replica_finds_damaged_is_told_by_it_too(
    lake: Lake, other: Lake, bucket: Bucket
) -> None:
    """Also without new events: the file of its pass says so. A branch that has gone is damaged no more."""
    await lake.put("a", 1)
    await drain_of(lake).round()
    mend = await damage(lake, lake.main.branch_id)
    lake.clock.advance(120)
    await drain_of(other).round()
    files = await bucket.read()
    assert files.report is not None
    assert files.report.branches["main"].is_damaged
    await mend()
    lake.clock.advance(1)
    await drain_of(other).round()
    files = await bucket.read()
    assert files.report is not None
    assert not files.report.branches["main"].is_damaged


async def test_a_damaged_repository_costs_only_itself(lake: Lake, bucket: Bucket) -> None:
    """Its registrations stay, although no repository that can be read has them, and count when it is mended."""
    second = await create_repository(lake.graveler, "second")
    other = replace(lake, repository=second)
    drain, journal = drain_of(lake), drain_of(lake).place_of(second)
    await drain.round()
    keys = InstallationKeys("test")
    key = keys.repository("second")
    (found,) = await lake.kv.get_many(keys.graveler, [key], settle=True)
    assert found is not None
    head = (await lake.graveler.branches.fresh(other.main)).branch.commit_id
    await lake.graveler.tags.create(second, TagId("v1"), head)
    damaged = await lake.kv.set_if(keys.graveler, key, b"\xff damaged", found.predicate)
    await lake.put("a", 1)
    lake.clock.advance(300)
    with capture_logs() as logs:
        await drain.round()
    (told,) = [each for each in logs if each["event"].startswith("records of repositories")]
    assert told["repositories"] == ["second"]
    assert drain.progress.damaged == {"": 1}
    assert drain.progress.greatest_lag_us(lake.clock.now_us()) == 0
    assert ("a", 1) in (await bucket.read()).sizes
    events = RecordEvents(lake.kv, keys, lake.clock)
    events.begin(0)
    assert journal.root in await events.roots()
    await lake.kv.set_if(keys.graveler, key, found.value, damaged)
    await drain.round()
    assert drain.progress.damaged == {}
    assert journal.root not in await events.roots()


async def test_a_damaged_registration_stops_only_its_repository(lake: Lake, bucket: Bucket) -> None:
    second = await create_repository(lake.graveler, "second")
    drain, root = drain_of(lake), drain_of(lake).place_of(second).root
    await drain.round()
    keys = InstallationKeys("test")
    key = keys.registration(root, new_event_id(lake.clock.now_us(), bytes(8)))
    partition = keys.registrations(hour_of(lake.clock.now_us()))
    require_written(await lake.kv.set_many(partition, [Group(key, ((key, b"\xff damaged"),))]))
    await lake.put("a", 1)
    lake.clock.advance(300)
    await drain.round()
    now_us = lake.clock.now_us()
    assert drain.progress.lag_us(drain.place_of(lake.repository).root, now_us) == 0
    assert drain.progress.lag_us(root, now_us) == 300_000_000
    assert ("a", 1) in (await bucket.read()).sizes


# ---- events of records


def refs_of(lake: Lake) -> Partition:
    return lake.graveler.repositories.keys_of(lake.repository).refs


def record_events_of(files: Files) -> set[tuple[str, bytes]]:
    return {(row.key, row.event_id) for row in files.events if not row.token}


async def held_events(lake: Lake) -> set[bytes]:
    found = await lake.kv.scan_companions(refs_of(lake), b"", None, 1_000)
    return {each.key.removeprefix(COMPANION_KEYS) for each in found}


async def test_events_of_records_are_removed_when_they_are_in_the_bucket(
    lake: Lake, bucket: Bucket
) -> None:
    """Not before: while the bucket refuses files they stay, with their registrations."""
    await drain_of(lake).round()
    assert await held_events(lake) == set()
    await lake.put("a", 1)
    await lake.commit()
    events = await held_events(lake)
    assert events
    bucket.refuses = ".parquet"
    await drain_of(lake).round()
    assert await held_events(lake) == events
    bucket.refuses = "nothing"
    await drain_of(lake).round()
    assert await held_events(lake) == set()
    told = record_events_of(await bucket.read())
    assert {("branches/main", event_id) for event_id in events} <= told
    assert (await bucket.read()).branches.keys() == {"branches/main"}


async def test_exactly_the_events_of_the_file_are_removed(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that lands while the file is written is in the next one."""
    await drain_of(lake).round()
    await lake.put("a", 1)
    await lake.commit()
    first = await held_events(lake)

    async def beside() -> None:
        await lake.put("b", 2)
        await lake.commit()

    bucket.beside = beside
    await drain_of(lake).round()
    later = await held_events(lake)
    assert later
    assert not later & first
    await drain_of(lake).round()
    assert await held_events(lake) == set()
    told = {event_id for _, event_id in record_events_of(await bucket.read())}
    assert later | first <= told


async def test_events_that_a_crash_left_are_removed_by_the_next_replica(
    lake: Lake, other: Lake, bucket: Bucket, running: Running
) -> None:
    """Between the file and the removal; they are written to no second file."""
    await drain_of(lake).round()
    await lake.put("a", 1)
    await lake.commit()
    events = await held_events(lake)
    held = lake.kv.hold("delete_companions")
    dying = running.start(drain_of(lake).round())
    await reached(held)
    dying.cancel()
    await ended(dying)
    held.open()
    assert await held_events(lake) == events
    lake.clock.advance(120)
    await drain_of(other).round()
    assert await held_events(lake) == set()
    rows = [row for row in (await bucket.read()).events if row.event_id in events]
    assert len(rows) == len(events)


async def test_a_store_that_keeps_events_does_not_hold_up_the_files(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the bucket is drained. The next round removes it."""
    await drain_of(lake).round()
    await lake.put("a", 1)
    await lake.commit()
    events = await held_events(lake)

    async def refuse(partition: Partition, names: Sequence[CompanionName]) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store refuses removals")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(drain_of(lake)._records._kv, "delete_companions", refuse)
        lake.clock.advance(60)
        await drain_of(lake).round()
    assert await held_events(lake) == events
    assert drain_of(lake).progress.failed_passes == 1
    assert drain_of(lake).progress.greatest_lag_us(lake.clock.now_us()) == 0
    await drain_of(lake).round()
    assert await held_events(lake) == set()


async def test_a_round_reads_the_registrations_of_each_repository_once(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys tell who has some; then it reads of each repository only its own."""
    for number in range(3):
        await create_repository(lake.graveler, f"more{number}")
    read: list[str] = []
    registered = Registrations.registered

    def counted(self: Registrations, hour: int, root: str = "") -> AsyncIterator[Registration]:
        async def found() -> AsyncIterator[Registration]:
            async for each in registered(self, hour, root):
                read.append(each.event_id.hex())
                yield each

        return found()

    monkeypatch.setattr(Registrations, "registered", counted)
    await drain_of(lake).round()
    assert read
    assert {read.count(event_id) for event_id in read} == {1}


# ---- epochs


async def test_an_epoch_begins_with_all_that_the_store_holds(
    replicas: Replicas, tmp_path: Path
) -> None:
    """Where the journal is switched on in a store with rows that have no events."""
    replicas.keeps_events = False
    async with replicas.replica() as graveler:
        repository = await create_repository(graveler)
        silent = Lake(graveler, repository, replicas.kv, replicas.clock)
        await silent.put("old", 1)
        await silent.put("both", 2)
        await silent.delete("never was")
    replicas.keeps_events = True
    async with replicas.replica() as graveler:
        lake = replace(silent, graveler=graveler)
        await lake.put("both", 3)
        await lake.delete("old")
        await lake.put("new", 4)
        await drain_of(lake).round()
        files = await Bucket(lake, replicas, tmp_path).read()
    assert {row.operation for row in files.base} == {"base"}
    assert "branches/main" in {row.key for row in files.base if not row.token}
    assert files.staged == {"main": {"both": 3, "new": 4, "old": None}}


@pytest.mark.parametrize("at", ["base/", "epochs/"])
@pytest.mark.parametrize("is_lost", [True, False])
async def test_an_epoch_whose_begin_fails_is_begun_again(
    lake: Lake, other: Lake, bucket: Bucket, at: str, is_lost: bool
) -> None:
    """By any replica, and only one counts; nothing is dropped before."""
    await lake.put("a", 1)
    token = await lake.staging_rows()
    await lake.commit()
    bucket.refuses, bucket.loses = ("nothing", at) if is_lost else (at, "nothing")
    await lake.drop_everything_removed()
    # The file of an epoch whose answer was lost is found by the next attempt.
    has_begun = is_lost and at == "epochs/"
    assert await events_of(lake, token) == (0 if has_begun else 1)
    bucket.refuses = bucket.loses = "nothing"
    lake.clock.advance(700)
    await lake.put("b", 2)
    await other.graveler.cleaner.drop_due()
    await lake.drop_everything_removed()
    assert await events_of(lake, token) == 0
    await drain_of(lake).round()
    files = await bucket.read()
    assert ("a", 1) in files.sizes
    assert files.staged == {"main": {"b": 2}}


async def test_a_store_that_another_one_has_followed_drains_no_more(
    lake: Lake, bucket: Bucket, replicas: Replicas
) -> None:
    """A restore has begun a newer epoch: files of this store would be read by nobody, so its tokens stay."""
    await lake.put("a", 1)
    await drain_of(lake).round()
    namespace = lake.repository.storage_namespace
    mine = await newest_epoch(replicas.blocks, namespace)
    later = next_epoch(mine, "f" * 32, EpochCause.RESTORE, lake.clock.now_us())
    await begin_epoch(replicas.blocks, namespace, later)
    await lake.put("b", 2)
    token = await lake.staging_rows()
    await lake.commit()
    await lake.drop_everything_removed()
    assert await events_of(lake, token) == 2
    place = drain_of(lake).place_of(lake.repository)
    with pytest.raises(TarnError, match="another store") as raised:
        await drain_of(lake).drain(place)
    assert raised.value.kind is Kind.FAILED_PRECONDITION
    before_us = lake.clock.now_us()
    await drain_of(lake).round()
    assert drain_of(lake).progress.lag_us(place.root, before_us) > 0


async def test_no_deletion_begins_an_epoch_before_all_replicas_write_events(
    lake: Lake, bucket: Bucket
) -> None:
    """Its base would lack rows of those that write none. Below the level there is nothing to wait for."""
    drain, namespace = drain_of(lake), lake.repository.storage_namespace
    drain._features = FeatureGate.at(LEVEL_FIRST)
    await drain.before_deletion(lake.repository, lake.clock.monotonic())
    drain._features = ALL_FEATURES
    with pytest.raises(TarnError, match="60 s after") as raised:
        await drain.before_deletion(lake.repository, lake.clock.monotonic())
    assert raised.value.kind is Kind.UNAVAILABLE
    assert await newest_epoch(bucket.blocks, namespace) is None
    lake.clock.advance(60)
    await drain.before_deletion(lake.repository, lake.clock.monotonic())
    assert await newest_epoch(bucket.blocks, namespace) is not None


async def test_an_epoch_ends_when_the_journal_is_off(lake: Lake, bucket: Bucket) -> None:
    """When it is on again, a new one begins with a new base: writes of the time between have no events."""
    await lake.put("a", 1)
    await drain_of(lake).round()
    await end_epochs(lake.kv, InstallationKeys("test"))
    await drain_of(lake).round()
    files = await bucket.read()
    assert files.epoch == 2
    assert files.staged == {"main": {"a": 1}}


# ---- the life of repositories, and progress


async def test_a_deleted_branch_is_drained_before_its_tokens_are_dropped(
    lake: Lake, bucket: Bucket
) -> None:
    dev = lake.branch(BranchId("dev"))
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    made = await lake.graveler.branches.create(dev, head)
    await lake.put("gone", 1, branch=dev.branch_id)
    token = lake.graveler.repositories.keys_of(lake.repository).token(dev.branch_id, made.staging)
    await lake.graveler.branches.delete(
        dev, lambda tokens: lake.graveler.drops.announce(dev, tokens)
    )
    await lake.drop_everything_removed()
    assert await events_of(lake, token) == 0
    assert (await bucket.read()).sizes == [("gone", 1)]


async def test_a_repository_whose_bucket_refuses_does_not_stop_the_others(
    lake: Lake, bucket: Bucket
) -> None:
    """Its lag grows, and only its own."""
    second = await create_repository(lake.graveler, "second")
    other = replace(lake, repository=second)
    drain = drain_of(lake)
    await drain.round()
    await other.put("b", 2)
    await lake.put("a", 1)
    bucket.closed = lake.repository.storage_namespace
    lake.clock.advance(300)
    await drain.round()
    now_us = lake.clock.now_us()
    assert drain.progress.lag_us(drain.place_of(second).root, now_us) == 0
    assert drain.progress.lag_us(drain.place_of(lake.repository).root, now_us) == 300_000_000
    assert drain.progress.greatest_lag_us(now_us) == 300_000_000
    bucket.closed = ""
    await drain.round()
    assert drain.progress.greatest_lag_us(now_us) == 0


async def test_a_past_day_gets_a_manifest(lake: Lake, other: Lake, bucket: Bucket) -> None:
    """An hour after its end, once, also by another process than that which wrote its files; it shows a lost file."""
    await drain_of(lake).round()
    for path in ("a", "b"):
        await lake.put(path, 1)
        await drain_of(lake).round()
    lake.clock.advance(2 * 86_400)
    epoch = await newest_epoch(bucket.blocks, lake.repository.storage_namespace)
    assert epoch is not None
    bucket.refuses = "manifest.json"
    assert await drain_of(other).round()
    assert await bucket.paths("manifest.json") == []
    bucket.refuses = "nothing"
    await lake.put("c", 1)
    for _ in range(2):
        assert await drain_of(other).round()
    (path,) = await bucket.paths("manifest.json")
    assert (await bucket.read()).report.is_whole  # type: ignore[union-attr]
    day = path.rsplit("/", 2)[1]
    namespace = lake.repository.storage_namespace
    manifest = await read_manifest(bucket.blocks, namespace, epoch.folder, day)
    files = [each for each in await bucket.paths(".parquet") if f"/{day}/" in each]
    assert len(manifest.files) == len(files) >= 2
    await bucket.blocks.delete_many(namespace, [max(files)])
    report = (await bucket.read()).report
    assert report is not None
    assert not report.is_whole


# ---- what depends on the drain


async def test_writes_are_refused_when_the_files_are_far_behind(lake: Lake, bucket: Bucket) -> None:
    """With an error of its own, before the store fills; deletes go on, and writes too, when the bucket takes files."""
    drain, admission = drain_of(lake), lake.graveler.admission
    await lake.put("a", 1)
    await drain.round()
    bucket.refuses = "_tarn/journal/"
    await lake.put("b", 2)
    for _ in range(2):
        lake.clock.advance(3_600)
        await drain.round()
    for refused in (admission.object(lake.repository, 1), admission.upload(lake.repository)):
        with pytest.raises(TarnError, match="no writes now") as raised:
            await refused
        assert (raised.value.kind, raised.value.reason) == (Kind.EXHAUSTED, Reason.JOURNAL_BEHIND)
    assert await lake.delete("a") == [None]
    bucket.refuses = "nothing"
    await drain.round()
    await admission.object(lake.repository, 1)


async def test_writes_are_refused_while_too_many_events_wait(
    lake: Lake, other: Lake, bucket: Bucket, replicas: Replicas
) -> None:
    """On each replica, also a new one, and where the bucket takes no files only; deletes go on."""
    drains = [drain_of(lake), drain_of(other)]
    second = await create_repository(lake.graveler, "second")
    bucket.closed = lake.repository.storage_namespace

    async def rounds(seconds: float = 61) -> None:
        for drain in drains:
            await drain.round()
        lake.clock.advance(seconds)
        for drain in drains:
            await drain.round()

    await rounds()
    assert drains[0].pressure.size > 0, "the records of the repositories"
    for drain in drains:
        drain.pressure.size_max = 50_000
    await lake.put("a", 1)
    await rounds()
    for each in (lake, other):
        await each.graveler.admission.object(lake.repository, 1)
    for number in range(300):
        await other.put(f"{number:03}", number)
    assert drains[1].pressure.size < 50_000, "one replica alone does not wait for too much"
    for number in range(300):
        await lake.put(f"{number:03}", number)
    await rounds()
    assert drains[0].pressure.total > 50_000
    assert abs(drains[0].pressure.total - drains[1].pressure.total) <= 2 * 50_000 // 256
    async with replicas.replica() as graveler:
        third = graveler.drain
        assert third is not None
        third.pressure.size_max = 50_000
        await third.round()
        assert third.pressure.size == 0
        for admission in (each.admission for each in (lake.graveler, other.graveler, graveler)):
            with pytest.raises(
                TarnError, match=r"MiB of events wait .*journal\.undrained_max"
            ) as raised:
                await admission.object(lake.repository, 1)
            about = raised.value.kind, raised.value.reason
            assert about == (Kind.EXHAUSTED, Reason.JOURNAL_BEHIND)
            await admission.object(second, 1)
    assert await lake.delete("a") == [None]
    bucket.closed = ""
    await rounds()
    await rounds()
    for each in (lake, other):
        await each.graveler.admission.object(lake.repository, 1)
    lake.clock.advance(61)
    await rounds()
    assert [drain.pressure.total for drain in drains] == [0, 0]


async def test_all_events_of_objects_and_records_are_counted(lake: Lake, bucket: Bucket) -> None:
    """By the bytes of their keys and values in the store, whatever write they came by."""
    pressure = drain_of(lake).pressure
    packed = pack(Entry(5, 0, bytes(16), bytes(16), operation_id="op"))

    async def stored() -> int:
        found = [
            await lake.kv.scan_companions(partition, b"", None, 1_000)
            for partition in (*tokens, refs_of(lake), InstallationKeys("test").graveler)
        ]
        return sum(len(each.key) + len(each.value) for some in found for each in some)

    tokens = [await lake.staging_rows()]
    assert pressure.size == await stored() > 0
    for work in (
        lambda: lake.put("a", 1),
        lambda: lake.delete("a", "b"),
        lambda: lake.graveler.conditional.stage(lake.main, "new", packed, NEW),
        lake.commit,
        lambda: lake.put("c", 1),
    ):
        before = pressure.size
        await work()
        tokens += [each for each in [await lake.staging_rows()] if each not in tokens]
        assert pressure.size > before
        branch = (await lake.graveler.branches.fresh(lake.main)).branch
        keys = lake.graveler.repositories.keys_of(lake.repository)
        named = [keys.token(lake.main.branch_id, each) for each in branch.tokens]
        tokens += [each for each in named if each not in tokens]
        assert pressure.size == await stored()


async def test_writes_leave_room_for_deletes_and_their_events(lake: Lake) -> None:
    """On the disk of the store, whatever the lag is."""
    drain, admission = drain_of(lake), lake.graveler.admission
    await lake.put("a", 1)
    space = [600 << 20, 100 << 30]
    reserve = DiskReserve(
        lambda: (space[0], space[1]), 512 << 20, "journal.reserve", lake.clock.monotonic
    )
    drain._settings = replace(drain._settings, reserve=reserve)
    await admission.object(lake.repository, 1)
    space[0] = 500 << 20
    lake.clock.advance(1)
    for refused in (admission.object(lake.repository, 1), admission.upload(lake.repository)):
        with pytest.raises(TarnError, match=r"500 MiB are free, .*journal\.reserve"):
            await refused
    assert await lake.delete("a") == [None]
    space[0] = 600 << 20
    lake.clock.advance(1)
    await admission.object(lake.repository, 1)


async def test_blocks_are_deleted_only_after_a_full_pass(lake: Lake, bucket: Bucket) -> None:
    """One that began after the last reference ended; a later deletion uses it, a newer end needs another one."""
    drain, repository = drain_of(lake), lake.repository
    await lake.put("a", 1)
    await drain.round()
    await lake.put("a", 2)
    ended_at = lake.clock.monotonic()
    lake.clock.advance(1)
    bucket.refuses = "_tarn/journal/"
    with pytest.raises(TarnError, match="refuses"):
        await drain.before_deletion(repository, ended_at)
    bucket.refuses = "nothing"
    await drain.before_deletion(repository, ended_at)
    assert ("a", 2) in (await bucket.read()).sizes
    bucket.refuses = "_tarn/journal/"
    await drain.before_deletion(repository, ended_at)
    await lake.put("a", 3)
    with pytest.raises(TarnError, match="refuses"):
        await drain.before_deletion(repository, lake.clock.monotonic())


async def test_no_block_is_deleted_when_a_rebuild_has_followed_during_the_pass(
    lake: Lake, bucket: Bucket
) -> None:
    """The rebuild does not read the file: it may name the block. The next pass finds that before it writes one."""
    drain, namespace = drain_of(lake), lake.repository.storage_namespace
    await lake.put("a", 1)
    await drain.round()
    await lake.put("a", 2)
    mine = await newest_epoch(bucket.blocks, namespace)
    rebuilt = next_epoch(mine, "f" * 32, EpochCause.REBUILD, lake.clock.now_us())
    files = len(await bucket.paths(".parquet"))

    async def follow() -> None:
        await begin_epoch(bucket.blocks, namespace, rebuilt)

    bucket.beside = follow
    ended_at = lake.clock.monotonic()
    lake.clock.advance(1)
    for _ in range(2):
        with pytest.raises(TarnError, match="another store") as raised:
            await drain.before_deletion(lake.repository, ended_at)
        assert raised.value.kind is Kind.FAILED_PRECONDITION
        assert len(await bucket.paths(".parquet")) == files + 1


async def test_a_sweep_begins_after_a_full_pass(lake: Lake, bucket: Bucket) -> None:
    """It is refused while the bucket takes no files; its mark is not."""
    handler = CollectionHandler(lake.graveler)
    await lake.put("a", 1)
    bucket.refuses = "_tarn/journal/"
    mark = pb_collection.BeginCollectionRequest(
        run_id="a" * 32, phase=pb_collection.COLLECTION_PHASE_MARK
    )
    await handler.BeginCollection(mark, permit_for(mark, lake.repository))
    sweep = pb_collection.BeginCollectionRequest(
        run_id="b" * 32, phase=pb_collection.COLLECTION_PHASE_SWEEP
    )
    with pytest.raises(TarnError, match="refuses"):
        await handler.BeginCollection(sweep, permit_for(sweep, lake.repository))
    bucket.refuses = "nothing"
    with pytest.raises(TarnError, match="is running"):
        await handler.BeginCollection(sweep, permit_for(sweep, lake.repository))
    assert ("a", 1) in (await bucket.read()).sizes


async def test_an_erasure_waits_until_its_changes_are_in_the_bucket(
    lake: Lake, bucket: Bucket
) -> None:
    """Each page of addresses, and each page of discarded entries: the run deletes blocks next."""
    handler, repository = ErasureHandler(lake.graveler), lake.repository
    await drain_of(lake).round()
    address = (lake.clock.now_us() // 1_000).to_bytes(6, "big") + bytes(10)
    packed = pack(Entry(5, 0, address, bytes(16), operation_id="op"))
    await lake.graveler.staging.stage(lake.main, "secret", packed)
    lake.clock.advance(3 * 86_400)
    run_id = "e" * 32
    begin = pb_collection.BeginCollectionRequest(
        run_id=run_id, phase=pb_collection.COLLECTION_PHASE_MARK, is_erasure=True
    )
    await CollectionHandler(lake.graveler).BeginCollection(begin, permit_for(begin, repository))
    erase = pb_erasure.EraseAddressesRequest(run_id=run_id, plan_id="a" * 32, addresses=address)
    discard = pb_erasure.DiscardErasedRequest(
        run_id=run_id, branch_id="main", paths=["secret"], addresses=address
    )
    calls: tuple[Callable[[], Awaitable[object]], ...] = (
        partial(handler.EraseAddresses, erase, permit_for(erase, repository)),
        partial(handler.DiscardErased, discard, permit_for(discard, repository)),
    )
    for call in calls:
        bucket.refuses = "_tarn/journal/"
        with pytest.raises(TarnError, match="refuses"):
            await call()
        bucket.refuses = "nothing"
        await call()
        assert await held_events(lake) == set()
    files = await bucket.read()
    assert RepositoryKeys.erased(address).decode() in {row.key for row in files.events}
    assert files.staged == {}


# ---- guards that are switched off: each test above, or here, would notice


async def _late_row_beside_the_scan(lake: Lake, running: Running) -> None:
    """A row that is never acknowledged lands in a sealed token, beneath a newer row, while the token is scanned."""
    await lake.put("x", 1)
    await drain_of(lake).round()
    first = await lake.staging_rows()
    late = lake.kv.hold("set_many", lake.row_key("x"))
    writer = running.start(lake.put("x", 7))
    await reached(late)
    scan = BranchScan._read

    async def beside(self: BranchScan, token_id: str, partition: Partition, since_us: int) -> None:
        if partition == first and not writer.done():
            await seal_main(lake)
            await lake.put("x", 2)
            check = lake.kv.hold("get_many", lake.branch_key)
            late.open()
            await reached(check)
            writer.cancel()
            await ended(writer)
        await scan(self, token_id, partition, since_us)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BranchScan, "_read", beside)
        await drain_of(lake).round()
    assert writer.cancelled()
    assert await events_of(lake, first) == 2


async def test_a_late_row_that_was_never_visible_is_not_rebuilt(
    lake: Lake, bucket: Bucket, running: Running
) -> None:
    await _late_row_beside_the_scan(lake, running)
    assert (await bucket.read()).staged == {"main": {"x": 2}}


async def test_without_the_second_read_of_the_record_it_is_rebuilt(
    lake: Lake, bucket: Bucket, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_same", lambda *_: True)
    await _late_row_beside_the_scan(lake, running)
    assert (await bucket.read()).staged == {"main": {"x": 7}}


async def test_without_the_last_scan_an_event_is_lost(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the holder counts as drained what its file does not hold."""

    async def not_at_all(self: Drain, drops: Sequence[Drop]) -> list[Drop]:
        return list(drops)

    await lake.put("a", 1)
    await lake.commit()
    monkeypatch.setattr(Drain, "last_scans", not_at_all)
    await lake.drop_everything_removed()
    await drain_of(lake).round()
    assert (await bucket.read()).sizes == []

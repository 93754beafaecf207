"""The journal of reads: what it writes, and when it claims to be whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest import mock

import pytest
from lake import Replicas, Running
from tests.support.clock import ManualClock, SeededIds

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.client.auth import AuthClient
from tarn.core.clock import DAY_US
from tarn.core.entry import TOMBSTONE, Entry, pack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, RepositoryId
from tarn.core.levels import ALL_FEATURES, LEVEL_FIRST, LEVEL_MAX, FeatureGate
from tarn.gate.access import Access
from tarn.kv.agreement import forget_settings
from tarn.kv.fence import fence_partition
from tarn.kv.keys import InstallationKeys, after_prefix
from tarn.kv.mem import MemKv
from tarn.kv.read_records import ON_KEY, decode_addresses, encode_addresses
from tarn.kv.records import Repository
from tarn_graveler.application import GravelerApplication
from tarn_graveler.assembly import GravelerSettings
from tarn_graveler.reads import journal as module
from tarn_graveler.reads.coverage import DEAD_US, STALE_US, ReadObjects
from tarn_graveler.reads.journal import KEPT_US, ReadJournal

KEYS = InstallationKeys("test")
PLACE = fence_partition("test")


class Blocks(MemBlockStore):
    """Calls a function before each write."""

    before: Callable[[], None] = staticmethod(lambda: None)
    gate: asyncio.Event | None = None

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        self.before()
        if self.gate is not None:
            await self.gate.wait()
        await super().put(key, body)

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        if namespace == "mem://gone":
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no such bucket")
        await super().delete_many(namespace, paths)


class JournalOfReads:
    """A journal over stores in memory."""

    def __init__(self, features: FeatureGate = ALL_FEATURES) -> None:
        self.features = features
        self.clock = ManualClock()
        self.kv = MemKv()
        self.blocks = Blocks(self.clock)
        self.ids = SeededIds(self.clock)
        now_us = self.clock.now_us()
        uid = "1" * 32
        self.repository = Repository(
            RepositoryId("lake"), uid, "mem://lake", BranchId("main"), now_us
        )
        self.journal = self.replica()
        self.reads = ReadObjects(self.kv, self.blocks, self.clock, KEYS)

    def replica(self) -> ReadJournal:
        return ReadJournal(self.kv, self.blocks, self.clock, self.ids, KEYS, self.features)

    def read(self, address: bytes = b"", journal: ReadJournal | None = None) -> bytes:
        """Notes a lookup; returns the address."""
        address = address or self.ids.uuid7()
        (journal or self.journal).note(self.repository, pack(Entry(1, 0, address, bytes(16))))
        return address

    async def found(self, since_us: int) -> set[bytes] | None:
        """Returns what was read since a time; None: in doubt."""
        found: set[bytes] = set()
        place: list[object] | None = []
        while place is not None:
            page = await self.reads.page(self.repository, since_us, place)
            if page.is_in_doubt:
                return None
            at = range(0, len(page.addresses), 16)
            found |= {page.addresses[start : start + 16] for start in at}
            place = page.following
        return found

    async def rows(self, prefix: bytes) -> list[bytes]:
        return [key for key, _ in await self.kv.scan(KEYS.reads, prefix, after_prefix(prefix), 100)]

    async def is_on(self) -> bool:
        return (await self.kv.get_many(PLACE, [ON_KEY]))[0] is not None


@pytest.fixture
async def lab() -> JournalOfReads:
    lab = JournalOfReads()
    await lab.journal.begin()
    return lab


async def test_each_object_is_noted_once_a_day(lab: JournalOfReads) -> None:
    begun_us = lab.clock.now_us()
    one, two = lab.read(), lab.read()
    lab.read(one)
    lab.journal.note(lab.repository, TOMBSTONE)
    await lab.journal.flush()
    lab.read(one)
    await lab.journal.flush()
    assert lab.journal.outcomes == {"noted": 2, "written": 2}
    assert await lab.found(begun_us) == {one, two}
    lab.clock.advance(2 * 86_400)
    three = lab.read()
    lab.read(two)
    await lab.journal.flush()
    assert await lab.found(begun_us + 2 * DAY_US) == {two, three}
    assert await lab.found(begun_us) == {one, two, three}


async def test_a_read_that_was_noted_earlier_on_its_day_is_found(lab: JournalOfReads) -> None:
    lab.clock.advance(86_400 - lab.clock.now_us() % DAY_US / 1_000_000 + 60)
    address = lab.read()
    await lab.journal.flush()
    lab.clock.advance(86_400 - 120)
    read_us = lab.clock.now_us()
    lab.read(address)
    lab.clock.advance(60)
    await lab.journal.flush()
    assert await lab.found(read_us) == {address}


async def test_a_write_that_fails_or_is_cancelled_loses_nothing_and_promises_nothing(
    lab: JournalOfReads, running: Running
) -> None:
    begun_us = lab.clock.now_us()
    failing = lab.read()
    lab.clock.advance(STALE_US / 1_000_000 + 1)

    def fail() -> None:
        raise OSError("no bucket")

    with mock.patch.object(lab.blocks, "before", fail), pytest.raises(OSError, match="no bucket"):
        await lab.journal.flush()
    assert await lab.found(begun_us) is None, "the session is stale"
    lab.blocks.gate = asyncio.Event()
    writing = running.start(lab.journal.flush())
    await asyncio.sleep(0.05)
    meanwhile = lab.read()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    lab.blocks.gate = None
    assert lab.journal.waiting == 2
    await lab.journal.flush()
    assert await lab.found(begun_us) == {failing, meanwhile}
    assert lab.journal.waiting == 0


async def test_a_session_that_ends_well_leaves_no_doubt(lab: JournalOfReads) -> None:
    begun_us = lab.clock.now_us()
    address = lab.read()
    await lab.journal.end()
    assert await lab.rows(b"sessions/") == []
    lab.clock.advance(DEAD_US / 1_000_000)
    assert await lab.found(begun_us) == {address}


async def test_a_session_that_is_killed_counts_for_a_day_more(lab: JournalOfReads) -> None:
    lab.read()
    await lab.journal.flush()
    killed_us = lab.clock.now_us()
    lab.clock.advance(5 * 86_400)
    assert await lab.found(killed_us - 1) is None
    assert await lab.found(killed_us + DEAD_US - 1) is None
    assert await lab.found(killed_us + DEAD_US) is not None


async def test_a_record_that_is_dropped_is_a_doubt_also_after_the_end(lab: JournalOfReads) -> None:
    begun_us = lab.clock.now_us()
    with mock.patch.object(module, "WAITING_MAX", 2):
        kept = {lab.read(), lab.read()}
        lab.clock.advance(1)
        dropped = lab.read()
        lost_us = lab.clock.now_us()
        await lab.journal.flush()
        again = lab.read(dropped)
    await lab.journal.end()
    assert lab.journal.outcomes["dropped"] == 1
    assert await lab.found(begun_us) is None
    assert await lab.found(lost_us) == {*kept, again}


async def test_many_files_of_many_sessions_come_in_pages(lab: JournalOfReads) -> None:
    begun_us = lab.clock.now_us()
    wanted: set[bytes] = set()
    with mock.patch.object(module, "FILE_ROWS", 1), mock.patch.object(module, "SEEN_MAX", 1):
        for number in range(12):
            other = lab.replica()
            await other.begin()
            wanted |= {lab.read(journal=other) for _ in range(number % 4 * 5)}
            await other.end()
            lab.clock.advance(30_000)
    await lab.journal.flush()
    assert await lab.found(begun_us) == wanted
    assert len(wanted) == 90


async def test_it_counts_from_the_level_on_at_which_no_other_release_runs(
    running: Running,
) -> None:
    level = LEVEL_FIRST
    lab = JournalOfReads(FeatureGate(lambda: level))
    begun_us = lab.clock.now_us()
    await lab.journal.begin()
    lab.clock.advance(60)
    assert await lab.found(begun_us) is None
    level = LEVEL_MAX
    task = running.start(lab.journal.run())
    await asyncio.sleep(0.01)
    raised_us = lab.clock.now_us() + 60_000_000
    lab.clock.advance(60)
    await asyncio.sleep(0.1)
    task.cancel()
    assert await lab.found(raised_us) == set()
    assert await lab.found(raised_us - 1) is None


async def test_old_files_and_rows_go(lab: JournalOfReads, running: Running) -> None:
    """Those of a bucket that is gone do not keep the others."""
    lab.read()
    gone = replace(lab.repository, instance_uid="0" * 32, storage_namespace="mem://gone")
    lab.journal.note(gone, pack(Entry(1, 0, lab.ids.uuid7(), bytes(16))))
    await lab.journal.flush()
    killed = lab.replica()
    await killed.begin()
    task = running.start(lab.journal.run())
    await asyncio.sleep(0.01)
    lab.clock.advance(KEPT_US / 1_000_000 + 3 * 86_400)
    young = lab.read()
    await asyncio.sleep(0.2)
    task.cancel()
    (file,) = await lab.blocks.list_page("mem://lake", "_tarn/reads/", "", 10)
    assert len(await lab.rows(b"files/")) == 2, "that of today, and that of the bucket that is gone"
    assert len(await lab.rows(b"sessions/")) == 1
    assert await lab.found(lab.clock.now_us()) == {young}, file.path


async def test_no_damage_of_a_file_changes_what_it_names(lab: JournalOfReads) -> None:
    addresses = b"".join(lab.ids.uuid7() for _ in range(3))
    body = encode_addresses(addresses)
    assert decode_addresses(body) == addresses
    assert decode_addresses(encode_addresses(b"")) == b""
    refused = 0
    for place in range(len(body)):
        damaged = body[:place] + bytes([body[place] ^ 4]) + body[place + 1 :]
        try:
            assert decode_addresses(damaged) == addresses
        except ValueError:
            refused += 1
    assert refused > 48


async def test_what_was_restored_may_have_been_read_before(lab: JournalOfReads) -> None:
    begun_us = lab.clock.now_us()
    lab.clock.advance(10)
    await lab.journal.flush()
    assert await lab.found(begun_us) == set()
    lab.repository = replace(lab.repository, create_time_us=begun_us + 1)
    assert await lab.found(begun_us) is None


async def test_a_replica_without_a_journal_ends_it_for_all(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    lab = JournalOfReads()

    def application(*, keeps_reads: bool) -> GravelerApplication:
        return GravelerApplication(
            settings=GravelerSettings("test", keeps_reads=keeps_reads),
            kv=lab.kv,
            blocks=lab.blocks,
            committed=graveler.committed,
            access=Access(cast("AuthClient", None), lab.clock),
            clock=lab.clock,
            ids=lab.ids,
        )

    async with replicas.replica() as graveler:
        async with application(keeps_reads=True):
            assert (await lab.is_on(), len(await lab.rows(b"sessions/"))) == (True, 1)
        assert (await lab.is_on(), len(await lab.rows(b"sessions/"))) == (True, 0)
        with pytest.raises(TarnError, match=r"lifecycle\.reads\.enabled is false here and true"):
            await application(keeps_reads=False).__aenter__()
        assert await lab.is_on()
        await forget_settings(lab.kv, "test")
        async with application(keeps_reads=False):
            assert not await lab.is_on()
    await replicas.tasks.close()

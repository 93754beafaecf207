"""Blocks of private rows that were replaced are deleted, and no other blocks (docs/design/online-deletion.md).

Each test plays one interleaving on the real parts; without its guard it fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from lake import MAIN, Lake, Replicas, Running, create_repository, entry, keep_tokens, reached

from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.core.collection import Phase, begin, hold
from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, address_of, pack, unpack
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import BranchId, physical_path
from tarn.kv.keys import copied_note
from tarn.kv.port import OutcomeUnknownError
from tarn.telemetry.meters import Meters
from tarn_graveler.collection.online_deletion import OUTCOMES, OnlineDeletion, OnlineSettings
from tarn_graveler.metrics import register_replica

DELAY_S = 600.0
SIDE = BranchId("side")


@dataclass(frozen=True)
class Online:
    """A repository with online deletion.

    Attributes:
        lake: through the replica that writes.
        replicas: the installation.
    """

    lake: Lake
    replicas: Replicas

    @property
    def deletion(self) -> OnlineDeletion:
        assert self.lake.graveler.online is not None
        return self.lake.graveler.online

    def block(self, address: bytes) -> BlockKey:
        return BlockKey(self.lake.repository.storage_namespace, physical_path(address))

    async def new(self) -> bytes:
        """Writes a block; returns the packed entry that names it."""
        self.replicas.count += 1
        now_ms = self.lake.clock.now_us() // 1000
        address = now_ms.to_bytes(6, "big") + self.replicas.count.to_bytes(10, "big")
        await self.replicas.blocks.put(self.block(address), b"x")
        return pack(Entry(self.replicas.count, 0, address, bytes(16)))

    async def put(self, path: str, packed: bytes = b"", *, lake: Lake | None = None) -> bytes:
        """Stages an object as a gateway does after a PUT; returns its entry."""
        packed = packed or await self.new()
        through = lake or self.lake
        await through.graveler.staging.stage(through.main, path, packed, is_new=True)
        return packed

    async def source(self, path: str, ref: str = "main", *, lake: Lake | None = None) -> bytes:
        """Looks an object up as a gateway does before a copy by reference."""
        through = lake or self.lake
        return await through.graveler.copy_sources.find(through.repository, ref, path)

    async def stage_copy(self, path: str, packed: bytes, branch: BranchId = MAIN) -> None:
        """Stages a copy by reference."""
        entry_ = replace(unpack(packed), mtime_us=1)
        await self.lake.graveler.staging.stage(self.lake.branch(branch), path, pack(entry_))

    async def there(self, packed: bytes) -> bool:
        """Whether the block of an entry exists."""
        address = address_of(packed)
        assert address is not None
        try:
            await self.replicas.blocks.stat(self.block(address))
        except BlockNotFoundError:
            return False
        return True

    async def pass_delay(self) -> int:
        """Lets the first look, the delay and the second look happen; returns the number of deleted blocks."""
        deleted = await self.deletion.step()
        self.lake.clock.advance(DELAY_S)
        return deleted + await self.deletion.step()


@pytest.fixture
async def online(tmp_path: Path) -> AsyncIterator[Online]:
    replicas = Replicas(tmp_path, online=OnlineSettings(is_enabled=True, delay_seconds=DELAY_S))
    async with replicas.replica() as graveler:
        repository = await create_repository(graveler)
        lake = Lake(graveler, repository, replicas.kv, replicas.clock, replicas.meters)
        yield Online(lake, replicas)
    await replicas.tasks.close()
    await replicas.kv.close()
    await replicas.blocks.close()


@pytest.fixture
async def other(online: Online) -> AsyncIterator[Lake]:
    """The same repository through another replica."""
    async with online.replicas.replica() as graveler:
        yield replace(online.lake, graveler=graveler)


# ---- what is deleted


async def test_an_overwritten_object_goes_after_the_delay(online: Online) -> None:
    first, second = await online.put("a"), await online.put("a")
    assert await online.deletion.step() == 0
    online.lake.clock.advance(DELAY_S - 1)
    assert await online.deletion.step() == 0
    assert await online.there(first)
    online.lake.clock.advance(1)
    assert await online.deletion.step() == 1
    assert not await online.there(first)
    assert await online.there(second)


async def test_a_replica_tells_what_became_of_its_replaced_rows(online: Online) -> None:
    meters, graveler = Meters(), online.lake.graveler
    register_replica(meters, online.lake.clock, graveler, graveler.committed, None)

    def told() -> dict[str, float]:
        found = {labels["outcome"]: value for labels, value in meters.samples("online.rows")}
        assert set(found) == set(OUTCOMES)
        return {outcome: count for outcome, count in found.items() if count}

    assert told() == {}
    await online.put("a")
    await online.put("a")
    assert told() == {"queued": 1}
    await online.pass_delay()
    assert told() == {"queued": 1, "deleted": 1}


async def test_a_deleted_object_goes_after_the_delay(online: Online) -> None:
    packed, kept = await online.put("a"), await online.put("b")
    assert await online.lake.delete("a", "none") == [None, None]
    assert await online.pass_delay() == 1
    assert [await online.there(each) for each in (packed, kept)] == [False, True]
    assert online.deletion.queue.outcomes == {"queued": 1, "deleted": 1}


async def test_a_commit_after_the_first_look_changes_nothing(online: Online) -> None:
    first, second = await online.put("a"), await online.put("a")
    await online.deletion.step()
    await online.lake.commit()
    await online.lake.drop_everything_removed()
    assert await online.pass_delay() == 1
    assert [await online.there(each) for each in (first, second)] == [False, True]


async def test_each_address_is_deleted_once(online: Online) -> None:
    objects = [await online.put("a") for _ in range(5)]
    assert await online.pass_delay() == 4
    assert await online.pass_delay() == 0
    assert [await online.there(each) for each in objects] == [False] * 4 + [True]


# ---- what is kept: the address was not born here, or did not end here


async def test_an_object_without_the_proof_of_a_gateway_stays(online: Online) -> None:
    packed = await online.new()
    await online.lake.graveler.staging.stage(online.lake.main, "a", packed)
    await online.put("a")
    assert await online.pass_delay() == 0
    assert await online.there(packed)


async def test_an_object_of_an_earlier_token_stays(online: Online) -> None:
    """Commit and move: the commit holds the address."""
    packed = await online.put("a")
    await online.lake.commit()
    await online.put("a")
    assert await online.pass_delay() == 0
    assert await online.there(packed)


async def test_an_object_that_was_sealed_before_it_was_overwritten_stays(
    online: Online, running: Running
) -> None:
    """The overwriting row lands in the token of the commit, and in the next one."""
    packed = await online.put("a")
    held = online.lake.kv.hold("set_many", online.lake.row_key("a"))
    second = await online.new()
    writing = running.start(online.put("a", second))
    await reached(held)
    committed = await online.lake.commit()
    held.open()
    await writing
    assert await online.pass_delay() == 0
    assert await online.there(packed)
    assert await online.lake.get("a", committed.commit_id) == unpack(packed).size


async def test_an_object_of_a_second_attempt_stays(online: Online, running: Running) -> None:
    """Its address is in two tokens; a commit has the first one."""
    packed = await online.new()
    held = online.lake.kv.hold("set_many", online.lake.row_key("a"), after=True)
    writing = running.start(online.put("a", packed))
    await reached(held)
    committed = await online.lake.commit()
    held.open()
    await writing
    await online.put("a")
    assert await online.pass_delay() == 0
    assert await online.there(packed)
    assert await online.lake.get("a", committed.commit_id) == unpack(packed).size


async def test_an_overwriting_row_that_is_not_acknowledged_ends_nothing(online: Online) -> None:
    packed = await online.put("a")
    online.lake.kv.lose("set_many", online.lake.row_key("a"), applied=False)
    with pytest.raises(TarnError) as raised:
        await online.put("a")
    assert raised.value.kind is Kind.UNKNOWN_OUTCOME
    assert await online.pass_delay() == 0
    assert await online.there(packed)


async def test_an_older_row_does_not_end_a_newer_one(online: Online, running: Running) -> None:
    """Two writes at once: the one that is acknowledged last has the older row."""
    await online.put("warm")
    held = online.lake.kv.hold("get_many", online.lake.branch_key)
    older = running.start(online.put("a"))  # its row is durable
    await reached(held)
    newest = await online.put("a")
    held.open()
    await older
    assert await online.lake.get("a") == unpack(newest).size
    assert await online.pass_delay() == 0
    assert await online.there(newest)
    assert not online.deletion.queue.outcomes, "and it is not even judged"


async def test_a_conditional_token_has_no_private_rows(online: Online) -> None:
    """Calls of one operation write its row again, in any token."""
    absent = WriteCondition(if_none_match=True)
    made = pack(replace(unpack(await online.new()), operation_id="op"))
    await online.lake.graveler.conditional.stage(online.lake.main, "lock", made, absent)
    packed = await online.put("a")
    await online.put("a")
    assert await online.pass_delay() == 0
    assert await online.there(packed)


async def test_what_another_replica_wrote_stays(online: Online, other: Lake) -> None:
    packed = await online.put("a", lake=other)
    await online.put("a")
    assert await online.pass_delay() == 0
    assert await online.there(packed)


# ---- copies by reference


async def test_a_copied_object_stays(online: Online, other: Lake) -> None:
    packed = await online.put("a")
    await online.stage_copy("b", await online.source("a", lake=other))
    await online.lake.delete("a")
    assert await online.pass_delay() == 0
    assert await online.there(packed)
    assert online.deletion.queue.outcomes["copied"] == 1


async def test_a_copy_onto_the_same_path_keeps_the_object(online: Online) -> None:
    """A copy that replaces the metadata only."""
    packed = await online.put("a")
    await online.stage_copy("a", await online.source("a"))
    assert await online.pass_delay() == 0
    assert await online.there(packed)


async def test_a_copy_whose_source_is_deleted_meanwhile_is_not_made(
    online: Online, other: Lake, running: Running
) -> None:
    """Delete and move: the note comes too late for the deletion; the second read of the copy sees that."""
    packed = await online.put("a")
    address = address_of(packed)
    assert address is not None
    held = online.lake.kv.hold("set_many", copied_note(address))
    copying = running.start(online.source("a", lake=other))
    await reached(held)
    await online.lake.delete("a")
    assert await online.pass_delay() == 1
    held.open()
    with pytest.raises(TarnError) as raised:
        await copying
    assert raised.value.kind is Kind.NOT_FOUND


async def test_a_copy_whose_source_is_overwritten_meanwhile_copies_the_new_object(
    online: Online, other: Lake, running: Running
) -> None:
    packed = await online.put("a")
    address = address_of(packed)
    assert address is not None
    held = online.lake.kv.hold("set_many", copied_note(address))
    copying = running.start(online.source("a", lake=other))
    await reached(held)
    second = await online.put("a")
    assert await online.pass_delay() == 1
    held.open()
    assert await copying == second
    await online.put("a")
    assert await online.pass_delay() == 0
    assert await online.there(second)


async def test_a_copy_to_another_branch_keeps_the_object(online: Online, other: Lake) -> None:
    head = (await online.lake.graveler.branches.fresh(online.lake.main)).branch.commit_id
    await online.lake.graveler.branches.create(online.lake.branch(SIDE), head)
    packed = await online.put("a")
    await online.stage_copy("b", await online.source("a", lake=other), SIDE)
    await online.put("a")
    await online.lake.commit()
    assert await online.pass_delay() == 0
    assert await online.there(packed)


async def test_a_copy_from_a_commit_or_a_sealed_token_writes_no_note(online: Online) -> None:
    packed = await online.put("a")
    committed = await online.lake.commit()
    writes = online.lake.kv.hold("set_many", copied_note(address_of(packed) or b""))
    assert await online.source("a") == packed
    assert await online.source("a", committed.commit_id) == packed
    assert not writes.reached.is_set()


async def test_a_note_that_could_not_be_written_fails_the_copy(online: Online) -> None:
    packed = await online.put("a")
    online.lake.kv.lose("set_many", copied_note(address_of(packed) or b""), applied=False)
    with pytest.raises(OutcomeUnknownError):
        await online.source("a")


async def test_notes_that_may_be_dropped_are_not_trusted(online: Online, other: Lake) -> None:
    """The token is committed and dropped, with the note, before the first look."""
    packed = await online.put("a")
    await online.stage_copy("b", await online.source("a", lake=other))
    await online.lake.delete("a")
    await online.lake.commit()
    await online.lake.drop_everything_removed()
    assert await online.pass_delay() == 0
    assert await online.there(packed)
    assert online.deletion.queue.outcomes["token-left"] == 1


async def test_without_online_deletion_a_copy_writes_no_note(lake: Lake) -> None:
    await lake.put("a", 1)
    writes = lake.kv.hold("set_many", b"copied/")
    assert await lake.graveler.copy_sources.find(lake.repository, "main", "a") == entry(1)
    assert not writes.reached.is_set()
    assert lake.graveler.online is None


# ---- holds, collections, failures


async def test_the_queue_waits_for_a_hold(online: Online) -> None:
    first = await online.put("a")
    await online.put("a")
    clock, collections = online.lake.clock, online.lake.graveler.collections
    until = int(DELAY_S) + 1
    await collections.change(
        online.lake.repository, lambda record: hold(record, until, clock.now_us())
    )
    assert await online.pass_delay() == 0
    assert await online.there(first)
    clock.advance(61)
    assert await online.deletion.step() == 1


async def test_the_queue_waits_for_a_collection(online: Online) -> None:
    """It has read the rows as roots, and its canary reads a sample of them."""
    first = await online.put("a")
    await online.put("a")
    await online.deletion.step()
    clock, collections = online.lake.clock, online.lake.graveler.collections
    clock.advance(DELAY_S)
    run, limits = "0" * 32, online.lake.graveler.collection_limits
    await collections.change(
        online.lake.repository,
        lambda record: begin(record, run, Phase.MARK, "", clock.now_us(), limits),
    )
    assert await online.deletion.step() == 0
    assert await online.there(first)
    clock.advance(limits.lease_us / 1_000_000)
    assert await online.deletion.step() == 1


async def test_a_path_that_holds_the_address_again_keeps_it(online: Online) -> None:
    """The second look is a net: nothing in Tarn stages an address again without a note."""
    first = await online.put("a")
    await online.put("a")
    await online.deletion.step()
    await online.lake.graveler.staging.stage(online.lake.main, "a", first)
    online.lake.clock.advance(DELAY_S)
    await online.deletion.step()
    assert await online.there(first)
    assert online.deletion.queue.outcomes["not-replaced"] == 1


async def test_an_object_of_a_deleted_branch_goes(online: Online) -> None:
    head = (await online.lake.graveler.branches.fresh(online.lake.main)).branch.commit_id
    side = online.lake.branch(SIDE)
    await online.lake.graveler.branches.create(side, head)
    packed = await online.new()
    await online.lake.graveler.staging.stage(side, "a", packed, is_new=True)
    await online.lake.graveler.staging.unstage(side, ["a"])
    await online.deletion.step()
    await online.lake.graveler.branches.delete(side, keep_tokens)
    assert await online.pass_delay() == 1
    assert not await online.there(packed)


async def test_a_full_queue_takes_no_more(online: Online, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarn_graveler.branch.private_rows.QUEUE_MAX", 2)
    for _ in range(4):
        await online.put("a")
    assert online.deletion.queue.outcomes == {"queued": 2, "queue-full": 1}
    assert len(online.deletion.queue) == 2

"""Discarding uncommitted entries by path and address, alone and one interleaving at a time (rules 9 and 10)."""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from lake import Lake, Running, reached
from lake_merges import NEW, branch_with, head, hold_change, merge, mine, record, refused
from lake_parts import failing, reset_path
from tests.support.clock import SeededIds

from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, address_of, pack
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId
from tarn.core.listing.pages import PageRequest
from tarn.kv.port import OutcomeUnknownError, Predicate
from tarn_graveler.compaction.discarding import Discarded, Discarding
from tarn_graveler.compaction.part_resets import TRIAL_BUILD_FROM

DISCARDED, REPLACED = Discarded.DISCARDED, Discarded.REPLACED
COMMITTED, ABSENT = Discarded.COMMITTED, Discarded.ABSENT


@dataclass
class Writer:
    """Writes objects with addresses, through one replica."""

    lake: Lake
    ids: SeededIds = field(init=False)

    def __post_init__(self) -> None:
        self.ids = SeededIds(self.lake.clock, seed=5)

    async def put(self, path: str, size: int = 1) -> bytes:
        """Writes an object; returns its address. Objects of equal size are equal."""
        address = self.ids.uuid7()
        await self.put_at(path, size, address)
        return address

    async def put_at(self, path: str, size: int, address: bytes) -> None:
        packed = pack(Entry(size, 0, address, bytes(16)))
        await self.lake.graveler.staging.stage(self.lake.main, path, packed)

    async def addresses(self, ref: str = "main") -> dict[str, bytes | None]:
        """Returns the address of each object of a ref."""
        page = await self.lake.graveler.reading.page(
            self.lake.repository, ref, PageRequest(limit=100)
        )
        return {
            path: address_of(packed) for path, packed in zip(page.paths, page.entries, strict=True)
        }

    async def compact(self) -> None:
        await self.lake.graveler.compacting.compact(self.lake.main)


@pytest.fixture
def writer(lake: Lake) -> Writer:
    return Writer(lake)


def discarding_of(lake: Lake) -> Discarding:
    graveler = lake.graveler
    return Discarding(graveler.branches, graveler.layers, graveler.part_resets)


async def discard(lake: Lake, *entries: tuple[str, bytes]) -> list[Discarded]:
    return await discarding_of(lake).discard(lake.main, entries)


async def judge(lake: Lake, *entries: tuple[str, bytes]) -> list[Discarded]:
    return await discarding_of(lake).judge(lake.main, entries)


async def test_only_the_newest_uncommitted_entry_of_its_path_goes(
    lake: Lake, writer: Writer
) -> None:
    committed = await writer.put("committed")
    restored = await writer.put("over")
    await lake.commit()
    over, hidden = await writer.put("over", 2), await writer.put("again", 2)
    folded = await writer.put("folded")
    await writer.compact()
    alone, gone = await writer.put("alone"), await writer.put("gone")
    again, rest = await writer.put("again", 3), await writer.put("rest")
    await lake.delete("gone")
    entries = (
        *(("committed", committed), ("over", over), ("again", hidden), ("folded", folded)),
        *(("alone", alone), ("gone", gone), ("never", alone), ("alone", rest)),
    )
    expected = [COMMITTED, DISCARDED, REPLACED, DISCARDED, DISCARDED, ABSENT, ABSENT, REPLACED]
    before = await record(lake)
    assert await judge(lake, *entries) == expected
    assert await record(lake) == before, "a judgement changes nothing"
    assert await discard(lake, *entries) == expected
    left = {"committed": committed, "over": restored, "again": again, "rest": rest}
    assert await writer.addresses() == left
    await lake.drop_everything_removed()
    assert await writer.addresses() == left
    assert await discard(lake, *entries) == [
        *(COMMITTED, REPLACED, REPLACED, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT)
    ], "it may be repeated"
    await lake.commit()
    assert await writer.addresses("main@") == left


async def test_an_equal_object_that_is_newer_stays(lake: Lake, writer: Writer) -> None:
    """A discard of another path, and a repetition, fold it over the entry that the plan names."""
    old = await writer.put("p", 7)
    await writer.compact()
    new, other = await writer.put("p", 7), await writer.put("a")
    assert await discard(lake, ("a", other)) == [DISCARDED]
    assert await discard(lake, ("p", old)) == [REPLACED]
    assert await writer.addresses() == {"p": new}


async def test_a_compaction_keeps_the_newer_one_of_equal_uncommitted_objects(
    lake: Lake, writer: Writer
) -> None:
    old = await writer.put("p", 7)
    await writer.put("q")
    await writer.compact()
    new = await writer.put("p", 7)
    await writer.compact()
    assert await discard(lake, ("p", old)) == [REPLACED]
    assert (await writer.addresses())["p"] == new
    await lake.commit()
    assert (await writer.addresses("main@"))["p"] == new


async def test_an_object_that_equals_the_committed_one_is_that_one_after_compactions(
    lake: Lake, writer: Writer
) -> None:
    """Also in a range that the commit and the compacted listing share; the branch is clean then."""
    committed = await writer.put("p", 7)
    await lake.commit()
    await writer.put("p", 8)
    await writer.compact()
    await writer.put("p", 7)
    await writer.compact()
    assert await writer.addresses() == {"p": committed}
    assert (await record(lake)).compacted_metarange_id is None
    await writer.put("q")
    await writer.compact()
    await writer.put("p", 7)
    await writer.compact()
    assert (await writer.addresses())["p"] == committed


async def test_what_has_nothing_to_discard_leaves_the_record_as_it_is(
    lake: Lake, writer: Writer
) -> None:
    old = await writer.put("a")
    await writer.put("a", 2)
    before = await record(lake)
    assert await discard(lake, ("a", old)) == [REPLACED]
    assert await record(lake) == before


async def test_a_branch_without_other_changes_is_clean_afterwards(
    lake: Lake, writer: Writer
) -> None:
    source = await branch_with(lake, {"s": 1})
    first, second = await writer.put("a"), await writer.put("b")
    await writer.compact()
    assert await discard(lake, ("a", first), ("b", second)) == [DISCARDED, DISCARDED]
    assert (await record(lake)).compacted_metarange_id is None
    await merge(lake, source)
    assert sorted(await writer.addresses()) == ["s"]


async def test_an_entry_that_equals_the_commits_one_gives_way_to_it(
    lake: Lake, writer: Writer
) -> None:
    """It is the same object at another address: no change of the branch, and yet reads follow its address."""
    committed = await writer.put("a")
    await lake.commit()
    again = await writer.put("a")
    assert await writer.addresses() == {"a": again}
    assert await discard(lake, ("a", again)) == [DISCARDED]
    assert await writer.addresses() == {"a": committed}


async def test_a_path_that_is_written_anew_stays(
    lake: Lake, other: Lake, writer: Writer, running: Running
) -> None:
    """Between the seal and the last step: written, deleted and written, or sealed, too."""
    entries = [(path, await writer.put(path)) for path in ("a", "b", "c")]
    gate = hold_change(lake, 2)
    discarding = running.start(discard(other, *entries))
    await reached(gate)
    new = {"a": await writer.put("a", 7)}
    await lake.delete("b")
    new["b"] = await writer.put("b", 8)
    await lake.graveler.conditional.stage(lake.main, "d", mine(9, "nine"), NEW)
    gate.open()
    assert await discarding == [DISCARDED] * 3
    assert await writer.addresses() == {**new, "d": None}
    await lake.drop_everything_removed()
    assert await writer.addresses() == {**new, "d": None}


async def test_a_commit_that_comes_first_keeps_the_entry(
    lake: Lake, other: Lake, writer: Writer, running: Running
) -> None:
    """The publication meets another base and judges again."""
    entry = ("a", await writer.put("a"))
    rest = ("b", await writer.put("b"))
    gate = hold_change(lake, 2)
    discarding = running.start(discard(other, entry, rest))
    await reached(gate)
    await lake.commit()
    await lake.delete("b")
    await lake.commit()
    gate.open()
    assert await discarding == [COMMITTED, ABSENT]
    assert await writer.addresses() == {"a": entry[1]}


async def test_a_merge_that_comes_first_keeps_what_it_brings(
    lake: Lake, other: Lake, writer: Writer, running: Running
) -> None:
    """The entry equals that of the commit, so the merge is not refused. A late tombstone would hide what it brings."""
    await writer.put("a")
    await lake.commit()
    source = await branch_with(lake, {"a": 5})
    again = await writer.put("a")
    gate = hold_change(lake, 2)
    discarding = running.start(discard(other, ("a", again)))
    await reached(gate)
    made = await merge(lake, source)
    gate.open()
    assert (await discarding)[0] in (REPLACED, DISCARDED)
    assert await lake.get("a") == 5
    assert await head(lake) == made.commit_id


async def test_a_reset_that_comes_first_keeps_what_it_brings_back(
    lake: Lake, other: Lake, writer: Writer, running: Running
) -> None:
    committed = await writer.put("a")
    await lake.commit()
    entry = ("a", await writer.put("a", 2))
    await writer.put("b")
    await writer.compact()
    gate = hold_change(lake, 1)
    discarding = running.start(discard(other, entry))
    await reached(gate)
    await reset_path(lake, "a")
    gate.open()
    assert await discarding == [REPLACED]
    assert (await writer.addresses())["a"] == committed


@pytest.mark.parametrize("look", [1, 2])
async def test_dropped_tokens_do_not_look_like_an_absent_object(
    lake: Lake,
    other: Lake,
    writer: Writer,
    look: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between a read of the record and a look, a compaction folds the row and its token is dropped."""
    entry = ("a", await writer.put("a"))
    discarding = discarding_of(other)
    find, looks = discarding._find, 0

    async def late(*args: Any, **how: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == look:
            await writer.compact()
            await lake.drop_everything_removed()
        return await find(*args, **how)

    monkeypatch.setattr(discarding, "_find", late)
    assert await discarding.discard(other.main, [entry]) == [DISCARDED]
    assert looks > look
    assert await writer.addresses() == {}


async def test_an_overwrite_judged_before_it_does_not_win_over_what_comes_back(
    lake: Lake, other: Lake, writer: Writer, running: Running
) -> None:
    """`If-Match` of the entry holds; then the entry goes; the row lands over the commit's object."""
    await writer.put("a")
    await lake.commit()
    address = await writer.put("a", 2)
    await writer.compact()
    await lake.graveler.conditional.stage(lake.main, "other", mine(1, "first"), NEW)
    gate = lake.kv.hold("set_if", lake.row_key("a"))
    condition = WriteCondition(if_match=bytes(16).hex())
    overwriting = running.start(
        lake.graveler.conditional.stage(lake.main, "a", mine(5, "second"), condition)
    )
    await reached(gate)
    assert await discard(other, ("a", address)) == [DISCARDED]
    gate.open()
    assert await refused(overwriting) is Reason.OUTCOME_UNKNOWN


async def test_an_unknown_outcome_is_told_as_unknown(
    lake: Lake, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ("a", await writer.put("a"))
    set_if = lake.kv.set_if

    async def unanswered(*args: Any, **named: Any) -> Predicate:
        if args[1] != lake.branch_key or (await record(lake)).sealed == ():
            return await set_if(*args, **named)
        raise OutcomeUnknownError("no answer")

    monkeypatch.setattr(lake.kv, "set_if", unanswered)
    assert await refused(discard(lake, entry)) is Reason.OUTCOME_UNKNOWN
    assert await lake.get("a") == 1
    monkeypatch.setattr(lake.kv, "set_if", set_if)
    assert await discard(lake, entry) == [DISCARDED]


async def test_attempts_that_fail_do_not_pile_up_layers(
    lake: Lake, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = lake.graveler.part_resets._builder
    build = builder.build
    monkeypatch.setattr(builder, "build", failing)
    entry = ("a", bytes(16))
    for _ in range(20):
        entry = ("a", await writer.put("a"))
        assert await refused(discard(lake, entry)) is Reason.UNAVAILABLE
    assert len((await record(lake)).sealed) == TRIAL_BUILD_FROM
    monkeypatch.setattr(builder, "build", build)
    assert await discard(lake, entry) == [DISCARDED]
    assert await writer.addresses() == {}


async def test_a_branch_that_is_deleted_is_not_found(lake: Lake, writer: Writer) -> None:
    entry = ("a", await writer.put("a"))
    gone = lake.branch(BranchId("gone"))
    assert await refused(discarding_of(lake).discard(gone, [entry])) is Reason.BRANCH_NOT_FOUND


@dataclass
class Dicts:
    """The content that the branch must show: staged changes over committed entries; None: deleted."""

    staged: dict[str, bytes | None] = field(default_factory=dict)
    committed: dict[str, bytes] = field(default_factory=dict)

    def shown(self) -> dict[str, bytes]:
        over = {**self.committed, **self.staged}
        return {path: address for path, address in over.items() if address is not None}

    def discard(self, path: str, address: bytes) -> Discarded:
        newest = self.shown().get(path)
        if newest is None:
            return ABSENT
        if newest != address:
            return REPLACED
        return COMMITTED if self.committed.get(path) == address else DISCARDED


@pytest.mark.parametrize("seed", range(12))
async def test_any_order_of_changes_shows_what_two_dicts_show(
    lake: Lake, writer: Writer, seed: int
) -> None:
    rng, dicts = random.Random(seed), Dicts()
    known: list[tuple[str, bytes]] = [("a", bytes(range(16)))]
    for _ in range(40):
        path = rng.choice("abcdef")
        match rng.choice("pppdcxxC"):
            case "p":
                address = await writer.put(path, len(known))
                dicts.staged[path] = address
                known.append((path, address))
            case "d":
                await lake.delete(path)
                dicts.staged[path] = None
            case "c":
                await writer.compact()
            case "C":
                await lake.commit(allow_empty=True)
                dicts.committed, dicts.staged = dicts.shown(), {}
            case _:
                entries = rng.sample(known, min(len(known), 5))
                expected = [dicts.discard(*each) for each in entries]
                assert await discard(lake, *entries) == expected
                for (each, _), outcome in zip(entries, expected, strict=True):
                    if outcome is DISCARDED:
                        del dicts.staged[each]
        assert await writer.addresses() == dicts.shown()


class Beside:
    """Writers, a committer, a compactor and an eraser over two replicas; requests to the store take random turns.

    Some objects are to be erased, from their first moment on. Only the eraser discards entries. Each path has one
    writer.
    """

    def __init__(self, lake: Lake, other: Lake, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lakes = (lake, other)
        self.writers = [Writer(each) for each in self.lakes]
        self.last: dict[str, bytes | None] = {}
        self.doomed: set[tuple[str, bytes]] = set()
        self.outcomes: set[Discarded] = set()
        self.left = 6
        for name in ("get_many", "set_many", "set_if", "scan"):
            setattr(lake.kv, name, self.slowed(getattr(lake.kv, name)))

    def slowed(self, call: Any) -> Any:
        async def slow(*args: Any, **how: Any) -> Any:
            for _ in range(self.rng.randrange(6)):
                await asyncio.sleep(0)
            found = await call(*args, **how)
            for _ in range(self.rng.randrange(3)):
                await asyncio.sleep(0)
            return found

        return slow

    async def write(self, path: str, count: int) -> None:
        for number in range(count):
            writer = self.rng.choice(self.writers)
            for _ in range(self.rng.randrange(400)):
                await asyncio.sleep(0)
            if self.rng.random() < 0.2:
                await writer.lake.delete(path)
                self.last[path] = None
                continue
            address = writer.ids.uuid7()
            if self.rng.random() < 0.5:
                self.doomed.add((path, address))
            await writer.put_at(path, 100 * ord(path) + number, address)
            self.last[path] = address
        self.left -= 1

    async def erase(self) -> None:
        while self.left:
            if self.doomed:
                entries = self.rng.sample(sorted(self.doomed), min(3, len(self.doomed)))
                entries += sorted(self.doomed & {*self.last.items()})
                self.outcomes |= set(await discard(self.rng.choice(self.lakes), *entries))
            await asyncio.sleep(0)

    async def fold(self) -> None:
        while self.left:
            lake = self.rng.choice(self.lakes)
            with suppress(TarnError):  # nothing to commit; the branch was reset
                if self.rng.random() < 0.3:
                    await lake.commit()
                else:
                    await lake.graveler.compacting.compact(lake.main)
            await lake.drop_everything_removed()
            await asyncio.sleep(0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_no_order_of_requests_loses_what_is_not_to_be_erased(
    lake: Lake, other: Lake, seed: int
) -> None:
    beside = Beside(lake, other, seed)
    async with asyncio.TaskGroup() as group:
        for path in "abcdef":
            group.create_task(beside.write(path, 30))
        group.create_task(beside.erase())
        group.create_task(beside.fold())
    shown = await Writer(lake).addresses()
    for path, address in beside.last.items():
        if (path, address) not in beside.doomed:
            assert shown.get(path) == address, path
    last = beside.writers[0]
    beside.doomed.add(("f", address := last.ids.uuid7()))
    await last.put_at("f", 1, address)
    beside.outcomes |= set(await discard(lake, *sorted(beside.doomed)))
    shown = await Writer(lake).addresses()
    committed = await Writer(lake).addresses("main@")
    for path, address in shown.items():
        if (path, address) in beside.doomed:
            assert committed[path] == address, "no uncommitted entry is left"
    assert {DISCARDED, REPLACED} <= beside.outcomes

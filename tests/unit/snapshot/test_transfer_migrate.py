"""Moving between stores: no row is lost wherever it is interrupted, and never are both stores open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pyarrow as pa
import pytest
from installation_rows import INSTALLATION, by_name, contents, sample_installation, write_rows
from tests.support.clock import ManualClock, RestlessClock, SeededIds

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import LEVEL_MAX, StoreLevel
from tarn.kv.fence import FenceState, check_open, read_fence, read_level, write_fence
from tarn.kv.journal_records import EpochRecord, epoch_row, epoch_rows
from tarn.kv.keys import InstallationKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import (
    Group,
    ListingKv,
    OutcomeUnknownError,
    Partition,
    PartitionKind,
    Predicate,
    Row,
    Versioned,
)
from tarn.snapshot.files import chunks
from tarn.snapshot.store import (
    OpenStore,
    RateLimiter,
    StoreSource,
    TransferOptions,
    compare,
    migrate,
    reopen,
)
from tarn.snapshot.store.copying import copy_into

TOKEN = next(each for each in sample_installation() if each.name.endswith("main:t3"))
IDS = SeededIds(ManualClock())


class KilledError(Exception):
    """Stands for the end of the process."""


class Death:
    """Ends the process before or after the n-th operation."""

    def __init__(self, at: int, *, before: bool) -> None:
        self._at = at
        self._before = before
        self._count = 0
        self.has_come = False

    def begin(self) -> int:
        """Numbers an operation before it is performed."""
        self._count += 1
        self._strike(self._count, before=True)
        return self._count

    def end(self, number: int) -> None:
        """Called after an operation was performed and before its caller gets the answer."""
        self._strike(number, before=False)

    def _strike(self, number: int, *, before: bool) -> None:
        if self.has_come or (number == self._at and before == self._before):
            self.has_come = True
            raise KilledError


class Mortal(MemKv):
    """A store whose user can die before or after any operation."""

    def __init__(self) -> None:
        super().__init__()
        self.death = Death(1 << 60, before=True)
        self.before_scan: Callable[[Partition], Awaitable[None]] | None = None

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        number = self.death.begin()
        found = await super().get_many(partition, keys, settle=settle)
        self.death.end(number)
        return found

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        number = self.death.begin()
        outcomes = await super().set_many(partition, groups)
        self.death.end(number)
        return outcomes

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        number = self.death.begin()
        version = await super().set_if(partition, key, value, predicate, companions=companions)
        self.death.end(number)
        return version

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        number = self.death.begin()
        await super().delete_if(partition, key, predicate, companions=companions)
        self.death.end(number)

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        number = self.death.begin()
        if self.before_scan is not None:
            await self.before_scan(partition)
        async for batch in super().scan_arrow(partition, start, end):
            yield batch
        self.death.end(number)


def place(kv: ListingKv, about: str = "mem", *, is_shared: bool = False) -> OpenStore:
    return OpenStore(kv, INSTALLATION, about, is_shared)


def options(concurrency: int = 2) -> TransferOptions:
    clock = RestlessClock()
    return TransferOptions(clock, RateLimiter(clock), concurrency)


async def filled() -> Mortal:
    kv = Mortal()
    await write_rows(kv, sample_installation())
    return kv


async def put(kv: MemKv, partition: Partition, key: bytes, value: bytes) -> None:
    assert await kv.set_many(partition, [Group(key, ((key, value),))]) == [None]


async def is_open(kv: MemKv) -> bool:
    return (await read_fence(kv, INSTALLATION))[0] is None


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarn.kv.mem._BATCH_ROWS", 8)
    monkeypatch.setattr(chunks, "TEXT_ROWS", 8)


async def test_all_of_it_arrives_and_the_source_is_closed_for_good() -> None:
    source, target = await filled(), Mortal()
    done = await migrate(place(source), place(target), IDS, options())
    rows = by_name(sample_installation())
    assert await contents(target) == rows
    assert (done.rows, done.changed) == (sum(map(len, rows.values())), 0)
    await check_open(target, INSTALLATION)
    with pytest.raises(TarnError, match="has moved elsewhere"):
        await check_open(source, INSTALLATION)


async def test_the_level_moves_with_the_data() -> None:
    source, target = await filled(), Mortal()
    level = StoreLevel(LEVEL_MAX, LEVEL_MAX)
    await write_fence(source, INSTALLATION, None, None, level=level)
    await migrate(place(source), place(target), IDS, options())
    assert await read_level(target, INSTALLATION) == level
    assert await read_level(source, INSTALLATION) == level


@pytest.mark.parametrize("before", [True, False])
async def test_killed_anywhere_it_goes_on_to_the_same_end(before: bool) -> None:
    """It is killed before and after every operation of either store: never are both open, the open one is complete,
    and the next attempt ends as if there had been no interruption."""
    rows = by_name(sample_installation())
    at = 0
    while True:
        at += 1
        source, target = await filled(), Mortal()
        death = source.death = target.death = Death(at, before=before)
        try:
            await migrate(place(source), place(target), IDS, options())
        except (KilledError, ExceptionGroup):
            assert death.has_come
        finally:
            source.death = target.death = Death(1 << 60, before=True)
        if not death.has_come:
            break
        if await is_open(target):
            # Nothing was begun, or everything is done.
            assert await is_open(source) == (await contents(target) == {})
            assert await contents(target) in ({}, rows)
            fence, _ = await read_fence(source, INSTALLATION)
            assert fence is None or fence.state is FenceState.MOVED
        if await is_open(source) or not await is_open(target):
            await migrate(place(source), place(target), IDS, options())
        assert await contents(target) == rows
        assert await is_open(target)
        assert not await is_open(source)
    assert at > 80


async def test_existing_rows_are_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = await filled(), Mortal()
    await write_rows(target, sample_installation())
    await put(target, TOKEN, b"key/raw/00003", b"torn")
    written: list[Partition] = []
    set_many = target.set_many

    async def noted(partition: Partition, groups: Sequence[Group]) -> list[TarnError | None]:
        written.append(partition)
        return await set_many(partition, groups)

    monkeypatch.setattr(target, "set_many", noted)
    await copy_into(target, INSTALLATION, StoreSource(source, INSTALLATION), options())
    assert written == [TOKEN]
    assert await contents(target) == await contents(source)


async def test_a_row_that_changes_while_it_is_copied_is_found() -> None:
    """The second pass, which reads everything again, finds it."""
    source, target = await filled(), Mortal()
    reads = 0

    async def change(partition: Partition) -> None:
        nonlocal reads
        reads += partition == TOKEN
        if reads == 2:
            await put(source, TOKEN, b"key/raw/00031", b"changed")
            await put(source, TOKEN, b"key/raw/99999", b"new")

    source.before_scan = change
    done = await migrate(place(source), place(target), IDS, options(1))
    assert done.changed == 2
    assert await contents(target) == await contents(source)
    assert dict((await contents(target))[TOKEN.name])[b"key/raw/00031"] == b"changed"


async def test_a_source_that_does_not_come_to_rest_is_not_moved() -> None:
    source, target = await filled(), Mortal()
    count = 0

    async def change(partition: Partition) -> None:
        nonlocal count
        if partition == TOKEN:
            count += 1
            await put(source, TOKEN, b"key/raw/00031", b"%d" % count)

    source.before_scan = change
    with pytest.raises(TarnError, match="the store keeps changing") as caught:
        await migrate(place(source), place(target), IDS, options())
    assert caught.value.kind is Kind.CONFLICT
    assert not await is_open(target)
    fence, _ = await read_fence(source, INSTALLATION)
    assert fence is not None
    assert fence.state is FenceState.HELD


async def test_a_row_that_goes_away_at_the_source_fails_the_transfer() -> None:
    """It must neither reappear at the target nor be deleted there."""
    source, target = await filled(), Mortal()
    reads = 0

    async def change(partition: Partition) -> None:
        nonlocal reads
        reads += partition == TOKEN
        if reads == 2:
            await source.delete_many(TOKEN, [b"key/raw/00031"])

    source.before_scan = change
    with pytest.raises(TarnError, match=r"holds key b'key/raw/00031'.*empty the target") as caught:
        await migrate(place(source), place(target), IDS, options(1))
    assert caught.value.kind is Kind.CONFLICT
    assert not await is_open(target)


async def test_a_target_that_holds_rows_is_refused_and_both_stay_as_they_are() -> None:
    source, target = await filled(), Mortal()
    other = Partition(f"{INSTALLATION}/auth", PartitionKind.REGISTER)
    await put(target, other, b"setup", b"")
    with pytest.raises(TarnError, match="only an empty store is filled") as caught:
        await migrate(place(source), place(target), IDS, options())
    assert caught.value.kind is Kind.CONFLICT
    assert await is_open(source)
    assert await is_open(target)
    assert await contents(target) == {other.name: [(b"setup", b"")]}


async def test_a_target_that_is_used_while_it_is_closed_is_refused() -> None:
    """A service of the target did not know of the fence yet; its row is seen after the wait."""
    source, target = await filled(), Mortal()

    class Clock(RestlessClock):
        async def sleep(self, seconds: float) -> None:
            await put(target, TOKEN, b"key/late", b"")
            self.advance(seconds)

    clock = Clock()
    work = TransferOptions(clock, RateLimiter(clock), 1)
    with pytest.raises(TarnError, match="only an empty store is filled"):
        await migrate(place(source), place(target, is_shared=True), IDS, work)
    assert await is_open(source)
    assert await is_open(target)


async def test_what_services_wrote_before_they_saw_the_fence_is_taken_along() -> None:
    """A shared source is not read before every lease is over."""
    source, target = await filled(), Mortal()

    class Clock(RestlessClock):
        async def sleep(self, seconds: float) -> None:
            await put(source, TOKEN, b"key/late", b"acknowledged")
            self.advance(seconds)

    clock = Clock()
    work = TransferOptions(clock, RateLimiter(clock), 1)
    done = await migrate(place(source, is_shared=True), place(target), IDS, work)
    assert done.changed == 0
    assert (b"key/late", b"acknowledged") in (await contents(target))[TOKEN.name]


async def test_an_attempt_that_was_overtaken_writes_nothing_more() -> None:
    """Two operators at once: the second takes over, the first ends in an error."""
    source, target = await filled(), Mortal()
    clock = RestlessClock()
    work = TransferOptions(clock, RateLimiter(clock), 1)

    async def overtake(partition: Partition) -> None:
        if partition == TOKEN:
            source.before_scan = None
            await migrate(place(source), place(target), IDS, work)
            await put(target, TOKEN, b"key/raw/00000", b"written by Tarn since")
            clock.advance(60)

    source.before_scan = overtake
    with pytest.raises(TarnError) as caught:
        await migrate(place(source), place(target), IDS, work)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert await is_open(target)
    found = dict((await contents(target))[TOKEN.name])
    assert found[b"key/raw/00000"] == b"written by Tarn since"


async def test_a_moved_source_is_not_moved_again() -> None:
    source = await filled()
    await migrate(place(source), place(Mortal()), IDS, options())
    with pytest.raises(TarnError, match="has moved elsewhere") as caught:
        await migrate(place(source), place(Mortal()), IDS, options())
    assert caught.value.kind is Kind.FAILED_PRECONDITION


async def test_installations_keep_their_names() -> None:
    with pytest.raises(TarnError, match=r"set installation\.id"):
        await migrate(
            place(await filled()),
            OpenStore(Mortal(), "other", "mem", is_shared=False),
            IDS,
            options(),
        )


async def test_writes_that_fail_for_a_moment_are_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = await filled(), Mortal()
    failures: list[TarnError] = [
        OutcomeUnknownError("late"),
        TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no quorum"),
        TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, "queue"),
    ]
    set_many = target.set_many

    async def flaky(partition: Partition, groups: Sequence[Group]) -> list[TarnError | None]:
        if len(failures) == 2:
            raise failures.pop()
        outcomes = await set_many(partition, groups)
        if failures:
            outcomes[0] = failures.pop()
        return outcomes

    monkeypatch.setattr(target, "set_many", flaky)
    await migrate(place(source), place(target), IDS, options(1))
    assert failures == []
    assert await contents(target) == by_name(sample_installation())


async def test_a_write_that_is_refused_fails_the_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = await filled(), Mortal()

    async def refuse(partition: Partition, groups: Sequence[Group]) -> list[TarnError | None]:
        return [TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, partition.name)] * len(groups)

    monkeypatch.setattr(target, "set_many", refuse)
    with pytest.raises(TarnError, match="moved/auth"):
        await migrate(place(source), place(target), IDS, options())


async def test_reopen_needs_force_where_data_can_be_lost() -> None:
    source, target = await filled(), Mortal()
    assert await reopen(place(source)) is None
    await migrate(place(source), place(target), IDS, options())
    with pytest.raises(TarnError, match="its data has moved elsewhere"):
        await reopen(place(source))
    fence = await reopen(place(source), force=True)
    assert fence is not None
    assert await is_open(source)


async def test_comparing_names_the_first_rows_that_differ() -> None:
    first, second = await filled(), await filled()
    source = StoreSource(first, INSTALLATION)
    same = await compare(source, second, INSTALLATION, options())
    assert (same.count, same.differences, same.progress.changed) == (0, (), 0)
    await put(second, TOKEN, b"key/raw/00007", b"other")
    await put(second, TOKEN, b"key/raw/00007x", b"more")
    await first.delete_many(TOKEN, [b"key/raw/00039"])
    await put(first, TOKEN, b"key/zzz", b"")
    await put(second, Partition(f"{INSTALLATION}/x", PartitionKind.PLAIN), b"k", b"")
    await put(first, Partition(f"{INSTALLATION}/y", PartitionKind.PLAIN), b"k", b"")
    found = await compare(StoreSource(first, INSTALLATION), second, INSTALLATION, options())
    told = [(each.partition, each.key, each.sort.value) for each in found.differences]
    assert told == [
        (TOKEN.name, b"key/raw/00007", "other value"),
        (TOKEN.name, b"key/raw/00007x", "only in the second"),
        (TOKEN.name, b"key/raw/00039", "only in the second"),
        (TOKEN.name, b"key/zzz", "only in the first"),
        (f"{INSTALLATION}/x", b"k", "only in the second"),
        (f"{INSTALLATION}/y", b"k", "only in the first"),
    ]
    assert found.count == 6


async def test_the_target_follows_the_epochs_of_the_source() -> None:
    """It goes on where the source is: also an attempt that may have begun, but not what comes later."""
    source, target = MemKv(), MemKv()
    await write_rows(source, sample_installation())
    keys = InstallationKeys(INSTALLATION)
    folders = [f"{number:010d}-{number:032x}" for number in range(8)]
    states = {
        f"{INSTALLATION}/begun": EpochRecord(7, folders[7], has_begun=True),
        f"{INSTALLATION}/attempt": EpochRecord(5, folders[5]),
        f"{INSTALLATION}/noted": EpochRecord(3, folders[3], may_follow=True),
        f"{INSTALLATION}/unknown": EpochRecord(0, "", is_unknown=True),
        INSTALLATION: EpochRecord(1, folders[1]),
    }
    for root, state in states.items():
        await epoch_row(source, keys, root).change(lambda _, state=state: state)  # type: ignore[misc]
    old = OpenStore(source, INSTALLATION, "mem://", is_shared=False)
    new = OpenStore(target, INSTALLATION, "mem://", is_shared=False)
    await migrate(old, new, IDS, options())
    assert await epoch_rows(target, keys) == {
        f"{INSTALLATION}/begun": EpochRecord(7, folders[7], may_follow=True),
        f"{INSTALLATION}/attempt": EpochRecord(4, "", may_follow=True),
        f"{INSTALLATION}/noted": states[f"{INSTALLATION}/noted"],
        f"{INSTALLATION}/unknown": states[f"{INSTALLATION}/unknown"],
        INSTALLATION: EpochRecord(0, "", may_follow=True),
    }

"""Replicas of one store take over each other's attempts to begin an epoch; another store and a rebuild do not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.clock import ManualClock, SeededIds

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId
from tarn.journal.epochs import Epoch, EpochCause, newest_epoch
from tarn.journal.following import follow
from tarn.journal.names import EPOCHS, epoch_path, epoch_store
from tarn.journal.source import find_source
from tarn.kv.journal_records import EpochRecord, decode_epoch, note_epochs
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.mem import MemKv
from tarn_graveler.journal.epochs import Epochs, JournalPlace, end_epochs

INSTALLATION = "test"
NAMESPACE = "mem://lake"
KEYS = InstallationKeys(INSTALLATION)
ROOT = KEYS.of_repository(RepositoryId("lake"), "i" * 32).root
PLACE = JournalPlace(ROOT, NAMESPACE)
SHARED = JournalPlace(INSTALLATION, "mem://shared")


class Bucket:
    """A bucket that calls something before, or instead of, a write.

    Attributes:
        blocks: what it holds.
        before: called once, before the next write of a name that has a text in it.
        refuses: a text: writes of names that have it fail.
        attempts: names and bytes of all writes that were sent.
    """

    def __init__(self) -> None:
        self.blocks = MemBlockStore(ManualClock())
        self.before: tuple[str, Callable[[], Awaitable[object]]] | None = None
        self.refuses = "nothing"
        self.attempts: list[tuple[BlockKey, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.blocks, name)

    async def put(self, key: BlockKey, body: bytes) -> None:
        if self.before is not None and self.before[0] in key.path:
            (_, call), self.before = self.before, None
            await call()
        self.attempts.append((key, bytes(body)))
        if self.refuses in key.path:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the bucket refuses it")
        await self.blocks.put(key, body)

    async def land(self) -> None:
        """Lets the last write of an epoch that was refused land, late."""
        key, body = [each for each in self.attempts if EPOCHS in each[0].path][-1]
        await self.blocks.put(key, body)

    async def newest(self) -> Epoch:
        found = await newest_epoch(self.blocks, NAMESPACE)
        assert found is not None
        return found


class Store:
    """A store of a lake, with some replicas."""

    def __init__(self, bucket: Bucket, seed: int) -> None:
        self.kv = MemKv()
        self.bucket = bucket
        self._seed = seed
        self._clock = ManualClock()

    async def fill(self, *, may_follow: bool = True) -> None:
        """Writes a record of the lake."""
        await self.kv.set_if(RepositoryKeys(ROOT).refs, b"settings", b"of the lake", None)
        if may_follow:
            await self.note_newest()

    async def note_newest(self) -> None:
        """Notes which epochs are the newest, as a fill does that knows the place of the lake."""
        note = EpochRecord(0, "", may_follow=True)
        if (found := await newest_epoch(self.bucket.blocks, NAMESPACE)) is not None:
            note = EpochRecord(found.number, found.folder, may_follow=True)
        shared = EpochRecord(0, "", may_follow=True)
        await note_epochs(self.kv, KEYS, {ROOT: note, INSTALLATION: shared})

    def replica(self) -> Epochs:
        self._seed += 1
        ids = SeededIds(self._clock, seed=self._seed)
        return Epochs(self.kv, KEYS, self.bucket, self._clock, ids)  # type: ignore[arg-type]

    async def row(self) -> EpochRecord | None:
        (found,) = await self.kv.get_many(KEYS.journal_state, [KEYS.epoch(ROOT)])
        return decode_epoch(None if found is None else found.value)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
async def store(bucket: Bucket) -> Store:
    made = Store(bucket, 10)
    await made.fill()
    return made


async def refused(epochs: Epochs, kind: Kind, text: str) -> None:
    with pytest.raises(TarnError, match=text) as raised:
        await epochs.current(PLACE)
    assert raised.value.kind is kind


async def rebuilt(bucket: Bucket, seed: int = 500) -> Epoch:
    """Begins the epoch of a rebuild."""
    source = await find_source(bucket.blocks, NAMESPACE)
    target = Store(bucket, seed)
    await target.fill()
    return await target.replica().begin(PLACE, source)


async def test_an_attempt_that_is_taken_over_keeps_its_number_and_half_of_its_folder(
    store: Store, bucket: Bucket
) -> None:
    bucket.refuses = EPOCHS
    folders = set()
    for _ in range(4):
        await refused(store.replica(), Kind.UNAVAILABLE, "refuses it")
        record = await store.row()
        assert record is not None
        assert (record.number, record.has_begun) == (1, False)
        folders.add(record.folder)
    assert len(folders) == 4
    assert len({epoch_store(each) for each in folders}) == 1
    bucket.refuses = "nothing"
    epoch = await store.replica().current(PLACE)
    assert (epoch.number, await store.row()) == (1, EpochRecord(1, epoch.folder, has_begun=True))


@pytest.mark.parametrize("at", ["base/", EPOCHS])
async def test_of_two_replicas_that_begin_an_epoch_the_first_file_counts_for_both(
    store: Store, bucket: Bucket, at: str
) -> None:
    """Also for the one that was taken over, and for the one that was overtaken."""
    first, second = store.replica(), store.replica()
    told = []

    async def take_over() -> None:
        told.append(await second.current(PLACE))

    bucket.before = (at, take_over)
    if at == EPOCHS:
        told.append(await first.current(PLACE))
    else:
        await refused(first, Kind.CONFLICT, "another replica")
    epoch = await bucket.newest()
    assert set(told) == {epoch} == {await first.current(PLACE)}
    assert await store.row() == EpochRecord(1, epoch.folder, has_begun=True)


@pytest.mark.parametrize("at", ["base/", EPOCHS])
async def test_a_late_file_of_the_attempt_before_is_taken_over(
    store: Store, bucket: Bucket, at: str
) -> None:
    """Its base is whole: the row of this store was there from before it was read until now."""
    bucket.refuses = EPOCHS
    await refused(store.replica(), Kind.UNAVAILABLE, "refuses it")
    bucket.refuses = "nothing"
    before = await store.row()
    assert before is not None
    bucket.before = (at, bucket.land)
    epoch = await store.replica().current(PLACE)
    assert epoch == await bucket.newest()
    assert epoch.folder == before.folder
    assert await store.row() == EpochRecord(1, before.folder, has_begun=True)


async def test_a_late_file_is_found_before_the_next_attempt(store: Store, bucket: Bucket) -> None:
    bucket.refuses = EPOCHS
    for _ in range(2):
        await refused(store.replica(), Kind.UNAVAILABLE, "refuses it")
    bucket.refuses = "nothing"
    key, body = next(each for each in bucket.attempts if EPOCHS in each[0].path)
    await bucket.blocks.put(key, body)  # that of the first attempt, which the row names no more
    epoch = await store.replica().current(PLACE)
    assert await store.row() == EpochRecord(1, epoch.folder, has_begun=True)
    assert [each for each in bucket.attempts if EPOCHS in each[0].path][2:] == []


async def test_a_lost_store_that_goes_on_begins_no_epoch_behind_a_rebuild(bucket: Bucket) -> None:
    """However often its replicas take over from each other, before and after."""
    old = Store(bucket, 100)
    await old.fill()
    await old.replica().current(PLACE)
    lost = Store(bucket, 200)  # restored, so it may follow
    await lost.fill()
    bucket.refuses = EPOCHS
    for _ in range(3):
        await refused(lost.replica(), Kind.UNAVAILABLE, "refuses it")
    bucket.refuses = "nothing"
    epoch = await rebuilt(bucket)
    assert (epoch.number, epoch.parent, epoch.cause) == (2, 1, EpochCause.REBUILD)
    for _ in range(3):
        await refused(lost.replica(), Kind.FAILED_PRECONDITION, "of another store")
    assert await bucket.newest() == epoch


async def test_a_store_that_was_filled_follows_no_epoch_that_came_later(bucket: Bucket) -> None:
    """Its first pass comes when it is lost already, and a rebuild counts: also with the journal off and on between."""
    old = Store(bucket, 100)
    await old.fill()
    await old.replica().current(PLACE)
    lost = Store(bucket, 200)
    await lost.fill()
    epoch = await rebuilt(bucket)
    text = "newest epoch 2, but when this store was filled.*newest one was 1.*tarn journal follow"
    await refused(lost.replica(), Kind.FAILED_PRECONDITION, text)
    await end_epochs(lost.kv, KEYS)
    await refused(lost.replica(), Kind.FAILED_PRECONDITION, text)
    assert await bucket.newest() == epoch


async def test_a_store_that_was_filled_beside_an_empty_bucket_follows_none(bucket: Bucket) -> None:
    """Of two stores that are filled from one backup, the second one to drain is refused."""
    one, two = Store(bucket, 100), Store(bucket, 200)
    await one.fill()
    await two.fill()
    epoch = await one.replica().current(PLACE)
    await refused(two.replica(), Kind.FAILED_PRECONDITION, "there was none")
    assert await bucket.newest() == epoch


async def test_a_store_follows_an_epoch_of_its_folder_only(bucket: Bucket) -> None:
    """A bucket that was put back from a copy has other epochs of the same numbers."""
    old = Store(bucket, 100)
    await old.fill()
    epoch = await old.replica().current(PLACE)
    filled = Store(bucket, 200)
    await filled.fill()
    other = EpochRecord(1, f"{epoch.folder[:11]}{'0' * 32}", may_follow=True)
    await note_epochs(filled.kv, KEYS, {ROOT: other})
    await refused(filled.replica(), Kind.FAILED_PRECONDITION, "epoch 1 was in folder")
    assert await bucket.newest() == epoch


async def test_a_store_whose_bucket_could_not_be_read_waits_for_a_person(bucket: Bucket) -> None:
    old = Store(bucket, 100)
    await old.fill()
    epoch = await old.replica().current(PLACE)
    filled = Store(bucket, 200)
    await filled.fill()
    unknown = EpochRecord(0, "", is_unknown=True)
    await note_epochs(filled.kv, KEYS, {ROOT: unknown})
    await end_epochs(filled.kv, KEYS)
    assert await filled.row() == unknown
    await refused(filled.replica(), Kind.FAILED_PRECONDITION, "the bucket could not be read")
    with pytest.raises(TarnError, match="has the newest epoch 1, not 2"):
        await follow(filled.kv, KEYS, bucket.blocks, (ROOT, NAMESPACE), 2)
    assert await filled.row() == unknown
    assert await follow(filled.kv, KEYS, bucket.blocks, (ROOT, NAMESPACE), 1) == epoch
    assert (await filled.replica().current(PLACE)).number == 2
    # Also of a bucket that has no epoch, such as a new one.
    other = Store(Bucket(), 300)
    await note_epochs(other.kv, KEYS, {ROOT: unknown})
    await other.kv.set_if(RepositoryKeys(ROOT).refs, b"settings", b"of the lake", None)
    await refused(other.replica(), Kind.FAILED_PRECONDITION, "the newest epoch 0")
    await follow(other.kv, KEYS, other.bucket.blocks, (ROOT, NAMESPACE), 0)
    assert (await other.replica().current(PLACE)).number == 1
    # Now the old store is the other one; and a store that has the newest epoch stays in it.
    await refused(old.replica(), Kind.FAILED_PRECONDITION, "of another store")
    before = await filled.row()
    await follow(filled.kv, KEYS, bucket.blocks, (ROOT, NAMESPACE), 2)
    assert await filled.row() == before


async def test_a_repository_in_a_new_store_hides_no_journal_of_a_lost_one(bucket: Bucket) -> None:
    """Services that start on an empty store, and a repository that is created anew over its old namespace."""
    old = Store(bucket, 100)
    await old.fill()
    epoch = await old.replica().current(PLACE)
    new = Store(bucket, 200)
    await new.fill(may_follow=False)
    await refused(new.replica(), Kind.FAILED_PRECONDITION, "has not continued it")
    # Nor does one of a store that has a journal of its own, unless it has noted that epoch as it was created.
    await note_epochs(new.kv, KEYS, {INSTALLATION: EpochRecord(0, "", may_follow=True)})
    await refused(new.replica(), Kind.FAILED_PRECONDITION, "has not continued it")
    assert (await bucket.newest(), await new.row()) == (epoch, None)


async def made_anew(bucket: Bucket, seed: int) -> Store:
    """Makes the repository anew in a store that has others."""
    store = Store(bucket, seed)
    await store.kv.set_if(KEYS.graveler, b"quotas/a", b"of the installation", None)
    await store.replica().note_newest(PLACE, SHARED)
    await store.fill(may_follow=False)
    return store


async def test_a_repository_that_is_made_anew_follows_the_epoch_that_was_the_newest_then(
    bucket: Bucket,
) -> None:
    """Its former life was in this store, or in another one that is lost."""
    old = Store(bucket, 100)
    await old.fill()
    epoch = await old.replica().current(PLACE)
    store = await made_anew(bucket, 200)
    assert await store.row() == EpochRecord(1, epoch.folder, may_follow=True)
    assert (await store.replica().current(PLACE)).number == 2


async def test_a_repository_that_is_made_anew_hides_no_rebuild_that_came_before_its_first_pass(
    bucket: Bucket,
) -> None:
    old = Store(bucket, 100)
    await old.fill()
    await old.replica().current(PLACE)
    lost = await made_anew(bucket, 200)
    epoch = await rebuilt(bucket)
    await refused(lost.replica(), Kind.FAILED_PRECONDITION, "the newest one was 1")
    assert await bucket.newest() == epoch


async def test_a_repository_that_is_made_anew_in_a_lost_store_follows_nothing(
    bucket: Bucket,
) -> None:
    """The journal of what belongs to no repository is of the store in its place; that one is begun first."""
    lost = Store(bucket, 100)
    await lost.kv.set_if(KEYS.graveler, b"quotas/a", b"of the installation", None)
    await lost.replica().current(SHARED)
    source = await find_source(bucket.blocks, SHARED.namespace)
    target = Store(bucket, 200)
    await target.fill()
    await target.replica().current(PLACE)
    await target.replica().begin(SHARED, source)
    await lost.replica().note_newest(PLACE, SHARED)
    assert await lost.row() is None
    await lost.fill(may_follow=False)
    await refused(lost.replica(), Kind.FAILED_PRECONDITION, "has not continued it")


async def test_a_repository_over_a_namespace_without_a_journal_notes_nothing(
    bucket: Bucket,
) -> None:
    """Nor does one whose journal is damaged: its creation is no reason to fail, and its drain says so."""
    store = await made_anew(bucket, 100)
    assert await store.row() is None
    await store.replica().current(PLACE)
    damaged = Bucket()
    await damaged.blocks.put(BlockKey(NAMESPACE, epoch_path(1)), b"damaged")
    store = await made_anew(damaged, 200)
    assert await store.row() is None
    with pytest.raises(TarnError) as raised:
        await store.replica().current(PLACE)
    assert raised.value.kind is Kind.CORRUPT


async def test_a_paused_attempt_of_a_lost_store_meets_the_file_of_the_rebuild(
    bucket: Bucket,
) -> None:
    old = Store(bucket, 100)
    await old.fill()
    await old.replica().current(PLACE)
    lost = Store(bucket, 200)
    await lost.fill()
    bucket.before = (EPOCHS, lambda: rebuilt(bucket))
    await refused(lost.replica(), Kind.FAILED_PRECONDITION, "another store continues")
    await refused(lost.replica(), Kind.FAILED_PRECONDITION, "of another store")
    assert (await bucket.newest()).cause is EpochCause.REBUILD


async def test_a_rebuild_meets_the_file_of_a_lost_store(bucket: Bucket) -> None:
    """It began before the lost store's epoch, which it has not read. The next attempt reads that."""
    lost = Store(bucket, 200)
    await lost.fill()
    first = await lost.replica().current(PLACE)
    source = await find_source(bucket.blocks, NAMESPACE)
    await end_epochs(lost.kv, KEYS)
    second = await lost.replica().current(PLACE)
    target = Store(bucket, 300)
    with pytest.raises(TarnError, match="another store continues") as raised:
        await target.replica().begin(PLACE, source)
    assert raised.value.kind is Kind.FAILED_PRECONDITION
    assert await bucket.newest() == second
    again = await find_source(bucket.blocks, NAMESPACE)
    assert (again.epoch, source.epoch) == (second, first)
    assert (await target.replica().begin(PLACE, again)).number == 3


async def test_two_stores_at_one_number_do_not_take_over_from_each_other(bucket: Bucket) -> None:
    one, two = Store(bucket, 100), Store(bucket, 200)
    await one.fill()
    await two.fill()
    bucket.refuses = EPOCHS
    await refused(two.replica(), Kind.UNAVAILABLE, "refuses it")
    bucket.refuses = "nothing"
    epoch = await one.replica().current(PLACE)
    await refused(two.replica(), Kind.FAILED_PRECONDITION, "of another store")
    assert await bucket.newest() == epoch


async def test_an_attempt_from_before_the_journal_was_off_is_not_taken_over(
    store: Store, bucket: Bucket
) -> None:
    """Its base may lack what was written meanwhile without events. It is left when a person says so."""
    bucket.refuses = EPOCHS
    await refused(store.replica(), Kind.UNAVAILABLE, "refuses it")
    await end_epochs(store.kv, KEYS)
    bucket.refuses = "nothing"
    bucket.before = (EPOCHS, bucket.land)
    await refused(store.replica(), Kind.FAILED_PRECONDITION, "another store continues")
    late = await bucket.newest()
    await refused(store.replica(), Kind.FAILED_PRECONDITION, "of another store")
    await follow(store.kv, KEYS, bucket.blocks, (ROOT, NAMESPACE), 1)
    epoch = await store.replica().current(PLACE)
    assert (late.number, epoch.number) == (1, 2)


async def test_a_repetition_of_a_rebuild_does_not_take_over_its_base(bucket: Bucket) -> None:
    """Tokens have other names in each attempt, so the base of another one names none of this one's."""
    lost = Store(bucket, 100)
    await lost.fill()
    await lost.replica().current(PLACE)
    source = await find_source(bucket.blocks, NAMESPACE)
    target = Store(bucket, 200)
    await target.fill()
    bucket.refuses = EPOCHS
    with pytest.raises(TarnError, match="refuses it"):
        await target.replica().begin(PLACE, source)
    bucket.refuses = "nothing"
    bucket.before = (EPOCHS, bucket.land)
    with pytest.raises(TarnError, match="another store continues"):
        await target.replica().begin(PLACE, source)
    again = await find_source(bucket.blocks, NAMESPACE)
    assert again.epoch == source.epoch
    epoch = await target.replica().begin(PLACE, again)
    assert (epoch.number, epoch.parent) == (3, 1)

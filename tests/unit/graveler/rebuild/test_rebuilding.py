"""A rebuild makes a lost store anew from the bucket: records, and uncommitted changes as listings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from journals import record
from lake import MAIN, Lake, Replicas, create_repository, keep_tokens, reached
from pull_records import new_pull
from rebuild_lab import INSTALLATION, NAMESPACE, RebuildLab, rebuild_lab

from tarn.core.commit import commit_path
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadChange, HeadOperation
from tarn.core.ids import BranchId, RepositoryId, TagId
from tarn.journal.epochs import Epoch, EpochCause, newest_epoch
from tarn.journal.events import table_of
from tarn.journal.names import base_path
from tarn.journal.source import JournalSource
from tarn.journal.writing import BranchPass, JournalWriter
from tarn.kv.collection_records import collection_register
from tarn.kv.journal_records import EpochRecord, note_epochs
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.mem import MemKv
from tarn.kv.paging import rows_of
from tarn.kv.port import Partition, PartitionKind
from tarn.kv.pull_records import encode_pull
from tarn.kv.records import Repository, decode_head_change, encode_branch
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.journal.epochs import Epochs, JournalPlace
from tarn_graveler.rebuild.repository import HELD_UNTIL_US
from tarn_graveler.records.branches import BranchName

DEV = BranchId("dev")


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[RebuildLab]:
    async with rebuild_lab(tmp_path) as made:
        yield made


async def work(lab: RebuildLab) -> None:
    """Commits, branches, a tag, a compaction, and uncommitted changes in several layers, also deletions."""
    lake, graveler = lab.lake, lab.lake.graveler
    await lake.put("a", 1)
    await lake.put("b", 2)
    await lake.commit("first")
    head = (await graveler.branches.fresh(lake.main)).branch.commit_id
    await graveler.tags.create(lake.repository, TagId("v1"), head)
    await graveler.branches.create(lake.branch(DEV), head)
    await graveler.branches.create(lake.branch(BranchId("gone")), head)
    await lake.put("lost", 1, BranchId("gone"))
    await graveler.branches.delete(lake.branch(BranchId("gone")), keep_tokens)
    await lake.put("c", 3)
    await lake.delete("a")
    await lake.put("in dev", 4, DEV)
    await graveler.compacting.compact(lake.branch(DEV))
    await lake.put("over it", 5, DEV)
    await lake.delete("in dev", branch=DEV)


async def test_a_rebuilt_store_shows_what_the_lost_one_showed(lab: RebuildLab) -> None:
    """Each ref, its entries and its changes, and all records; fsck finds nothing wrong."""
    await work(lab)
    await lab.drain()
    before = await lab.shown(lab.lake.graveler, lab.lake.repository)
    report = await lab.rebuild()
    assert report.is_whole, report.as_record()
    async with lab.rebuilt() as (graveler, repository):
        assert await lab.shown(graveler, repository) == before
    (done,) = report.repositories
    assert (done.branches, done.tags, done.staged) == (2, 1, 4)
    assert await lab.fsck() == []


async def test_a_rebuilt_branch_has_an_empty_token_with_a_new_name(lab: RebuildLab) -> None:
    """A cleaner of the lost store that still runs drops only tokens that no record names, and a commit that had sealed
    tokens finds them no more."""
    await work(lab)
    sealed = await BranchHandle(lab.lake.graveler.branches, lab.lake.main).seal()
    assert sealed.branch.sealed
    old = await lab.lake.staging_rows()
    await lab.drain()
    await lab.rebuild()
    async with lab.rebuilt() as (graveler, repository):
        name = replace(lab.lake.main, repository=repository)
        branch = (await graveler.branches.fresh(name)).branch
        assert branch.sealed == ()
        assert not old.name.endswith(branch.staging.token_id)
    names = [each.name async for each in lab.target.partitions("")]
    assert not [name for name in names if ":" in name]


async def test_the_lost_store_drains_no_more(lab: RebuildLab) -> None:
    """A new epoch begins, whose parent is the one that was read; a holder of the old store stops."""
    await lab.lake.put("a", 1)
    await lab.drain()
    namespace = lab.lake.repository.storage_namespace
    old = await newest_epoch(lab.replicas.blocks, namespace)
    await lab.rebuild()
    new = await newest_epoch(lab.replicas.blocks, namespace)
    assert old is not None
    assert new is not None
    assert (new.cause, new.parent, new.number) == (EpochCause.REBUILD, old.number, old.number + 1)
    drain = lab.lake.graveler.drain
    assert drain is not None
    await drain.round()
    assert drain.progress.failed_passes
    async with lab.rebuilt() as (graveler, _):
        await lab.drain(graveler)
        assert graveler.drain is not None
        assert graveler.drain.progress.failed_passes == 0


async def test_a_store_that_is_lost_again_is_rebuilt_from_the_new_epoch(lab: RebuildLab) -> None:
    """With what was acknowledged after the first rebuild, and what the first one brought back."""
    await work(lab)
    await lab.drain()
    await lab.rebuild()
    async with lab.rebuilt() as (graveler, repository):
        lake = replace(lab.lake, graveler=graveler, repository=repository)
        await lake.put("newer", 9)
        await lake.delete("c")
        await lab.drain(graveler)
        before = await lab.shown(graveler, repository)
    lab.target = MemKv()
    report = await lab.rebuild()
    assert report.is_whole, report.as_record()
    async with lab.rebuilt() as (graveler, repository):
        assert await lab.shown(graveler, repository) == before
        assert "newer" in before["main"]


async def test_an_empty_store_hides_nothing_that_a_rebuild_needs(lab: RebuildLab) -> None:
    """The store is lost, and Tarn starts on an empty one: its drain begins no epoch, and says what to do."""
    await work(lab)
    await lab.drain()
    before = await lab.shown(lab.lake.graveler, lab.lake.repository)
    epoch = await newest_epoch(lab.replicas.blocks, NAMESPACE)
    replicas = Replicas(lab.folder / "empty", MemKv(), keeps_events=True)
    replicas.clock, replicas.blocks = lab.replicas.clock, lab.replicas.blocks
    replicas.count = 40
    async with replicas.replica() as graveler:
        await create_repository(graveler, "other")
        assert graveler.drain is not None
        await lab.drain(graveler)
        assert graveler.drain.progress.failed_passes == 1
        with pytest.raises(TarnError, match="run `tarn rebuild` into an empty one"):
            await graveler.drain.before_deletion(None, lab.replicas.clock.monotonic())
    await replicas.tasks.close()
    assert await newest_epoch(lab.replicas.blocks, NAMESPACE) == epoch
    report = await lab.rebuild()
    assert report.is_whole, report.as_record()
    async with lab.rebuilt() as (graveler, repository):
        assert await lab.shown(graveler, repository) == before


async def test_the_epoch_of_what_belongs_to_no_repository_begins_first(
    lab: RebuildLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository that is made anew in the lost store looks at its own epoch, and then whether that store counts."""
    await work(lab)
    await lab.drain()
    begun: list[str] = []
    begin = Epochs.begin

    async def noted(self: Epochs, place: JournalPlace, source: JournalSource) -> Epoch:
        begun.append(place.namespace)
        return await begin(self, place, source)

    monkeypatch.setattr(Epochs, "begin", noted)
    await lab.rebuild()
    assert begun == [NAMESPACE, lab.lake.repository.storage_namespace]


async def test_a_repository_that_was_lost_begins_no_epoch(lab: RebuildLab) -> None:
    """A pass that runs when the rows are lost finds nothing, or not all of it."""
    await work(lab)
    await lab.drain()
    place = lab.lake.repository.storage_namespace
    epoch = await newest_epoch(lab.replicas.blocks, place)
    drain, kv = lab.lake.graveler.drain, lab.replicas.kv
    assert drain is not None
    keys = InstallationKeys(INSTALLATION)
    of_lake = lab.lake.graveler.repositories.keys_of(lab.lake.repository)
    assert epoch is not None
    note = EpochRecord(epoch.number, epoch.folder, may_follow=True)
    filled = {of_lake.root: note, INSTALLATION: EpochRecord(0, "", may_follow=True)}
    await kv.drop_partition(keys.journal_state)
    await note_epochs(kv, keys, filled)  # else it would not even begin
    base = of_lake.refs, of_lake.commits, of_lake.pulls, of_lake.reflog
    gate = kv.hold("get_many", RepositoryKeys.branch(MAIN), after=True)
    late = asyncio.ensure_future(drain.drain(drain.place_of(lab.lake.repository)))
    await reached(gate)
    await kv.drop_partition(keys.journal_state)
    await note_epochs(kv, keys, filled)
    gate.opened.set()
    with pytest.raises(TarnError, match="another replica begins"):
        await late
    for partition in base:
        await kv.drop_partition(partition)
    with pytest.raises(TarnError, match="run `tarn rebuild` into an empty one"):
        await drain.drain(drain.place_of(lab.lake.repository))
    assert await newest_epoch(lab.replicas.blocks, place) == epoch


async def reflogs(graveler: Graveler, repository: Repository) -> dict[str, list[HeadChange]]:
    """The reflogs that users see, and the branches that they can bring back."""
    names = [MAIN, DEV, BranchId("gone"), BranchId("again")]
    reflog = graveler.reflog
    found = {name: (await reflog.page(repository, name, "", 100)).entries for name in names}
    deleted, _ = await reflog.deleted(repository, "", "", 100)
    return found | {f"deleted: {each.branch_id}": [each.deletion] for each in deleted}


async def lives(lake: Lake) -> None:
    """Commits, and branches that are deleted and made again."""
    branches = lake.graveler.branches
    await lake.put("a", 1)
    first = await lake.commit("first")
    for name in (DEV, BranchId("gone"), BranchId("again")):
        await branches.create(lake.branch(name), first.commit_id)
    for name in (BranchId("gone"), BranchId("again")):
        await branches.delete(lake.branch(name), keep_tokens, Cause(HeadOperation.DELETE, "ann"))
    await branches.create(lake.branch(BranchId("again")), first.commit_id)
    for number in range(3):
        await lake.put("a", number)
        await lake.commit(f"{number}")


async def test_reflogs_come_back_over_two_epochs(lab: RebuildLab) -> None:
    """Those of deleted branches, and entries of former lives, too: of this epoch, and of the one before it."""
    await lives(lab.lake)
    before = await reflogs(lab.lake.graveler, lab.lake.repository)
    assert [len(before[name]) for name in (MAIN, "gone", "again")] == [5, 2, 3]
    assert "deleted: gone" in before
    await lab.drain()
    assert (await lab.rebuild()).is_whole
    async with lab.rebuilt() as (graveler, repository):
        assert await reflogs(graveler, repository) == before
        lake = replace(lab.lake, graveler=graveler, repository=repository)
        await lake.put("newer", 9)
        await lake.commit("in the second epoch")
        await graveler.branches.delete(lake.branch(DEV), keep_tokens)
        await lab.drain(graveler)
        again = await reflogs(graveler, repository)
        assert [len(again[name]) for name in (MAIN, DEV)] == [6, 2]
    lab.new_target()
    report = await lab.rebuild()
    assert report.is_whole, report.as_record()
    async with lab.rebuilt() as (graveler, repository):
        assert await reflogs(graveler, repository) == again
    assert await lab.fsck() == []


async def test_an_entry_that_is_later_than_the_rebuilt_branch_is_left_out(lab: RebuildLab) -> None:
    """The row of a deletion is written before the removal. Of a branch that is there, it would have the number of its
    next change."""
    lake, branches = lab.lake, lab.lake.graveler.branches
    await lake.put("a", 1)
    first = await lake.commit("first")
    await branches.create(lake.branch(DEV), first.commit_id)
    kv = lake.graveler.repositories.kv

    async def refused(*_: object, **__: object) -> None:
        raise TarnError(
            Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the removal does not reach the store"
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv, "delete_if", refused)
        with pytest.raises(TarnError, match="does not reach"):
            await branches.delete(lake.branch(DEV), keep_tokens)
    await lab.drain()
    assert (await lab.rebuild()).is_whole
    async with lab.rebuilt() as (graveler, repository):
        keys = graveler.repositories.keys_of(repository)
        rows = [row async for row in rows_of(graveler.repositories.kv, keys.reflog, b"", None, 100)]
        assert rows
        assert not [key for key, value in rows if decode_head_change(value).is_deletion]
        found = await reflogs(graveler, repository)
        assert [entry.operation for entry in found[DEV]] == [HeadOperation.CREATE]


async def test_a_creation_that_failed_leaves_no_entry(lab: RebuildLab) -> None:
    """Its record was pending; the next branch of the name has its number."""
    keys = lab.lake.graveler.repositories.keys_of(lab.lake.repository)
    kv, key = lab.lake.graveler.repositories.kv, RepositoryKeys.branch(DEV)
    head = (await lab.lake.graveler.branches.fresh(lab.lake.main)).branch
    entry = replace(head.outbox[-1], entry_id=b"never", incarnation=b"never")
    pending = replace(head, incarnation=b"never", outbox=(entry,))
    version = await kv.set_if(keys.refs, key, encode_branch(pending, is_pending=True), None)
    await kv.delete_if(keys.refs, key, version)
    await lab.lake.graveler.branches.create(lab.lake.branch(DEV), head.commit_id)
    before = await reflogs(lab.lake.graveler, lab.lake.repository)
    await lab.drain()
    assert (await lab.rebuild()).is_whole
    async with lab.rebuilt() as (graveler, repository):
        assert await reflogs(graveler, repository) == before
        assert len(before[DEV]) == 1


async def test_collections_are_held_and_their_counters_go_on(lab: RebuildLab) -> None:
    lake = lab.lake
    keys = lake.graveler.repositories.keys_of(lake.repository)
    register = collection_register(lake.graveler.repositories.kv, keys, "lake")
    await register.change(lambda found: replace(found, sweep_count=7, fence_count=8))
    await lab.drain()
    await lab.rebuild()
    found = await collection_register(lab.target, keys, "lake").read()
    assert found.hold_until_us == HELD_UNTIL_US
    lifetime_us = 50 * 365 * 86_400_000_000
    assert found.hold_until_us > lab.replicas.clock.now_us() + lifetime_us
    assert found.sweep_count > 7
    assert found.fence_count > 8


async def test_no_key_is_rebuilt_and_each_is_told(lab: RebuildLab) -> None:
    """Users come back; without their secrets keys open nothing, so they are named, and left out."""
    await lab.add_user("ann", "TARNKEY")
    await lab.drain()
    report = await lab.rebuild()
    assert [(each.access_key_id, each.user_id) for each in report.keys] == [("TARNKEY", "ann")]
    assert report.users == 1
    rows = await lab.target.scan(Partition("test/auth", PartitionKind.REGISTER), b"", None, 100)
    assert [key for key, _ in rows] == [b"users/ann"]


# ---- damage


async def test_a_missing_file_is_named_and_the_rest_is_rebuilt(lab: RebuildLab) -> None:
    await lab.lake.put("a", 1)
    await lab.drain()
    await lab.lake.put("b", 2)
    await lab.drain()
    await lab.lake.put("c", 3)
    await lab.drain()
    lost = (await lab.pass_files())[-2]
    await lab.remove(lab.lake.repository.storage_namespace, lost)
    report = await lab.rebuild()
    assert not report.is_whole
    (done,) = report.repositories
    assert any("is missing" in line or "are missing" in line for line in done.problems), (
        done.problems
    )
    async with lab.rebuilt() as (graveler, repository):
        shown = await lab.shown(graveler, repository)
        assert {"a", "c"} <= shown["main"].keys()


async def test_a_repository_without_its_base_is_told_and_its_name_is_free(lab: RebuildLab) -> None:
    """The others are rebuilt; the lost one can be recovered from its commits."""
    namespace = lab.lake.repository.storage_namespace
    await lab.drain()
    epoch = await newest_epoch(lab.replicas.blocks, namespace)
    assert epoch is not None
    await lab.remove(namespace, base_path(epoch.folder, 1))
    report = await lab.rebuild()
    assert [each.repository_id for each in report.lost] == ["lake"]
    assert not report.is_whole
    keys = InstallationKeys(INSTALLATION)
    wanted = [keys.repository("lake"), keys.namespace(namespace)]
    assert await lab.target.get_many(keys.graveler, wanted) == [None, None]


async def test_a_branch_whose_commit_is_gone_is_told(lab: RebuildLab) -> None:
    lake = lab.lake
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    await lake.graveler.branches.create(lake.branch(DEV), head)
    await lake.put("a", 1)
    await lake.commit("lost")
    await lab.drain()
    lost = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    await lab.remove(lake.repository.storage_namespace, commit_path(lost))
    report = await lab.rebuild()
    (done,) = report.repositories
    assert any(f"branch main is lost: its commit {lost}" in line for line in done.problems)
    assert done.branches == 1


async def test_a_record_that_cannot_be_read_is_told_and_the_rest_is_rebuilt(
    lab: RebuildLab,
) -> None:
    """A tag."""
    kv = lab.lake.graveler.repositories.kv
    refs = lab.lake.graveler.repositories.keys_of(lab.lake.repository).refs
    await kv.set_if(refs, RepositoryKeys.tag("v1"), b"\xff", None)
    await lab.lake.put("a", 1)
    await lab.drain()
    report = await lab.rebuild()
    (done,) = report.repositories
    assert [line[:22] for line in done.problems] == ["record 'tags/v1' canno"]
    async with lab.rebuilt() as (graveler, repository):
        shown = await lab.shown(graveler, repository)
        assert list(shown["main"]) == ["a"]


async def damage(lab: RebuildLab, branch: BranchId, order: int) -> None:
    """Adds a record of a branch to the journal that cannot be read."""
    blocks, namespace = lab.replicas.blocks, lab.lake.repository.storage_namespace
    epoch = await newest_epoch(blocks, namespace)
    assert epoch is not None
    row = record(f"branches/{branch}", b"\xff\xff", order)
    writer = JournalWriter(blocks, namespace, epoch, "d" * 32)
    now_us = lab.lake.clock.now_us()
    await writer.write(now_us, table_of([row]), [BranchPass(branch, order)], is_full=False)


async def test_only_a_branch_that_cannot_be_read_is_lost(lab: RebuildLab) -> None:
    """It is named, and what depends on it; all else comes back, and its name is free for its commits."""
    await work(lab)
    lake, graveler = lab.lake, lab.lake.graveler
    await lake.put("more", 1, DEV)
    await graveler.committing.commit(lake.branch(DEV), CommitRequest("ann", "of dev"))
    await lab.replicas.tasks.drain(5.0)
    head = (await graveler.branches.fresh(lake.branch(DEV))).branch.commit_id
    keys = graveler.repositories.keys_of(lake.repository)
    pull = replace(new_pull("dev"), number=7, create_id=bytes(16), change_id=bytes(16))
    await graveler.repositories.kv.set_if(
        keys.pulls, RepositoryKeys.pull(7), encode_pull(pull), None
    )
    await graveler.bucket_views.create(RepositoryId("shows"), lake.repository, DEV)
    await lab.drain()
    before = await lab.shown(graveler, lake.repository)
    await damage(lab, DEV, 1 << 60)
    report = await lab.rebuild()
    assert not report.is_whole
    assert report.lost == []
    (done,) = report.repositories
    told = [line for line in done.problems if "branch dev is lost" in line]
    assert len(told) == 1
    for part in ("cannot be read", "cannot be merged: 7", f"commit {head}"):
        assert part in told[0]
    assert "bucket shows shows branch dev, which is lost" in done.problems
    async with lab.rebuilt() as (rebuilt, repository):
        after = await lab.shown(rebuilt, repository)
        gone = {"dev", "dev: changes"}
        assert {name: before[name] for name in before.keys() - gone - {"records"}} == {
            name: after[name] for name in after.keys() - {"records"}
        }
        records = before["records"]
        kept = {name: records[name] for name in records if name != "branches/dev"}
        assert after["records"] == kept
        await rebuilt.branches.create(BranchName(repository, DEV), head)
        again = await lab.shown(rebuilt, repository)
        assert list(again["dev"]) == ["a", "b", "more", "over it"]
    assert await lab.fsck() == []


async def test_a_former_record_that_cannot_be_read_is_told(lab: RebuildLab) -> None:
    """The branch comes back as its newest record says."""
    await work(lab)
    await lab.drain()
    before = await lab.shown(lab.lake.graveler, lab.lake.repository)
    await damage(lab, DEV, 1)
    report = await lab.rebuild()
    (done,) = report.repositories
    assert [line[:42] for line in done.problems] == ["1 former records of branch dev cannot be r"]
    async with lab.rebuilt() as (graveler, repository):
        assert await lab.shown(graveler, repository) == before


async def test_without_a_journal_nothing_is_written(lab: RebuildLab) -> None:
    with pytest.raises(TarnError) as caught:
        await lab.rebuild(namespace="local://no-journal")
    assert caught.value.kind is Kind.NOT_FOUND
    assert [each async for each in lab.target.partitions("")] == []


async def test_a_store_that_holds_rows_is_refused(lab: RebuildLab) -> None:
    await lab.drain()
    keys = InstallationKeys(INSTALLATION)
    await lab.target.set_if(keys.graveler, keys.quota("user", "ann"), b"x", None)
    with pytest.raises(TarnError) as caught:
        await lab.rebuild()
    assert caught.value.kind is Kind.CONFLICT


async def test_a_commit_that_is_younger_than_the_journal_is_told(lab: RebuildLab) -> None:
    """Its note is in the bucket, and the event of its branch was never drained."""
    await lab.lake.put("a", 1)
    await lab.drain()
    lab.replicas.clock.advance(5)
    await lab.lake.commit("after the last drain")
    await lab.replicas.tasks.drain(5.0)
    head = (await lab.lake.graveler.branches.fresh(lab.lake.main)).branch.commit_id
    report = await lab.rebuild()
    (done,) = report.repositories
    assert any(head in line for line in done.younger)
    async with lab.rebuilt() as (graveler, repository):
        shown = await lab.shown(graveler, repository)
        assert list(shown["main"]) == ["a"]

"""A backup beside writers: each test plays the one interleaving in which a step of the order is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from backup_lab import INSTALLATION, BackupLab
from lake import DELAY, MAIN, Running, entry, reached

from tarn.core.branch_expiry import expiry_in
from tarn.core.collection import HOLD_SECONDS_MAX, Collection, Phase
from tarn.core.condition import UNCONDITIONAL
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import AccessKeyId, BranchId, TagId, UserId
from tarn.kv.auth_records import Credential, encode_credential
from tarn.kv.collection_records import decode_collection
from tarn.kv.drop_records import decode_drop
from tarn.kv.keys import AuthKeys, InstallationKeys, RepositoryKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Partition, PartitionKind
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.uploads.state import NewUpload

DEV = BranchId("dev")

Hook = Callable[[Partition, bytes], Awaitable[None]]


def once(is_it: Callable[[Partition, bytes], bool], work: Callable[[], Awaitable[None]]) -> Hook:
    """Does something before the first read that meets a condition."""
    is_done = False

    async def hook(partition: Partition, start: bytes) -> None:
        nonlocal is_done
        if not is_done and is_it(partition, start):
            is_done = True
            await work()

    return hook


def is_token(partition: Partition, _: bytes) -> bool:
    return ":" in partition.name


async def delete_dev(lab: BackupLab) -> None:
    graveler, name = lab.lake.graveler, lab.lake.branch(DEV)
    await graveler.branches.delete(name, partial(graveler.drops.announce, name))


async def cleaned(lab: BackupLab, kv: MemKv) -> dict[str, int | None]:
    """Reads the paths `a`, `b`, `c` of a restored main after its cleaner has dropped what it may."""
    async with lab.served(kv) as lake:
        await lake.drop_everything_removed()
        return {path: await lake.get(path) for path in "abc"}


async def test_a_token_that_is_dropped_while_it_is_read(lab: BackupLab) -> None:
    await lab.put("a", 1)

    async def commit_and_drop() -> None:
        await lab.lake.commit()
        assert await lab.lake.drop_everything_removed()

    await lab.back_up(once(is_token, commit_and_drop))
    kv = await lab.restored()
    assert await cleaned(lab, kv) == {"a": 1, "b": None, "c": None}
    assert await lab.fsck(kv) == []


async def test_a_branch_that_is_deleted_while_it_is_read(lab: BackupLab) -> None:
    head = (await lab.lake.graveler.branches.fresh(lab.lake.main)).branch.commit_id
    await lab.lake.graveler.branches.create(lab.lake.branch(DEV), head)
    await lab.put("a", 1, DEV)

    async def delete() -> None:
        await delete_dev(lab)
        assert await lab.lake.drop_everything_removed()

    def is_dev(partition: Partition, _: bytes) -> bool:
        return "/dev:" in partition.name

    manifest = await lab.back_up(once(is_dev, delete))
    assert manifest.repositories[0].branches == 1
    assert await lab.fsck(await lab.restored()) == []


async def test_a_branch_that_always_changes_ends_the_backup(lab: BackupLab) -> None:
    await lab.put("a", 1)

    async def hook(partition: Partition, start: bytes) -> None:
        if is_token(partition, start) and start == b"":
            await lab.put("a", lab.puts)
            await lab.lake.commit()

    with pytest.raises(TarnError) as caught:
        await lab.back_up(hook)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert [name async for name in lab.target.files("backups")] == []


async def test_an_upload_that_completes_between_the_reads_of_its_token(lab: BackupLab) -> None:
    """Its record names the token already. A note without the row would say that the object was overwritten."""
    uploads, lake, running = lab.lake.graveler.uploads, lab.lake, Running()
    new = NewUpload(MAIN, "a", b"", "ann", "", is_full_object_checksum=False)
    made = await uploads.create(lake.repository, new)
    await lab.put("warm", 1)
    packed = entry(7, made.upload_id)
    claim = await uploads.begin_complete(lake.repository, made.upload_id, bytes(32))
    gate = lake.kv.hold("set_many", lake.row_key("a"), after=False)
    completing = running.start(
        uploads.finish_complete(lake.repository, made.upload_id, claim.op_id, packed, UNCONDITIONAL)
    )
    await reached(gate)
    reads: list[bytes] = []

    async def hook(partition: Partition, start: bytes) -> None:
        if is_token(partition, start):
            reads.append(start)
            if len(reads) == 2:
                gate.open()
                await completing

    await lab.back_up(hook)
    assert len(reads) == 2
    async with lab.served(await lab.restored()) as again:
        again.clock.advance(301)
        uploads = again.graveler.uploads
        claim = await uploads.begin_complete(again.repository, made.upload_id, bytes(32))
        await uploads.finish_complete(
            again.repository, made.upload_id, claim.op_id, packed, UNCONDITIONAL
        )
        assert await again.get("a") == 7


async def test_an_upload_that_is_complete_has_its_object(lab: BackupLab) -> None:
    """Uploads are read before rows: a repeated completion of the restored upload must not answer without the object."""
    uploads, lake = lab.lake.graveler.uploads, lab.lake
    new = NewUpload(MAIN, "a", b"", "ann", "", is_full_object_checksum=False)
    made = await uploads.create(lake.repository, new)
    await lab.put("warm", 1)
    packed = entry(7, made.upload_id)

    async def complete() -> None:
        claim = await uploads.begin_complete(lake.repository, made.upload_id, bytes(32))
        await uploads.finish_complete(
            lake.repository, made.upload_id, claim.op_id, packed, UNCONDITIONAL
        )

    # Whichever of the two is read first: the completion comes before the second one.
    places: list[str] = []

    async def hook(partition: Partition, start: bytes) -> None:
        place = "token" if is_token(partition, start) else partition.name.split("/")[-2]
        if place in ("token", "uploads") and place not in places:
            places.append(place)
            if len(places) == 2:
                await complete()

    await lab.back_up(hook)
    async with lab.served(await lab.restored()) as again:
        again.clock.advance(301)
        uploads = again.graveler.uploads
        claim = await uploads.begin_complete(again.repository, made.upload_id, bytes(32))
        if claim.op_id:
            await uploads.finish_complete(
                again.repository, made.upload_id, claim.op_id, packed, UNCONDITIONAL
            )
        assert await again.get("a") == 7


async def drops(kv: MemKv) -> list[str]:
    """Returns the partitions that a store's list of drops names, but for the expiry of reflogs."""
    found = []
    async for listed in kv.partitions(f"{INSTALLATION}/cleanup/"):
        for _, value in await kv.scan(Partition(listed.name, listed.kind), b"", None, 100):
            drop = decode_drop(value)
            found += [drop.partition.name] if drop.reflog is None else []
    return found


async def test_a_registered_drop_of_a_token_that_the_backup_needs(lab: BackupLab) -> None:
    """The list of drops may be newer than the branch; it must not doom the branch's rows."""
    await lab.put("a", 1)

    async def commit_and_look() -> None:
        await lab.lake.commit()
        lab.lake.clock.advance(DELAY + 1)
        await lab.lake.graveler.cleaner.drop_due()

    await commit_and_look()
    assert await drops(lab.kv)
    await lab.put("a", 2)
    # After the branch was read, before anything else is.
    await lab.back_up(once(lambda _, start: start == RepositoryKeys.tag(""), commit_and_look))
    kv = await lab.restored()
    assert await drops(kv) == []
    assert await cleaned(lab, kv) == {"a": 2, "b": None, "c": None}
    assert await lab.fsck(kv) == []


async def test_commits_after_the_branch_was_read_leave_no_entries_in_its_reflog(
    lab: BackupLab,
) -> None:
    async def commit_twice() -> None:
        for number in (2, 3):
            await lab.put("a", number)
            await lab.lake.commit(f"later {number}")

    await lab.put("a", 1)
    await lab.lake.commit("first")
    await lab.back_up(once(lambda _, start: start == RepositoryKeys.tag(""), commit_twice))
    async with lab.served(await lab.restored()) as lake:
        for number in (4, 5):
            await lake.put("a", number)
            await lake.commit(f"after {number}")
        found = await lake.graveler.reflog.page(lake.repository, MAIN, "", 100)
        entries = found.entries
        sequences = [each.sequence for each in entries]
        assert sequences == sorted(set(sequences), reverse=True)
        heads = [each.new_commit_id for each in entries]
        assert [each.old_commit_id for each in entries[:-1]] == heads[1:]


async def test_a_branch_that_is_created_later_leaves_no_entries(lab: BackupLab) -> None:
    async def create() -> None:
        branches = lab.lake.graveler.branches
        head = (await branches.fresh(lab.lake.main)).branch.commit_id
        await branches.create(lab.lake.branch(DEV), head)
        await lab.put("a", 1, DEV)
        await lab.lake.graveler.committing.commit(lab.lake.branch(DEV), CommitRequest("ann", "x"))

    await lab.back_up(once(lambda _, start: start == RepositoryKeys.tag(""), create))
    kv = await lab.restored()
    rows = await kv.scan(lab.keys.reflog, RepositoryKeys.reflog_rows(DEV), None, 10)
    assert [key for key, _ in rows if b"/dev/" in key] == []


@pytest.mark.parametrize(("during", "missed_count"), [(1, 1), (1, 5), (2, 1)])
async def test_a_commit_comes_with_its_parents(
    lab: BackupLab,
    during: int,
    missed_count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commits are made while they are read. Their ids are in no order, so ancestors may be behind the scan."""
    made: list[str] = []

    async def commit() -> None:
        for number in range(6):
            await lab.put("a", number + 1)
            made.append((await lab.lake.commit(f"{number}")).commit_id)

    reads = 0
    real = lab.kv.scan_arrow

    async def scan_arrow(
        partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        nonlocal reads
        # The commits that are made meanwhile scan the erased addresses, in the same partition.
        is_backup = partition == lab.keys.commits and not start.startswith(RepositoryKeys.ERASED)
        reads += is_backup
        is_now = is_backup and reads == during
        if is_now:
            await commit()
        # The scan goes on behind the smallest new ids, so it misses these.
        missed = sorted(made[:-1])[:missed_count] if is_now else []
        keys = pa.array([RepositoryKeys.commit(each) for each in missed], pa.binary())
        async for batch in real(partition, start, end):
            yield batch.filter(pc.invert(pc.is_in(batch.column(0), keys)))

    monkeypatch.setattr(lab.kv, "scan_arrow", scan_arrow)
    await lab.back_up()
    assert reads == 2
    assert await lab.fsck(await lab.restored()) == []


async def test_a_repository_that_is_deleted_meanwhile_is_left_out(lab: BackupLab) -> None:
    async def delete() -> None:
        repository = await lab.lake.graveler.repositories.mark_deleted(lab.lake.repository)
        await lab.lake.graveler.repositories.close(repository)

    manifest = await lab.back_up(once(is_token, delete))
    assert manifest.repositories == ()
    kv = await lab.restored()
    assert await lab.fsck(kv) == []
    names = [each.name async for each in kv.partitions(f"{INSTALLATION}/lake")]
    assert names == []


async def test_a_tag_that_takes_the_name_of_a_branch_meanwhile_is_left_out(lab: BackupLab) -> None:
    graveler = lab.lake.graveler
    head = (await graveler.branches.fresh(lab.lake.main)).branch.commit_id
    await graveler.branches.create(lab.lake.branch(DEV), head)

    async def replace_it() -> None:
        await delete_dev(lab)
        await graveler.tags.create(lab.lake.repository, TagId("dev"), head)

    await lab.back_up(once(lambda _, start: start == RepositoryKeys.tag(""), replace_it))
    assert await lab.fsck(await lab.restored()) == []


async def test_collections_are_held_meanwhile_and_after_a_restore(lab: BackupLab) -> None:
    collections = lab.lake.graveler.collections
    held: list[int] = []

    async def look(_: Partition, __: bytes) -> None:
        held.append((await collections.read(lab.lake.repository)).hold_until_us)

    await lab.back_up(look)
    now_us = lab.lake.clock.now_us()
    assert max(held) > now_us
    assert (await collections.read(lab.lake.repository)).hold_until_us == 0
    kv = await lab.restored()
    (found,) = await kv.get_many(lab.keys.refs, [RepositoryKeys.COLLECTION])
    assert found is not None
    assert decode_collection(found.value).hold_until_us == now_us + HOLD_SECONDS_MAX * 1_000_000


async def test_a_restore_ends_the_run_and_the_mark_of_a_collection(lab: BackupLab) -> None:
    """A mark that was made before a restore must not be swept after it. The count of batches never restarts."""
    running = Collection(
        phase=Phase.MARK,
        run_id="a" * 32,
        lease_until_us=1 << 60,
        mark_run_id="b" * 32,
        fence_count=7,
    )

    def begin(_: Collection) -> Collection:
        return running

    await lab.lake.graveler.collections.change(lab.lake.repository, begin)
    await lab.back_up()
    kv = await lab.restored()
    (found,) = await kv.get_many(lab.keys.refs, [RepositoryKeys.COLLECTION])
    assert found is not None
    assert replace(decode_collection(found.value), hold_until_us=0) == Collection(fence_count=7)


async def test_partitions_of_an_unknown_kind_are_refused(lab: BackupLab) -> None:
    unknown = Partition(f"{INSTALLATION}/novel", PartitionKind.PLAIN)
    await lab.kv.set_many(unknown, [Group(b"k", ((b"k", b"v"),))])
    with pytest.raises(TarnError, match="does not know") as caught:
        await lab.back_up()
    assert caught.value.kind is Kind.UNIMPLEMENTED


async def test_the_journal_of_reads_is_known_and_not_saved(lab: BackupLab) -> None:
    reads = InstallationKeys(INSTALLATION).reads
    assert await lab.kv.set_many(reads, [Group(b"k", ((b"k", b"v"),))]) == [None]
    await lab.back_up()
    assert await (await lab.restored()).scan(reads, b"", None, 1) == []


async def test_users_are_saved_and_the_key_of_page_tokens_is_not(lab: BackupLab) -> None:
    auth, shared = AuthKeys(INSTALLATION), InstallationKeys(INSTALLATION)
    await lab.kv.set_many(
        auth.partition,
        [
            Group(key, ((key, value),))
            for key, value in ((auth.user("ann"), b"u"), (auth.secrets(), b"k1 k2"))
        ],
    )
    await lab.kv.set_many(shared.graveler, [Group(b"", ((shared.PAGE_KEY, b"secret"),))])
    manifest = await lab.back_up()
    assert manifest.encryption_key_ids == ("k1", "k2")
    kv = await lab.restored()
    assert [key for key, _ in await kv.scan(auth.partition, b"", None, 9)] == [
        b"secrets",
        b"users/ann",
    ]
    assert await kv.get_many(shared.graveler, [shared.PAGE_KEY]) == [None]


async def test_the_end_of_a_branch_is_kept(lab: BackupLab) -> None:
    """Also the look that the list of drops names; without it no replica would delete the branch."""
    head = (await lab.lake.graveler.branches.fresh(lab.lake.main)).branch.commit_id
    name, day = lab.lake.branch(DEV), 86_400
    await lab.lake.graveler.branches.create(name, head)
    await lab.lake.graveler.expiring.set(
        name, expiry_in(10 * day * 1_000_000, lab.lake.clock.now_us())
    )
    await lab.back_up()
    async with lab.served(await lab.restored()) as again:
        expiry = (await again.graveler.branches.fresh(again.branch(DEV))).branch.expiry
        assert expiry is not None
        await again.graveler.cleaner.drop_due()
        again.clock.advance(11 * day)
        await again.graveler.cleaner.drop_due()
        assert [each async for each, _ in again.graveler.iterators.branches(again.repository)] == [
            MAIN
        ]


async def test_a_key_pair_that_is_deleted_meanwhile_keeps_its_row_by_owner(lab: BackupLab) -> None:
    """Without it no listing would show the key, and no deletion of its user would end it."""
    auth, uid, access_key_id = AuthKeys(INSTALLATION), b"u" * 16, AccessKeyId("AKIATEST")
    pair = Credential(access_key_id, UserId("ann"), uid, "", 1, b"sealed", "k1")
    key, owned = auth.credential(access_key_id), auth.owned(uid, access_key_id)
    await lab.kv.set_if(auth.partition, key, encode_credential(pair), None)
    await lab.kv.set_if(auth.partition, owned, auth.OWNED_VALUE, None)

    async def delete() -> None:
        for each in (key, owned):
            (found,) = await lab.kv.get_many(auth.partition, [each])
            assert found is not None
            await lab.kv.delete_if(auth.partition, each, found.predicate)

    def behind_the_key_pairs(partition: Partition, start: bytes) -> bool:
        return partition == auth.partition and start > key

    await lab.back_up(once(behind_the_key_pairs, delete))
    kv = await lab.restored()
    assert [key for key, _ in await kv.scan(auth.partition, b"", None, 9)] == [key, owned]

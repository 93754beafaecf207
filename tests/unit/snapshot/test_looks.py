"""The looks of a backup: a record that needs one has it after the restore, whatever happened beside the backup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from backup_lab import INSTALLATION, BackupLab
from lake import MAIN, Lake

from tarn.core.branch_expiry import expiry_in
from tarn.core.ids import BranchId, RepositoryId
from tarn.kv.drop_records import Drop, decode_drop
from tarn.kv.keys import AuthKeys, InstallationKeys, RepositoryKeys, after_prefix
from tarn.kv.mem import MemKv
from tarn.kv.port import Partition, Row

DEV = BranchId("dev")
DAY = 86_400
KEYS = InstallationKeys(INSTALLATION)

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


def after_the_users(partition: Partition, _: bytes) -> bool:
    return partition == AuthKeys(INSTALLATION).partition


def after_the_branches(_: Partition, start: bytes) -> bool:
    return start == RepositoryKeys.tag("")


def after_the_reflogs(partition: Partition, _: bytes) -> bool:
    return partition.name.endswith("/changed")


async def create_dev(lab: BackupLab) -> None:
    graveler = lab.lake.graveler
    head = (await graveler.branches.fresh(lab.lake.main)).branch.commit_id
    await graveler.branches.create(lab.lake.branch(DEV), head)


async def set_end(lab: BackupLab, seconds: int) -> None:
    expiry = expiry_in(seconds * 1_000_000, lab.lake.clock.now_us())
    await lab.lake.graveler.expiring.set(lab.lake.branch(DEV), expiry)


async def drop_hourly(lake: Lake, hours: int) -> None:
    """Passes of the cleaner, so that hours of the list that are over are dropped."""
    for _ in range(hours):
        lake.clock.advance(3600)
        await lake.graveler.cleaner.drop_due()


async def looks(kv: MemKv) -> list[Drop]:
    found = []
    async for listed in kv.partitions(f"{KEYS.cleanup.name}/"):
        for _, value in await kv.scan(Partition(listed.name, listed.kind), b"", None, 1000):
            found.append(decode_drop(value))
    return found


def of_dev(look: Drop) -> bool:
    return look.reflog is not None and look.reflog.branch_id == DEV


async def branches_later(lab: BackupLab, days: int) -> list[BranchId]:
    """The branches of a restored store after some days of its cleaner."""
    async with lab.served(await lab.restored()) as again:
        dev = (await again.graveler.branches.fresh(again.branch(DEV))).branch
        assert dev.expiry is not None, "the backup has the record with its end"
        await drop_hourly(again, days * 24)
        return [each async for each, _ in again.graveler.iterators.branches(again.repository)]


async def test_an_end_that_is_set_beside_a_backup_is_kept(lab: BackupLab) -> None:
    await create_dev(lab)
    await lab.back_up(once(after_the_users, lambda: set_end(lab, 10 * DAY)))
    assert await branches_later(lab, 30) == [MAIN]


async def test_a_branch_that_is_deleted_at_its_end_while_a_backup_is_made(lab: BackupLab) -> None:
    """The backup has the branch; the look is done, and its hour is dropped, before the list is read."""
    await create_dev(lab)
    await set_end(lab, 60)
    await drop_hourly(lab.lake, 23)

    async def end() -> None:
        await drop_hourly(lab.lake, 3)
        assert not [each for each in await looks(lab.kv) if each.branch is not None]

    await lab.back_up(once(after_the_branches, end))
    assert await branches_later(lab, 4) == [MAIN]


async def test_a_reflog_whose_last_rows_expire_while_a_backup_is_made(lab: BackupLab) -> None:
    """The rows are in the backup, and no change of the deleted branch will ever register them again."""
    graveler, name = lab.lake.graveler, lab.lake.branch(DEV)
    await create_dev(lab)
    await graveler.branches.delete(name, partial(graveler.drops.announce, name))
    prefix = RepositoryKeys.reflog_rows(DEV)

    async def rows_of(lake: Lake) -> list[Row]:
        return await lake.kv.scan(lab.keys.reflog, prefix, after_prefix(prefix), 100)

    async def expire() -> None:
        await drop_hourly(lab.lake, 20)
        assert await rows_of(lab.lake) == []

    # At the end of the day on which the entries expire.
    (due_us,) = {each.drop_time_us for each in await looks(lab.kv) if of_dev(each)}
    lab.lake.clock.advance((due_us - lab.lake.clock.now_us()) / 1_000_000 - 10 * 3600)
    await lab.lake.graveler.cleaner.drop_due()
    assert await rows_of(lab.lake)
    await lab.back_up(once(after_the_reflogs, expire))
    async with lab.served(await lab.restored()) as again:
        assert await rows_of(again)
        await drop_hourly(again, 24)
        assert await rows_of(again) == []


async def test_looks_that_came_due_before_the_restore_are_not_missed(lab: BackupLab) -> None:
    """No cleaner has ever made a pass, so there is no checkpoint. The restore comes weeks later."""
    await create_dev(lab)
    await set_end(lab, 60)
    assert await lab.kv.get_many(KEYS.cleanup, [KEYS.DONE_BEFORE]) == [None]
    await lab.back_up()
    lab.lake.clock.advance(30 * DAY)
    assert await branches_later(lab, 1) == [MAIN]


async def test_a_checkpoint_of_a_wrong_clock_does_not_hide_looks(lab: BackupLab) -> None:
    await create_dev(lab)
    await set_end(lab, 60)
    future = b"%d" % (lab.lake.clock.now_us() + 10 * DAY * 1_000_000)
    await lab.kv.set_if(KEYS.cleanup, KEYS.DONE_BEFORE, future, None)
    await lab.back_up()
    lab.lake.clock.advance(30 * DAY)
    assert await branches_later(lab, 1) == [MAIN]


async def test_looks_that_are_registered_are_saved_once_and_no_other_is_made(
    lab: BackupLab,
) -> None:
    await create_dev(lab)
    await set_end(lab, 10 * DAY)
    await lab.put("a", 1)
    await lab.lake.commit()
    wanted = [each for each in await looks(lab.kv) if each.owner is None]
    assert {each.branch is None for each in wanted} == {True, False}
    await lab.back_up()
    found = await looks(await lab.restored())
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    owner = next(each.branch for each in found if each.branch is not None)
    assert (owner.branch_id, owner.repository_id) == (DEV, RepositoryId("lake"))

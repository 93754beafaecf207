"""The rule `keep_read_days`: what was read stays, and so does what may have been read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from collector_lab import NO_LIMITS, CollectorLab, collector_lab
from expiring_lab import commit, forget_reflog, set_rules

from tarn.block.port import BlockKey
from tarn.collection.expiry_preview import preview_expiry
from tarn.collection.progress import CollectionProgress
from tarn.core.clock import DAY_US
from tarn.core.entry import unpack
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import CommitId, physical_path
from tarn.kv.fence import fence_partition
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Group
from tarn.kv.read_records import ON_KEY, Session, encode_on
from tarn_graveler.reads.journal import ReadJournal, end_journal

KEYS = InstallationKeys("test")
READ = '{"branches": [{"match": "*", "keep_commits": 1}], "objects": {"keep_read_days": 10}}'


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[CollectorLab]:
    async with collector_lab(tmp_path, keeps_reads=True) as lab:
        await journal(lab).begin()
        yield lab


def journal(lab: CollectorLab) -> ReadJournal:
    found = lab.service.replicas.made[0].journal
    assert found is not None
    return found


async def pass_days(lab: CollectorLab, days: float) -> None:
    await lab.pass_days(days)
    await journal(lab).flush()


async def collect(lab: CollectorLab) -> None:
    await lab.collector.mark("lake")
    await pass_days(lab, 1)
    await lab.collector.sweep("lake", NO_LIMITS)


async def read(lab: CollectorLab, ref: str, path: str) -> str | Reason:
    """Reads an object; returns its block, or why it cannot be read."""
    try:
        found = await lab.service.graveler.lookup(lab.admin, "lake", ref, path)
    except TarnError as error:
        return error.reason
    return physical_path(unpack(found.entry).address)


async def two_versions(lab: CollectorLab) -> tuple[CommitId, str, str]:
    """Returns a commit that a mark lets expire, and its two objects. The first was read today, the other never."""
    _, b = await commit(lab, "main", "b")
    old, a = await commit(lab, "main", "a")
    for path in ("a", "b", "a"):
        await commit(lab, "main", path)
    await forget_reflog(lab)
    await pass_days(lab, 12)
    assert await read(lab, old, "a") == a
    await journal(lab).flush()
    await set_rules(lab, READ)
    return old, a, b


async def test_what_was_read_stays_until_nobody_has_read_it_for_days(lab: CollectorLab) -> None:
    old, a, b = await two_versions(lab)
    await collect(lab)
    assert (a in await lab.blocks(), b in await lab.blocks()) == (True, False)
    assert await read(lab, old, "b") is Reason.EXPIRED_COMMIT
    await pass_days(lab, 8)
    assert await read(lab, old, "a") == a
    await journal(lab).flush()
    await pass_days(lab, 8)
    await collect(lab)
    assert a in await lab.blocks(), "it was read nine days ago"
    await pass_days(lab, 4)
    await collect(lab)
    assert a not in await lab.blocks()
    assert await read(lab, old, "a") is Reason.EXPIRED_COMMIT


async def test_a_read_after_the_mark_is_seen_by_the_sweep(lab: CollectorLab) -> None:
    old, _, b = await two_versions(lab)
    await lab.collector.mark("lake")
    assert await read(lab, old, "b") == b
    await pass_days(lab, 1)
    await lab.collector.sweep("lake", NO_LIMITS)
    assert b in await lab.blocks()


async def set_row(lab: CollectorLab, key: bytes, value: bytes) -> None:
    group = Group(key, ((key, value),))
    partition = fence_partition("test") if key == ON_KEY else KEYS.reads
    assert await lab.service.replicas.kv.set_many(partition, [group]) == [None]


def days_ago(lab: CollectorLab, days: float) -> int:
    return lab.service.clock.now_us() - int(days * DAY_US)


async def no_doubt(_: CollectorLab) -> None:
    pass


async def off(lab: CollectorLab) -> None:
    await end_journal(lab.service.replicas.kv, KEYS)


async def on_for_nine_days(lab: CollectorLab) -> None:
    await set_row(lab, ON_KEY, encode_on(days_ago(lab, 9)))


async def killed_three_days_ago(lab: CollectorLab) -> None:
    await set_row(lab, (killed := Session("f" * 32, days_ago(lab, 3))).key, killed.encode())


async def killed_before(lab: CollectorLab) -> None:
    await set_row(lab, (killed := Session("f" * 32, days_ago(lab, 12))).key, killed.encode())


async def lost_three_days_ago(lab: CollectorLab) -> None:
    ended = Session("f" * 32, days_ago(lab, 3), days_ago(lab, 3), is_ended=True)
    await set_row(lab, ended.key, ended.encode())


async def a_file_is_missing(lab: CollectorLab) -> None:
    await lab.service.replicas.blocks.delete_many(lab.namespace, await files(lab))


async def a_file_is_damaged(lab: CollectorLab) -> None:
    (path,) = await files(lab)
    key = BlockKey(lab.namespace, path)
    body = bytearray(await lab.service.replicas.blocks.read(key))
    body = body[:-1]
    await a_file_is_missing(lab)
    await lab.service.replicas.blocks.put(key, body)


async def files(lab: CollectorLab) -> list[str]:
    return sorted(await lab.blocks("_tarn/reads/"))


@pytest.mark.parametrize(
    ("doubt", "stays"),
    [
        (no_doubt, False),
        (killed_before, False),
        (off, True),
        (on_for_nine_days, True),
        (killed_three_days_ago, True),
        (lost_three_days_ago, True),
        (a_file_is_missing, True),
        (a_file_is_damaged, True),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_every_doubt_counts_as_a_read(
    lab: CollectorLab, doubt: Callable[[CollectorLab], Awaitable[None]], *, stays: bool
) -> None:
    _, a, b = await two_versions(lab)
    await doubt(lab)
    arguments = (lab.collector.client, lambda: lab.admin, "lake", lab.collector.blocks)
    now_us = lab.service.clock.now_us()
    told = await preview_expiry(*arguments, now_us, CollectionProgress())
    is_file = doubt in (a_file_is_missing, a_file_is_damaged)  # a preview reads no files
    assert told.keeps_all_objects == (stays and not is_file)
    assert bool(told.reads_known_since_us) == (doubt is not off)
    await collect(lab)
    assert a in await lab.blocks()
    assert (b in await lab.blocks()) == stays

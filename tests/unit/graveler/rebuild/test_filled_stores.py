"""A store that is filled from a backup follows the epochs that were the newest then, and hides no later ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from rebuild_lab import INSTALLATION, NAMESPACE, RebuildLab, rebuild_lab
from tests.support.clock import SeededIds

from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.epochs import newest_epoch
from tarn.journal.following import follow, journal_of, note_newest
from tarn.kv.journal_records import EpochRecord, epoch_rows
from tarn.kv.keys import InstallationKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import ListingKv
from tarn.snapshot.files.manifest import Scope
from tarn.snapshot.files.stored import open_snapshot
from tarn.snapshot.files.target import FolderTarget
from tarn.snapshot.installation.creating import create
from tarn.snapshot.installation.restoring import restore
from tarn.snapshot.store import OpenStore, RateLimiter, TransferOptions
from tarn_graveler.assembly import Graveler

KEYS = InstallationKeys(INSTALLATION)


class Unread:
    """A bucket in which some namespaces cannot be read."""

    def __init__(self, blocks: Any, *namespaces: str) -> None:
        self._blocks = blocks
        self._namespaces = namespaces

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blocks, name)

    async def list_page(self, namespace: str, *values: Any) -> Any:
        if namespace in self._namespaces:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the bucket does not answer")
        return await self._blocks.list_page(namespace, *values)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[RebuildLab]:
    async with rebuild_lab(tmp_path) as made:
        await made.lake.put("a", 1)
        await made.drain()
        yield made


async def filled(lab: RebuildLab, blocks: Any = None) -> MemKv:
    """Makes a backup, and fills a store with it, as `tarn backup restore` does."""
    clock, target = lab.replicas.clock, FolderTarget(lab.folder / "backups")
    ids, options = SeededIds(clock), TransferOptions(clock, RateLimiter(clock))
    behind = cast("ListingKv", lab.replicas.kv._kv)
    await create(behind, INSTALLATION, target, ids, options)
    kv = MemKv()

    async def notes(behind: ListingKv) -> None:
        await note_newest(behind, KEYS, blocks or lab.replicas.blocks, NAMESPACE)

    place = OpenStore(kv, INSTALLATION, "mem://", is_shared=False)
    snapshot = await open_snapshot(target, Scope.INSTALLATION)
    await restore(snapshot, place, ids, options, before_opening=notes)
    return kv


@asynccontextmanager
async def replica_of(lab: RebuildLab, kv: MemKv) -> AsyncIterator[Graveler]:
    lab.target, before = kv, lab.target
    lab.attempts += 1
    async with lab.rebuilt() as (graveler, _):
        lab.target = before
        yield graveler


async def passes(lab: RebuildLab, kv: MemKv) -> int:
    """Makes a round over a store; returns how many journals were not drained."""
    async with replica_of(lab, kv) as graveler:
        await lab.drain(graveler)
        assert graveler.drain is not None
        return graveler.drain.progress.failed_passes


async def test_a_filled_store_begins_its_epochs_after_those_that_were_the_newest(
    lab: RebuildLab,
) -> None:
    kv = await filled(lab)
    noted = await epoch_rows(kv, KEYS)
    root, namespace = journal_of(KEYS, lab.lake.repository)
    assert [*noted] == [root, INSTALLATION]
    for place, at in ((namespace, root), (NAMESPACE, INSTALLATION)):
        newest = await newest_epoch(lab.replicas.blocks, place)
        assert newest is not None
        assert noted[at] == EpochRecord(newest.number, newest.folder, may_follow=True)
    assert await passes(lab, kv) == 0
    newest = await newest_epoch(lab.replicas.blocks, namespace)
    assert newest is not None
    assert newest.number == 2


async def test_a_filled_store_that_is_lost_before_its_first_pass_hides_no_rebuild(
    lab: RebuildLab,
) -> None:
    """Nor does the older one of two that were filled."""
    lost, older = await filled(lab), await filled(lab)
    await lab.lake.put("b", 2)
    await lab.drain()
    report = await lab.rebuild()
    assert report.is_whole, report.as_record()
    _, namespace = journal_of(KEYS, lab.lake.repository)
    newest = await newest_epoch(lab.replicas.blocks, namespace)
    assert await passes(lab, lost) == await passes(lab, older) == 2
    assert await newest_epoch(lab.replicas.blocks, namespace) == newest
    assert await passes(lab, lab.target) == 0


async def test_a_repository_whose_bucket_cannot_be_read_waits_for_a_person(lab: RebuildLab) -> None:
    """The others are drained. If the journal of the installation cannot be read, the store stays closed."""
    journal = journal_of(KEYS, lab.lake.repository)
    with pytest.raises(TarnError, match="does not answer"):
        await filled(lab, Unread(lab.replicas.blocks, NAMESPACE))
    kv = await filled(lab, Unread(lab.replicas.blocks, journal[1]))
    noted = await epoch_rows(kv, KEYS)
    assert noted[journal[0]] == EpochRecord(0, "", is_unknown=True)
    assert noted[INSTALLATION].may_follow
    assert await passes(lab, kv) == 1
    await follow(kv, KEYS, lab.replicas.blocks, journal, 1)
    assert await passes(lab, kv) == 0

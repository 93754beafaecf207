"""Runs that are killed at each call of the block store, and resumed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from collected_lake import MARK, CollectedLake

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockInfo, BlockKey
from tarn.collection.block_names import BlockKind
from tarn.collection.outcomes import (
    Outcome,
    OutcomeLog,
    outcome_files,
    read_outcomes,
    read_report,
)
from tarn.collection.quarantine import read_manifest
from tarn.collection.references import RootBatch
from tarn.collection.sweeping import SweepOptions
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import physical_path


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


ALL = SweepOptions(is_confirmed=True, batch_blocks=2)


class KilledError(Exception):
    """The process is gone."""


class MortalStore(MemBlockStore):
    """Ends the process at one of its calls, before or after the call took effect."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.calls = 0
        self.dies_at = -1
        self.dies_after = False
        self.beside: tuple[str, ...] = ()
        """Blocks that disappear with each batch of deletions."""

    def _count(self, *, is_after: bool) -> None:
        if not is_after:
            self.calls += 1
        if self.calls == self.dies_at and is_after == self.dies_after:
            raise KilledError

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        self._count(is_after=False)
        await super().put(key, body)
        self._count(is_after=True)

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        self._count(is_after=False)
        return await super().read(key, start, length)

    async def stat(self, key: BlockKey) -> BlockInfo:
        self._count(is_after=False)
        return await super().stat(key)

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        self._count(is_after=False)
        return await super().list_page(namespace, prefix, after, limit)

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        self._count(is_after=False)
        await super().delete_many(namespace, [*paths, *self.beside])
        self._count(is_after=True)


async def mortal_lake(folder: Path) -> tuple[CollectedLake, MortalStore, set[str]]:
    """Returns a lake with garbage of each kind, its store, and the paths that must survive."""
    lake = CollectedLake(folder)
    store = MortalStore(lake.clock)
    lake.blocks = store
    live = [await lake.object() for _ in range(3)]
    lake.addresses += live[:1]
    lake.listings.append(await lake.listing([live[1:]]))
    kept = await lake.paths()
    await lake.listing([[await lake.object() for _ in range(5)], [await lake.object()]])
    lake.clock.advance(2 * 86_400)
    return lake, store, kept


async def resumed(lake: CollectedLake) -> None:
    """Does what a command does with a run that was interrupted."""
    manifest = await read_manifest(lake.blocks, lake.namespace, MARK) or await lake.mark()
    await lake.sweep(manifest, ALL)


@pytest.mark.parametrize("dies_after", [False, True], ids=["before", "after"])
async def test_a_run_killed_at_any_call_is_resumed(tmp_path: Path, dies_after: bool) -> None:
    lake, store, _ = await mortal_lake(tmp_path)
    first = store.calls
    await resumed(lake)
    count = store.calls - first
    assert count > 20
    for dies_at in range(1, count + 1):
        lake, store, kept = await mortal_lake(tmp_path)
        store.dies_at, store.dies_after = store.calls + dies_at, dies_after
        try:
            await resumed(lake)
        except KilledError:
            assert kept <= await lake.paths()
            await resumed(lake)
        paths = {path for path in await lake.paths() if not path.startswith("_tarn/collection/")}
        assert paths == kept, f"killed at call {dies_at}"
        assert not left_in(tmp_path), "temporary files are left"


async def test_a_resumed_sweep_does_not_delete_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, store, _ = await mortal_lake(tmp_path)
    manifest = await lake.mark()
    lake.lease.error = None
    deleted: list[str] = []
    delete_many = store.delete_many

    async def limited(namespace: str, paths: Sequence[str]) -> None:
        if len(deleted) >= 5:
            raise KilledError
        deleted.extend(paths)
        await delete_many(namespace, paths)

    monkeypatch.setattr(store, "delete_many", limited)
    with pytest.raises(KilledError):
        await lake.sweep(manifest, ALL)
    again: list[str] = []

    async def noted(namespace: str, paths: Sequence[str]) -> None:
        again.extend(paths)
        await delete_many(namespace, paths)

    monkeypatch.setattr(store, "delete_many", noted)
    report = await lake.sweep(manifest, ALL)
    assert not set(again) & set(deleted)
    assert report.total(Outcome.DELETED).count == len(again) + len(deleted)


async def test_a_resumed_sweep_notes_only_once_what_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, store, _ = await mortal_lake(tmp_path)
    manifest = await lake.mark()
    path = min(each for each in await lake.quarantined(manifest) if each.startswith("data/"))
    lake.addresses.append(bytes.fromhex(path.rpartition("/")[2]))
    calls = 0
    delete_many = store.delete_many

    async def dies_at_last(namespace: str, paths: Sequence[str]) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:  # a metarange, ranges, and then five blocks in batches of two
            raise KilledError
        await delete_many(namespace, paths)

    monkeypatch.setattr(store, "delete_many", dies_at_last)
    with pytest.raises(KilledError):
        await lake.sweep(manifest, ALL)
    report = await lake.sweep(manifest, ALL)
    files = [each async for each in outcome_files(lake.blocks, lake.namespace, MARK)]
    noted = [
        await read_outcomes(lake.blocks, lake.namespace, each, Outcome.REFERENCED) for each in files
    ]
    assert len(files) == 2
    assert sum(len(each[BlockKind.DATA]) for each in noted) == 1
    assert report.total(Outcome.REFERENCED).count == 1


async def test_a_block_that_cannot_be_deleted_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, store, kept = await mortal_lake(tmp_path)
    manifest = await lake.mark()
    stuck = next(path for path in sorted(await lake.paths("data/")) if path not in kept)
    delete_many = store.delete_many

    async def refusing(namespace: str, paths: Sequence[str]) -> None:
        if stuck in paths:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "a locked object")
        await delete_many(namespace, paths)

    monkeypatch.setattr(store, "delete_many", refusing)
    report = await lake.sweep(manifest, SweepOptions(is_confirmed=True))
    assert report.total(Outcome.FAILED).count == 1
    assert await lake.paths("data/") - kept == {stuck}


async def test_a_store_that_deletes_nothing_ends_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, store, _ = await mortal_lake(tmp_path)
    manifest = await lake.mark()
    before = await lake.paths()

    async def refusing(namespace: str, paths: Sequence[str]) -> None:
        raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, "no right to delete")

    monkeypatch.setattr(store, "delete_many", refusing)
    with pytest.raises(TarnError, match="no right to delete"):
        await lake.sweep(manifest, ALL)
    assert await lake.paths() == before
    assert lake.lease.is_open, "the deletion of metadata may still take effect"


def delete_beside(store: MortalStore, victim: str) -> str:
    """Makes a store delete one more block with each batch; returns its path."""
    store.beside = (victim,)
    return victim


async def test_live_blocks_that_go_missing_are_told(tmp_path: Path) -> None:
    lake, store, _ = await mortal_lake(tmp_path)
    manifest = await lake.mark()
    victim = delete_beside(store, physical_path(lake.addresses[0]))
    report = await lake.sweep(manifest, ALL)
    assert report.missing == (victim,)


@pytest.mark.parametrize(
    ("reason", "is_told"),
    [
        (Reason.COLLECTION_LOST, False),
        (Reason.COLLECTION_HELD, True),
        (Reason.UNAVAILABLE, True),
    ],
)
async def test_live_blocks_that_go_missing_after_the_lease_are_not_told(
    tmp_path: Path,
    reason: Reason,
    *,
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the lease, online deletion or another collection may have deleted them rightly."""
    lake, store, _ = await mortal_lake(tmp_path)
    manifest = await lake.mark()
    victim = delete_beside(store, physical_path(lake.addresses[0]))

    async def refused() -> None:
        raise TarnError(Kind.FAILED_PRECONDITION, reason, "no lease")

    monkeypatch.setattr(lake.lease, "renew", refused)
    if is_told:
        assert (await lake.sweep(manifest, ALL)).missing == (victim,)
        return
    with pytest.raises(TarnError, match="no lease"):
        await lake.sweep(manifest, ALL)
    assert await read_report(lake.blocks, lake.namespace, manifest.run_id) is None


@pytest.mark.parametrize("kind", ["data", "range"])
async def test_live_blocks_with_other_bytes_are_told(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, store, _ = await mortal_lake(tmp_path)
    manifest = await lake.mark()
    victims = {
        "data": physical_path(lake.addresses[0]),
        "range": min(await lake.paths("_tarn/ranges/")) if kind == "range" else "",
    }
    victim = BlockKey(lake.namespace, victims[kind])
    delete_many = store.delete_many

    async def overwriting(namespace: str, paths: Sequence[str]) -> None:
        await delete_many(namespace, [*paths, victim.path])
        await store.put(victim, b"other bytes")

    monkeypatch.setattr(store, "delete_many", overwriting)
    report = await lake.sweep(manifest, ALL)
    assert report.missing == (victim.path,)


async def test_roots_that_end_early_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _, _ = await mortal_lake(tmp_path)

    async def broken() -> AsyncGenerator[RootBatch, None]:
        yield RootBatch()
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "graveler is gone")

    monkeypatch.setattr(lake, "read_roots", broken)
    with pytest.raises(TarnError, match="graveler is gone"):
        await lake.mark()
    assert await read_manifest(lake.blocks, lake.namespace, MARK) is None


async def test_a_damaged_log_of_outcomes_ends_the_sweep(tmp_path: Path) -> None:
    lake, _, _ = await mortal_lake(tmp_path)
    manifest = await lake.mark()
    log = OutcomeLog(lake.blocks, lake.namespace, MARK, "c" * 32)
    await lake.put(log._folder + "x.parquet", b"no parquet")
    with pytest.raises(TarnError, match="begin another run"):
        await lake.sweep(manifest, ALL)

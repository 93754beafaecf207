"""A lake that is backed up while something happens to it, and restores of the backup into a new store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from lake import MAIN, Lake, Replicas, create_repository
from tests.support.clock import RestlessClock, SeededIds

from tarn.block.port import BlockKey
from tarn.core.entry import Entry, pack
from tarn.core.ids import BranchId, physical_path
from tarn.fsck.check import check
from tarn.fsck.finding import Code, Severity
from tarn.fsck.progress import CheckProgress
from tarn.fsck.session import FsckOptions
from tarn.fsck.state import open_state
from tarn.kv.keys import RepositoryKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import Partition, Row, Versioned
from tarn.snapshot.files.manifest import Manifest, Scope
from tarn.snapshot.files.stored import open_snapshot
from tarn.snapshot.files.target import FolderTarget, Target
from tarn.snapshot.installation.creating import create
from tarn.snapshot.installation.restoring import restore
from tarn.snapshot.store import OpenStore, RateLimiter, TransferOptions

__all__ = ["INSTALLATION", "BackupLab", "HookedKv", "backup_lab"]

INSTALLATION = "test"
Hook = Callable[[Partition, bytes], Awaitable[None]]


class HookedKv(MemKv):
    """A store that calls a hook before it answers a backup's reads."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Hook | None = None

    async def _call(self, partition: Partition, start: bytes) -> None:
        if (hook := self.before) is not None:
            self.before = None  # what the hook itself reads calls no hook
            try:
                await hook(partition, start)
            finally:
                self.before = self.before or hook

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        await self._call(partition, keys[0] if keys else b"")
        return await super().get_many(partition, keys, settle=settle)

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        await self._call(partition, start)
        return await super().scan(partition, start, end, limit)

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        await self._call(partition, start)
        async for batch in super().scan_arrow(partition, start, end):
            yield batch


@dataclass
class BackupLab:
    """A lake, the place of its backups, and restored stores."""

    replicas: Replicas
    lake: Lake
    kv: HookedKv
    target: Target
    folder: Path
    puts: int = 1000
    details: list[str] = field(default_factory=list)

    @property
    def keys(self) -> RepositoryKeys:
        return self.lake.graveler.repositories.keys_of(self.lake.repository)

    @property
    def target_path(self) -> Path:
        return self.folder / "backups"

    def options(self, concurrency: int = 2) -> TransferOptions:
        return TransferOptions(self.lake.clock, RateLimiter(self.lake.clock), concurrency)

    async def back_up(self, hook: Hook | None = None) -> Manifest:
        """Makes a backup; calls a hook before each of its reads."""
        self.kv.before = hook
        try:
            ids = SeededIds(self.lake.clock)
            return await create(self.kv, INSTALLATION, self.target, ids, self.options())
        finally:
            self.kv.before = None

    async def restored(self, backup_id: str = "") -> MemKv:
        """Restores a backup into a new store."""
        kv = MemKv()
        backup = await open_snapshot(self.target, Scope.INSTALLATION, backup_id)
        clock = self.lake.clock
        place = OpenStore(kv, INSTALLATION, "mem", is_shared=False)
        await restore(backup, place, SeededIds(clock), self.options())
        return kv

    async def fsck(self, kv: MemKv) -> list[tuple[str, str]]:
        """Returns what is lost or inconsistent in a restored store, beside the blocks of the lake."""
        clock = RestlessClock(self.lake.clock.now_us() + 2 * 86_400_000_000)
        state = open_state(self.folder / f"fsck-{id(kv)}", "", clock.now_us())
        try:
            await check(
                installation_id=INSTALLATION,
                kv=kv,
                blocks=self.replicas.blocks,
                state=state,
                options=FsckOptions(),
                clock=clock,
                progress=CheckProgress(),
            )
            # Notes of branch heads tell commits that are newer than the backup.
            found = [
                each
                for each in state.findings()
                if each.code.severity is not Severity.ORPHAN and each.code is not Code.NOTE_INVALID
            ]
            self.details = [each.detail for each in found]
            return [(each.code.label, each.subject) for each in found]
        finally:
            state.close()

    @asynccontextmanager
    async def served(self, kv: MemKv, name: str = "lake") -> AsyncIterator[Lake]:
        """Serves a restored store."""
        replicas = Replicas(self.folder / f"served-{id(kv)}", kv)
        replicas.directory.mkdir()
        replicas.blocks = self.replicas.blocks
        replicas.clock.advance(self.lake.clock.monotonic() + 1)
        async with replicas.replica() as graveler:
            repository = await graveler.repositories.get(name)
            yield Lake(graveler, repository, replicas.kv, replicas.clock)
            await replicas.tasks.drain(5.0)

    async def put(self, path: str, size: int, branch: BranchId = MAIN) -> None:
        """Stages an object that has a block."""
        address = SeededIds(self.lake.clock, seed=self.puts).uuid7()
        self.puts += 1
        namespace = self.lake.repository.storage_namespace
        await self.replicas.blocks.put(BlockKey(namespace, physical_path(address)), b"x" * size)
        packed = pack(Entry(size, self.lake.clock.now_us(), address, bytes(16)))
        await self.lake.graveler.staging.stage(self.lake.branch(branch), path, packed)


@asynccontextmanager
async def backup_lab(folder: Path) -> AsyncIterator[BackupLab]:
    kv = HookedKv()
    replicas = Replicas(folder, kv)
    async with replicas.replica() as graveler:
        repository = await create_repository(graveler)
        lake = Lake(graveler, repository, replicas.kv, replicas.clock)
        yield BackupLab(replicas, lake, kv, FolderTarget(folder / "backups"), folder)
        await replicas.tasks.drain(5.0)

"""A lake with real blocks, and a check of it that runs as if two days later."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from lake import MAIN, Lake
from tests.support.clock import RestlessClock, SeededIds

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey, ReadBlocks
from tarn.core.branch import Branch
from tarn.core.entry import Entry, pack
from tarn.core.ids import BranchId, physical_path
from tarn.fsck.check import check
from tarn.fsck.progress import CheckProgress
from tarn.fsck.session import FsckOptions
from tarn.fsck.state import open_state
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Partition
from tarn.kv.records import encode_branch
from tarn_graveler.branch.committing import CommitResult

DAYS_LATER = 2.0


@dataclass
class FsckLab:
    """A lake, its stores, and checks of them."""

    lake: Lake
    kv: MemKv
    blocks: MemBlockStore
    folder: Path
    ids: SeededIds
    days: float = DAYS_LATER
    read_blocks: ReadBlocks | None = None
    progress: CheckProgress = field(default_factory=CheckProgress)
    details: list[str] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return self.lake.repository.storage_namespace

    @property
    def keys(self) -> RepositoryKeys:
        return self.lake.graveler.repositories.keys_of(self.lake.repository)

    @property
    def installation(self) -> InstallationKeys:
        return InstallationKeys("test")

    # ---- making

    async def put(self, path: str, body: bytes = b"", branch: BranchId = MAIN) -> str:
        """Stages an object with a block; returns the block's path."""
        body = body or path.encode()
        address = self.ids.uuid7()
        block = physical_path(address)
        await self.blocks.put(BlockKey(self.namespace, block), body)
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        packed = pack(Entry(len(body), self.lake.clock.now_us(), address, digest))
        await self.lake.graveler.staging.stage(self.lake.branch(branch), path, packed)
        return block

    async def commit(self) -> CommitResult:
        return await self.lake.commit()

    async def branch(self, branch_id: BranchId = MAIN) -> Branch:
        return (await self.lake.graveler.branches.fresh(self.lake.branch(branch_id))).branch

    # ---- damaging

    async def set(self, partition: Partition, key: bytes, value: bytes) -> None:
        (error,) = await self.kv.set_many(partition, [Group(key, ((key, value),))])
        assert error is None

    async def set_branch(self, branch: Branch, branch_id: BranchId = MAIN) -> None:
        await self.set(self.keys.refs, self.keys.branch(branch_id), encode_branch(branch))

    async def replace_block(self, path: str, body: bytes) -> None:
        await self.remove_block(path)
        await self.blocks.put(BlockKey(self.namespace, path), body)

    async def remove_block(self, path: str) -> None:
        key = BlockKey(self.namespace, path)
        await self.blocks.stat(key)
        await self.blocks.delete_many(self.namespace, [path])

    async def listed(self, prefix: str) -> list[str]:
        page = await self.blocks.list_page(self.namespace, prefix, "", 1000)
        return [info.path for info in page]

    # ---- checking

    async def check(
        self,
        options: FsckOptions | None = None,
        *,
        state: str = "fsck.state",
    ) -> list[tuple[str, str]]:
        """Runs a check; returns codes and subjects of its findings."""
        options = options or FsckOptions()
        clock = RestlessClock(self.lake.clock.now_us() + int(self.days * 86_400_000_000))
        opened = open_state(self.folder / state, options.scope(), clock.now_us())
        try:
            await check(
                installation_id="test",
                kv=self.kv,
                blocks=self.read_blocks or self.blocks,
                state=opened,
                options=options,
                clock=clock,
                progress=self.progress,
            )
            self.details = [each.detail for each in opened.findings()]
            return [(each.code.label, each.subject) for each in opened.findings()]
        finally:
            opened.close()

"""A replica's stores on disk, and a builder that uses them with a real child process."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tarn.block.committed import Committed
from tarn.block.opening import open_blocks
from tarn.config import Config, load, variables_of
from tarn.core.branch import Token, TokenKind
from tarn.core.entry import Entry, pack
from tarn.core.erasure import ErasedAddress
from tarn.core.ids import BranchId, RepositoryId, TokenId
from tarn.core.listing.metarange import EMPTY_METARANGE
from tarn.kv.collection_records import encode_erased
from tarn.kv.keys import InstallationKeys, RepositoryKeys, path_key
from tarn.kv.opening import open_kv
from tarn.kv.port import Group, Kv, Partition
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_graveler.branch.building import BuildOrder, InlineBuilder
from tarn_graveler.config import open_committed_of
from tarn_graveler.heavy.builder import HeavyLimits, ProcessBuilder
from tarn_graveler.heavy.worker import WorkerLimits, start_process

__all__ = ["NAMESPACE", "Stores", "entry", "open_stores"]

NAMESPACE = "local://lake"
_KEYS = InstallationKeys("tarn").of_repository(RepositoryId("lake"), "u1")


@dataclass(frozen=True)
class Stores:
    """The open stores of a replica."""

    config: Config
    kv: Kv
    committed: Committed
    clock: SystemClock

    @property
    def inline(self) -> InlineBuilder:
        return InlineBuilder(self.kv, self.committed)

    @asynccontextmanager
    async def builder(
        self,
        rows_here: int = 0,
        idle_s: float = 300.0,
        limits: WorkerLimits | None = None,
        background_s: float = 20.0,
    ) -> AsyncIterator[ProcessBuilder]:
        start = partial(
            start_process, variables_of(self.config), self.clock, limits or WorkerLimits()
        )
        bounds = HeavyLimits(rows_here=rows_here, idle_s=idle_s, background_s=background_s)
        rng = random.Random(1)
        async with ProcessBuilder(
            start, self.kv, self.committed, self.clock, rng, bounds
        ) as builder:
            yield builder

    async def order(
        self,
        *tokens: dict[str, int],
        namespace: str = NAMESPACE,
        entries: Mapping[str, bytes] | None = None,
    ) -> BuildOrder:
        """Stages sizes by path in new tokens, newest first, and packed entries in the newest one."""
        partitions = [self._token(number) for number in range(len(tokens))]
        for partition, sizes in zip(partitions, tokens, strict=True):
            rows = {path: entry(size) for path, size in sizes.items()}
            if partition == partitions[0]:
                rows |= entries or {}
            groups = [
                Group(path_key(path), ((path_key(path), packed),)) for path, packed in rows.items()
            ]
            outcomes = await self.kv.set_many(partition, groups)
            assert not any(outcomes)
        return BuildOrder(namespace, EMPTY_METARANGE.metarange_id, tuple(partitions))

    async def erase(self, *addresses: bytes) -> Partition:
        """Writes the rows of erased addresses; returns their partition."""
        row = encode_erased(ErasedAddress("ab" * 16, 1))
        keys = map(RepositoryKeys.erased, addresses)
        commits = _KEYS.commits
        assert not any(await self.kv.set_many(commits, [Group(key, ((key, row),)) for key in keys]))
        return commits

    @staticmethod
    def _token(number: int) -> Partition:
        token = Token(TokenId(f"{number:032x}"), TokenKind.PLAIN, 1, 0)
        return _KEYS.token(BranchId("main"), token)


def entry(size: int, address: bytes = bytes(16)) -> bytes:
    return pack(Entry(size, 0, address, size.to_bytes(16, "big")))


@asynccontextmanager
async def open_stores(folder: Path) -> AsyncIterator[Stores]:
    variables = {"TARN_DATA_DIR": str(folder / "data"), "TARN_DURABILITY": "os"}
    config = load(None, {"HOME": str(folder), **variables})
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        kv = await open_kv(config, clock, SystemIds(clock))
        stack.push_async_callback(kv.close)
        blocks = await open_blocks(config, clock)
        stack.push_async_callback(blocks.close)
        committed = await stack.enter_async_context(open_committed_of(config, blocks))
        yield Stores(config, kv, committed, clock)

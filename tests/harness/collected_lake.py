"""A namespace with random blocks, roots and garbage, and an engine that collects it."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.clock import RestlessClock, SeededIds
from tests.support.listings import run_of

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockInfo, BlockKey, BlockStore
from tarn.block.rangefile import (
    describe_range,
    encode_metarange,
    encode_range,
    metarange_path,
    range_path,
)
from tarn.collection.engine import Engine, InProcess
from tarn.collection.kept_objects import KeptObjects
from tarn.collection.limits import Limits
from tarn.collection.marking import CollectionRun, Lake
from tarn.collection.outcomes import Report
from tarn.collection.progress import CollectionProgress
from tarn.collection.quarantine import Manifest
from tarn.collection.references import RootBatch
from tarn.collection.sweeping import SweepOptions
from tarn.core.entry import Entry, pack
from tarn.core.ids import MetarangeId, physical_path
from tarn.core.listing.metarange import Metarange

__all__ = ["CollectedLake", "FakeLease", "MARK", "SWEEP"]

NAMESPACE = "local://lake"
MARK, SWEEP = "a" * 32, "b" * 32
DAY_US = 86_400_000_000
NO_LIMITS = Limits(share_max=1.0)


class FakeLease:
    """A lease that lasts until a test ends it; notes the announced batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.is_open = False
        self.error: Exception | None = None

    async def confirm(self) -> None:
        if self.error is not None:
            raise self.error

    async def renew(self) -> None:
        await self.confirm()

    async def begin_batch(self, block_ids: Sequence[str]) -> None:
        await self.confirm()
        self.batches.append(list(block_ids))
        self.is_open = True

    async def end_batch(self) -> None:
        await self.confirm()
        self.is_open = False


def written_us(address: bytes) -> int:
    """Returns when an address was made, microseconds since the epoch."""
    return int.from_bytes(address[:6]) * 1000


@dataclass
class CollectedLake:
    """Blocks and roots; a model of what is live is kept beside them."""

    folder: Path
    clock: RestlessClock = field(default_factory=RestlessClock)
    namespace: str = NAMESPACE
    store: BlockStore | None = None
    addresses: list[bytes] = field(default_factory=list)
    """Roots: addresses that uncommitted rows name."""
    listings: list[MetarangeId] = field(default_factory=list)
    """Roots: listings of commits."""
    emptied: list[MetarangeId] = field(default_factory=list)
    """Roots without their objects: listings of expired commits."""
    keeping: list[MetarangeId] = field(default_factory=list)
    """Listings of heads: the objects of `emptied` at their paths are kept."""
    written_since_us: int = 0
    """The objects of `emptied` that were written since then are kept."""
    read: list[bytes] = field(default_factory=list)
    """The objects of `emptied` with these addresses are kept."""
    keeps_all: bool = False
    """All objects of `emptied` are kept."""
    unneeded: set[MetarangeId] = field(default_factory=set)
    """Listings of commits to which no ref leads."""
    attempts: int = 0
    engine: Engine = field(default_factory=InProcess)

    def __post_init__(self) -> None:
        self.ids = SeededIds(self.clock)
        self.blocks: BlockStore = self.store or MemBlockStore(self.clock)
        self.progress = CollectionProgress()
        self.lease = FakeLease()

    # ---- making

    async def put(self, path: str, body: bytes = b"body") -> str:
        await self.blocks.put(BlockKey(self.namespace, path), body)
        return path

    async def object(self, body: bytes = b"body") -> bytes:
        """Writes a block of data; returns its address."""
        address = self.ids.uuid7()
        await self.put(physical_path(address), body)
        return address

    async def listing(self, parts: Sequence[Sequence[bytes]]) -> MetarangeId:
        """Writes a listing with one range for each sequence of addresses; returns its id."""
        infos = []
        for number, addresses in enumerate(parts):
            entries = {
                f"{number:03}/{place:06}": pack(Entry(4, written_us(address), address, bytes(16)))
                for place, address in enumerate(addresses)
            }
            run = run_of(entries)
            info = describe_range(run)
            await self.put(range_path(info.range_id), encode_range(run).to_pybytes())
            infos.append(info)
        made = Metarange(tuple(infos))
        await self.put(metarange_path(made.metarange_id), encode_metarange(made).to_pybytes())
        return made.metarange_id

    # ---- collecting

    async def read_roots(self) -> AsyncGenerator[RootBatch, None]:
        """The roots, some at a time."""
        for start in range(0, len(self.addresses), 3):
            yield RootBatch(addresses=b"".join(self.addresses[start : start + 3]))
        keeping = b"".join(map(bytes.fromhex, self.keeping))
        yield RootBatch(keeping=keeping, written_since_us=self.written_since_us)
        yield RootBatch(emptied=b"".join(map(bytes.fromhex, self.emptied)))
        yield RootBatch(metaranges=b"".join(map(bytes.fromhex, self.listings)))
        for start in range(0, len(self.read), 3):
            yield RootBatch(read=b"".join(self.read[start : start + 3]))
        yield RootBatch(keeps_all=self.keeps_all)

    async def in_use(self, listings: Sequence[MetarangeId]) -> set[MetarangeId]:
        """Which of these listings are needed."""
        return set(listings) - self.unneeded

    @property
    def lake(self) -> Lake:
        return Lake("lake", self.namespace, self.blocks, self.clock, self.folder)

    @property
    def roots(self) -> KeptObjects:
        """The roots as a collector gives them to an engine."""
        return KeptObjects(self, self.lake, self.progress)

    def run(self, run_id: str, cutoff_us: int | None = None) -> CollectionRun:
        self.attempts += 1
        cutoff_us = self.clock.now_us() - DAY_US if cutoff_us is None else cutoff_us
        return CollectionRun(run_id, f"{self.attempts:032x}", cutoff_us)

    async def mark(self, *, dry_run: bool = False, run_id: str = MARK) -> Manifest:
        run = self.run(run_id)
        return await self.engine.mark(self.lake, run, self.roots, self.progress, dry_run=dry_run)

    async def sweep(
        self, manifest: Manifest, options: SweepOptions | None = None, run_id: str = SWEEP
    ) -> Report:
        return await self.engine.sweep(
            self.lake,
            self.run(run_id, manifest.cutoff_us),
            manifest,
            self.roots,
            self.lease,
            self.progress,
            random.Random(1),
            options or SweepOptions(limits=NO_LIMITS),
        )

    async def paths(self, prefix: str = "") -> set[str]:
        return {info.path for info in await self.infos(prefix)}

    async def infos(self, prefix: str = "") -> list[BlockInfo]:
        return await self.blocks.list_page(self.namespace, prefix, "", 10_000)

    async def quarantined(self, manifest: Manifest) -> Iterable[str]:
        from tarn.collection.block_names import BlockKind, paths_of
        from tarn.collection.quarantine import read_parts

        found: list[str] = []
        for kind in BlockKind:
            async for rows in read_parts(self.blocks, self.namespace, manifest, kind):
                found += paths_of(kind, rows["key"]).to_pylist()
        return found

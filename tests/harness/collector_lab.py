"""A real graveler, its blocks, and a collector: random histories, compared with what readers can read."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from graveler_service import Service, running_service
from tests.support.clock import ManualClock, SeededIds

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.client.collections import CollectionClient
from tarn.collection.collector import Collector
from tarn.collection.engine import Engine, InProcess
from tarn.collection.limits import Limits
from tarn.collection.progress import CollectionProgress
from tarn.collection.sweeping import SweepOptions
from tarn.core.entry import Entry, pack, unpack
from tarn.core.errors import TarnError
from tarn.core.ids import physical_path
from tarn.kv.port import Kv
from tarn.rpc.wire.call import Call

__all__ = [
    "NO_LIMITS",
    "CollectorLab",
    "check_history",
    "collector_lab",
    "play",
    "reachable",
    "settle",
]

DAY_S = 86_400
NO_LIMITS = SweepOptions(limits=Limits(share_max=1.0))


@dataclass
class CollectorLab:
    """A service, its blocks, and a collector."""

    service: Service
    collector: Collector
    ids: SeededIds
    namespace: str
    uid: str
    key: tuple[str, str]
    admin: Call

    async def put(self, branch: str, path: str, body: bytes = b"body") -> str:
        """Writes a block and stages it; returns the block's path."""
        address = self.ids.uuid7()
        block = physical_path(address)
        await self.service.replicas.blocks.put(BlockKey(self.namespace, block), body)
        packed = pack(Entry(len(body), self.service.clock.now_us(), address, address))
        await self.service.stage(path, packed, branch, call=self.admin)
        return block

    async def commit(self, branch: str) -> None:
        await self.service.graveler.create_commit(self.admin, "lake", branch, "m")

    async def blocks(self, prefix: str = "data/") -> set[str]:
        page = await self.service.replicas.blocks.list_page(self.namespace, prefix, "", 10_000)
        return {info.path for info in page}

    async def pass_days(self, days: float) -> None:
        """Lets time pass, and logs in again: a caller token lives for an hour."""
        self.service.clock.advance(days * DAY_S)
        session = await self.service.auth.log_in(
            self.service.anonymous,
            *self.key,
            now_us=self.service.clock.now_us(),
            nonce=self.ids.nonce(),
        )
        self.admin = replace(self.service.anonymous, caller_token=session.grant.caller_token)

    async def readable(self, ref: str) -> dict[str, str]:
        """Returns the blocks of all entries of a ref, read as a client reads them."""
        page = await self.service.graveler.list_entries(self.admin, "lake", ref)
        return {
            path: physical_path(unpack(entry).address)
            for path, entry in zip(page.paths, page.entries, strict=True)
        }

    async def collect(self) -> None:
        """Two collections: mark and sweep, twice."""
        for _ in range(2):
            await self.collector.mark("lake")
            await self.pass_days(1)
            await self.collector.sweep("lake", NO_LIMITS)


@asynccontextmanager
async def collector_lab(
    tmp_path: Path,
    kv: Kv | None = None,
    engine: Engine | None = None,
    *,
    store: Callable[[ManualClock], MemBlockStore] = MemBlockStore,
    keeps_reads: bool = False,
) -> AsyncIterator[CollectorLab]:
    """Yields a graveler that serves sweeps; without a `kv`, in memory. The engine: without one, that without Spark."""
    (tmp_path / "temporary").mkdir()
    folder = tmp_path / "service"
    async with running_service(folder, kv, store=store, keeps_reads=keeps_reads) as service:
        repository = await service.graveler.get_repository(service.admin, "lake")
        ids = SeededIds(service.clock, seed=77)
        collector = Collector(
            engine or InProcess(),
            CollectionClient(service.transport),
            lambda: made_lab.admin,
            service.replicas.blocks,
            service.clock,
            ids,
            random.Random(1),
            tmp_path / "temporary",
            CollectionProgress(),
        )
        made = await service.auth.create_credential(service.admin)
        key = (made.credential.access_key_id, made.secret_access_key)
        namespace, uid = repository.storage_namespace, repository.instance_uid
        made_lab = CollectorLab(service, collector, ids, namespace, uid, key, service.admin)
        yield made_lab


async def play(lab: CollectorLab, seed: int) -> set[str]:
    """Plays a random history; returns the refs that exist at its end."""
    rng = random.Random(seed)
    graveler, admin = lab.service.graveler, lab.admin
    branches = ["main"]
    refs = {"main"}

    async def change() -> None:
        await lab.put(rng.choice(branches), f"p{rng.randint(0, 9)}")

    async def remove() -> None:
        await graveler.unstage(admin, "lake", rng.choice(branches), f"p{rng.randint(0, 9)}")

    async def commit() -> None:
        await lab.commit(rng.choice(branches))

    async def branch() -> None:
        name = f"b{len(refs)}"
        await graveler.create_branch(admin, "lake", name, rng.choice(branches))
        branches.append(name)
        refs.add(name)

    async def tag() -> None:
        name = f"t{len(refs)}"
        await graveler.create_tag(admin, "lake", name, rng.choice(branches))
        refs.add(name)

    async def merge() -> None:
        await graveler.merge(admin, "lake", rng.choice(branches), rng.choice(branches))

    async def reset() -> None:
        await graveler.reset_branch(admin, "lake", rng.choice(branches))

    async def compact() -> None:
        await graveler.compact_branch(admin, "lake", rng.choice(branches))

    async def drop() -> None:
        if len(branches) > 2:
            name = branches.pop()
            refs.discard(name)
            await graveler.delete_branch(admin, "lake", name)

    common = [change] * 8 + [remove] * 2 + [commit] * 3
    rare = [branch, tag, merge, reset, compact, drop]
    for _ in range(40):
        with suppress(TarnError):  # nothing to commit, a conflict, an uncommitted change
            await rng.choice(common + rare)()
        lab.service.clock.advance(rng.choice([1, 60]))
    return refs


async def reachable(lab: CollectorLab, refs: set[str]) -> set[str]:
    """Returns the blocks of all entries of all refs, and of every commit that has a row, by brute force."""
    live: set[str] = set()
    graveler, admin = lab.service.graveler, lab.admin
    for ref in refs:
        live |= set((await lab.readable(ref)).values())
    for path in await lab.blocks("_tarn/commits/"):
        commit = await graveler.get_commit(
            admin, "lake", path.removeprefix("_tarn/commits/").removesuffix(".json")
        )
        live |= set((await lab.readable(commit.commit_id)).values())
    return live


async def settle(lab: CollectorLab, refs: set[str]) -> None:
    """Commits all branches. Rows that newer ones hide are roots, too, until their token is committed or discarded."""
    for ref in sorted(refs):
        if ref == "main" or ref.startswith("b"):
            with suppress(TarnError):  # nothing to commit
                await lab.commit(ref)
            await lab.service.graveler.reset_branch(lab.admin, "lake", ref)


async def check_history(lab: CollectorLab, seed: int) -> None:
    """Plays a history and collects it: readers read what they read before, and all garbage is gone."""
    refs = await play(lab, seed)
    before = {ref: await lab.readable(ref) for ref in refs}
    live = await reachable(lab, refs)
    await lab.pass_days(2)
    await lab.collect()
    assert await lab.blocks() >= live
    assert {ref: await lab.readable(ref) for ref in refs} == before
    assert await reachable(lab, refs) == live, "every listing can still be read"
    await settle(lab, refs)
    await lab.pass_days(2)
    await lab.collect()
    assert await lab.blocks() == await reachable(lab, refs)
    assert {ref: await lab.readable(ref) for ref in refs} == before

"""Random lakes, and the blocks that must survive, found one by one."""

from __future__ import annotations

import random

from collected_lake import DAY_US, CollectedLake

from tarn.block.port import BlockKey
from tarn.block.rangefile import decode_metarange, decode_range, metarange_path, range_path
from tarn.collection.references import read_range
from tarn.core.entry import Entry, unpack
from tarn.core.ids import MetarangeId, RangeId, physical_path

__all__ = ["live_of", "random_lake", "without_runs"]


async def random_lake(lake: CollectedLake, seed: int) -> set[str]:
    """Fills a lake; returns the paths that must survive, found one by one."""
    rng = random.Random(seed)
    made: list[bytes] = []
    for _ in range(rng.randint(1, 12)):
        lake.clock.advance(rng.choice([60, 20_000, 90_000]))
        parts = [
            [await lake.object(bytes(rng.randint(0, 9))) for _ in range(rng.randint(1, 4))]
            for _ in range(rng.randint(1, 3))
        ]
        if rng.random() < 0.3 and lake.addresses:  # a range that an earlier listing may have, too
            parts.append([lake.addresses[0]])
        made += [address for part in parts for address in part]
        metarange_id = await lake.listing(parts)
        if rng.random() < 0.5:
            lake.listings.append(metarange_id)
        if rng.random() < 0.4:
            lake.emptied.append(metarange_id)
        single = await lake.object()
        if rng.random() < 0.5:
            lake.addresses.append(single)
    lake.keeping = [each for each in lake.listings if rng.random() < 0.3]
    if rng.random() < 0.5:
        lake.written_since_us = lake.clock.now_us() - rng.randint(0, 200_000) * 1_000_000
    if rng.random() < 0.5:
        lake.read = [each for each in made if rng.random() < 0.4]
    lake.keeps_all = rng.random() < 0.1
    await lake.put(f"_tarn/commits/{'ab' * 32}.json")
    await lake.put("data/2001010100/foreign")
    lake.clock.advance(rng.choice([0, 3_600, 86_401]))
    return await live_of(lake)


async def live_of(lake: CollectedLake) -> set[str]:
    """Returns the paths that a collection must keep now, found one by one."""
    live: set[str] = set()
    cutoff_us = lake.clock.now_us() - DAY_US
    for info in await lake.infos():
        is_collectable = info.path.startswith(("data/", "_tarn/ranges/", "_tarn/metaranges/"))
        if info.mtime_us >= cutoff_us or not is_collectable or info.path.endswith("foreign"):
            live.add(info.path)
    live |= {physical_path(address) for address in lake.addresses}
    for metarange_id in lake.listings:
        live |= await closure_of(lake, metarange_id)
    listed = {path for each in lake.keeping for path, _ in await entries_of(lake, each)}
    for metarange_id in lake.emptied:
        live |= await closure_of(lake, metarange_id, is_emptied=True)
        for path, entry in await entries_of(lake, metarange_id):
            is_young = lake.written_since_us and entry.mtime_us >= lake.written_since_us
            is_read = lake.keeps_all or entry.address in lake.read
            if is_young or is_read or path in listed:
                live.add(physical_path(entry.address))
    return live


async def entries_of(lake: CollectedLake, metarange_id: MetarangeId) -> list[tuple[str, Entry]]:
    """Returns the paths and entries of a listing."""
    found = []
    for path in await closure_of(lake, metarange_id, is_emptied=True):
        if path.startswith("_tarn/ranges/"):
            range_id = RangeId(path.removeprefix("_tarn/ranges/").removesuffix(".parquet"))
            run = await read_range(lake.blocks, lake.namespace, range_id)
            entries = map(unpack, run.values.to_pylist())
            found += list(zip(run.paths.to_pylist(), entries, strict=True))
    return found


async def closure_of(
    lake: CollectedLake, metarange_id: MetarangeId, *, is_emptied: bool = False
) -> set[str]:
    path = metarange_path(metarange_id)
    found = {path}
    body = await lake.blocks.read(BlockKey(lake.namespace, path))
    for info in decode_metarange(metarange_id, body).ranges:
        path = range_path(info.range_id)
        found.add(path)
        if is_emptied:
            continue
        run = decode_range(info.range_id, await lake.blocks.read(BlockKey(lake.namespace, path)))
        found |= {physical_path(unpack(value).address) for value in run.values.to_pylist()}
    return found


def without_runs(paths: set[str]) -> set[str]:
    return {path for path in paths if not path.startswith("_tarn/collection/")}

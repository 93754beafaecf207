"""Roots as files: what is read is what was written, and a part that is not complete ends the run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from collected_lake import MARK, CollectedLake

from tarn.block.port import BlockKey
from tarn.collection.block_names import BlockKind
from tarn.collection.quarantine import Part
from tarn.collection.references import RootBatch
from tarn.collection.root_files import RootParts, delete_roots, read_root_part, write_roots
from tarn.core.errors import Kind, Reason, TarnError

ATTEMPT = "c" * 32
FOLDER = f"_tarn/collection/{MARK}/roots/"


async def rooted(folder: Path, part_rows: int = 4) -> tuple[CollectedLake, RootParts]:
    """Returns a lake with ten addresses, two listings and three emptied ones as roots, and the files of the roots."""
    lake = CollectedLake(folder)
    lake.addresses = [await lake.object() for _ in range(10)]
    lake.listings = [await lake.listing([[address]]) for address in lake.addresses[:2]]
    lake.emptied = [await lake.listing([[address]]) for address in lake.addresses[2:5]]
    parts = await write_roots(
        lake, lake.blocks, lake.namespace, MARK, ATTEMPT, lake.progress, part_rows=part_rows
    )
    return lake, parts


async def keys_of(lake: CollectedLake, parts: Sequence[Part], kind: BlockKind) -> list[bytes]:
    return [
        key.tobytes()
        for part in parts
        if part.kind == kind.value
        for key in await read_root_part(lake.blocks, lake.namespace, part)
    ]


@pytest.mark.parametrize("part_rows", [1, 4, 1000])
async def test_all_roots_are_written_once(tmp_path: Path, part_rows: int) -> None:
    lake, parts = await rooted(tmp_path, part_rows)
    assert await keys_of(lake, parts.whole, BlockKind.DATA) == lake.addresses
    metaranges = await keys_of(lake, parts.whole, BlockKind.METARANGE)
    assert metaranges == [bytes.fromhex(name) for name in lake.listings]
    emptied = await keys_of(lake, parts.emptied, BlockKind.METARANGE)
    assert emptied == [bytes.fromhex(name) for name in lake.emptied]
    everything = parts.whole + parts.emptied
    assert sum(part.count for part in everything) == 15
    assert {part.path for part in everything} == await lake.paths(FOLDER)


async def test_a_mark_without_roots_writes_no_files(tmp_path: Path) -> None:
    lake = CollectedLake(tmp_path)
    args = (lake, lake.blocks, lake.namespace, MARK, ATTEMPT, lake.progress)
    assert await write_roots(*args) == RootParts()
    assert await lake.paths() == set()


async def refused(lake: CollectedLake, part: Part) -> str:
    with pytest.raises(TarnError, match="begin another run") as raised:
        await read_root_part(lake.blocks, lake.namespace, part)
    assert raised.value.kind is Kind.CORRUPT
    return raised.value.message


async def test_a_part_that_is_not_the_one_that_was_written_is_refused(tmp_path: Path) -> None:
    lake, root_parts = await rooted(tmp_path)
    parts = root_parts.whole
    key = BlockKey(lake.namespace, parts[0].path)
    body = await lake.blocks.read(key)
    other = await lake.blocks.read(BlockKey(lake.namespace, parts[1].path))
    assert "rows of" in await refused(lake, replace(parts[0], count=parts[0].count + 1))
    await lake.blocks.delete_many(lake.namespace, [key.path])
    assert "missing" in await refused(lake, parts[0])
    for changed in (body[:-1], other):
        await lake.blocks.put(key, changed)
        assert "SHA-256" in await refused(lake, parts[0])
        await lake.blocks.delete_many(lake.namespace, [key.path])


async def test_the_files_of_an_attempt_are_deleted_and_no_others(tmp_path: Path) -> None:
    lake, _ = await rooted(tmp_path)
    other = await lake.put(f"{FOLDER}{'d' * 32}-000000.parquet")
    before = await lake.paths()
    mine = await lake.paths(FOLDER + ATTEMPT)
    await delete_roots(lake.blocks, lake.namespace, MARK, ATTEMPT)
    assert await lake.paths() == before - mine
    assert other in await lake.paths()


async def test_roots_that_end_early_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = CollectedLake(tmp_path)

    async def broken() -> AsyncGenerator[RootBatch, None]:
        yield RootBatch(addresses=bytes(16))
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "graveler is gone")

    monkeypatch.setattr(lake, "read_roots", broken)
    with pytest.raises(TarnError, match="graveler is gone"):
        await write_roots(lake, lake.blocks, lake.namespace, MARK, ATTEMPT, lake.progress)

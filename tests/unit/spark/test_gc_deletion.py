"""The part of a round of deletions that an executor does, run here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from collected_lake import MARK, CollectedLake

from tarn.block.port import BlockStore
from tarn.collection.block_names import BlockKind, Listed, listed_of
from tarn.collection.outcomes import Outcome, outcome_files, read_outcomes
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn_spark.collection.deletion import ChunkResult, DeleteChunk
from tarn_spark.collection.executor import close_stores


class NoPlace:
    """Opens nothing: these tests hand the store over."""

    async def open(self, clock: Clock) -> BlockStore:
        raise NotImplementedError


async def doomed(folder: Path, count: int = 10) -> tuple[CollectedLake, Listed]:
    lake = CollectedLake(folder)
    for _ in range(count):
        await lake.object()
    return lake, listed_of(BlockKind.DATA, await lake.infos("data/"))


async def deleted(
    lake: CollectedLake, rows: Listed, *, seconds: float = 1000.0, rate: float = 0.0
) -> ChunkResult:
    until_us = lake.clock.now_us() + int(seconds * 1e6)
    work = DeleteChunk(NoPlace(), lake.namespace, MARK, 2, rate, until_us)
    return await work.delete(lake.blocks, lake.clock, rows)


async def noted(lake: CollectedLake) -> int:
    """Returns the number of deletions in the files of outcomes."""
    count = 0
    async for path in outcome_files(lake.blocks, lake.namespace, MARK):
        count += len(
            (await read_outcomes(lake.blocks, lake.namespace, path, Outcome.DELETED))[
                BlockKind.DATA
            ]
        )
    return count


async def test_all_blocks_go_and_are_noted(tmp_path: Path) -> None:
    lake, rows = await doomed(tmp_path)
    result = await deleted(lake, rows)
    assert (result.done, result.error) == (10, None)
    assert result.tallies[Outcome.DELETED.value].count == await noted(lake) == 10
    assert await lake.paths("data/") == set()


async def test_nothing_is_deleted_after_the_time_of_the_round(tmp_path: Path) -> None:
    lake, rows = await doomed(tmp_path)
    result = await deleted(lake, rows, seconds=0)
    assert (result.done, result.error) == (0, None)
    assert len(await lake.paths("data/")) == 10


async def test_the_rate_is_kept_and_the_rest_is_left(tmp_path: Path) -> None:
    """Two blocks every two seconds; no batch begins after five seconds."""
    lake, rows = await doomed(tmp_path)
    began = lake.clock.monotonic()
    result = await deleted(lake, rows, seconds=5, rate=1)
    assert result.done == 6
    assert lake.clock.monotonic() - began >= 6
    assert len(await lake.paths("data/")) == await noted(lake) - 2 == 4


@pytest.mark.parametrize("survivors", [0, 3])
async def test_an_error_ends_the_chunk_and_what_was_deleted_is_noted(
    tmp_path: Path,
    survivors: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake, rows = await doomed(tmp_path)
    delete_many = lake.blocks.delete_many
    calls = 0

    async def refusing(namespace: str, paths: Sequence[str]) -> None:
        nonlocal calls
        calls += 1
        if calls > survivors:
            raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, "no right to delete")
        await delete_many(namespace, paths)

    monkeypatch.setattr(lake.blocks, "delete_many", refusing)
    result = await deleted(lake, rows)
    assert result.error == (Kind.DENIED, Reason.ACCESS_DENIED, "no right to delete")
    assert result.done == survivors * 2 == await noted(lake)


def test_a_chunk_is_the_bytes_of_rows(tmp_path: Path) -> None:
    from spark_lakes import local_place

    rows = np.zeros(3, BlockKind.DATA.listed_dtype)
    work = DeleteChunk(local_place(tmp_path / "root"), "local://lake", MARK, 2, 0.0, 1 << 60)
    try:
        result = work(rows.tobytes())
    finally:
        close_stores()
    assert result.done == 3, "blocks that are gone count as deleted"

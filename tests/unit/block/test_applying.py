"""Overlaying streams of staged rows with batches of any size."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clock import ManualClock
from tests.support.listings import Listing, change_sets, run_of, sample_entry, staged

from tarn.block.applying import overlaid
from tarn.block.mem import MemBlockStore
from tarn.block.rangecache import RangeCache
from tarn.block.rangereader import RangeReader
from tarn.core.listing.run import EMPTY_RUN


def reader_in(directory: str | Path) -> RangeReader:
    return RangeReader(MemBlockStore(ManualClock()), RangeCache(Path(directory)), None)


@given(st.lists(st.tuples(change_sets(), st.integers(1, 50)), max_size=4))
async def test_overlaid_streams_equal_updated_dicts(layers: list[tuple[Listing, int]]) -> None:
    model: Listing = {}
    for layer, _ in reversed(layers):
        model.update(layer)
    rows: list[tuple[str, bytes]] = []
    with TemporaryDirectory() as directory:
        streams = [staged(layer, batch_rows) for layer, batch_rows in layers]
        async for run in overlaid(streams, reader_in(directory)):
            assert len(run), "pieces must not be empty"
            rows += zip(run.paths.to_pylist(), run.values.to_pylist(), strict=True)
    assert rows == sorted(model.items())


async def test_empty_batches_are_passed_over(tmp_path: Path) -> None:
    async def batches() -> AsyncIterator[pa.RecordBatch]:
        for run in (EMPTY_RUN, run_of({"a": sample_entry(1)}), EMPTY_RUN, EMPTY_RUN):
            yield run.batch()

    pieces = [run async for run in overlaid([batches(), batches()], reader_in(tmp_path))]
    assert [run.paths.to_pylist() for run in pieces] == [["a"]]


@pytest.mark.parametrize("batch_rows", [1, 1000])
async def test_memory_holds_one_batch_of_each_layer(tmp_path: Path, batch_rows: int) -> None:
    calls = 0

    async def counted() -> AsyncIterator[pa.RecordBatch]:
        nonlocal calls
        async for batch in staged({f"k{n:04}": sample_entry(n) for n in range(2000)}, batch_rows):
            calls += 1
            yield batch

    pieces = overlaid([counted(), staged({"a": sample_entry(1)})], reader_in(tmp_path))
    await anext(pieces)
    assert calls == 1
    await pieces.aclose()

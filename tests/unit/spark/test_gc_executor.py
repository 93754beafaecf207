"""The code of executors, run here: columns, errors on their way through Spark, one store for many tasks."""

from __future__ import annotations

import importlib
import signal
import sys
import zipfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from zipimport import zipimporter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockStore
from tarn.collection.block_names import BlockKind, Listed
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn_spark.collection.columns import KINDS, ascending, by_kind, keys_batch, listed_batch
from tarn_spark.collection.executor import (
    ExecutorError,
    arrow_task,
    call_with_store,
    close_stores,
    error_in,
    partition_task,
)


class CountedPlace:
    """Opens a store in memory; counts how often."""

    opened = 0

    async def open(self, clock: Clock) -> BlockStore:
        CountedPlace.opened += 1
        return MemBlockStore(clock)


@pytest.fixture
def place() -> Iterator[CountedPlace]:
    CountedPlace.opened = 0
    yield CountedPlace()
    close_stores()


def rows_of(kind: BlockKind, count: int, seed: int) -> Listed:
    rng = np.random.default_rng(seed)
    rows = np.zeros(count, kind.listed_dtype)
    rows["key"] = rng.integers(0, 256, (count, kind.key_bytes), np.uint8)
    rows["size"] = rng.integers(0, 1 << 40, count)
    rows["mtime"] = rng.integers(0, 1 << 50, count)
    return rows


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5)), max_size=6), st.integers(0, 9)
)
def test_columns_keep_rows(pieces: list[tuple[BlockKind, int]], cut: int) -> None:
    """Also in a slice of a batch, which shares its buffers."""
    tables = [
        listed_batch(kind, rows_of(kind, count, at)) for at, (kind, count) in enumerate(pieces)
    ]
    if not tables:
        return
    (batch,) = pa.Table.from_batches(tables).combine_chunks().to_batches() or [tables[0]]
    batch = batch.slice(min(cut, len(batch)))
    found = {(kind, *map(bytes, [row.tobytes()])) for kind, rows in by_kind(batch) for row in rows}
    expected = [
        (kind, row.tobytes())
        for at, (kind, count) in enumerate(pieces)
        for row in rows_of(kind, count, at)
    ][min(cut, sum(count for _, count in pieces)) :]
    assert found == set(expected)


def test_keys_have_no_size() -> None:
    rows = rows_of(BlockKind.DATA, 3, 1)
    ((kind, found),) = by_kind(keys_batch(BlockKind.DATA, np.ascontiguousarray(rows["key"])))
    assert kind is BlockKind.DATA
    assert (found["key"] == rows["key"]).all()
    assert not found["size"].any()


def test_ascending_is_the_order_of_bytes() -> None:
    rows = ascending(BlockKind.RANGE, rows_of(BlockKind.RANGE, 50, 1))
    keys = [key.tobytes() for key in rows["key"]]
    assert keys == sorted(keys)


async def twice(blocks: BlockStore, batch: pa.RecordBatch) -> AsyncIterator[pa.RecordBatch]:
    assert isinstance(blocks, MemBlockStore)
    yield batch
    yield batch


async def failing(blocks: BlockStore, batch: pa.RecordBatch) -> AsyncIterator[pa.RecordBatch]:
    yield batch
    raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, 'a "damaged"\nrange; run tarn fsck')


def test_a_task_yields_what_its_work_yields_and_opens_one_store(place: CountedPlace) -> None:
    batches = [pa.RecordBatch.from_pydict({"n": [number]}) for number in range(3)]
    for _ in range(2):
        found = list(arrow_task(place, twice)(iter(batches)))
        assert [batch.column("n")[0].as_py() for batch in found] == [0, 0, 1, 1, 2, 2]
    assert CountedPlace.opened == 1


class Large:
    """An item whose text is long; counts how often it was made."""

    texts = 0

    def __repr__(self) -> str:
        Large.texts += 1
        return "large"


async def after_all(blocks: BlockStore, items: Iterable[int]) -> AsyncIterator[int | Large]:
    assert isinstance(blocks, MemBlockStore)
    held = sum(items)
    yield Large()
    yield held
    if held > 3:
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, "gone")


def test_a_task_of_a_partition_gets_all_items_and_writes_none_out(place: CountedPlace) -> None:
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # as processes of Spark have it
    try:
        check_a_partition(place)
    finally:
        signal.signal(signal.SIGINT, before)


def check_a_partition(place: CountedPlace) -> None:
    Large.texts = 0
    task = partition_task(place, after_all)
    for _ in range(2):
        _, held = task(iter([1, 2]))
        assert held == 3
    assert CountedPlace.opened == 1
    with pytest.raises(ExecutorError, match="gone") as raised:
        list(task([4]))
    error = error_in(str(raised.value))
    assert error is not None
    assert error.kind is Kind.CORRUPT
    assert not Large.texts


def test_a_task_leaves_no_archives_to_be_read_again(
    place: CountedPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reads each archive anew that Python knows before it runs a task; imports still find their code."""
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("only_in_an_archive_1.py", "value = 1")
        archive.writestr("only_in_an_archive_2.py", "value = 2")
    monkeypatch.syspath_prepend(str(tmp_path / "code.zip"))
    for number in (1, 2):
        assert importlib.import_module(f"only_in_an_archive_{number}").value == number
        assert any(isinstance(each, zipimporter) for each in sys.path_importer_cache.values())
        list(arrow_task(place, twice)(iter([])))
        assert not any(isinstance(each, zipimporter) for each in sys.path_importer_cache.values())


def test_an_error_of_an_executor_arrives_with_its_kind(place: CountedPlace) -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1]})
    with pytest.raises(ExecutorError) as raised:
        list(arrow_task(place, failing)(iter([batch])))
    error = error_in(f"org.apache.spark.SparkException: …\n {raised.value} \n\tat java.lang…")
    assert error is not None
    assert (error.kind, error.reason) == (Kind.CORRUPT, Reason.DATA_CORRUPT)
    assert error.message == 'a "damaged"\nrange; run tarn fsck'
    assert error_in("java.lang.OutOfMemoryError") is None


def test_an_error_of_a_call_arrives_too(place: CountedPlace) -> None:
    async def fail(blocks: BlockStore) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no answer")

    with pytest.raises(ExecutorError, match="no answer"):
        call_with_store(place, fail)


def test_a_store_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    from spark_lakes import local_place

    (tmp_path / "file").write_text("no folder")
    task = arrow_task(local_place(tmp_path / "file"), twice)
    with pytest.raises(ExecutorError, match="cannot open the block store") as raised:
        list(task(iter([pa.RecordBatch.from_pydict({"n": [1]})])))
    assert error_in(str(raised.value)) is not None

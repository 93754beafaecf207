"""The cost of a build is counted before it begins, up to the bound."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from heavy_stores import Stores

from tarn.core.ids import RangeId
from tarn.core.listing.metarange import EMPTY_METARANGE, Metarange, RangeInfo
from tarn.core.listing.spans import PathSpan
from tarn.kv.port import Partition
from tarn_graveler.heavy.builder import HeavyLimits
from tarn_graveler.heavy.weighing import few_rows, rows_apart, rows_touched


def base(*spans: str) -> Metarange:
    """Returns ranges of ten rows each, such as `bd` from b to d."""
    infos = (
        RangeInfo(RangeId(f"{n:064x}"), span[0], span[1], 10, 100, 1000)
        for n, span in enumerate(spans)
    )
    return Metarange(tuple(infos))


def batch(paths: str) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(list(paths), pa.string()), pa.array([b""] * len(paths), pa.binary())],
        names=["path", "value"],
    )


@pytest.mark.parametrize(
    ("layers", "rows"),
    [
        ([], 0),
        ([["a"]], 10),  # before the first range, which grows
        ([["bcd"]], 10),
        ([["be"]], 20),  # e lies between two ranges and goes to the second
        ([["b", "d"], ["c"]], 10),
        ([["bdfhxz"]], 30),
        ([["z"]], 10),  # after the last range, which may grow
    ],
)
def test_rows_of_each_range_that_changes_fall_into_count_once(
    layers: list[list[str]], rows: int
) -> None:
    batches = [[batch(paths) for paths in layer] for layer in layers]
    assert rows_touched(base("bd", "fh", "xy"), batches, 1000) == rows


def test_counting_stops_behind_the_bound() -> None:
    assert rows_touched(base("bd", "fh", "xy"), [[batch("bfx")]], 15) == 20


def test_nothing_of_an_empty_listing_is_touched() -> None:
    assert rows_touched(EMPTY_METARANGE, [[batch("abc")]], 10) == 0


async def test_rows_are_read_up_to_the_bound_over_all_tokens(stores: Stores) -> None:
    order = await stores.order({f"{n:05}": n for n in range(2500)}, {"a": 1, "b": 2})
    found = await few_rows(stores.kv, order.tokens, 2502)
    assert found is not None
    paths = [[path for b in layer for path in b.column("path").to_pylist()] for layer in found]
    assert paths == [[f"{n:05}" for n in range(2500)], ["a", "b"]]
    assert await few_rows(stores.kv, order.tokens, 2501) is None


async def test_one_read_tells_that_a_token_has_too_many_rows(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = await stores.order({f"{n:05}": n for n in range(2500)})
    limits = []
    scan = stores.kv.scan

    async def counted(partition: Partition, start: bytes, end: bytes | None, limit: int) -> object:
        limits.append(limit)
        return await scan(partition, start, end, limit)

    monkeypatch.setattr(stores.kv, "scan", counted)
    assert await few_rows(stores.kv, order.tokens, HeavyLimits().rows_here) is None
    assert limits == [HeavyLimits().rows_here + 1]


async def test_rows_that_are_reset_are_not_read(stores: Stores) -> None:
    order = await stores.order({f"b/{n:05}": n for n in range(2500)} | {"a": 1, "b": 2, "c": 3})
    found = await few_rows(stores.kv, order.tokens, 3, PathSpan.of_prefix("b/"))
    assert found is not None
    assert [path for b in found[0] for path in b.column("path").to_pylist()] == ["a", "b", "c"]
    assert await few_rows(stores.kv, order.tokens, 2, PathSpan.of_prefix("b/")) is None


@pytest.mark.parametrize(
    ("span", "rows"),
    [
        (None, 40),
        (PathSpan("a", "b"), 0),
        (PathSpan("d", "e"), 20),
        (PathSpan("e", "f"), 0),
        (PathSpan("z", None), 10),
        (PathSpan("d", "z"), 30),
    ],
)
def test_rows_of_ranges_that_only_one_listing_has_are_apart(
    span: PathSpan | None, rows: int
) -> None:
    left = base("bd", "fh", "xy")
    first, shared, _ = left.ranges
    right = Metarange(
        (
            replace(first, range_id=RangeId("a" * 64)),
            shared,
            replace(first, range_id=RangeId("b" * 64), min_path="z", max_path="z"),
        )
    )
    assert rows_apart(left, right, span) == rows

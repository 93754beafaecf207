"""The slices of a listing: every block is in exactly one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tarn.collection.block_names import BlockKind
from tarn.core.ids import physical_path
from tarn_spark.collection.slices import Slice, data_slices, metadata_slices

HOUR_MS = 3_600_000
YEAR_HOURS = 8766
NOW_HOUR = 56 * YEAR_HOURS
LAST_HOUR = 70_389_527
"""The last hour of the year 9999."""


def path_at(hour: int, tail: bytes = bytes(10)) -> str:
    return physical_path((hour * HOUR_MS).to_bytes(6, "big") + tail)


def by_prefix(slices: list[Slice]) -> dict[str, list[Slice]]:
    found: dict[str, list[Slice]] = {}
    for each in slices:
        found.setdefault(each.prefix, []).append(each)
    return found


def holders(slices: dict[str, list[Slice]], path: str) -> list[Slice]:
    """Returns the slices in whose listing a path comes."""
    prefixes = (path[:length] for length in range(len(path) + 1))
    return [each for prefix in prefixes for each in slices.get(prefix, ()) if path > each.after]


hours = st.one_of(
    st.integers(0, LAST_HOUR),
    st.integers(NOW_HOUR - 50, NOW_HOUR + 50),
    st.sampled_from([0, 23, 24, LAST_HOUR, NOW_HOUR - 50_000, NOW_HOUR - 50_001]),
)


@settings(max_examples=30)
@given(st.lists(hours, min_size=1, max_size=30), st.binary(min_size=10, max_size=10))
def test_every_block_of_data_is_in_one_slice(found: list[int], tail: bytes) -> None:
    paths = sorted(path_at(hour, tail) for hour in found)
    slices = data_slices(paths[0], NOW_HOUR * HOUR_MS * 1000)
    assert len(slices) <= 50_001
    sliced = by_prefix(slices)
    for path in paths:
        assert len(holders(sliced, path)) == 1, path


def test_a_slice_is_an_hour_and_the_last_one_has_what_is_in_the_future() -> None:
    slices = data_slices("data/2026112307/x", (NOW_HOUR * HOUR_MS) * 1000)
    assert slices[0] == Slice(BlockKind.DATA, "data/2026112307/")
    first = data_slices("data/2026112322/x", 1_795_478_400_000_000 - 1)  # before midnight
    assert [(each.prefix, each.after) for each in first] == [
        ("data/2026112322/", ""),
        ("data/2026112323/", ""),
        ("data/", "data/20261123230"),
    ]


@given(st.binary(min_size=32, max_size=32), st.sampled_from([BlockKind.RANGE, BlockKind.METARANGE]))
def test_every_listing_is_in_one_slice(key: bytes, kind: BlockKind) -> None:
    path = f"{kind.prefix}{key.hex()}.parquet"
    assert len(holders(by_prefix(metadata_slices(kind)), path)) == 1

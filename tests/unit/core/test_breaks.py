"""The ends of ranges: the hash, the caps, and the independence of each range from the rows before it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listings import Listing, listings, paths, run_of, sample_entry

from tarn.block.rangefile import describe_range
from tarn.core.listing import breaks
from tarn.core.listing.breaks import BreakRule, Cutter, hash_paths
from tarn.core.listing.run import Run, concat_runs

MASK = (1 << 64) - 1


def hash_by_the_book(path: str) -> int:
    """The hash as specified in `docs/formats/range.md`."""
    data = path.encode()
    value = (len(data) + 1) * 0x9E3779B97F4A7C15 & MASK
    for at in range(0, len(data), 8):
        value = (value ^ int.from_bytes(data[at : at + 8], "little")) * 0xFF51AFD7ED558CCD & MASK
        value ^= value >> 32
    value = value * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ value >> 32


def cut(run: Run, rule: BreakRule, piece: int = 1 << 30, finer: int = 0) -> list[Run]:
    cutter = Cutter(rule, finer)
    ranges = []
    for at in range(0, len(run), piece):
        ranges += cutter.add(run.slice(at, min(at + piece, len(run))))
    last = cutter.finish()
    return ranges if last is None else [*ranges, last]


def ends(ranges: list[Run]) -> list[str]:
    return [run.last_path for run in ranges]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a", 0x2913C8D787F4956A),
        ("a\x00", 0xBDB89EF13E7EA9D8),
        ("12345678", 0x6150E804B86A9586),
        ("lake/events/part-000000001.parquet", 0x1752AE281FF7C36F),
        ("é", 0xB78F61480E677252),
    ],
)
def test_the_hash_is_golden(path: str, expected: int) -> None:
    assert int(hash_paths(pa.array([path]))[0]) == expected


@given(st.lists(paths(), max_size=20), st.integers(0, 5))
def test_the_hash_is_that_of_the_format_page(names: list[str], start: int) -> None:
    array = pa.array([*names[:start], *names], pa.string()).slice(min(start, len(names)))
    assert hash_paths(array).tolist() == [hash_by_the_book(name) for name in names]


@given(st.integers(0, 20), st.integers(1, 3), st.data())
def test_paths_of_one_length_are_hashed_like_others(
    length: int, block: int, data: st.DataObject
) -> None:
    texts = st.text("ab/\0", min_size=length, max_size=length)
    names = data.draw(st.lists(texts, max_size=8))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(breaks, "_BLOCK_ROWS", block)
        assert hash_paths(pa.array(names, pa.string())).tolist() == [
            hash_by_the_book(name) for name in names
        ]


def test_one_row_in_rows_mean_ends_a_range() -> None:
    names = pa.array([f"lake/events/part-{number:09}.parquet" for number in range(200_000)])
    assert 160 <= int(BreakRule(rows_mean=1000).ends_after(names).sum()) <= 240


@given(listings(), st.integers(1, 6), st.integers(1, 10), st.integers(80, 2000), st.integers(1, 9))
def test_ranges_do_not_depend_on_how_rows_arrive(
    listing: Listing, mean: int, rows_max: int, bytes_max: int, piece: int
) -> None:
    rule, run = BreakRule(mean, rows_max, bytes_max), run_of(listing)
    whole = cut(run, rule)
    assert ends(cut(run, rule, piece)) == ends(whole)
    assert [path for part in whole for path in part.paths.to_pylist()] == sorted(listing)


@given(
    listings(),
    st.sampled_from([1, 2, 6, 8, 22]),
    st.integers(1, 10),
    st.integers(80, 2000),
    st.booleans(),
    st.sets(st.integers(0, 30)),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_rows_of_old_ranges_are_cut_as_if_they_were_new(
    listing: Listing,
    mean: int,
    rows_max: int,
    bytes_max: int,
    was_finer: bool,
    removed: set[int],
    piece: int,
    finer: int,
) -> None:
    """Ranges of which some rows are gone, among them the last ones, so that they join their successors."""
    rule, run = BreakRule(mean, rows_max, bytes_max), run_of(listing)
    cutter, made, kept = Cutter(rule, finer), list[Run](), list[Run]()
    for number, old in enumerate(cut(run, rule.finer() if was_finer else rule)):
        rows = old.slice(0, len(old) - 1) if number in removed else old
        for at in range(0, len(rows), piece):
            part = rows.slice(at, min(at + piece, len(rows)))
            kept.append(part)
            made += cutter.add(part, is_old=True)
    last = cutter.finish()
    made += [] if last is None else [last]
    assert ends(made) == ends(cut(concat_runs(kept), rule, finer=finer))


@given(listings(), st.integers(1, 6), st.integers(1, 10), st.integers(80, 2000))
def test_where_a_range_ends_depends_only_on_rows_since_the_last_cut(
    listing: Listing, mean: int, rows_max: int, bytes_max: int
) -> None:
    rule, run = BreakRule(mean, rows_max, bytes_max), run_of(listing)
    whole, at = cut(run, rule), 0
    for number, part in enumerate(whole):
        assert ends(cut(run.slice(at), rule)) == ends(whole[number:])
        at += len(part)


@given(listings(), st.integers(1, 6), st.integers(1, 10), st.integers(80, 2000))
def test_a_range_ends_by_the_rule_unless_it_is_the_last(
    listing: Listing, mean: int, rows_max: int, bytes_max: int
) -> None:
    rule = BreakRule(mean, rows_max, bytes_max)
    whole = cut(run_of(listing), rule)
    for part in whole[:-1]:
        assert rule.is_closed(part.last_path, len(part), part.size_bytes)
    for part in whole:
        assert len(part) <= rows_max
        inner = part.slice(0, len(part) - 1)
        assert not rule.ends_after(inner.paths).any()
        assert inner.size_bytes < bytes_max


@given(
    listings(),
    st.sampled_from([1, 2, 6, 7, 8, 22]),
    st.integers(1, 10),
    st.integers(80, 2000),
    st.integers(1, 9),
    st.integers(0, 6),
)
def test_the_first_ranges_are_cut_finer_and_the_others_by_the_rule(
    listing: Listing, mean: int, rows_max: int, bytes_max: int, piece: int, finer: int
) -> None:
    rule, run = BreakRule(mean, rows_max, bytes_max), run_of(listing)
    whole = cut(run, rule, finer=finer)
    assert ends(cut(run, rule, piece, finer)) == ends(whole)
    assert ends(whole[:finer]) == ends(cut(run, rule.finer()))[:finer]
    at = sum(len(part) for part in whole[:finer])
    assert ends(whole[finer:]) == ends(cut(run.slice(at), rule))


@given(listings(), st.sampled_from([1, 2, 6, 7, 8, 22, 20_000]))
def test_each_end_of_a_rule_is_one_of_the_finer_rule(listing: Listing, mean: int) -> None:
    rule, names = BreakRule(mean), run_of(listing).paths
    assert not (rule.ends_after(names) & ~rule.finer().ends_after(names)).any()


def test_the_finer_rule_ends_eight_times_as_many_ranges() -> None:
    assert BreakRule().finer() == BreakRule(rows_mean=2_500)
    assert BreakRule(rows_mean=100).finer() == BreakRule(rows_mean=20)


@given(listings(), st.integers(1, 6), st.integers(1, 10), st.integers(80, 2000))
def test_open_ranges_are_those_that_the_rule_did_not_end(
    listing: Listing, mean: int, rows_max: int, bytes_max: int
) -> None:
    rule = BreakRule(mean, rows_max, bytes_max)
    infos = [describe_range(part) for part in cut(run_of(listing), rule.finer())]
    assert rule.open_ranges(infos) == [
        info for info in infos if not rule.is_closed(info.max_path, info.count, info.size_bytes)
    ]


def test_caps_hold_where_no_hash_ends_a_range() -> None:
    run = run_of({f"k{number:04}": sample_entry(number) for number in range(100)})
    by_rows = cut(run, BreakRule(1 << 60, 30, 1 << 30))
    assert [len(part) for part in by_rows] == [30, 30, 30, 10]
    row_bytes = run.slice(0, 1).size_bytes
    by_bytes = cut(run, BreakRule(1 << 60, 1 << 30, 40 * row_bytes - 1))
    assert [len(part) for part in by_bytes] == [40, 40, 20]


def test_a_row_larger_than_the_cap_is_a_range() -> None:
    run = run_of({f"k{number}": sample_entry(number) for number in range(3)})
    assert [len(part) for part in cut(run, BreakRule(1 << 60, 9, 1))] == [1, 1, 1]


def test_without_rows_there_is_no_range() -> None:
    cutter = Cutter(BreakRule())
    assert cutter.add(run_of({})) == []
    assert cutter.is_at_cut
    assert cutter.finish() is None

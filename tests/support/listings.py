"""Listings for tests: dicts of packed entries, as runs, as streams, and as random examples."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import pyarrow as pa
from hypothesis import strategies as st

from tarn.core.entry import TOMBSTONE, Checksum, Entry, pack
from tarn.core.listing.changes import Counts
from tarn.core.listing.run import RUN_SCHEMA, Run

__all__ = [
    "Change",
    "Listing",
    "applied",
    "change_sets",
    "changes_between",
    "counts_of",
    "entries",
    "listings",
    "paths",
    "run_of",
    "sample_entry",
    "staged",
]

Listing = dict[str, bytes]
"""Path → packed entry; in a set of changes also `TOMBSTONE`."""

Change = tuple[str, bytes, bytes]
"""A path that differs, and its packed entries on the left and on the right, empty for none."""


def sample_entry(number: int) -> bytes:
    """Returns a small packed entry; different numbers differ in every field of the head."""
    name = number.to_bytes(16, "big")
    return pack(Entry(number, 1_000_000 + number, name, name[::-1], content_type="text/plain"))


def run_of(listing: Mapping[str, bytes]) -> Run:
    """Returns a listing as a run."""
    rows = sorted(listing.items())
    return Run(
        pa.array([path for path, _ in rows], pa.string()),
        pa.array([value for _, value in rows], pa.binary()),
    )


async def staged(
    listing: Mapping[str, bytes], batch_rows: int = 1000
) -> AsyncIterator[pa.RecordBatch]:
    """Yields a listing as a stream of batches, as `Kv.scan_arrow` does."""
    run = run_of(listing)
    for at in range(0, len(run), batch_rows):
        rows = run.slice(at, min(at + batch_rows, len(run)))
        yield pa.RecordBatch.from_arrays([rows.paths, rows.values], schema=RUN_SCHEMA)


def applied(base: Mapping[str, bytes], changes: Mapping[str, bytes]) -> Listing:
    """Applies changes to a listing by definition: the model that the engine is compared with."""
    after = dict(base)
    for path, value in changes.items():
        if value == TOMBSTONE:
            after.pop(path, None)
        elif path not in after or after[path][50:66] != value[50:66]:
            after[path] = value
    return after


def changes_between(left: Mapping[str, bytes], right: Mapping[str, bytes]) -> list[Change]:
    """Returns the differences of two listings, by definition."""
    both = [
        (path, left.get(path, b""), right.get(path, b"")) for path in left.keys() | right.keys()
    ]
    return sorted(change for change in both if change[1][50:66] != change[2][50:66])


def counts_of(changes: Sequence[Change]) -> Counts:
    """Counts the changes of each kind."""
    return Counts(
        added=sum(not left for _, left, _ in changes),
        updated=sum(bool(left and right) for _, left, right in changes),
        removed=sum(not right for _, _, right in changes),
    )


def paths() -> st.SearchStrategy[str]:
    """Few different paths, so that they collide; with NULs, all lengths of UTF-8, and the longest possible
    path.
    """
    short = st.text("ab/\0é\U0010ffff", min_size=1, max_size=3)
    numbered = st.integers(0, 150).map("k{:03}".format)
    return st.one_of(short, numbered, st.sampled_from(["x" * 1024, "x" * 1023, "é" * 512]))


def listings(max_size: int = 40) -> st.SearchStrategy[Listing]:
    """Listings of few different entries."""
    values = st.integers(0, 5).map(sample_entry)
    return st.dictionaries(paths(), values, max_size=max_size)


def change_sets(max_size: int = 40) -> st.SearchStrategy[Listing]:
    """Staged rows: entries and tombstones."""
    values = st.one_of(st.just(TOMBSTONE), st.integers(0, 5).map(sample_entry))
    return st.dictionaries(paths(), values, max_size=max_size)


def entries() -> st.SearchStrategy[Entry]:
    """Entries with any fields, as the gateway makes them."""
    text = st.text(st.characters(codec="utf-8"), max_size=12)
    names = st.sampled_from(["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
    return st.builds(
        Entry,
        size=st.integers(0, 5 << 40),
        mtime_us=st.integers(-(1 << 63), (1 << 63) - 1),
        address=st.binary(min_size=16, max_size=16),
        md5=st.binary(min_size=16, max_size=16),
        etag_parts=st.integers(0, 10_000),
        content_type=text,
        metadata=st.dictionaries(text, text, max_size=4).map(
            lambda pairs: tuple(sorted(pairs.items()))
        ),
        content_encoding=text,
        cache_control=text,
        content_disposition=text,
        content_language=text,
        expires=text,
        lineage=text,
        operation_id=text,
        judged_move_us=st.integers(0, 2**62),
        replaced_address=st.one_of(st.just(b""), st.binary(min_size=16, max_size=16)),
        external_address=text,
        parts=st.binary(max_size=20),
        tags=st.dictionaries(text, text, max_size=3).map(
            lambda pairs: tuple(sorted(pairs.items()))
        ),
        checksums=st.lists(
            st.builds(Checksum, names, text, st.booleans()),
            unique_by=lambda checksum: checksum.algorithm,
            max_size=2,
        ).map(tuple),
    )

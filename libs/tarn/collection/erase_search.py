"""Finds the objects of an erasure: all entries of all history whose paths match, and the other entries that refer to
their blocks.

Two passes, each in the order of the roots (docs/design/collection.md): staged rows, then the listings of compactions
and commits. The first pass finds the matching entries. It opens only ranges that can hold a matching path. The second
pass opens every range, and finds the other paths that refer to the same addresses: copies by reference. No new entry
can refer to an address that is older than a copy by reference may be. So an entry that the second pass misses has moved
forward into data that it reads later.

Memory grows with the objects that are found, and with the number of ranges, not with the lake.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError, ReadBlocks, read_whole
from tarn.block.rangefile import decode_metarange, decode_range, metarange_path, range_path
from tarn.collection.progress import CollectionProgress
from tarn.collection.references import RootBatch
from tarn.core.collection import LISTING_IDS_MAX
from tarn.core.entry import FLAG_EXTERNAL, FLAG_TOMBSTONE
from tarn.core.erasure import ADDRESS_BYTES, literal_prefix
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.glob import match_glob
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.listing.metarange import EMPTY_METARANGE, RangeInfo
from tarn.core.listing.run import heads_of

__all__ = [
    "ROWS_MAX",
    "SearchResult",
    "HistoryRoots",
    "StagedBatch",
    "addresses_of",
    "find_matching",
    "find_others",
    "may_hold",
    "missing_error",
    "rows_of",
]

ROWS_MAX: Final = 1_000_000
"""Most pairs of a path and an address in one plan: they are held in memory."""
_OPENED_AT_ONCE: Final = 4
_COLUMNS: Final = pa.schema(
    [("path", pa.string()), ("address", pa.binary(ADDRESS_BYTES)), ("size", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """Some staged rows of one branch.

    Attributes:
        branch_id: the branch.
        rows: columns path, address, size.
    """

    branch_id: str
    rows: pa.Table


class HistoryRoots(Protocol):
    """The data of a repository that graveler sends under a lease; each call reads it anew."""

    def staged(self, prefix: str) -> AsyncGenerator[StagedBatch, None]:
        """Yields the staged rows of all branches whose paths have a prefix."""
        ...

    def read_roots(self) -> AsyncGenerator[RootBatch, None]:
        """See `tarn.collection.references.Roots`."""
        ...

    async def in_use(self, listings: Sequence[MetarangeId]) -> set[MetarangeId]:
        """See `tarn.collection.references.Roots`."""
        ...

    async def heads(self) -> Mapping[str, MetarangeId]:
        """Returns the listing of the head of each branch."""
        ...

    async def compacted(self) -> Mapping[str, MetarangeId]:
        """Returns the compacted listing of each branch that has one."""
        ...


@dataclass(slots=True)
class SearchResult:
    """The result of a search.

    Attributes:
        rows: columns path, address, size; each pair of path and address once.
        heads: matching objects in the committed head of each branch, zeros left out.
        staged: matching staged rows of each branch, zeros left out.
        outside: matching entries of listings whose data is outside the namespace.
        incomplete: listings that are not in use, and whose files are missing.
    """

    rows: pa.Table
    heads: dict[str, int] = field(default_factory=dict)
    staged: dict[str, int] = field(default_factory=dict)
    outside: int = 0
    incomplete: tuple[str, ...] = ()


async def find_matching(
    roots: HistoryRoots,
    blocks: ReadBlocks,
    namespace: str,
    pattern: str,
    progress: CollectionProgress,
) -> SearchResult:
    """Finds all entries of a repository whose paths match a pattern.

    Raises:
        TarnError: EXHAUSTED: there are more than `ROWS_MAX`; CORRUPT: a file of a listing that is needed is missing or
            damaged; any error of the roots or the store.
    """
    pairs = _Pairs()
    found = SearchResult(pairs.table())
    prefix = literal_prefix(pattern)
    progress.begin("read uncommitted changes")
    async with aclosing(roots.staged(prefix)) as batches:
        async for batch in batches:
            rows = batch.rows.filter(pa.array(match_glob(_paths(batch.rows), pattern)))
            if len(rows):
                found.staged[batch.branch_id] = found.staged.get(batch.branch_id, 0) + len(rows)
                pairs.add(rows)
            progress.done += 1
    listings = _Listings(roots, blocks, namespace, progress)
    await listings.read()
    counts: dict[str, int] = {}

    def look(range_id: str, rows: pa.Table, is_outside: npt.NDArray[np.bool_]) -> None:
        matched = match_glob(_paths(rows), pattern)
        counts[range_id] = int(matched.sum())
        found.outside += int((matched & is_outside).sum())
        pairs.add(rows.filter(pa.array(matched & ~is_outside)))

    wanted = [each for each in listings.ranges.values() if may_hold(each, prefix)]
    await listings.open(wanted, look)
    for branch_id, listing in (await roots.heads()).items():
        count = sum(counts.get(each, 0) for each in listings.named.get(listing, ()))
        if count:
            found.heads[branch_id] = count
    found.incomplete = await listings.abandoned()
    found.rows = pairs.table()
    return found


async def find_others(
    roots: HistoryRoots,
    blocks: ReadBlocks,
    namespace: str,
    found: pa.Table,
    progress: CollectionProgress,
) -> pa.Table:
    """Returns the entries of a repository that refer to the addresses of `found` by pairs that are not in it.

    Raises:
        TarnError: as `find_matching`.
    """
    pairs = _Pairs()
    addresses = pc.unique(found["address"])
    if not len(addresses):
        return pairs.table()
    progress.begin("look for other paths of the same data")
    async with aclosing(roots.staged("")) as batches:
        async for batch in batches:
            pairs.add(batch.rows.filter(pc.is_in(batch.rows["address"], value_set=addresses)))
            progress.done += 1
    listings = _Listings(roots, blocks, namespace, progress)
    await listings.read()

    def look(_: str, rows: pa.Table, is_outside: npt.NDArray[np.bool_]) -> None:
        rows = rows.filter(pa.array(~is_outside))
        pairs.add(rows.filter(pc.is_in(rows["address"], value_set=addresses)))

    await listings.open(listings.ranges.values(), look)
    await listings.abandoned()
    return pairs.table().join(
        found.select(["path", "address"]), ["path", "address"], join_type="left anti"
    )


class _Pairs:
    """Rows of path, address and size, each pair of path and address once."""

    def __init__(self) -> None:
        self._whole = _COLUMNS.empty_table()
        self._held: list[pa.Table] = []
        self._count = 0

    def add(self, rows: pa.Table) -> None:
        """Adds rows.

        Raises:
            TarnError: EXHAUSTED.
        """
        if not len(rows):
            return
        self._held.append(rows.cast(_COLUMNS))
        self._count += len(rows)
        if self._count > max(len(self._whole), 1 << 18):
            self._merge()

    def table(self) -> pa.Table:
        """Returns all rows, in order of path and address."""
        self._merge()
        return self._whole.sort_by([("path", "ascending"), ("address", "ascending")])

    def _merge(self) -> None:
        rows = pa.concat_tables([self._whole, *self._held])
        grouped = rows.group_by(["path", "address"]).aggregate([("size", "max")])
        columns = [grouped["path"], grouped["address"], grouped["size_max"]]
        self._whole = pa.table(columns, schema=_COLUMNS)
        self._held, self._count = [], 0
        if len(self._whole) > ROWS_MAX:
            text = f"more than {ROWS_MAX:,} objects match; erase them by several narrower patterns"
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)


class _Listings:
    """All listings of a repository, and their ranges.

    Attributes:
        ranges: of all listings, by id.
        named: the ids of the ranges of each listing.
    """

    def __init__(
        self, roots: HistoryRoots, blocks: ReadBlocks, namespace: str, progress: CollectionProgress
    ) -> None:
        self._roots = roots
        self._blocks = blocks
        self._namespace = namespace
        self._progress = progress
        self._missing: dict[MetarangeId, str] = {}
        self.ranges: dict[str, RangeInfo] = {}
        self.named: dict[MetarangeId, tuple[str, ...]] = {}

    async def read(self) -> None:
        """Reads the roots, and the metaranges that they name: also those of expired commits."""
        wanted: dict[MetarangeId, None] = {}
        async with aclosing(self._roots.read_roots()) as batches:
            async for batch in batches:
                for keys in (batch.metaranges, batch.emptied):
                    for at in range(0, len(keys), 32):
                        wanted[MetarangeId(keys[at : at + 32].hex())] = None
        wanted.pop(EMPTY_METARANGE.metarange_id, None)
        self._progress.begin("open listings", len(wanted))
        await for_each(wanted, self._metarange, _OPENED_AT_ONCE)

    async def _metarange(self, listing: MetarangeId) -> None:
        self._progress.done += 1
        try:
            body = await read_whole(
                self._blocks, BlockKey(self._namespace, metarange_path(listing))
            )
        except BlockNotFoundError:
            self._lack(listing, metarange_path(listing))
            return
        metarange = await asyncio.to_thread(decode_metarange, listing, body)
        self.named[listing] = tuple(each.range_id for each in metarange.ranges)
        for each in metarange.ranges:
            self.ranges.setdefault(each.range_id, each)

    async def open(self, ranges: Iterable[RangeInfo], look: _Look) -> None:
        """Calls `look` with the rows of each range, except for tombstones."""
        wanted = list(ranges)
        self._progress.begin("open ranges", len(wanted))
        lost: set[str] = set()

        async def work(info: RangeInfo) -> None:
            self._progress.done += 1
            range_id = RangeId(info.range_id)
            try:
                body = await read_whole(
                    self._blocks, BlockKey(self._namespace, range_path(range_id))
                )
            except BlockNotFoundError:
                lost.add(info.range_id)
                return
            look(info.range_id, *await asyncio.to_thread(rows_of, range_id, body))

        await for_each(wanted, work, _OPENED_AT_ONCE)
        if lost:
            for listing, named in self.named.items():
                for range_id in lost.intersection(named):
                    self._lack(listing, range_path(RangeId(range_id)))

    def _lack(self, listing: MetarangeId, path: str) -> None:
        self._missing[listing] = path
        if len(self._missing) > LISTING_IDS_MAX:
            raise missing_error(self._namespace, path)

    async def abandoned(self) -> tuple[str, ...]:
        """Returns the listings whose files are missing, after asking graveler whether they are in use.

        Raises:
            TarnError: CORRUPT: one of them is.
        """
        if not self._missing:
            return ()
        for listing in sorted(await self._roots.in_use(sorted(self._missing))):
            raise missing_error(self._namespace, self._missing[listing])
        return tuple(sorted(self._missing))


class _Look(Protocol):
    def __call__(
        self, range_id: str, rows: pa.Table, is_outside: npt.NDArray[np.bool_], /
    ) -> None: ...


def addresses_of(packed: bytes) -> pa.Array:
    """Returns addresses that follow one another as a column; copies nothing."""
    count = len(packed) // ADDRESS_BYTES
    return pa.Array.from_buffers(pa.binary(ADDRESS_BYTES), count, [None, pa.py_buffer(packed)])


def rows_of(range_id: RangeId, body: bytes) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Returns path, address and size of a range's entries, and which have their data outside the namespace."""
    run = decode_range(range_id, body)
    heads = heads_of(run.values)
    packed = np.ascontiguousarray(heads["address"]).tobytes()
    sizes = pa.array(heads["size"].astype(np.int64))
    rows = pa.table([run.paths, addresses_of(packed), sizes], schema=_COLUMNS)
    is_entry = (heads["flags"] & FLAG_TOMBSTONE) == 0
    is_outside = (heads["flags"] & FLAG_EXTERNAL) != 0
    return rows.filter(pa.array(is_entry)), is_outside[is_entry]


def _paths(rows: pa.Table) -> pa.StringArray:
    return (
        pa.concat_arrays(rows["path"].chunks)
        if rows["path"].num_chunks
        else pa.array([], pa.string())
    )


def may_hold(info: RangeInfo, prefix: str) -> bool:
    """Whether a range may hold a path with a prefix. Paths are in the order of their UTF-8, which Python's is, too."""
    return info.max_path >= prefix and info.min_path[: len(prefix)] <= prefix


def missing_error(namespace: str, path: str) -> TarnError:
    """Returns the error for a file of a listing that is needed and missing."""
    text = (
        f"{path} in {namespace} is missing, so the objects that match cannot all be found; "
        "nothing was deleted; run tarn fsck"
    )
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=path)

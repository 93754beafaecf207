"""Commits → metaranges → ranges: reads each file once, however many commits share it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.block.rangefile import (
    decode_metarange,
    decode_range,
    describe_range,
    metarange_path,
    range_path,
)
from tarn.core.errors import TarnError
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.listing.metarange import EMPTY_METARANGE, Metarange, RangeInfo
from tarn.core.listing.run import Run, tombstones_of
from tarn.fsck.finding import Code
from tarn.fsck.references import ANY_SIZE, RECORD, Records, References, records_of
from tarn.fsck.session import Lake, or_corrupt

__all__ = ["Listings", "read_range"]

_RangeRow = tuple[str, str, str, int, int, int, str, int]


async def read_range(lake: Lake, range_id: RangeId) -> Run:
    """Reads the rows of a range from the block store, not from a cache.

    Raises:
        BlockNotFoundError: the file does not exist.
        TarnError: CORRUPT.
    """
    body = await lake.session.reads.read(BlockKey(lake.namespace, range_path(range_id)))
    return cast("Run", await lake.session.compute(lambda: decode_range(range_id, body)))


class Listings:
    """Checks the metaranges and ranges of one repository."""

    def __init__(self, lake: Lake, references: References) -> None:
        self._lake = lake
        self._references = references
        self._state = lake.session.state

    async def gather(self) -> None:
        """Reads files that were not read yet: metaranges first, then the ranges that they name."""
        self._find_whole()
        await self._each(
            "metaranges",
            "SELECT metarange_id, referrer FROM metaranges"
            " WHERE uid=? AND NOT done AND metarange_id>? ORDER BY metarange_id",
            self._metarange,
        )
        contradicted = self._state.all(
            "SELECT range_id, metarange_id, contradicted_by FROM ranges"
            " WHERE uid=? AND contradicted_by<>''",
            self._lake.uid,
        )
        for range_id, first, second in contradicted:
            text = f"metaranges {first} and {second} describe it differently"
            self._lake.find(Code.RANGE_BOUNDS, f"range {range_id}", text)
        self._state.save()
        await self._each(
            "ranges",
            "SELECT range_id, min_path, max_path, count, size_bytes, object_bytes, metarange_id,"
            " whole FROM ranges WHERE uid=? AND NOT done AND range_id>? ORDER BY range_id",
            self._range,
        )

    def _find_whole(self) -> None:
        """Marks the listings whose blocks must be there: all but those that only expired commits without a ref have."""
        self._state.change(
            "UPDATE metaranges SET whole=1 WHERE uid=?1 AND metarange_id NOT IN ("
            " SELECT metarange_id FROM commits JOIN expired USING (uid, commit_id) WHERE uid=?1"
            " AND commit_id NOT IN (SELECT commit_id FROM refs WHERE uid=?1))",
            self._lake.uid,
        )
        self._state.change(
            "UPDATE metaranges SET whole=1 WHERE uid=?1 AND metarange_id IN ("
            " SELECT metarange_id FROM commits WHERE uid=?1 AND (commit_id NOT IN"
            " (SELECT commit_id FROM expired WHERE uid=?1)"
            " OR commit_id IN (SELECT commit_id FROM refs WHERE uid=?1))"
            " UNION SELECT metarange_id FROM refs WHERE uid=?1)",
            self._lake.uid,
        )

    async def _each(self, table: str, query: str, work: Callable[[Any], Awaitable[None]]) -> None:
        uid, session = self._lake.uid, self._lake.session
        total = self._state.count(f"SELECT count(*) FROM {table} WHERE uid=?", uid)  # noqa: S608 - one of two names
        done = self._state.count(f"SELECT count(*) FROM {table} WHERE uid=? AND done", uid)  # noqa: S608 - likewise
        session.progress.begin(f"{self._lake.repository.repository_id}: {table}", total, done)
        await for_each(self._state.pages(query, uid), work, session.options.concurrency)

    async def _metarange(self, row: tuple[str, str]) -> None:
        metarange_id, referrer = MetarangeId(row[0]), row[1]
        session = self._lake.session
        subject = f"metarange {metarange_id}"
        if metarange_id != EMPTY_METARANGE.metarange_id:
            key = BlockKey(self._lake.namespace, metarange_path(metarange_id))
            try:
                body = await session.reads.read(key)
                found = await session.compute(lambda: decode_metarange(metarange_id, body))
            except BlockNotFoundError:
                text = f"{referrer} names it; {key.path} does not exist"
                self._lake.find(Code.METARANGE_MISSING, subject, text)
            except TarnError as error:
                text = f"{referrer} names it; {or_corrupt(error)}"
                self._lake.find(Code.METARANGE_DAMAGED, subject, text)
            else:
                self._add(cast("Metarange", found))
        query = "UPDATE metaranges SET done=1 WHERE uid=? AND metarange_id=?"
        self._state.change(query, self._lake.uid, metarange_id)
        session.progress.done += 1

    def _add(self, metarange: Metarange) -> None:
        query = "SELECT count(*) FROM metaranges WHERE uid=? AND metarange_id=? AND whole"
        is_whole = self._state.count(query, self._lake.uid, metarange.metarange_id)
        rows = [
            (
                self._lake.uid,
                info.range_id,
                info.min_path,
                info.max_path,
                info.count,
                info.size_bytes,
                info.object_bytes,
                metarange.metarange_id,
            )
            for info in metarange.ranges
        ]
        self._state.change_many(
            "INSERT INTO ranges (uid, range_id, min_path, max_path, count, size_bytes,"
            " object_bytes, metarange_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET contradicted_by=excluded.metarange_id"
            " WHERE (min_path, max_path, count, size_bytes, object_bytes) IS NOT"
            " (excluded.min_path, excluded.max_path, excluded.count, excluded.size_bytes,"
            " excluded.object_bytes)",
            rows,
        )
        if is_whole:
            self._state.change_many(
                "UPDATE ranges SET whole=1 WHERE uid=? AND range_id=?",
                [(self._lake.uid, info.range_id) for info in metarange.ranges],
            )

    async def _range(self, row: _RangeRow) -> None:
        info = RangeInfo(RangeId(row[0]), *row[1:6])
        session = self._lake.session
        subject = f"range {info.range_id}"
        named = f"metarange {row[6]} names it, for {info.min_path!r} to {info.max_path!r}"
        try:
            run = await read_range(self._lake, info.range_id)
        except BlockNotFoundError:
            text = f"{named}; {range_path(info.range_id)} does not exist"
            self._lake.find(Code.RANGE_MISSING, subject, text, info.object_bytes)
            self._done(info.range_id)
            return
        except TarnError as error:
            text = f"{named}; {or_corrupt(error)}"
            self._lake.find(Code.RANGE_DAMAGED, subject, text, info.object_bytes)
            self._done(info.range_id)
            return
        source = self._references.source("range", info.range_id)
        with_md5 = session.options.verify_data
        seen = await session.compute(lambda: _look_at(run, info, source, with_md5=with_md5))
        records, wrong, invalid = cast("_Seen", seen)
        if wrong:
            self._lake.find(Code.RANGE_BOUNDS, subject, f"{named}; {wrong}")
        for path in invalid:
            text = f"{path!r} in range {info.range_id} is a tombstone, or has an impossible address or size"
            self._lake.find(Code.ENTRY_INVALID, f"{subject} {path}", text)
        if not row[7]:  # an expired commit keeps its listing, and not the blocks
            records["size"] = ANY_SIZE
        self._references.add(records, lambda: self._done(info.range_id))
        session.progress.done += 1

    def _done(self, range_id: RangeId) -> None:
        query = "UPDATE ranges SET done=1 WHERE uid=? AND range_id=?"
        self._state.change(query, self._lake.uid, range_id)


_Seen = tuple[Records, str, list[str]]


def _look_at(run: Run, info: RangeInfo, source: int, *, with_md5: bool) -> _Seen:
    """Returns the references of a range, the damage of the range as a whole, and the paths of invalid
    entries.
    """
    if not len(run):
        return np.zeros(0, RECORD), "it is empty", []
    found = describe_range(run)
    wrong = ""
    if found != info:
        wrong = f"it holds {found.count} rows from {found.min_path!r} to {found.max_path!r}"
    elif pc.all(pc.less(run.paths.slice(0, len(run) - 1), run.paths.slice(1))).as_py() is False:
        wrong = "its paths are not sorted"
    records, impossible = records_of(run.values, source, with_md5=with_md5)
    rows = np.union1d(impossible, np.flatnonzero(tombstones_of(run.values)))
    return records, wrong, run.paths.take(pa.array(rows)).to_pylist()

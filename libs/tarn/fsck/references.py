"""The references to blocks: sorted runs of addresses in the state, merged when they are read.

This is an external sort. Each referrer (a range, a staging token, an upload) adds its addresses as
arrays; a fixed number of addresses makes a sorted run, which is written in parts. Merging takes one part
of each run at a time, so memory is bounded by the number of runs times 100 KiB, and there is never a
Python object per entry. Paths of blocks sort as their addresses do (`tarn.core.ids.physical_path`: both
start with the hour), so a merged run and a listing of the block store are two sorted sequences of the
same kind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarn.core.entry import FLAG_EXTERNAL, FLAG_TOMBSTONE, HEAD_BYTES, unpack
from tarn.core.ids import physical_path
from tarn.core.listing.run import heads_of, offsets_of
from tarn.fsck.state import State

__all__ = [
    "ANY_SIZE",
    "RECORD",
    "Records",
    "References",
    "SortedReferences",
    "address_of",
    "path_of_address",
    "records_of",
]

RECORD = np.dtype(
    [("address", "S16"), ("size", "<i8"), ("source", "<i4"), ("plain", "?"), ("md5", "V16")]
)
"""A reference. `S16` sorts like bytes; it drops trailing zeros, which `address_of` restores.

`plain` says that `md5` is the MD5 of the body.
"""
Records = np.ndarray

ANY_SIZE = -1
"""The size of a reference whose block may be missing: that of an incomplete upload, or of an expired commit."""

_TIME_MAX = (253_402_300_800_000).to_bytes(6, "big")
"""First milliseconds of the year 10000, which no path can contain."""
_RUN_RECORDS = 1 << 18
_PART_RECORDS = 2048


def address_of(record_address: bytes) -> bytes:
    """Returns the 16 bytes of an address as numpy stores it."""
    return record_address.ljust(16, b"\0")


def path_of_address(record_address: bytes) -> str:
    """Returns the path of the block at an address."""
    return physical_path(address_of(record_address))


def records_of(
    values: pa.BinaryArray, source: int, *, with_md5: bool
) -> tuple[Records, npt.NDArray[np.int64]]:
    """Returns the references of packed entries, each address once, and the rows with an impossible address.

    Tombstones, and entries whose bytes are elsewhere, have no references here.

    Args:
        values: packed entries with complete heads.
        source: number of the referrer.
        with_md5: whether to look for plain MD5s, which reads every tail.
    """
    heads = heads_of(values)
    is_here = (heads["flags"] & (FLAG_TOMBSTONE | FLAG_EXTERNAL)) == 0
    rows = np.flatnonzero(is_here)
    records = np.zeros(len(rows), RECORD)
    addresses = np.ascontiguousarray(heads["address"][rows])
    records["address"] = addresses.view("S16")
    records["size"] = heads["size"][rows]
    records["source"] = source
    records["md5"] = heads["md5"][rows]
    if with_md5:
        ends = offsets_of(values)
        whole = np.diff(ends)[rows] == HEAD_BYTES
        for at in np.flatnonzero(~whole).tolist():
            whole[at] = not unpack(values[int(rows[at])].as_py()).etag_parts
        records["plain"] = whole
    too_late = addresses.view("S16").astype("S6") >= _TIME_MAX
    impossible = rows[too_late | (records["size"] < 0)]
    records = records[~(too_late | (records["size"] < 0))]
    _, first = np.unique(records["address"], return_index=True)
    return records[first], impossible


class References:
    """Collects the references of one repository in one round.

    Args:
        round_number: 1 for the first round, 2 for the one that clears orphan candidates.
    """

    def __init__(self, state: State, uid: str, round_number: int) -> None:
        self._state = state
        self._place = (uid, round_number)
        self._held: list[Records] = []
        self._count = 0
        self._afterwards: list[Callable[[], None]] = []

    def source(self, kind: str, name: str) -> int:
        """Returns the number of a referrer."""
        uid = self._place[0]
        self._state.change(
            "INSERT OR IGNORE INTO sources (uid, kind, name) VALUES (?, ?, ?)", uid, kind, name
        )
        return self._state.count(
            "SELECT id FROM sources WHERE uid=? AND kind=? AND name=?", uid, kind, name
        )

    def add(self, records: Records, afterwards: Callable[[], None] | None = None) -> None:
        """Adds references; calls `afterwards`, which marks their source as done, once they are saved."""
        self._held.append(records)
        self._count += len(records)
        if afterwards is not None:
            self._afterwards.append(afterwards)
        if self._count >= _RUN_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Writes the buffered references."""
        if self._count:
            records = np.concatenate(self._held)
            records = records[np.argsort(records["address"], kind="stable")]
            run = 1 + self._state.count(
                "SELECT max(run) FROM runs WHERE uid=? AND round=?", *self._place
            )
            for part, start in enumerate(range(0, len(records), _PART_RECORDS)):
                rows = records[start : start + _PART_RECORDS]
                last = path_of_address(rows["address"][-1])
                self._state.change(
                    "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)",
                    *self._place,
                    run,
                    part,
                    last,
                    rows.tobytes(),
                )
        self._held, self._count = [], 0
        marks, self._afterwards = self._afterwards, []
        for mark in marks:
            mark()
        self._state.save()


class _Cursor:
    """The current part of one run."""

    __slots__ = ("_part", "_place", "_state", "records")

    def __init__(self, state: State, place: tuple[str, int, int], part: int) -> None:
        self._state = state
        self._place = place
        self._part = part
        self.records: Records = np.zeros(0, RECORD)
        self.advance()

    def advance(self) -> None:
        """Reads the next part; empty at the end."""
        found = self._state.all(
            "SELECT rows FROM runs WHERE uid=? AND round=? AND run=? AND part=?",
            *self._place,
            self._part,
        )
        self._part += 1
        body = found[0][0] if found else b""
        self.records = np.frombuffer(body, RECORD)

    def take(self, bound: bytes) -> Records:
        """Returns the records up to an address, inclusive."""
        end = int(np.searchsorted(self.records["address"], np.bytes_(bound), side="right"))
        taken, self.records = self.records[:end], self.records[end:]
        if not len(self.records):
            self.advance()
        return taken


class SortedReferences:
    """All references of a repository and round in the order of their addresses.

    Args:
        after: a path; only references to later paths are returned.
    """

    def __init__(self, state: State, uid: str, round_number: int, after: str = "") -> None:
        self._held: Records = np.zeros(0, RECORD)
        self._pieces = self._merged(state, uid, round_number, after)

    def upto(self, path: str | None) -> Iterator[Records]:
        """Yields the next references, up to the block of a path (inclusive); None: to the end."""
        while True:
            if not len(self._held):
                found = next(self._pieces, None)
                if found is None:
                    return
                self._held = found
            end = len(self._held)
            if path is not None:
                end = bisect_right(self._held["address"], path, key=path_of_address)
            taken, self._held = self._held[:end], self._held[end:]
            if len(taken):
                yield taken
            if len(self._held):
                return

    @staticmethod
    def _merged(state: State, uid: str, round_number: int, after: str) -> Iterator[Records]:
        runs = state.all(
            "SELECT run, min(part) FROM runs WHERE uid=? AND round=? AND last>? GROUP BY run",
            uid,
            round_number,
            after,
        )
        cursors = [_Cursor(state, (uid, round_number, run), part) for run, part in runs]
        while live := [cursor for cursor in cursors if len(cursor.records)]:
            bound = min(cursor.records["address"][-1] for cursor in live)
            taken = [part for cursor in live if len(part := cursor.take(bound))]
            piece = np.concatenate(taken)
            piece = piece[np.argsort(piece["address"], kind="stable")]
            if after:
                piece = piece[bisect_right(piece["address"], after, key=path_of_address) :]
            if len(piece):
                yield piece

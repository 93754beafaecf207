"""Decides where a range ends: after a path whose hash says so, wherever in the listing the path is.

The same entries must always give the same ranges, whatever their history. Then equal listings have equal ids,
and commits share all ranges that they do not change. So a range ends after the first of its rows, counted from
the beginning of the range, for which one of these holds:

    the hash of the path is 0 modulo `rows_mean`, or
    the range has `rows_max` rows, or
    the range has `bytes_max` bytes of paths and packed entries.

The decision at a row depends only on the rows since the last cut, so *every cut forgets the past*: two
sequences of rows that are cut at the same place are cut alike from there on. Therefore a commit that changes part of a
listing may begin to cut at any old range that begins at a cut. It may stop as soon as one of its cuts is the end of an
old range, since the rest of the listing is unchanged. The first rule makes that happen soon: one row in `rows_mean`
cuts, independent of the rows before it. A change shifts the cuts of the other two rules, but only up to the next such
row. Prior art: content-defined chunking (LBFS, rsync).

A compaction may cut the rows that it rewrites *finer*: at one row in `rows_mean / 8`, among them all rows at which the
rule itself cuts. Then the next compaction rewrites less beside its changes. Only listings of compactions are cut so; a
build of a commit over one cuts these ranges anew (`tarn.block.applying`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarn.core.listing.metarange import RangeInfo
from tarn.core.listing.run import Bools, Ints, Run, concat_runs, data_of, offsets_of

__all__ = ["BreakRule", "Cutter", "hash_paths"]

Hashes = npt.NDArray[np.uint64]

_SEED = np.uint64(0x9E3779B97F4A7C15)
_WORD = np.uint64(0xFF51AFD7ED558CCD)
_LAST = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(32)
_FINER_MAX = 8
_BLOCK_ROWS = 8192
"""Paths that are hashed at a time: their words and hashes stay in the processor's cache."""
_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)


def hash_paths(paths: pa.StringArray) -> Hashes:
    """Hashes all bytes of each path to 64 bits. Part of the format, so it never changes.

    Takes eight bytes of all paths at a time: `h = (h xor word) * C; h ^= h >> 32`, with the last word padded
    with zeros. The length is mixed in at the beginning, and one more round is added at the end.
    """
    pieces = [_hash_block(paths.slice(at, _BLOCK_ROWS)) for at in range(0, len(paths), _BLOCK_ROWS)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint64)


def _hash_block(paths: pa.StringArray) -> Hashes:
    ends = offsets_of(paths).astype(np.int64)
    starts, lengths = ends[:-1] - ends[0], np.diff(ends)
    hashes = (lengths.astype(np.uint64) + np.uint64(1)) * _SEED
    # Eight zeros at the end, so that a whole word can be read from every byte of a path.
    data = np.zeros(int(ends[-1] - ends[0]) + 8, np.uint8)
    data[:-8] = data_of(paths)[ends[0] : ends[-1]]
    if (lengths == lengths[0]).all():
        hashes = _hash_even(hashes, data, int(lengths[0]))
    else:
        hashes = _hash_uneven(hashes, data, starts, lengths)
    hashes *= _LAST
    hashes ^= hashes >> _SHIFT
    return hashes


def _hash_even(hashes: Hashes, data: npt.NDArray[np.uint8], length: int) -> Hashes:
    """`_hash_uneven` of paths of one length, as numbered files have: their words lie at even distances, in a third of
    the time."""
    for at in range(0, length, 8):
        word = np.ndarray(len(hashes), "<u8", data, offset=at, strides=(length,))
        hashes = _mix(hashes, word & _MASKS[min(length - at, 8)])
    return hashes


def _hash_uneven(hashes: Hashes, data: npt.NDArray[np.uint8], at: Ints, lengths: Ints) -> Hashes:
    """Hashes all words of the paths that begin at `at`, which is overwritten."""
    words = np.ndarray((len(data) - 7,), np.dtype("<u8"), data, strides=(1,))
    # While all paths have eight bytes left, the lengths of rows need not be checked.
    whole = int(lengths.min()) // 8
    for _ in range(whole):
        hashes = _mix(hashes, words[at])
        at += 8
    left = lengths - 8 * whole
    rows = np.flatnonzero(left)
    while len(rows):
        part = left[rows]
        word = words[at[rows]] & _MASKS[np.minimum(part, 8)]
        hashes[rows] = _mix(hashes[rows], word)
        at[rows] += 8
        left[rows] = np.maximum(part - 8, 0)
        rows = rows[part > 8]
    return hashes


def _mix(hashes: Hashes, word: Hashes) -> Hashes:
    """One round; overwrites `word`."""
    word ^= hashes
    word *= _WORD
    word ^= word >> _SHIFT
    return word


@dataclass(frozen=True, slots=True)
class BreakRule:
    """How listings are cut into ranges. An installation uses one rule for all listings: a listing that was
    cut by another rule can still be read, but shares no ranges with its successors.

    Attributes:
        rows_mean: on average, one row in this many ends a range by its hash.
        rows_max: a range never has more rows.
        bytes_max: a range ends with the row that reaches this many bytes of paths and packed entries.
    """

    rows_mean: int = 20_000
    rows_max: int = 100_000
    bytes_max: int = 32 << 20

    def __post_init__(self) -> None:
        assert min(self.rows_mean, self.rows_max, self.bytes_max) > 0, "a bound is not positive"

    def ends_after(self, paths: pa.StringArray) -> Bools:
        """Which paths end a range by their hash, whatever precedes them."""
        ends: Bools = hash_paths(paths) % np.uint64(self.rows_mean) == 0
        return ends

    def is_closed(self, last_path: str, count: int, size_bytes: int) -> bool:
        """Whether a range with this last row was ended by the rule, not by the end of the rows."""
        if count >= self.rows_max or size_bytes >= self.bytes_max:
            return True
        return bool(self.ends_after(pa.array([last_path], pa.string()))[0])

    def open_ranges(self, ranges: Sequence[RangeInfo]) -> list[RangeInfo]:
        """Returns the ranges that this rule would not have ended."""
        ends = self.ends_after(pa.array([info.max_path for info in ranges], pa.string()))
        return [
            info
            for info, is_end in zip(ranges, ends.tolist(), strict=True)
            if not is_end and info.count < self.rows_max and info.size_bytes < self.bytes_max
        ]

    def finer(self) -> BreakRule:
        """Returns a rule with up to eight times as many ends by the hash, among them all of this rule."""
        parts = max(n for n in range(1, _FINER_MAX + 1) if self.rows_mean % n == 0)
        return replace(self, rows_mean=self.rows_mean // parts)


class Cutter:
    """Takes rows in order and returns complete ranges. It is *at a cut* at the beginning and after each range.

    Args:
        rule: where ranges end.
        finer: the number of ranges, from the first one on, that `rule.finer()` cuts.
    """

    def __init__(self, rule: BreakRule, finer: int = 0) -> None:
        self._rule = rule
        self._finer_rule = rule.finer()
        self._finer_left = finer
        self._pieces: list[Run] = []
        self._rows = 0
        self._bytes = 0

    @property
    def is_at_cut(self) -> bool:
        """Whether no rows wait for the end of their range."""
        return not self._pieces

    def add(self, run: Run, *, is_old: bool = False) -> list[Run]:
        """Adds the next rows; returns the ranges that they complete.

        With `is_old` they are neighbours in one range that the rule has cut, or cut finer. Its end is its first row
        that the hash ends, so only the last of them is looked at.
        """
        rule = self._rule_now
        done: list[Run] = []
        breaks = self._breaks(run, is_old=is_old)
        sizes = offsets_of(run.paths).astype(np.int64) + offsets_of(run.values)
        start = 0
        while start < len(run):
            at = int(np.searchsorted(breaks, start))
            stop = int(breaks[at]) + 1 if at < len(breaks) else len(run) + 1
            stop = min(stop, start + rule.rows_max - self._rows)
            full = sizes[start] + rule.bytes_max - self._bytes
            stop = min(stop, int(np.searchsorted(sizes, full)))
            self._keep(run.slice(start, min(stop, len(run))))
            if stop <= len(run):
                done.append(self._take())
                if rule is not self._rule_now:
                    rule = self._rule_now
                    breaks = self._breaks(run, is_old=is_old)
            start = stop
        return done

    def _breaks(self, run: Run, *, is_old: bool) -> Ints:
        """The rows that end a range by their hash."""
        rule = self._rule_now
        first = max(0, len(run) - 1) if is_old and rule is self._rule else 0
        return np.flatnonzero(rule.ends_after(run.paths.slice(first))) + first

    def finish(self) -> Run | None:
        """Returns the last range, which ends because there are no more rows; None if it is at a cut."""
        return self._take() if self._pieces else None

    @property
    def _rule_now(self) -> BreakRule:
        return self._finer_rule if self._finer_left > 0 else self._rule

    def _keep(self, piece: Run) -> None:
        self._pieces.append(piece)
        self._rows += len(piece)
        self._bytes += piece.size_bytes

    def _take(self) -> Run:
        whole = concat_runs(self._pieces)
        self._pieces, self._rows, self._bytes = [], 0, 0
        self._finer_left -= 1
        return whole

"""Divides the places of a journal into spans of about equal numbers of rows, and files into those that the tasks of
spans read in place and those whose rows are exchanged.

Spans are a matter of speed and memory only, so they are cut by a sample. All of them end where listings are cut
(`tarn.core.listing.breaks`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.spans import PathSpan, path_after
from tarn.core.parquet import read_groups
from tarn.journal.events import EVENT_SCHEMA
from tarn.journal.groups import FileGroups, RowGroup

__all__ = ["Part", "Sample", "by_span", "ends_of", "is_wanted", "parts_of", "samples_of"]

_OF_GROUPS: Final = 4
"""Of so many row groups one is sampled."""
_OF_ROWS: Final = 1024
"""Of so many of its rows one tells its place."""
_READS_MAX: Final = 4
"""How often the rows of a file are read by the tasks of spans at most, on average; else its rows are exchanged."""


class Sample(NamedTuple):
    """What a row group says of the places of all.

    Attributes:
        group: its number.
        places: of some rows of tokens.
        cuts: places of all rows of tokens after whose paths a listing is cut.
    """

    group: int
    places: list[bytes]
    cuts: list[bytes]


@dataclass(frozen=True, slots=True)
class Part:
    """The paths of a branch in one span.

    Attributes:
        branch_id: its name.
        base: the listing beneath its uncommitted rows.
        head: that of its commit.
        paths: from where to where.
        is_first: whether it is the first part of the branch.
    """

    branch_id: str
    base: MetarangeId
    head: MetarangeId
    paths: PathSpan
    is_first: bool


def samples_of(at: int, body: bytes, file: FileGroups, rule: BreakRule) -> list[Sample]:
    """Samples some row groups of a file.

    Args:
        at: position of the file among all.
        body: the file.
        file: its row groups.
        rule: where listings are cut.

    Raises:
        UNREADABLE: the file is damaged.
    """
    found = []
    for group in file.groups[-at % _OF_GROUPS :: _OF_GROUPS]:
        if group.branch is None or group.token is None:
            table = read_groups(body, EVENT_SCHEMA, ["branch", "token", "key"], [group.number])
            table = table.filter(pc.not_equal(table.column("token"), ""))
            branches = table.column("branch").cast(pa.binary())
        elif group.token:
            table = read_groups(body, EVENT_SCHEMA, ["key"], [group.number])
            branches = pa.scalar(group.branch.encode(), pa.binary())
        else:
            continue
        keys = table.column("key").combine_chunks()
        ends = np.flatnonzero(rule.ends_after(keys)) if len(keys) else np.zeros(0, np.int64)
        places = pc.binary_join_element_wise(branches, keys.cast(pa.binary()), b"\0")
        some = places[_OF_ROWS // 2 :: _OF_ROWS] if len(places) > _OF_ROWS else places[:1]
        found.append(Sample(group.number, some.to_pylist(), places.take(ends).to_pylist()))
    return found


def ends_of(samples: Iterable[Sample], rows: int, span_rows: int) -> list[bytes]:
    """Returns the last places of spans of about so many rows each, ascending; not of the last one.

    Args:
        samples: of what is divided.
        rows: all of it.
        span_rows: as said.
    """
    places, cuts = [], set()
    for sample in samples:
        places += [*sample.places, *sample.cuts]
        cuts.update(sample.cuts)
    spans = -(-rows // span_rows)
    if not cuts or spans < 2:
        return []
    places.sort()
    ends = sorted(cuts)
    before = np.array([bisect_left(places, each) for each in ends])
    middles = (before[1:] + before[:-1]) / 2
    wanted = len(places) * np.arange(1, spans) / spans
    return sorted({ends[at] for at in np.searchsorted(middles, wanted).tolist()})


def is_wanted(group: RowGroup, layers: Mapping[bytes, object]) -> bool:
    """Returns whether a row group may have rows of some layers: branch, NUL, token."""
    if group.branch is None or group.token is None:
        return group.rows > 0
    return f"{group.branch}\0{group.token}".encode() in layers


def by_span(file: FileGroups, ends: Sequence[bytes]) -> dict[int, FileGroups] | None:
    """Returns the row groups of a file that the task of each span reads, by span; None: they are too many.

    Args:
        file: with the groups that are wanted.
        ends: of the spans, as `ends_of` returns them.
    """
    found: dict[int, list[RowGroup]] = {}
    left = _READS_MAX * sum(group.rows for group in file.groups)
    for group in file.groups:
        first, last = bisect_left(ends, group.first), bisect_left(ends, group.last)
        left -= group.rows * (last - first + 1)
        if left < 0:
            return None
        for span in range(first, last + 1):
            found.setdefault(span, []).append(group)
    return {
        span: msgspec.structs.replace(file, groups=tuple(groups)) for span, groups in found.items()
    }


def parts_of(
    ends: Sequence[bytes], bases: Mapping[str, tuple[MetarangeId, MetarangeId]]
) -> dict[int, list[Part]]:
    """Returns the parts of the branches in each span.

    Args:
        ends: of the spans.
        bases: of each branch the listing beneath its uncommitted rows, and that of its commit.
    """
    found: dict[int, list[Part]] = {}
    for name, (base, head) in sorted(bases.items()):
        begin = name.encode() + b"\0"
        first = bisect_left(ends, begin)
        after = bisect_left(ends, name.encode() + b"\1")
        inner = [each[len(begin) :].decode() for each in ends[first:after]]
        starts = ["", *map(path_after, inner)]
        stops = [*starts[1:], None]
        for number, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            part = Part(name, base, head, PathSpan(start, stop), is_first=not number)
            found.setdefault(first + number, []).append(part)
    return found

"""Divides the places of a journal into spans of about equal numbers of rows, before all of it was read.

Spans are a matter of speed and memory only, so files are sampled without judging them. All spans end where listings
are cut (`tarn.core.listing.breaks`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.port import BlockStore
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.spans import PathSpan, path_after
from tarn.journal.epochs import Epoch
from tarn.journal.names import PassName
from tarn.journal.reading import Source, read_unjudged
from tarn_spark.journal.sources import as_bytes, named_by

__all__ = ["Part", "Sample", "SampleFiles", "ends_of", "parts_of", "sampled"]

_COLUMNS: Final = ("branch", "token", "order", "key")
_PASSES: Final = 3
"""Passes that are sampled at least, if there are as many."""
_OF_PASSES: Final = 16
"""Of so many passes one is sampled, if there are more."""


class Sample(NamedTuple):
    """What a file says of the places of all.

    Attributes:
        weight: of how many files it is one.
        rows: of tokens, in it.
        places: of rows of tokens after whose paths a listing is cut.
    """

    weight: float
    rows: int
    places: list[bytes]


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


def sampled(sources: Sequence[Source]) -> list[tuple[float, bytes]]:
    """Returns the files that are sampled, and the weight of each.

    A file of a base or a compaction has a part of all places, so each is one of them. Passes have rows of all places,
    and those of one holder come by time: some are enough.
    """
    named = [each for each in sources if not isinstance(each, PassName)]
    passes = [each for each in sources if isinstance(each, PassName)]
    step = min(_OF_PASSES, max(1, len(passes) // _PASSES))
    some = passes[::step]
    found = [(1.0, as_bytes(each)) for each in named]
    return found + [(len(passes) / len(some), as_bytes(each)) for each in some]


@dataclass(frozen=True, slots=True)
class SampleFiles:
    """Samples files; takes those of `sampled`, yields a `Sample` of each. One that is damaged yields none.

    Attributes:
        namespace: of the journal.
        epoch: of the files.
        rule: where listings are cut.
    """

    namespace: str
    epoch: Epoch
    rule: BreakRule

    async def __call__(
        self, blocks: BlockStore, items: Iterable[tuple[float, bytes]]
    ) -> AsyncIterator[Sample]:
        """See `PartitionWork`."""
        for weight, source in items:
            try:
                table = await read_unjudged(
                    blocks, self.namespace, self.epoch, named_by(source), _COLUMNS
                )
            except TarnError as error:
                if error.kind not in {Kind.CORRUPT, Kind.NOT_FOUND}:
                    raise
                continue
            rows = table.filter(pc.not_equal(table.column("token"), ""))
            yield Sample(weight, len(rows), _places(rows, self.rule))


def _places(rows: pa.Table, rule: BreakRule) -> list[bytes]:
    ends = [rule.ends_after(piece) for piece in rows.column("key").chunks]
    found = rows.filter(pa.array(np.concatenate([np.zeros(0, np.bool_), *ends])))
    both = zip(found.column("branch").to_pylist(), found.column("key").to_pylist(), strict=True)
    return [f"{branch}\0{key}".encode() for branch, key in both]


def ends_of(samples: Iterable[Sample], span_rows: int) -> list[bytes]:
    """Returns the last places of spans of about so many rows each; not of the last one."""
    weights: dict[bytes, float] = {}
    rows = 0.0
    for sample in samples:
        rows += sample.weight * sample.rows
        for place in sample.places:
            weights[place] = weights.get(place, 0.0) + sample.weight
    spans = -(-int(rows) // span_rows)
    if not weights or spans < 2:
        return []
    places = sorted(weights)
    before = np.cumsum([weights[each] for each in places])
    wanted = before[-1] * np.arange(1, spans) / spans
    at = np.searchsorted(before, wanted)
    return sorted({places[min(each, len(places) - 1)] for each in at.tolist()})


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

"""The files of a journal as rows of Spark, and what executors find out about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tarn.block.port import ReadBlocks
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.compactions import CompactedFile
from tarn.journal.epochs import BaseFile, Epoch
from tarn.journal.names import PassName
from tarn.journal.reading import FileFacts, PassSelector, Source, read_judged, read_source

__all__ = ["SOURCES", "judged", "read_row", "read_row_again", "source_rows", "sources_frame"]

SOURCES: Final = "at int, source binary"
_TASKS_OF_SLOT: Final = 8


class _Place(msgspec.Struct, frozen=True):
    """A source; one of the first three fields is set. `sha256`: of its bytes, if it was judged already."""

    base: BaseFile | None = None
    compacted: CompactedFile | None = None
    drained: PassName | None = None
    sha256: str = ""

    @property
    def named(self) -> Source:
        """The source."""
        found = self.base or self.compacted or self.drained
        assert found is not None
        return found


class _Told(msgspec.Struct, frozen=True):
    """What an executor found out about a file: its facts, or kind, reason and text of an error."""

    facts: FileFacts | None = None
    error: tuple[str, str, str] | None = None


def sources_frame(
    spark: SparkSession, sources: Sequence[Source], digests: Sequence[str] = ()
) -> DataFrame:
    """Returns a table of files (`SOURCES`), spread over the tasks that read them; see `source_rows`."""
    found = pa.Table.from_batches([source_rows(sources, digests)])
    slots = spark.sparkContext.defaultParallelism
    pieces = max(1, min(len(found), _TASKS_OF_SLOT * slots))
    return spark.createDataFrame(found, SOURCES).repartition(pieces)


def source_rows(sources: Sequence[Source], digests: Sequence[str] = ()) -> pa.RecordBatch:
    """Returns files as rows of `SOURCES`, each with its position.

    Args:
        sources: the files.
        digests: the SHA-256 of each, if they were judged already; see `read_row_again`.
    """
    both = zip(sources, digests or [""] * len(sources), strict=True)
    places = [msgspec.structs.replace(_place(source), sha256=digest) for source, digest in both]
    columns = [
        pa.array(range(len(places)), pa.int32()),
        pa.array([msgspec.msgpack.encode(each) for each in places], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["at", "source"])


def _place(source: Source) -> _Place:
    match source:
        case BaseFile():
            return _Place(base=source)
        case CompactedFile():
            return _Place(compacted=source)
        case PassName():
            return _Place(drained=source)


async def read_row(
    blocks: ReadBlocks,
    namespace: str,
    epoch: Epoch,
    source: bytes,
    columns: Sequence[str] | None = None,
) -> tuple[bytes, pa.Table | None]:
    """Reads the file of a row; returns what `judged` needs, and its rows; None: it is damaged or has gone.

    Args:
        blocks: the store.
        namespace: of the journal.
        epoch: of the file.
        source: of the row.
        columns: as in `tarn.journal.reading.read_source`.

    Raises:
        TarnError: CORRUPT: the file is one of a base. Any error of the store.
    """
    named = msgspec.msgpack.decode(source, type=_Place).named
    try:
        facts, table = await read_source(blocks, namespace, epoch, named, columns)
    except TarnError as error:
        if isinstance(named, BaseFile) or error.kind not in {Kind.CORRUPT, Kind.NOT_FOUND}:
            raise
        told = _Told(error=(error.kind.value, error.reason.value, error.message))
        return msgspec.msgpack.encode(told), None
    return msgspec.msgpack.encode(_Told(facts=facts)), table


async def read_row_again(
    blocks: ReadBlocks, namespace: str, epoch: Epoch, source: bytes, columns: Sequence[str]
) -> pa.Table:
    """Returns some columns of the file of a row that was judged already.

    Raises:
        TarnError: as `tarn.journal.reading.read_judged`.
    """
    place = msgspec.msgpack.decode(source, type=_Place)
    return await read_judged(blocks, namespace, epoch, place.named, place.sha256, columns)


def judged(
    told: Iterable[Any], sources: Sequence[Source], selector: PassSelector
) -> tuple[list[int], list[FileFacts]]:
    """Lets the selector judge files; returns the positions of those that do not count, and the facts of the others.

    Args:
        told: rows with `at` and `facts`, ascending by `at`.
        sources: in the order that the selector needs.
        selector: receives what counts and what does not.
    """
    left_out, facts = [], []
    for row in told:
        found = msgspec.msgpack.decode(row["facts"], type=_Told)
        source = sources[row["at"]]
        if found.error is not None:
            kind, reason, text = found.error
            selector.add_error(source, TarnError(Kind(kind), Reason(reason), text))
        if found.facts is None or not selector.takes(source, found.facts):
            left_out.append(row["at"])
        else:
            facts.append(found.facts)
    return left_out, facts

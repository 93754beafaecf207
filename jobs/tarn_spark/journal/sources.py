"""The files of a journal as rows of Spark, and what executors find out about them."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Final, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tarn.block.port import ReadBlocks
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.compactions import CompactedFile
from tarn.journal.epochs import BaseFile, Epoch
from tarn.journal.names import PassName
from tarn.journal.reading import (
    FileFacts,
    Outline,
    PassSelector,
    Source,
    read_outline,
    read_source,
)

__all__ = [
    "SOURCES",
    "as_bytes",
    "judged",
    "named_by",
    "outline_row",
    "pieces_of",
    "read_row",
    "sha256_in",
    "sources_frame",
]

SOURCES: Final = "at int, source binary"
T = TypeVar("T")

_TASKS_OF_SLOT: Final = 8


class _Place(msgspec.Struct, frozen=True):
    """A source; one of the fields is set."""

    base: BaseFile | None = None
    compacted: CompactedFile | None = None
    drained: PassName | None = None


class _Told(msgspec.Struct, frozen=True):
    """What an executor found out about a file: its facts, or kind, reason and text of an error."""

    facts: FileFacts | None = None
    error: tuple[str, str, str] | None = None


def sources_frame(spark: SparkSession, sources: Sequence[Source]) -> DataFrame:
    """Returns a table of files (`SOURCES`), each with its position, spread over the tasks that read them."""
    columns = [
        pa.array(range(len(sources)), pa.int32()),
        pa.array([as_bytes(each) for each in sources], pa.binary()),
    ]
    found = pa.Table.from_arrays(columns, names=["at", "source"])
    return spark.createDataFrame(found, SOURCES).repartition(
        pieces_of(len(found), spark.sparkContext.defaultParallelism)
    )


def pieces_of(files: int, slots: int) -> int:
    """Returns how many tasks read so many files."""
    return max(1, min(files, _TASKS_OF_SLOT * slots))


def as_bytes(source: Source) -> bytes:
    """Returns a source as it is sent to executors."""
    place = _Place(
        base=source if isinstance(source, BaseFile) else None,
        compacted=source if isinstance(source, CompactedFile) else None,
        drained=source if isinstance(source, PassName) else None,
    )
    return msgspec.msgpack.encode(place)


def named_by(source: bytes) -> Source:
    """Returns the source that `as_bytes` has made these bytes of."""
    place = msgspec.msgpack.decode(source, type=_Place)
    found = place.base or place.compacted or place.drained
    assert found is not None
    return found


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
    named = named_by(source)
    told, found = await _told(named, read_source(blocks, namespace, epoch, named, columns))
    return told, None if found is None else found[1]


async def outline_row(
    blocks: ReadBlocks, namespace: str, epoch: Epoch, source: bytes
) -> tuple[bytes, Outline | None]:
    """Reads what the file of a row has, as `read_row` does."""
    named = named_by(source)
    found: tuple[FileFacts, Outline] | None

    async def outlined() -> tuple[FileFacts, Outline]:
        outline = await read_outline(blocks, namespace, epoch, named)
        return outline.facts, outline

    told, found = await _told(named, outlined())
    return told, None if found is None else found[1]


async def _told(
    named: Source, read: Awaitable[tuple[FileFacts, T]]
) -> tuple[bytes, tuple[FileFacts, T] | None]:
    try:
        found = await read
    except TarnError as error:
        if isinstance(named, BaseFile) or error.kind not in {Kind.CORRUPT, Kind.NOT_FOUND}:
            raise
        told = _Told(error=(error.kind.value, error.reason.value, error.message))
        return msgspec.msgpack.encode(told), None
    return msgspec.msgpack.encode(_Told(facts=found[0])), found


def sha256_in(facts: bytes) -> str:
    """Returns the SHA-256 of the file whose facts `read_row` has returned; empty: it is damaged or has gone."""
    told = msgspec.msgpack.decode(facts, type=_Told).facts
    return "" if told is None else told.sha256


def judged(
    told: Iterable[tuple[int, bytes]], sources: Sequence[Source], selector: PassSelector
) -> tuple[list[int], list[FileFacts]]:
    """Lets the selector judge files; returns the positions of those that do not count, and the facts of the others.

    Args:
        told: position of each file, ascending, and what `read_row` has returned of it.
        sources: in the order that the selector needs.
        selector: receives what counts and what does not.
    """
    left_out, facts = [], []
    for at, encoded in told:
        found = msgspec.msgpack.decode(encoded, type=_Told)
        source = sources[at]
        if found.error is not None:
            kind, reason, text = found.error
            selector.add_error(source, TarnError(Kind(kind), Reason(reason), text))
        if found.facts is None or not selector.takes(source, found.facts):
            left_out.append(at)
        else:
            facts.append(found.facts)
    return left_out, facts

"""Roots as files, for an engine that reads them in other processes: Parquet parts with counts, in the run's folder.

One process reads the roots from graveler, because their order is a guard, and writes them as it reads. The list of the
parts stays with that process: only its own run may use them. A part that is missing, short or damaged ends the run.
The parts are deleted when the run ends. Those of a killed process stay until `forget_runs` deletes them.
"""

from __future__ import annotations

import hashlib
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tarn.block.paging import pages_below
from tarn.block.port import BlockKey, BlockStore, ReadBlocks
from tarn.collection.block_names import BlockKind, Bytes
from tarn.collection.progress import CollectionProgress
from tarn.collection.quarantine import Part, damaged, read_verified, run_folder
from tarn.collection.references import Roots
from tarn.core.parquet import UNREADABLE, ParquetLimits, read_table

__all__ = ["RootParts", "delete_roots", "read_root_part", "write_roots"]

_PART_ROWS: Final = 1 << 20
_LIMITS: Final = ParquetLimits(rows=1 << 23, size_bytes=128 << 20)
"""A part has `_PART_ROWS` keys, and at most those of one batch more."""


_Class = tuple[BlockKind, bool]
"""The contents of a part: the kind of its blocks, and whether they are emptied listings."""
_DATA: Final[_Class] = (BlockKind.DATA, False)
_WHOLE: Final[_Class] = (BlockKind.METARANGE, False)
_EMPTIED: Final[_Class] = (BlockKind.METARANGE, True)


@dataclass(frozen=True, slots=True)
class RootParts:
    """The files of the roots of a run.

    Attributes:
        whole: addresses, and listings that are in use with all that they refer to.
        emptied: listings that are in use without the blocks of data (`RootBatch.emptied`).
    """

    whole: tuple[Part, ...] = ()
    emptied: tuple[Part, ...] = ()


async def write_roots(
    roots: Roots,
    blocks: BlockStore,
    namespace: str,
    run_id: str,
    attempt: str,
    progress: CollectionProgress,
    *,
    part_rows: int = _PART_ROWS,
) -> RootParts:
    """Reads all roots and writes them; returns the parts. Their `size_bytes` is 0.

    Args:
        roots: read once.
        blocks: receives the files.
        namespace: of the repository.
        run_id: 32 hex digits.
        attempt: 32 hex digits, new for each process that works on the run.
        progress: counts the batches of roots.
        part_rows: most keys of a part, beside those of one batch.

    Raises:
        TarnError: any error of the roots or the store; parts that were written stay.
    """
    held: dict[_Class, list[bytes]] = {_DATA: [], _WHOLE: [], _EMPTIED: []}
    parts: dict[bool, list[Part]] = {False: [], True: []}

    async def flush(which: _Class) -> None:
        kind, is_emptied = which
        keys = b"".join(held[which])
        held[which] = []
        if keys:
            number = sum(map(len, parts.values()))
            path = f"{_prefix(run_id, attempt)}{number:06d}.parquet"
            body = _encoded(kind, keys)
            await blocks.put(BlockKey(namespace, path), body)
            count = len(keys) // kind.key_bytes
            digest = hashlib.sha256(body).hexdigest()
            parts[is_emptied].append(Part(path, kind.value, count, 0, digest))

    async with aclosing(roots.read_roots()) as batches:
        async for batch in batches:
            held[_DATA].append(batch.addresses)
            held[_WHOLE].append(batch.metaranges)
            held[_EMPTIED].append(batch.emptied)
            for which, keys in held.items():
                if sum(map(len, keys)) >= part_rows * which[0].key_bytes:
                    await flush(which)
            progress.done += 1
    for which in held:
        await flush(which)
    return RootParts(tuple(parts[False]), tuple(parts[True]))


async def delete_roots(blocks: BlockStore, namespace: str, run_id: str, attempt: str) -> None:
    """Deletes the parts of an attempt, also those of one that broke off."""
    async for page in pages_below(blocks, namespace, _prefix(run_id, attempt)):
        await blocks.delete_many(namespace, [info.path for info in page])


def _prefix(run_id: str, attempt: str) -> str:
    return f"{run_folder(run_id)}roots/{attempt}-"


def _schema(kind: BlockKind) -> pa.Schema:
    return pa.schema([pa.field("key", pa.binary(kind.key_bytes), nullable=False)])


def _encoded(kind: BlockKind, keys: bytes) -> bytes:
    count = len(keys) // kind.key_bytes
    column = pa.Array.from_buffers(pa.binary(kind.key_bytes), count, [None, pa.py_buffer(keys)])
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays([column], schema=_schema(kind))
    pq.write_table(table, sink, compression="zstd", compression_level=1, use_dictionary=False)
    body: bytes = sink.getvalue().to_pybytes()
    return body


async def read_root_part(blocks: ReadBlocks, namespace: str, part: Part) -> Bytes:
    """Returns the keys of a part, shape (keys, width); a key may come more than once.

    Raises:
        TarnError: CORRUPT if it is missing or is not the one that was written.
    """
    key = BlockKey(namespace, part.path)
    kind = BlockKind(part.kind)
    body = await read_verified(blocks, key, part.sha256)
    try:
        table = read_table(body, _schema(kind), _LIMITS)
    except UNREADABLE as error:
        raise damaged(key, str(error)) from error
    if len(table) != part.count:
        raise damaged(key, f"it has {len(table)} rows of {table.schema.names}")
    column = table.column("key").combine_chunks()
    start = column.offset * kind.key_bytes
    keys = np.frombuffer(column.buffers()[1], np.uint8, part.count * kind.key_bytes, start)
    return keys.reshape(-1, kind.key_bytes)

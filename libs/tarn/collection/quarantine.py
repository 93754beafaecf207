"""Quarantine: the list of the candidates of a mark, in the bucket, until a sweep deletes them.

`_tarn/collection/<run>/` holds Parquet files of blocks (path, size, time) and, written last, a manifest with the count
and the SHA-256 of each file. A run without a manifest was not marked. A missing or damaged file ends the sweep:
a part that is lost cannot do harm, but it shows that the run is not the one that was marked. The files can be read with
any engine, so that a person can look at the blocks that a sweep would delete.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tarn.block.paging import blocks_below, pages_below
from tarn.block.port import (
    BlockInfo,
    BlockKey,
    BlockNotFoundError,
    BlockStore,
    ReadBlocks,
    read_whole,
)
from tarn.collection.block_names import BlockKind, Listed, listed_of, paths_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.parquet import UNREADABLE, ParquetLimits, read_table

__all__ = [
    "PART_ROWS",
    "Manifest",
    "Part",
    "QuarantineWriter",
    "Tally",
    "damaged",
    "forget_runs",
    "marked_runs",
    "read_manifest",
    "read_part",
    "read_parts",
    "read_verified",
    "run_folder",
    "write_manifest",
]

PART_ROWS: Final = 1 << 18
_FOLDER: Final = "_tarn/collection/"
_MANIFEST: Final = "manifest.json"
_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("mtime", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
_VERSION: Final = 1
_RUN: Final = re.compile(r"[0-9a-f]{32}")
_MANIFEST_BYTES_MAX: Final = 16 << 20
_PART_BYTES_MAX: Final = 256 << 20
_LIMITS: Final = ParquetLimits(rows=1 << 22, size_bytes=128 << 20)
"""A part has `PART_ROWS` rows, and at most those of one page more."""


@dataclass(slots=True)
class Tally:
    """A number of blocks and their bytes."""

    count: int = 0
    size_bytes: int = 0

    def add(self, count: int, size_bytes: int) -> None:
        """Counts more blocks."""
        self.count += count
        self.size_bytes += size_bytes


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a quarantine.

    Attributes:
        path: of the file, in the namespace.
        kind: value of the `BlockKind` of its blocks.
        count: rows.
        size_bytes: of the blocks.
        sha256: of the file.
    """

    path: str
    kind: str
    count: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The result of a mark.

    Attributes:
        run_id: 32 hex digits.
        repository: its name at the time.
        cutoff_us: younger blocks were kept, microseconds since the epoch.
        marked_us: when the roots had been read and the files were written.
        listed: all blocks of the namespace, by the value of their kind, younger ones included.
        parts: the files.
        abandoned: listings of commits that are not needed, and whose files are missing.
    """

    run_id: str
    repository: str
    cutoff_us: int
    marked_us: int
    listed: Mapping[str, Tally]
    parts: tuple[Part, ...] = field(default=())
    abandoned: tuple[str, ...] = field(default=())

    def candidates(self, kind: BlockKind) -> Tally:
        """Returns the blocks in quarantine."""
        found = Tally()
        for part in self.parts:
            if part.kind == kind.value:
                found.add(part.count, part.size_bytes)
        return found


async def forget_runs(
    blocks: BlockStore, namespace: str, before_us: int, *, keep_run_id: str = ""
) -> int:
    """Deletes the files of runs that were written before a time, but those of one run; returns their number."""
    kept = run_folder(keep_run_id) if keep_run_id else ""
    count = 0
    async for page in pages_below(blocks, namespace, _FOLDER):
        old = [
            info.path
            for info in page
            if info.mtime_us < before_us and not (kept and info.path.startswith(kept))
        ]
        await blocks.delete_many(namespace, old)
        count += len(old)
    return count


async def marked_runs(blocks: ReadBlocks, namespace: str) -> list[str]:
    """Returns the ids of the marks that ended and whose files are still there, oldest first."""
    found = []
    async for info in blocks_below(blocks, namespace, _FOLDER):
        run_id, _, name = info.path.removeprefix(_FOLDER).partition("/")
        if name == _MANIFEST and _RUN.fullmatch(run_id):
            found.append(run_id)
    return sorted(found)


def run_folder(run_id: str) -> str:
    """Returns the folder of a run in the namespace, with `/` at its end.

    Raises:
        TarnError: INVALID if the id is not 32 hex digits.
    """
    if not _RUN.fullmatch(run_id):
        text = f"run {run_id[:80]!a} must be 32 hex digits, as tarn gc status shows them"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    return f"{_FOLDER}{run_id}/"


def _manifest_key(namespace: str, run_id: str) -> BlockKey:
    return BlockKey(namespace, run_folder(run_id) + _MANIFEST)


class QuarantineWriter:
    """Writes the quarantine of one run.

    Args:
        blocks: receives the files; None: write nothing, and only count.
        attempt: 32 hex digits, new for each process that marks the run: files are written once.
    """

    def __init__(
        self, blocks: BlockStore | None, namespace: str, run_id: str, attempt: str
    ) -> None:
        self._blocks = blocks
        self._namespace = namespace
        self._run_id = run_id
        self._prefix = f"{run_folder(run_id)}quarantine/{attempt}"
        self._held: list[Listed] = []
        self._held_count = 0
        self._parts: list[Part] = []

    async def add(self, kind: BlockKind, doomed: Listed) -> None:
        """Adds candidates; all of one kind must be added before `flush` and the next kind."""
        if not len(doomed):
            return
        self._held.append(doomed)
        self._held_count += len(doomed)
        if self._held_count >= PART_ROWS:
            await self.flush(kind)

    async def flush(self, kind: BlockKind) -> None:
        """Writes the buffered candidates, all of one kind."""
        if not self._held_count:
            return
        rows = np.concatenate(self._held)
        self._held, self._held_count = [], 0
        rows = rows[np.argsort(rows["key"].view(f"S{kind.key_bytes}").ravel())]
        body = _encoded(kind, rows)
        path = f"{self._prefix}-{len(self._parts):06d}.parquet"
        if self._blocks is not None:
            await self._blocks.put(BlockKey(self._namespace, path), body)
        digest = hashlib.sha256(body).hexdigest()
        self._parts.append(Part(path, kind.value, len(rows), int(rows["size"].sum()), digest))

    async def finish(
        self,
        repository: str,
        cutoff_us: int,
        marked_us: int,
        listed: Mapping[str, Tally],
        abandoned: Sequence[str] = (),
    ) -> Manifest:
        """Writes the manifest, after which the run is marked, and returns it.

        Raises:
            BlockExistsError: another process marked this run.
        """
        made = Manifest(
            self._run_id, repository, cutoff_us, marked_us, listed, self.parts, tuple(abandoned)
        )
        if self._blocks is not None:
            await write_manifest(self._blocks, self._namespace, made)
        return made

    @property
    def parts(self) -> tuple[Part, ...]:
        """The files that were written."""
        return tuple(self._parts)


async def write_manifest(blocks: BlockStore, namespace: str, manifest: Manifest) -> None:
    """Writes the manifest, after which the run is marked. All of its files must have been written.

    Raises:
        BlockExistsError: another process marked this run.
    """
    body = json.dumps({"version": _VERSION, **asdict(manifest)}, indent=1).encode()
    await blocks.put(_manifest_key(namespace, manifest.run_id), body)


def _encoded(kind: BlockKind, rows: Listed) -> bytes:
    table = pa.Table.from_arrays(
        [
            paths_of(kind, np.ascontiguousarray(rows["key"])),
            pa.array(rows["size"]),
            pa.array(rows["mtime"]).cast(_SCHEMA.field("mtime").type),
        ],
        schema=_SCHEMA,
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=1, use_dictionary=False)
    body: bytes = sink.getvalue().to_pybytes()
    return body


async def read_manifest(blocks: ReadBlocks, namespace: str, run_id: str) -> Manifest | None:
    """Returns the manifest of a run; None if the run was not marked.

    Raises:
        TarnError: CORRUPT if it is damaged.
    """
    key = _manifest_key(namespace, run_id)
    try:
        body = await blocks.read(key, 0, _MANIFEST_BYTES_MAX)
    except BlockNotFoundError:
        return None
    try:
        values = json.loads(body)
        if values.pop("version") != _VERSION or values["run_id"] != run_id:
            raise ValueError("it has another version or belongs to another run")
        values["listed"] = {kind.value: Tally(**values["listed"][kind.value]) for kind in BlockKind}
        values["parts"] = tuple(Part(**part) for part in values["parts"])
        values["abandoned"] = tuple(values.get("abandoned", ()))
        return Manifest(**values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(key, str(error)) from error


async def read_parts(
    blocks: ReadBlocks, namespace: str, manifest: Manifest, kind: BlockKind
) -> AsyncIterator[Listed]:
    """Yields the candidates of one kind, a file at a time.

    Raises:
        TarnError: CORRUPT if a file is missing or is not the one that was written.
    """
    for part in manifest.parts:
        if part.kind == kind.value:
            yield await read_part(blocks, namespace, part)


async def read_part(blocks: ReadBlocks, namespace: str, part: Part) -> Listed:
    """Returns the candidates of one file.

    Raises:
        TarnError: CORRUPT if it is missing or is not the one that was written.
    """
    key = BlockKey(namespace, part.path)
    return _decoded(key, BlockKind(part.kind), part, await read_verified(blocks, key, part.sha256))


async def read_verified(blocks: ReadBlocks, key: BlockKey, sha256: str) -> bytes:
    """Returns a file of a run.

    Raises:
        TarnError: CORRUPT if it is missing, or has another SHA-256.
    """
    try:
        body = await read_whole(blocks, key, _PART_BYTES_MAX)
    except BlockNotFoundError as error:
        raise damaged(key, "it is missing") from error
    if hashlib.sha256(body).hexdigest() != sha256:
        raise damaged(key, "its SHA-256 is not the one that was noted")
    return body


def _decoded(key: BlockKey, kind: BlockKind, part: Part, body: bytes) -> Listed:
    try:
        table = read_table(body, _SCHEMA, _LIMITS)
    except UNREADABLE as error:
        raise damaged(key, str(error)) from error
    if len(table) != part.count:
        raise damaged(key, f"it has {len(table)} rows of {table.schema.names}")
    sizes = table.column("size").to_pylist()
    times = table.column("mtime").cast(pa.int64()).to_pylist()
    infos = map(BlockInfo, table.column("path").to_pylist(), sizes, times)
    rows = listed_of(kind, list(infos))
    if len(rows) != part.count:
        raise damaged(key, f"it names {part.count - len(rows)} files that are not {kind.value}s")
    return rows


def damaged(key: BlockKey, detail: str) -> TarnError:
    """Returns the error about a file of a run that cannot be used."""
    text = (
        f"{key.path} in {key.namespace}, a file of a garbage collection, cannot be used: {detail}; "
        "nothing was deleted; begin another run"
    )
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=key.path)

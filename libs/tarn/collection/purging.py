"""Purge: deletes the data of repositories that were deleted with them (docs/design/erase.md).

Everything below `data/` and `_tarn/` of the namespace goes, and unfinished uploads; another namespace may lie below it,
at other paths. Graveler is asked every minute whether the data are still to be deleted. The deleted blocks are noted in
`_tarn/purge/`, which stays: paths and sizes of blocks, and names of branches, but no path of an object.

Memory does not grow with the namespace. An interrupted purge is simply begun again: it finds the remaining blocks.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tarn.block.paging import blocks_below, pages_below
from tarn.block.port import BlockInfo, BlockKey, BlockStore, ReadBlocks, read_whole
from tarn.client.erasures import ErasureClient
from tarn.collection.deleting import delete_paths
from tarn.collection.outcomes import Outcome
from tarn.collection.owners import newest_owner
from tarn.collection.progress import CollectionProgress
from tarn.collection.quarantine import Tally
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.parquet import UNREADABLE, ParquetLimits, read_table
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import erasure_service_pb2 as pb

__all__ = ["PURGE_FOLDER", "PurgeReport", "Purger", "is_due"]

PURGE_FOLDER: Final = "_tarn/purge/"
_PREFIXES: Final = ("data/", "_tarn/")
_CONFIRM_S: Final = 60.0
_ROUNDS: Final = 3
_VERSION: Final = 1
_LIMITS: Final = ParquetLimits(rows=1 << 20, size_bytes=128 << 20)
"""A file has some 65,536 paths."""
_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """The result of a purge, or of a dry run.

    Attributes:
        repository: the name that the repository had.
        instance_uid: of its life.
        namespace: its namespace.
        end_us: when the report was made, microseconds since the epoch.
        found: the blocks and files that were listed.
        deleted: those of them that were deleted.
        failed: those of them that the store did not delete; the next run tries again.
        error: why, of the last of them; empty if there is none.
        left: the remaining ones at the last look, or a page of them. Without any, the purge is complete.
    """

    repository: str
    instance_uid: str
    namespace: str
    end_us: int
    found: Tally
    deleted: Tally
    failed: Tally
    error: str = ""
    left: Tally = field(default_factory=Tally)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left."""
        return not (self.failed.count or self.left.count or self.error)


def is_due(doomed: pb.DoomedNamespace, now_us: int) -> bool:
    """Whether a purge may begin or go on."""
    if doomed.HasField("purge_end_time"):
        return False
    return doomed.purge_not_before_time.ToMicroseconds() <= now_us


@dataclass(frozen=True, slots=True)
class Purger:
    """Purges doomed namespaces of one installation.

    Attributes:
        client: of graveler's erasures.
        call: makes the context of each call.
        blocks: the block store of the installation.
        clock: for pauses and reports.
        rng: for jitter.
        progress: updated.
    """

    client: ErasureClient
    call: Callable[[], Call]
    blocks: BlockStore
    clock: Clock
    rng: random.Random
    progress: CollectionProgress

    async def doomed(self) -> list[pb.DoomedNamespace]:
        """Returns all doomed namespaces, also those that are purged."""
        return [each async for each in self.client.doomed_namespaces(self.call)]

    async def count(self, doomed: pb.DoomedNamespace) -> PurgeReport:
        """Returns the report of the blocks that a purge would delete; changes nothing."""
        found = Tally()
        self.progress.begin(f"list {doomed.storage_namespace}")
        async for page in _pages(self.blocks, doomed.storage_namespace):
            found.add(len(page), sum(info.size for info in page))
            self.progress.done += len(page)
        return self._report(doomed, found, Tally(), Tally())

    async def purge(self, doomed: pb.DoomedNamespace, attempt: str) -> PurgeReport:
        """Deletes the data of a namespace; returns the report. If it is complete, graveler knows, too.

        Args:
            doomed: the namespace; its grace time is over.
            attempt: 32 hex digits, new for each call.

        Raises:
            TarnError: NAMESPACE_NOT_DOOMED, COLLECTION_TOO_EARLY; PRECONDITION_FAILED: a later repository was restored
                over the namespace, perhaps in another installation; any error of graveler, or of a listing. What was
                deleted until then is noted.
        """
        namespace = doomed.storage_namespace
        confirmed = float("-inf")

        async def confirm() -> None:
            nonlocal confirmed
            now = self.clock.monotonic()
            if now - confirmed > _CONFIRM_S:
                await self._refuse_newer_owner(doomed)
                await self.client.begin_purge(self.call(), namespace, doomed.instance_uid)
                confirmed = now

        await confirm()
        log = _Log(self.blocks, namespace, attempt)
        found, deleted, failed = Tally(), Tally(), Tally()
        error: TarnError | None = None
        self.progress.begin(f"delete {namespace}")
        try:
            async for page in _pages(self.blocks, namespace):
                paths = [info.path for info in page]
                is_deleted, problem = await delete_paths(
                    self.blocks, namespace, paths, confirm, self.clock, self.rng
                )
                error = problem or error
                for info, gone in zip(page, is_deleted.tolist(), strict=True):
                    found.add(1, info.size)
                    (deleted if gone else failed).add(1, info.size)
                    log.add(info, Outcome.DELETED if gone else Outcome.FAILED)
                self.progress.done += len(page)
                await log.flush(always=False)
        finally:
            await log.flush()
        error = await self._discard_uploads(namespace, confirm) or error
        left = await self._second_look(namespace)
        report = self._report(doomed, found, deleted, failed, error, left)
        await _write_report(self.blocks, report, attempt)
        if report.is_complete:
            total = await _deleted_by_all(self.blocks, namespace)
            await self.client.end_purge(
                self.call(), namespace, doomed.instance_uid, total.count, total.size_bytes
            )
        return report

    async def _refuse_newer_owner(self, doomed: pb.DoomedNamespace) -> None:
        newest = await newest_owner(self.blocks, doomed.storage_namespace)
        if newest > doomed.instance_uid:
            text = (
                f"the repository instance {newest} was restored over {doomed.storage_namespace} after "
                f"{doomed.repository_id}, which was deleted with its data; another installation may use them. Nothing "
                "more was deleted; keep the data by tarn gc spare"
            )
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)

    async def _discard_uploads(
        self, namespace: str, confirm: Callable[[], Awaitable[None]]
    ) -> TarnError | None:
        await confirm()
        try:
            await self.blocks.uploads.discard_all(namespace)
        except TarnError as error:
            return error
        return None

    async def _second_look(self, namespace: str) -> Tally:
        """Returns the remaining blocks and files, of one page."""
        async for page in _pages(self.blocks, namespace):
            return Tally(len(page), sum(info.size for info in page))
        return Tally()

    def _report(
        self,
        doomed: pb.DoomedNamespace,
        found: Tally,
        deleted: Tally,
        failed: Tally,
        error: TarnError | None = None,
        left: Tally | None = None,
    ) -> PurgeReport:
        return PurgeReport(
            doomed.repository_id,
            doomed.instance_uid,
            doomed.storage_namespace,
            self.clock.now_us(),
            found,
            deleted,
            failed,
            "" if error is None else error.message,
            left or Tally(),
        )


async def _pages(blocks: ReadBlocks, namespace: str) -> AsyncIterator[list[BlockInfo]]:
    """Yields what Tarn wrote below a namespace, except the notes of purges."""
    for prefix in _PREFIXES:
        async for page in pages_below(blocks, namespace, prefix):
            if kept := [info for info in page if not info.path.startswith(PURGE_FOLDER)]:
                yield kept


async def _deleted_by_all(blocks: ReadBlocks, namespace: str) -> Tally:
    """Returns what this attempt and interrupted ones before it deleted, by their files."""
    total = Tally()
    async for info in blocks_below(blocks, namespace, PURGE_FOLDER):
        if not info.path.endswith(".parquet"):
            continue
        body = await read_whole(blocks, BlockKey(namespace, info.path))
        try:
            table = read_table(body, _SCHEMA, _LIMITS)
        except UNREADABLE as error:
            text = f"{info.path} in {namespace}, a file of a purge, cannot be read: {error}"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=info.path) from error
        rows = table.filter(pc.equal(table.column("outcome"), Outcome.DELETED.value))
        total.add(rows.num_rows, pc.sum(rows.column("size")).as_py() or 0)
    return total


class _Log:
    """The outcomes of one attempt, as Parquet files in the namespace."""

    def __init__(self, blocks: BlockStore, namespace: str, attempt: str) -> None:
        self._blocks = blocks
        self._namespace = namespace
        self._attempt = attempt
        self._files = 0
        self._rows: list[tuple[str, int, str]] = []

    def add(self, info: BlockInfo, outcome: Outcome) -> None:
        self._rows.append((info.path, info.size, outcome.value))

    async def flush(self, *, always: bool = True) -> None:
        """Writes the buffered rows; unless `always`, only if there are many."""
        if not self._rows or (not always and len(self._rows) < 1 << 16):
            return
        columns = [pa.array(column) for column in zip(*self._rows, strict=True)]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_arrays(columns, schema=_SCHEMA), sink, compression="zstd")
        path = f"{PURGE_FOLDER}{self._attempt}-{self._files:06d}.parquet"
        await self._blocks.put(BlockKey(self._namespace, path), sink.getvalue().to_pybytes())
        self._files += 1
        self._rows = []


def _report_key(namespace: str, attempt: str) -> BlockKey:
    return BlockKey(namespace, f"{PURGE_FOLDER}{attempt}-report.json")


async def _write_report(blocks: BlockStore, report: PurgeReport, attempt: str) -> None:
    body = json.dumps({"version": _VERSION, **asdict(report)}, indent=1).encode()
    await blocks.put(_report_key(report.namespace, attempt), body)

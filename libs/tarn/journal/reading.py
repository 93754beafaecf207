"""Reads the files of one epoch: its base, or a compaction in its place, and its passes. What is missing or damaged is
in the report.

Files are judged one at a time, those of a holder from the newest to the oldest: so the file that names the parts of a
pass comes before them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.paging import blocks_below
from tarn.block.port import BlockKey, BlockNotFoundError, ReadBlocks, read_whole
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.accounts import Accounts
from tarn.journal.compactions import CompactedFile, Compaction, newest_compaction
from tarn.journal.days import DayManifest, read_manifest
from tarn.journal.epochs import BaseFile, Epoch
from tarn.journal.files import FILE_BYTES_MAX, decode_base, decode_file
from tarn.journal.footer import Footer
from tarn.journal.names import (
    FOLDER,
    PassName,
    base_path,
    compacted_path,
    corrupt_error,
    manifest_day,
    manifest_path,
    pass_name,
)
from tarn.journal.writing import row_counts

__all__ = [
    "EpochReader",
    "FileFacts",
    "PassSelector",
    "Source",
    "facts_of",
    "read_base",
    "read_compacted",
    "read_pass",
    "read_source",
    "read_unjudged",
]

_FILES_MAX: Final = 4_000_000
"""Names of files in memory; some 300 bytes each."""


Source = BaseFile | CompactedFile | PassName
"""A file with events."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What counts of a file beside its rows.

    Attributes:
        footer: what a file of events says of itself; None: it is one of a base.
        sha256: of its bytes.
        counts: number of its rows by branch and token.
        orders: of its records of branches, the greatest order by branch.
    """

    footer: Footer | None
    sha256: str
    counts: Mapping[tuple[str, str], int]
    orders: Mapping[str, int]


def facts_of(footer: Footer | None, body: bytes, table: pa.Table) -> FileFacts:
    """Returns the facts of a file.

    Args:
        footer: as in `FileFacts`.
        body: the file.
        table: its rows.
    """
    mask = pc.and_(pc.equal(table.column("token"), ""), pc.not_equal(table.column("branch"), ""))
    records = (
        table.select(["branch", "order"])
        .filter(mask)
        .group_by("branch")
        .aggregate([("order", "max")])
    )
    columns = records.column("branch").to_pylist(), records.column("order_max").to_pylist()
    orders = dict(zip(*columns, strict=True))
    return FileFacts(footer, hashlib.sha256(body).hexdigest(), row_counts(table), orders)


async def read_base(
    blocks: ReadBlocks,
    namespace: str,
    folder: str,
    file: BaseFile,
    columns: Sequence[str] | None = None,
) -> tuple[FileFacts, pa.Table]:
    """Returns a file of a base, or some of its columns; see `read_source`.

    Raises:
        TarnError: CORRUPT: it is missing or damaged: without it nothing can be rebuilt.
    """
    return await _read_named(blocks, namespace, base_path(folder, file.number), file, columns)


async def read_compacted(
    blocks: ReadBlocks,
    namespace: str,
    folder: str,
    file: CompactedFile,
    columns: Sequence[str] | None = None,
) -> tuple[FileFacts, pa.Table]:
    """Returns a file of a compaction, or some of its columns; see `read_source`.

    Raises:
        TarnError: CORRUPT: it is missing or damaged; the text names the branches of its rows.
    """
    path = compacted_path(folder, file.name)
    try:
        return await _read_named(blocks, namespace, path, file, columns)
    except TarnError as error:
        if error.kind is not Kind.CORRUPT:
            raise
        about = f"{file.rows} events of branches {file.first!r} to {file.last!r}, and maybe of other records"
        raise corrupt_error(path, f"{error.message}; it has {about}") from error


async def _read_named(
    blocks: ReadBlocks,
    namespace: str,
    path: str,
    file: BaseFile | CompactedFile,
    columns: Sequence[str] | None,
) -> tuple[FileFacts, pa.Table]:
    try:
        body = await read_whole(blocks, BlockKey(namespace, path), FILE_BYTES_MAX)
    except BlockNotFoundError as error:
        raise corrupt_error(path, "it is missing") from error
    if hashlib.sha256(body).hexdigest() != file.sha256:
        raise corrupt_error(path, "its SHA-256 is not the one by which it is named")
    table = await asyncio.to_thread(decode_base, path, body, columns)
    if len(table) != file.rows:
        raise corrupt_error(path, f"it has {len(table)} rows instead of {file.rows}")
    return facts_of(None, body, table), table


async def read_pass(
    blocks: ReadBlocks, namespace: str, epoch: Epoch, name: PassName
) -> tuple[FileFacts, pa.Table]:
    """Returns a file of events. Whether it counts is up to the `PassSelector`.

    Raises:
        TarnError: CORRUPT: it is damaged, or that of another name. BLOCK_NOT_FOUND: it has gone.
    """
    path = name.path(epoch.folder)
    body = await read_whole(blocks, BlockKey(namespace, path), FILE_BYTES_MAX)
    footer, table = await asyncio.to_thread(decode_file, path, body)
    if (footer.epoch, footer.holder, footer.number) != (epoch.number, name.holder, name.number):
        text = f"it is file {footer.number} of {footer.holder} in epoch {footer.epoch}"
        raise corrupt_error(path, text)
    facts = facts_of(footer, body, table)
    _check_counts(path, facts, footer)
    return facts, table


async def read_source(
    blocks: ReadBlocks,
    namespace: str,
    epoch: Epoch,
    source: Source,
    columns: Sequence[str] | None = None,
) -> tuple[FileFacts, pa.Table]:
    """Returns a file with events, of whatever kind.

    Args:
        blocks: the store.
        namespace: of the journal.
        epoch: of the file.
        source: the file.
        columns: that are wanted, as in `tarn.journal.files.decode_base`; None: all. A file that is named with its
            SHA-256 is decoded in these only. A pass is decoded whole, because it is judged by its rows.

    Raises:
        TarnError: as `read_base`, `read_compacted` and `read_pass`.
    """
    match source:
        case BaseFile():
            return await read_base(blocks, namespace, epoch.folder, source, columns)
        case CompactedFile():
            return await read_compacted(blocks, namespace, epoch.folder, source, columns)
        case PassName():
            facts, table = await read_pass(blocks, namespace, epoch, source)
            return facts, table if columns is None else table.select(columns)


async def read_unjudged(
    blocks: ReadBlocks, namespace: str, epoch: Epoch, source: Source, columns: Sequence[str]
) -> pa.Table:
    """Returns some columns of a file, whoever wrote it: for estimates only.

    Args:
        blocks: the store.
        namespace: of the journal.
        epoch: of the file.
        source: the file.
        columns: as in `tarn.journal.files.decode_base`.

    Raises:
        TarnError: CORRUPT: it cannot be read. BLOCK_NOT_FOUND: it has gone. Errors of the store.
    """
    path = path_of(epoch, source)
    body = await read_whole(blocks, BlockKey(namespace, path), FILE_BYTES_MAX)
    return await asyncio.to_thread(decode_base, path, body, columns)


def path_of(epoch: Epoch, source: Source) -> str:
    """Returns the name of a file in its namespace."""
    match source:
        case BaseFile():
            return base_path(epoch.folder, source.number)
        case CompactedFile():
            return compacted_path(epoch.folder, source.name)
        case PassName():
            return source.path(epoch.folder)


def _check_counts(path: str, facts: FileFacts, footer: Footer) -> None:
    """Raises CORRUPT if a file that ends a pass has other rows than it says."""
    if not footer.is_last:
        return
    if any(part.number >= footer.number for part in footer.parts):
        raise corrupt_error(path, "it names a later file as a part of its pass")
    told = {(b.branch, t.token_id): t.events for b in footer.branches for t in b.tokens}
    found = {key: count for key, count in facts.counts.items() if key[1]}
    records = sum(facts.counts.values()) - sum(found.values())
    if footer.parts:
        if records > footer.records or any(n > told.get(key, 0) for key, n in found.items()):
            raise corrupt_error(path, "it has more rows of a token than its pass")
    elif records != footer.records or {key: n for key, n in told.items() if n} != found:
        raise corrupt_error(path, "it has not the rows that it counts")


class PassSelector:
    """Decides which files count, and keeps the accounts.

    Args:
        epoch: of the files.
        accounts: receives what counts and what does not.
    """

    def __init__(self, epoch: Epoch, accounts: Accounts) -> None:
        self._epoch = epoch
        self._accounts = accounts
        self.compaction: Compaction | None = None
        """Its files take the place of the base; None: there is none."""
        self._parts: dict[tuple[str, int], str] = {}
        self._digests: dict[tuple[str, int], str] = {}

    def expect(self, manifest: DayManifest) -> None:
        """Notes the files that a manifest names. All manifests come before all files."""
        for file in manifest.files:
            self._accounts.add_expected(PassName(file.holder, file.number, manifest.day))
            self._digests[file.holder, file.number] = file.sha256

    def add_base(self, facts: FileFacts) -> None:
        """Counts a file of the base, or of the compaction."""
        self._count("", facts)

    def begin(self, compaction: Compaction | None) -> None:
        """Goes on after a compaction. Comes before all files."""
        self.compaction = compaction
        if compaction is not None:
            self._accounts.resume(compaction.replaced)

    def add_error(self, source: Source, error: TarnError) -> None:
        """Notes a file that cannot be read.

        Raises:
            TarnError: the error, if it is not that the file is damaged or has gone, or if the file is one of the base.
        """
        if error.kind not in {Kind.CORRUPT, Kind.NOT_FOUND} or isinstance(source, BaseFile):
            raise error
        name = source if isinstance(source, PassName) else None
        self._accounts.add_damaged(name, path_of(self._epoch, source), error.message)

    def takes(self, source: Source, facts: FileFacts) -> bool:
        """Returns whether a file counts, of whatever kind. Order: as `counts`."""
        if isinstance(source, PassName):
            return self.counts(source, facts)
        self.add_base(facts)
        return True

    def counts(self, name: PassName, facts: FileFacts) -> bool:
        """Returns whether a file counts. Call it for the files of a holder from the newest to the oldest."""
        assert facts.footer is not None
        place = (name.holder, name.number)
        path = name.path(self._epoch.folder)
        part = self._parts.pop(place, None)
        for whose, digest in (("its day's manifest", self._digests.get(place)), ("its pass", part)):
            if digest not in {None, facts.sha256}:
                self._accounts.add_damaged(name, path, f"its SHA-256 is not that of {whose}")
                return False
        if part is not None:
            self._accounts.add_part(name)
        elif facts.footer.is_last:
            self._accounts.add_pass(name, facts.footer)
            self._parts |= {(name.holder, each.number): each.sha256 for each in facts.footer.parts}
        else:
            self._accounts.add_unfinished(name, path)
            return False
        self._count(name.holder, facts)
        return True

    def _count(self, holder: str, facts: FileFacts) -> None:
        self._accounts.add_rows(holder, facts.counts)
        for branch, order in facts.orders.items():
            self._accounts.add_record(branch, order)


class EpochReader:
    """Reads an epoch once.

    Args:
        blocks: the store.
        namespace: of the journal.
        epoch: which one; a rebuild takes the newest.
        accounts: receives what is read and what is not.
        columns: of the tables, as in `read_source`.
    """

    def __init__(
        self,
        blocks: ReadBlocks,
        namespace: str,
        epoch: Epoch,
        accounts: Accounts,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._blocks = blocks
        self._namespace = namespace
        self._epoch = epoch
        self._accounts = accounts
        self._columns = columns
        self.selector = PassSelector(epoch, accounts)
        self._is_open = False

    async def _opened(self) -> Compaction | None:
        """Returns the compaction that was the newest one when this reader began."""
        if not self._is_open:
            self.selector.begin(await newest_compaction(self._blocks, self._namespace, self._epoch))
            self._is_open = True
        return self.selector.compaction

    async def base(self) -> AsyncIterator[pa.Table]:
        """Yields the rows of the newest compaction, or without one those of the base.

        A damaged file of a compaction is left out, and reported.

        Raises:
            TarnError: CORRUPT, as `read_base` and `newest_compaction`.
        """
        compaction = await self._opened()
        sources = self._epoch.base if compaction is None else compaction.files
        async for table in self._read(sources):
            yield table

    async def passes(self) -> AsyncIterator[pa.Table]:
        """Yields the rows of the passes that ended, a file at a time. Damaged files are left out, and reported.

        Raises:
            TarnError: EXHAUSTED: the epoch has too many files. Any error of the store.
        """
        async for table in self._read(await self.names()):
            yield table

    async def _read(self, sources: Iterable[Source]) -> AsyncIterator[pa.Table]:
        for source in sources:
            try:
                facts, table = await read_source(
                    self._blocks, self._namespace, self._epoch, source, self._columns
                )
            except TarnError as error:
                self.selector.add_error(source, error)
                continue
            if self.selector.takes(source, facts):
                yield table

    async def names(self) -> list[PassName]:
        """Returns the files of passes that no compaction replaced: holder by holder, the newest first.

        Reads the manifests.

        Raises:
            TarnError: as `passes`; CORRUPT, as `newest_compaction`.
        """
        compaction = await self._opened()  # before the listing: what it does not replace is there
        found: list[PassName] = []
        days = []
        prefix = f"{FOLDER}{self._epoch.folder}/"
        async for info in blocks_below(self._blocks, self._namespace, prefix):
            if name := pass_name(self._epoch.folder, info.path):
                if compaction is None or not compaction.replaced.holds(name):
                    found.append(name)
            elif day := manifest_day(self._epoch.folder, info.path):
                days.append(day)
            if len(found) > _FILES_MAX:
                text = f"epoch {self._epoch.number} of {self._namespace} has more than {_FILES_MAX} files"
                raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
        for day in days:
            try:
                manifest = await read_manifest(
                    self._blocks, self._namespace, self._epoch.folder, day
                )
            except TarnError as error:
                if error.kind is not Kind.CORRUPT:
                    raise
                self._accounts.add_damaged(
                    None, manifest_path(self._epoch.folder, day), error.message
                )
            else:
                self.selector.expect(manifest)
        return sorted(found, reverse=True)

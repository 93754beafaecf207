"""Reads the files of one epoch: its base, or a compaction in its place, and its passes. What is missing or damaged is
in the report.

Files are judged one at a time, those of a holder from the newest to the oldest: so the file that names the parts of a
pass comes before them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.paging import blocks_below
from tarn.block.port import BlockKey, BlockNotFoundError, ReadBlocks, read_whole
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.parquet import UNREADABLE, read_groups
from tarn.journal.accounts import Accounts
from tarn.journal.compactions import CompactedFile, Compaction, newest_compaction
from tarn.journal.days import DayManifest, read_manifest
from tarn.journal.epochs import BaseFile, Epoch
from tarn.journal.events import EVENT_SCHEMA, REPLAYED
from tarn.journal.files import (
    FILE_BYTES_MAX,
    check_rows,
    decode_base,
    decode_file,
    footer_in,
)
from tarn.journal.footer import Footer
from tarn.journal.groups import FileGroups, groups_of
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
    "Outline",
    "PassSelector",
    "Source",
    "facts_of",
    "path_of",
    "read_base",
    "read_compacted",
    "read_outline",
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


def facts_of(footer: Footer | None, sha256: str, table: pa.Table) -> FileFacts:
    """Returns the facts of a file.

    Args:
        footer: as in `FileFacts`.
        sha256: likewise.
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
    return FileFacts(footer, sha256, row_counts(table), orders)


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
    path = base_path(folder, file.number)
    body = await _read_named(blocks, namespace, path, file)
    return await asyncio.to_thread(_decoded, path, body, file, columns)


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
        body = await _read_named(blocks, namespace, path, file)
        return await asyncio.to_thread(_decoded, path, body, file, columns)
    except TarnError as error:
        raise _about(path, file, error) from error


def _about(path: str, file: Source, error: TarnError) -> TarnError:
    """Adds to the error of a damaged file of a compaction what is lost with it."""
    if error.kind is Kind.CORRUPT and isinstance(file, CompactedFile):
        about = f"{file.rows} events of branches {file.first!r} to {file.last!r}, and maybe of other records"
        return corrupt_error(path, f"{error.message}; it has {about}")
    return error


async def _read_named(blocks: ReadBlocks, namespace: str, path: str, file: Source) -> bytes:
    """Returns the bytes of a file, of whatever kind: they have the SHA-256 by which it is named."""
    try:
        body = await read_whole(blocks, BlockKey(namespace, path), FILE_BYTES_MAX)
    except BlockNotFoundError as error:
        if isinstance(file, PassName):
            raise
        raise corrupt_error(path, "it is missing") from error
    if hashlib.sha256(body).hexdigest() != file.sha256:
        raise corrupt_error(path, "its SHA-256 is not the one by which it is named")
    return body


def _decoded(
    path: str, body: bytes, file: BaseFile | CompactedFile, columns: Sequence[str] | None
) -> tuple[FileFacts, pa.Table]:
    table = decode_base(path, body, columns)
    _require_rows(path, len(table), file)
    return facts_of(None, file.sha256, table), table


def _require_rows(path: str, rows: int, file: BaseFile | CompactedFile) -> None:
    if rows != file.rows:
        raise corrupt_error(path, f"it has {rows} rows instead of {file.rows}")


async def read_pass(
    blocks: ReadBlocks,
    namespace: str,
    epoch: Epoch,
    name: PassName,
    columns: Sequence[str] | None = None,
) -> tuple[FileFacts, pa.Table]:
    """Returns a file of events, or some of its columns; see `read_source`. Whether it counts is up to the
    `PassSelector`.

    Raises:
        TarnError: CORRUPT: it is damaged, or that of another name. BLOCK_NOT_FOUND: it has gone.
    """
    path = name.path(epoch.folder)
    body = await _read_named(blocks, namespace, path, name)
    footer, table = await asyncio.to_thread(decode_file, path, body, columns)
    facts = facts_of(footer, name.sha256, table)
    _check_pass(path, epoch, name, facts)
    return facts, table


def _check_pass(path: str, epoch: Epoch, name: PassName, facts: FileFacts) -> None:
    """Raises CORRUPT if a file of events is that of another name, or has other rows than it says."""
    footer = facts.footer
    assert footer is not None
    if (footer.epoch, footer.holder, footer.number) != (epoch.number, name.holder, name.number):
        text = f"it is file {footer.number} of {footer.holder} in epoch {footer.epoch}"
        raise corrupt_error(path, text)
    _check_counts(path, facts, footer)


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
        columns: that are wanted, as in `tarn.journal.files.decode_base`; None: all. Then a pass is compared with the
            SHA-256 of its rows, too, which it has in its footer; that of all bytes, in its name, is compared always.

    Raises:
        TarnError: as `read_base`, `read_compacted` and `read_pass`.
    """
    match source:
        case BaseFile():
            return await read_base(blocks, namespace, epoch.folder, source, columns)
        case CompactedFile():
            return await read_compacted(blocks, namespace, epoch.folder, source, columns)
        case PassName():
            return await read_pass(blocks, namespace, epoch, source, columns)


@dataclass(frozen=True, slots=True)
class Outline:
    """What a file has, without most of its rows.

    Attributes:
        facts: as `read_source` returns them.
        records: its rows without a token, the columns `REPLAYED`.
        groups: where its row groups are; None: it can be read whole only.
        body: the file.
    """

    facts: FileFacts
    records: pa.Table
    groups: FileGroups | None
    body: bytes


async def read_outline(blocks: ReadBlocks, namespace: str, epoch: Epoch, source: Source) -> Outline:
    """Returns what a file of whatever kind has; all of its bytes are compared with the SHA-256 by which it is named,
    and rows of records are decoded.

    Raises:
        TarnError: as `read_source`.
    """
    path = path_of(epoch, source)
    try:
        body = await _read_named(blocks, namespace, path, source)
        return await asyncio.to_thread(_outlined, path, body, epoch, source)
    except TarnError as error:
        raise _about(path, source, error) from error


def _outlined(path: str, body: bytes, epoch: Epoch, source: Source) -> Outline:
    counts = Counter[tuple[str, str]]()
    try:
        groups = groups_of(body, REPLAYED)
        if groups is None:
            table = decode_base(path, body, REPLAYED)
        else:
            mixed = []
            for number, group in enumerate(groups.groups):
                if group.branch is not None and group.token:
                    counts[group.branch, group.token] += group.rows
                else:
                    mixed.append(number)
            table = read_groups(body, EVENT_SCHEMA, REPLAYED, mixed)
            table.validate(full=True)
            check_rows(table)
        footer = footer_in(body) if isinstance(source, PassName) else None
    except UNREADABLE as error:
        raise corrupt_error(path, str(error)) from error
    some = facts_of(footer, source.sha256, table)
    facts = replace(some, counts=counts + Counter(some.counts))
    if isinstance(source, PassName):
        _check_pass(path, epoch, source, facts)
    else:
        _require_rows(path, sum(facts.counts.values()), source)
    return Outline(facts, table.filter(pc.equal(table.column("token"), "")), groups, body)


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
        self._counted: set[tuple[str, int]] = set()

    def expect(self, manifest: DayManifest) -> None:
        """Notes the files that a manifest names. All manifests come before all files."""
        for file in manifest.files:
            self._accounts.add_expected(file.holder, file.number)
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
        part = self._parts.get(place)
        for whose, digest in (("its day's manifest", self._digests.get(place)), ("its pass", part)):
            if digest not in {None, facts.sha256}:
                self._accounts.add_damaged(name, path, f"its SHA-256 is not that of {whose}")
                return False
        if place in self._counted:
            self._accounts.add_damaged(name, path, "another file has its number, too")
            return False
        self._counted.add(place)
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

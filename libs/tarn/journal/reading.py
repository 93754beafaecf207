"""Reads the files of one epoch: its base, and its passes. What is missing or damaged is in the report.

Files are read one at a time, those of a holder from the newest to the oldest: so the file that names the parts of a
pass comes before them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.port import BlockKey, BlockNotFoundError, ReadBlocks, read_whole
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.accounts import Accounts
from tarn.journal.days import DayManifest, read_manifest
from tarn.journal.epochs import Epoch
from tarn.journal.files import FILE_BYTES_MAX, decode_base, decode_file
from tarn.journal.footer import Footer
from tarn.journal.names import (
    FOLDER,
    PassName,
    base_path,
    corrupt_error,
    manifest_day,
    pass_name,
)
from tarn.journal.writing import row_counts

__all__ = ["EpochReader"]

_PAGE: Final = 1000
_FILES_MAX: Final = 4_000_000
"""Names of files in memory; some 300 bytes each."""


class EpochReader:
    """Reads an epoch once.

    Args:
        blocks: the store.
        namespace: of the journal.
        epoch: which one; a rebuild takes the newest.
        accounts: receives what is read and what is not.
    """

    def __init__(
        self, blocks: ReadBlocks, namespace: str, epoch: Epoch, accounts: Accounts
    ) -> None:
        self._blocks = blocks
        self._namespace = namespace
        self._epoch = epoch
        self._accounts = accounts
        self._parts: dict[tuple[str, int], str] = {}
        self._digests: dict[tuple[str, int], str] = {}

    async def base(self) -> AsyncIterator[pa.Table]:
        """Yields the rows of the base.

        Raises:
            TarnError: CORRUPT: a file is missing or damaged: without it nothing can be rebuilt.
        """
        for file in self._epoch.base:
            path = base_path(self._epoch.folder, file.number)
            try:
                body = await read_whole(
                    self._blocks, BlockKey(self._namespace, path), FILE_BYTES_MAX
                )
            except BlockNotFoundError as error:
                raise corrupt_error(path, "it is missing") from error
            if hashlib.sha256(body).hexdigest() != file.sha256:
                raise corrupt_error(path, "its SHA-256 is not that of the epoch")
            table = await asyncio.to_thread(decode_base, path, body)
            if len(table) != file.rows:
                raise corrupt_error(path, f"it has {len(table)} rows instead of {file.rows}")
            self._account("", table)
            yield table

    async def passes(self) -> AsyncIterator[pa.Table]:
        """Yields the rows of the passes that ended, a file at a time. Damaged files are left out, and reported.

        Raises:
            TarnError: EXHAUSTED: the epoch has too many files. Any error of the store.
        """
        for name in await self._names():
            path = name.path(self._epoch.folder)
            try:
                found = await self._read(name, path)
            except TarnError as error:
                if error.kind not in {Kind.CORRUPT, Kind.NOT_FOUND}:
                    raise
                self._accounts.add_damaged(name, path, error.message)
                continue
            if found is not None:
                self._account(name.holder, found)
                yield found

    async def _read(self, name: PassName, path: str) -> pa.Table | None:
        """Returns the rows of a file; None: its pass never ended."""
        body = await read_whole(self._blocks, BlockKey(self._namespace, path), FILE_BYTES_MAX)
        footer, table = await asyncio.to_thread(decode_file, path, body)
        place = (footer.epoch, footer.holder, footer.number)
        if place != (self._epoch.number, name.holder, name.number):
            raise corrupt_error(
                path, f"it is file {footer.number} of {footer.holder} in epoch {footer.epoch}"
            )
        digest = hashlib.sha256(body).hexdigest()
        if self._digests.get((name.holder, name.number), digest) != digest:
            raise corrupt_error(path, "its SHA-256 is not that of its day's manifest")
        part = self._parts.pop((name.holder, name.number), None)
        if part not in {None, digest}:
            raise corrupt_error(path, "its SHA-256 is not that of its pass")
        if footer.is_last and part is None:
            self._check_counts(path, footer, table)
            self._accounts.add_pass(name, footer)
            self._parts |= {(name.holder, each.number): each.sha256 for each in footer.parts}
        elif part is not None:
            self._accounts.add_part(name)
        else:
            self._accounts.add_unfinished(name, path)
            return None
        return table

    def _check_counts(self, path: str, footer: Footer, table: pa.Table) -> None:
        """Raises CORRUPT for a pass of one file whose rows are not those that it counts."""
        if any(part.number >= footer.number for part in footer.parts):
            raise corrupt_error(path, "it names a later file as a part of its pass")
        counts = row_counts(table)
        records = sum(count for (_, token), count in counts.items() if not token)
        told = {(b.branch, t.token_id): t.events for b in footer.branches for t in b.tokens}
        found = {key: count for key, count in counts.items() if key[1]}
        if footer.parts:
            if any(count > told.get(key, 0) for key, count in found.items()):
                raise corrupt_error(path, "it has more rows of a token than its pass")
        elif records != footer.records or {k: n for k, n in told.items() if n} != found:
            raise corrupt_error(path, "it has not the rows that it counts")

    def _account(self, holder: str, table: pa.Table) -> None:
        self._accounts.add_rows(holder, row_counts(table))
        mask = pc.and_(
            pc.equal(table.column("token"), ""), pc.not_equal(table.column("branch"), "")
        )
        records = table.filter(mask).group_by("branch").aggregate([("order", "max")])
        columns = records.column("branch").to_pylist(), records.column("order_max").to_pylist()
        for branch, order in zip(*columns, strict=True):
            self._accounts.add_record(branch, order)

    async def _names(self) -> list[PassName]:
        """Returns the files of passes: holder by holder, the newest first. Reads the manifests."""
        found: list[PassName] = []
        days = []
        after = ""
        prefix = f"{FOLDER}{self._epoch.folder}/"
        while page := await self._blocks.list_page(self._namespace, prefix, after, _PAGE):
            for info in page:
                if name := pass_name(self._epoch.folder, info.path):
                    found.append(name)
                elif day := manifest_day(self._epoch.folder, info.path):
                    days.append(day)
            after = page[-1].path
            if len(found) > _FILES_MAX:
                text = f"epoch {self._epoch.number} of {self._namespace} has more than {_FILES_MAX} files"
                raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
        for day in days:
            self._expect(
                await read_manifest(self._blocks, self._namespace, self._epoch.folder, day)
            )
        return sorted(found, reverse=True)

    def _expect(self, manifest: DayManifest) -> None:
        for file in manifest.files:
            self._accounts.add_expected(PassName(file.holder, file.number, manifest.day))
            self._digests[file.holder, file.number] = file.sha256

"""Writes the journal's files to the bucket: passes, and the base of an epoch."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from tarn.block.port import BlockKey, BlockStore
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.epochs import BaseFile, Epoch
from tarn.journal.files import FILE_ROWS, ROWS_BYTES_MAX, check_size, encode_base, encode_file
from tarn.journal.footer import DAMAGE_MAX, BranchFooter, Footer, PartFooter, TokenFooter
from tarn.journal.names import HOLDER, PassName, base_path, day_of

__all__ = ["BranchPass", "JournalWriter", "pieces", "row_counts", "write_base"]


@dataclass(frozen=True, slots=True)
class BranchPass:
    """A branch in a pass, as its drain saw it.

    Attributes:
        branch: its name.
        order: of its record at the end; 0: it has none.
        tokens: ids of those that the record names, newest first, and of those that it named earlier in this pass.
        over: ids of tokens that were over when the pass began; they are not written about any more.
        is_unsettled: the record changed in each attempt.
        damage: why its record or one of its events cannot be read; empty: nothing is damaged.
    """

    branch: str
    order: int
    tokens: Sequence[str] = ()
    over: Sequence[str] = ()
    is_unsettled: bool = False
    damage: str = ""


class JournalWriter:
    """Writes the passes of one holder in one epoch, one after the other.

    After an error nobody knows whether a file landed. So a writer that has failed refuses to go on: the drain reads
    its events again, with a new writer and a new holder.

    Args:
        blocks: receives the files.
        namespace: of the journal.
        epoch: the newest one.
        holder: 32 hex digits, never used before.
    """

    def __init__(self, blocks: BlockStore, namespace: str, epoch: Epoch, holder: str) -> None:
        if not HOLDER.fullmatch(holder):
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, "journal: no 32 hex digits")
        self._blocks = blocks
        self._namespace = namespace
        self._epoch = epoch
        self._holder = holder
        self._number = 0
        self._drained: Counter[tuple[str, str]] = Counter()
        self._records = 0
        self._failed = False
        self._parts: list[PartFooter] = []
        self._part_counts: Counter[tuple[str, str]] = Counter()

    async def write(
        self,
        begin_time_us: int,
        table: pa.Table,
        branches: Sequence[BranchPass],
        *,
        is_full: bool,
        until_us: int = 0,
    ) -> list[str]:
        """Writes a pass; returns the paths of its files. They are durable on return.

        Args:
            begin_time_us: when the pass began to read.
            table: its rows, as `tarn.journal.events.table_of` sorts them.
            branches: all branches that it read.
            is_full: whether it read all events, and not new ones only.
            until_us: see `Footer`.

        Raises:
            TarnError: EXHAUSTED: it has too many branches for one file; write fewer at once. INVALID: a row is of a
                token that no branch of the pass has, or this writer has failed before. Any error of the store.
        """
        self._require_sound()
        counts = self._part_counts + row_counts(table)
        cut = list(pieces(table))
        records = sum(count for (_, token), count in counts.items() if not token)
        whole = Footer(
            "tarn journal",
            1,
            self._epoch.number,
            self._holder,
            self._number + len(cut),
            begin_time_us=begin_time_us,
            parts=(PartFooter(1, "0" * 64),) * (len(self._parts) + len(cut) - 1),
            records=records,
            drained_records=self._records + records,
            is_full=is_full,
            branches=self._described(counts, branches),
            until_us=until_us,
        )
        check_size(whole)
        self._failed = True
        paths = await self._put(whole, cut)
        self._records += records
        self._drained.update({key: count for key, count in counts.items() if key[1]})
        for each in branches:
            for token in each.over:
                self._drained.pop((each.branch, token), None)
        self._parts.clear()
        self._part_counts.clear()
        self._failed = False
        return paths

    async def write_part(self, begin_time_us: int, table: pa.Table) -> None:
        """Writes some rows of a pass ahead, so that they need no memory. They count when `write` has ended the pass.

        Args:
            begin_time_us: when the pass began to read, as `write` will say.
            table: rows of the pass, as in `write`, which gets them no more.

        Raises:
            TarnError: as `write`.
        """
        self._require_sound()
        self._failed = True
        for piece in pieces(table):
            about = "tarn journal", 1, self._epoch.number, self._holder, self._number + 1
            footer = Footer(*about, begin_time_us=begin_time_us, is_last=False)
            await self._put_file(piece, footer)
        self._part_counts += row_counts(table)
        self._failed = False

    def _require_sound(self) -> None:
        if self._failed:
            text = "journal: a write has failed; begin again with a new holder"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)

    async def _put(self, whole: Footer, cut: list[pa.Table]) -> list[str]:
        """Writes the files of a pass; the last one has the footer of the whole pass, with the parts before it."""
        paths: list[str] = []
        for piece in cut:
            footer = msgspec.structs.replace(whole, parts=tuple(self._parts))
            if self._number + 1 < whole.number:
                about = whole.format, whole.version, whole.epoch, whole.holder, self._number + 1
                footer = Footer(*about, begin_time_us=whole.begin_time_us, is_last=False)
            paths.append(await self._put_file(piece, footer))
        return paths

    async def _put_file(self, piece: pa.Table, footer: Footer) -> str:
        """Writes the next file, and notes it as a part of the pass; returns its path."""
        self._number += 1
        body = encode_file(piece, footer)
        sha256 = hashlib.sha256(body).hexdigest()
        name = PassName(self._holder, self._number, day_of(footer.begin_time_us), sha256)
        path = name.path(self._epoch.folder)
        await self._blocks.put(BlockKey(self._namespace, path), body)
        self._parts.append(PartFooter(self._number, sha256))
        return path

    def _described(
        self, counts: Counter[tuple[str, str]], branches: Sequence[BranchPass]
    ) -> tuple[BranchFooter, ...]:
        found = []
        for each in sorted(branches, key=lambda one: one.branch):
            tokens = []
            for token in (*each.tokens, *each.over):
                key = (each.branch, token)
                drained = self._drained[key] + counts[key]
                tokens.append(TokenFooter(token, counts[key], drained, token in each.over))
            damage = each.damage[:DAMAGE_MAX] or msgspec.UNSET
            about = each.branch, each.order, tuple(tokens), each.is_unsettled
            found.append(BranchFooter(*about, damage))
        known = {(each.branch, token.token_id) for each in found for token in each.tokens}
        known |= {(each.branch, "") for each in found} | {("", "")}
        if strange := counts.keys() - known:
            text = f"journal: rows of {sorted(strange)[:3]} are of no token of the pass"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        return tuple(found)


async def write_base(
    blocks: BlockStore, namespace: str, folder: str, tables: AsyncIterator[pa.Table]
) -> tuple[BaseFile, ...]:
    """Writes the base of an epoch that has not begun; returns its files, for `Epoch.base`.

    Args:
        blocks: receives the files.
        namespace: of the journal.
        folder: of the epoch, new for each attempt.
        tables: rows of `EVENT_SCHEMA`; a file for each, so some 100,000 rows are best.

    Raises:
        TarnError: any error of the store; what was written stays, and belongs to no epoch.
    """
    found: list[BaseFile] = []
    async for table in tables:
        for piece in pieces(table):
            body = encode_base(piece)
            number = len(found) + 1
            await blocks.put(BlockKey(namespace, base_path(folder, number)), body)
            found.append(BaseFile(number, len(piece), hashlib.sha256(body).hexdigest()))
    return tuple(found)


def row_counts(table: pa.Table) -> Counter[tuple[str, str]]:
    """Returns the number of rows by branch and token."""
    counted = table.group_by(["branch", "token"]).aggregate([([], "count_all")])
    columns = [counted.column(name).to_pylist() for name in ("branch", "token", "count_all")]
    return Counter({(branch, token): count for branch, token, count in zip(*columns, strict=True)})


def pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Yields rows of `EVENT_SCHEMA` in pieces that fit files; at least one."""
    if len(table) <= 1 or (len(table) <= FILE_ROWS and table.nbytes <= ROWS_BYTES_MAX):
        yield table
        return
    half = len(table) // 2
    yield from pieces(table.slice(0, half))
    yield from pieces(table.slice(half))

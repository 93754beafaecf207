"""Compacts the journal of a namespace: the files of past days become fewer and larger ones.

All events of records stay: they are the history of refs. Events of objects go when nothing needs them any more: their
token had its last scan some days ago, and the newest record of its branch does not name it. A rebuild reads only the
tokens that records name, and no record names such a token again.

What is damaged or missing is not replaced: it stays where it is, and readers go on reporting it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.port import BlockKey, BlockStore
from tarn.core.clock import DAY_US, Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.run import addresses_of
from tarn.journal.accounts import Accounts
from tarn.journal.compactions import CompactedFile, Compaction, publish_compaction
from tarn.journal.epochs import Epoch, newest_epoch
from tarn.journal.events import BRANCHES, EVENT_SCHEMA
from tarn.journal.files import FILE_ROWS, ROWS_BYTES_MAX, encode_base
from tarn.journal.names import compacted_path, day_of
from tarn.journal.reading import (
    EpochReader,
    PassSelector,
    Source,
    read_source,
)
from tarn.journal.replay import record_of
from tarn.journal.runs import SortedRuns
from tarn.journal.writing import pieces

__all__ = [
    "SORTED_BY",
    "CompactedWriter",
    "CompactionRows",
    "Compacted",
    "InProcess",
    "Leaving",
    "compact",
    "records_in",
]

SORTED_BY: Final = ("branch", "token", "key", "order", "event_id", "payload")
"""The order of the rows of a compaction."""
_RUN_MAX_US: Final = DAY_US
"""A run that takes longer publishes nothing: its files may have been taken for leftovers."""


@dataclass(frozen=True)
class Leaving:
    """The rows that a compaction leaves out.

    Attributes:
        tokens: pairs of branch and token, all of whose rows go.
        over: pairs of branch and token whose rows are not needed any more.
        erased: addresses of erased blocks: rows of `over` that name one go.
    """

    tokens: frozenset[tuple[str, str]]
    over: frozenset[tuple[str, str]] = frozenset()
    erased: tuple[bytes, ...] = ()

    @cached_property
    def _erased(self) -> pa.Array:
        return pa.array(self.erased, pa.binary())

    def kept(self, table: pa.Table) -> pa.Table:
        """Returns the rows that stay, of rows of `EVENT_SCHEMA`."""
        if not len(table):
            return table
        names = [
            table.column(name).combine_chunks().dictionary_encode() for name in ("branch", "token")
        ]
        branches, tokens = (each.dictionary.to_pylist() for each in names)
        at = [each.indices.to_numpy().astype(np.int64) for each in names]
        pairs, where = np.unique(at[0] * len(tokens) + at[1], return_inverse=True)
        places = [(branches[each // len(tokens)], tokens[each % len(tokens)]) for each in pairs]
        goes = np.array([each in self.tokens for each in places])[where]
        if self.erased:
            is_over = np.array([each in self.over for each in places])[where]
            address = addresses_of(table.column("payload"))
            named = pc.is_in(address, value_set=self._erased).to_numpy(zero_copy_only=False)
            goes |= is_over & named
        return table.filter(pa.array(~goes)) if goes.any() else table


class CompactionRows(Protocol):
    """Reads and writes the rows of one compaction: in this process, or in Spark."""

    async def judge(
        self, sources: Sequence[Source], selector: PassSelector
    ) -> tuple[list[int], dict[str, bytes]]:
        """Reads all files, and lets the selector judge them.

        Args:
            sources: files of the base or of the last compaction, and those of passes as `EpochReader.names` sorts them.
            selector: receives the facts and the errors.

        Returns:
            Positions of the sources that do not count, and the newest record of each branch.
        """
        ...

    async def write(self, sources: Sequence[Source], leaving: Leaving) -> list[CompactedFile]:
        """Writes the rows of sources that count, each once, sorted by `SORTED_BY`; returns the files."""
        ...


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a run did.

    Attributes:
        epoch: number of the epoch.
        number: of the compaction.
        files: that it has.
        rows: in them.
        replaced: files whose place they take.
        tokens: whose rows were left out.
        missing: what is missing or damaged, in words; it was left as it is.
    """

    epoch: int
    number: int
    files: int
    rows: int
    replaced: int
    tokens: int
    missing: tuple[str, ...]


async def compact(
    blocks: BlockStore,
    namespace: str,
    rows: Callable[[Epoch], CompactionRows],
    clock: Clock,
    *,
    keep_us: int,
    erased: Sequence[bytes] = (),
) -> Compacted | None:
    """Compacts the newest epoch of a journal; returns None if there is nothing to do.

    It may die at any moment, and be run again; two runs beside each other do no harm.

    Args:
        blocks: the store.
        namespace: of the journal.
        rows: returns what reads and writes the rows of an epoch.
        clock: of this machine.
        keep_us: how long the events of a token stay after its last scan, microseconds: for consumers of the feed.
        erased: addresses of erased blocks. Their events go as soon as their token is over.

    Raises:
        TarnError: CONFLICT: another run was faster. CORRUPT: the base, the record of a branch or the file of the last
            compaction is damaged. DEADLINE: the run took too long. Any error of the store.
    """
    began, now_us = clock.monotonic(), clock.now_us()
    epoch = await newest_epoch(blocks, namespace)
    if epoch is None:
        return None
    accounts = Accounts(epoch.number, epoch.begin_time_us)
    reader = EpochReader(blocks, namespace, epoch, accounts)
    names = [each for each in await reader.names() if each.day < day_of(now_us)]
    last = reader.selector.compaction
    if not names and not _is_due(accounts, now_us - keep_us) and not erased:
        return None
    sources: list[Source] = [*(last.files if last is not None else epoch.base), *names]
    work = rows(epoch)
    left_out, records = await work.judge(sources, reader.selector)
    leaving = _leaving(accounts, records, now_us - keep_us, erased)
    counted = [each for at, each in enumerate(sources) if at not in set(left_out)]
    files = await work.write(counted, leaving)
    # A damaged file of the last compaction stays one of this one, so that it goes on being reported.
    damaged = [sources[at] for at in left_out]
    files += [each for each in damaged if isinstance(each, CompactedFile)]
    number = last.number + 1 if last is not None else 1
    kept = accounts.kept(leaving.tokens)
    compaction = Compaction(number, epoch.number, now_us, tuple(files), kept)
    if (clock.monotonic() - began) * 1_000_000 > _RUN_MAX_US:
        text = f"compacting the journal of {namespace} took more than a day; nothing was changed: run it on more cores"
        raise TarnError(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED, text)
    await publish_compaction(blocks, namespace, epoch, compaction)
    return Compacted(
        epoch.number,
        number,
        len(files),
        sum(each.rows for each in files),
        len(counted),
        len(leaving.tokens),
        tuple(accounts.report().lines()),
    )


def _is_due(accounts: Accounts, until_us: int) -> bool:
    """Whether a token is over for long enough."""
    return any(each.since_us < until_us for each in accounts.over())


def _leaving(
    accounts: Accounts, records: dict[str, bytes], until_us: int, erased: Sequence[bytes]
) -> Leaving:
    named = set()
    unreadable = set()  # a person may still read which tokens such a record names
    for name, payload in records.items():
        if not payload:
            continue
        found = record_of(BRANCHES + name, payload, 0)
        if found.problem:
            unreadable.add(name)
        if found.branch is not None:
            named |= {(name, str(token.token_id)) for token in found.branch.tokens}
    over = [
        each
        for each in accounts.over()
        if each.branch not in unreadable and (each.branch, each.token) not in named
    ]
    return Leaving(
        frozenset((each.branch, each.token) for each in over if each.since_us < until_us),
        frozenset((each.branch, each.token) for each in over),
        tuple(erased),
    )


class CompactedWriter:
    """Writes rows to files of a compaction; nobody reads them before it is published.

    Args:
        blocks: receives the files.
        namespace: of the journal.
        folder: of the epoch.
        new_name: returns 32 hex digits, never twice the same.
    """

    def __init__(
        self, blocks: BlockStore, namespace: str, folder: str, new_name: Callable[[], str]
    ) -> None:
        self._blocks = blocks
        self._namespace = namespace
        self._folder = folder
        self._new_name = new_name
        self._held: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0
        self.files: list[CompactedFile] = []

    async def add(self, table: pa.Table) -> None:
        """Adds rows, which follow those before by `SORTED_BY`."""
        self._held.append(table)
        self._rows += len(table)
        self._bytes += table.nbytes
        if self._rows >= FILE_ROWS // 2 or self._bytes >= ROWS_BYTES_MAX // 2:
            await self.finish()

    async def finish(self) -> None:
        """Writes what is held; `files` then has all of it."""
        if self._rows:
            for piece in pieces(pa.concat_tables(self._held).combine_chunks()):
                await self._put(piece)
        self._held, self._rows, self._bytes = [], 0, 0

    async def _put(self, table: pa.Table) -> None:
        body = await asyncio.to_thread(encode_base, table)
        name = self._new_name()
        await self._blocks.put(BlockKey(self._namespace, compacted_path(self._folder, name)), body)
        ends = pc.min_max(table.column("branch")).as_py()
        sha256 = hashlib.sha256(body).hexdigest()
        self.files.append(CompactedFile(name, len(table), sha256, ends["min"], ends["max"]))


_RUN_SCHEMA: Final = pa.schema(
    [("place", pa.binary()), ("event_id", pa.binary()), *list(EVENT_SCHEMA)[1:]]
)


@dataclass(frozen=True, slots=True)
class InProcess:
    """Compacts in this process, in bounded memory. Implements `CompactionRows`.

    Attributes:
        blocks: the store.
        namespace: of the journal.
        epoch: the newest one.
        ids: for names of files.
        folder: for temporary files; made when it is needed, and removed by the caller.
    """

    blocks: BlockStore
    namespace: str
    epoch: Epoch
    ids: IdSource
    folder: Path

    async def judge(
        self, sources: Sequence[Source], selector: PassSelector
    ) -> tuple[list[int], dict[str, bytes]]:
        """See `CompactionRows`."""
        left_out, records = [], dict[str, tuple[int, bytes]]()
        for at, source in enumerate(sources):
            try:
                facts, table = await read_source(self.blocks, self.namespace, self.epoch, source)
            except TarnError as error:
                selector.add_error(source, error)
                left_out.append(at)
                continue
            if not selector.takes(source, facts):
                left_out.append(at)
                continue
            for name, newest in records_in(table).items():
                records[name] = max(newest, records.get(name, newest))
        return left_out, {name: payload for name, (_, payload) in records.items()}

    async def write(self, sources: Sequence[Source], leaving: Leaving) -> list[CompactedFile]:
        """See `CompactionRows`."""
        writer = CompactedWriter(
            self.blocks, self.namespace, self.epoch.folder, lambda: self.ids.nonce().hex()
        )
        with closing(SortedRuns(self.folder, _once, "place")) as runs:
            for source in sources:
                _, table = await read_source(self.blocks, self.namespace, self.epoch, source)
                await asyncio.to_thread(_add, runs, leaving.kept(table))
            merged = iter(runs.merged(lambda batch: batch))
            while (table := await asyncio.to_thread(next, merged, None)) is not None:
                await writer.add(_events(_once(table)))
        await writer.finish()
        return writer.files


def records_in(table: pa.Table) -> dict[str, tuple[int, bytes]]:
    """Returns the newest record of each branch in some rows: its order and its payload."""
    mask = pc.and_(pc.equal(table.column("token"), ""), pc.not_equal(table.column("branch"), ""))
    rows = table.filter(mask)
    found: dict[str, tuple[int, bytes]] = {}
    columns = (rows.column(name).to_pylist() for name in ("branch", "order", "payload"))
    for name, order, payload in zip(*columns, strict=True):
        found[name] = max((order, payload), found.get(name, (order, payload)))
    return found


def _add(runs: SortedRuns, table: pa.Table) -> None:
    for batch in table.to_batches():
        names = [batch.column(name).cast(pa.binary()) for name in ("branch", "token", "key")]
        place = pc.binary_join_element_wise(*names, b"\0")
        columns = [place, batch.column("event_id").cast(pa.binary()), *batch.columns[1:]]
        runs.add(pa.RecordBatch.from_arrays(columns, schema=_RUN_SCHEMA))


def _once(table: pa.Table) -> pa.Table:
    """Returns each row once, sorted."""
    names = list(_RUN_SCHEMA.names)
    found = table.group_by(names).aggregate([]).select(names)
    return found.sort_by(
        [(name, "ascending") for name in ("place", "order", "event_id", "payload")]
    )


def _events(table: pa.Table) -> pa.Table:
    ids = table.column("event_id").cast(EVENT_SCHEMA.field("event_id").type)
    return pa.Table.from_arrays([ids, *table.columns[2:]], schema=EVENT_SCHEMA)

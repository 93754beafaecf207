"""The state of the epoch that a rebuild reads: replayed here (`tarn.journal.replay`), or by a job of Spark before."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

from tarn.block.port import ReadBlocks
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadChange
from tarn.journal.accounts import Accounts, Report
from tarn.journal.epochs import Epoch
from tarn.journal.reading import EpochReader
from tarn.journal.replay import REPLAYED, Record, Replay, StagedRows, record_of
from tarn.journal.replayed import BuiltListing, ReplayedJournal
from tarn.journal.source import JournalSource, entries_in, files_digest, find_source
from tarn.kv.records import decode_head_change

__all__ = ["Replayed", "replayed"]

TakeEntries = Callable[[str, tuple[HeadChange, ...]], None]


@dataclass(frozen=True, slots=True)
class Replayed:
    """An epoch.

    Attributes:
        source: which one.
        report: what was read and what is missing.
        results: as `Replay.results` yields them.
        unreadable: how many records of a branch, also former ones, cannot be read, by its name; counted with `take`
            only.
        listings: by branch, uncommitted rows that were folded already; `results` has no such rows then.
    """

    source: JournalSource
    report: Report
    results: Iterator[Record | StagedRows]
    unreadable: Mapping[str, int]
    listings: Mapping[str, BuiltListing] = field(default_factory=dict)


@asynccontextmanager
async def replayed(
    blocks: ReadBlocks,
    namespace: str,
    take: TakeEntries | None = None,
    ready: ReplayedJournal | None = None,
) -> AsyncIterator[Replayed]:
    """Reads the source of a rebuild; its results may be used within the block.

    Args:
        blocks: the store.
        namespace: of the journal.
        take: gets the name of a branch and entries of its reflog, some several times; None: nobody wants them.
        ready: the result of a job, taken instead of a replay; None: there is none.

    Raises:
        TarnError: as `find_source`; CORRUPT: the base is damaged; EXHAUSTED: the temporary folder is full;
            INVALID: `ready` was made of other files.
    """
    source = await find_source(blocks, namespace)
    epoch = source.epoch
    accounts = Accounts(epoch.number, epoch.begin_time_us)
    reader = EpochReader(blocks, namespace, epoch, accounts, REPLAYED)
    unreadable: Counter[str] = Counter()
    if ready is not None:
        await _check(ready, namespace, epoch, reader)
        if take is not None:
            for branch, entry in ready.entries:
                take(branch, (decode_head_change(entry),))
            unreadable.update(dict(ready.unreadable))
        listings = {each.branch_id: each for each in ready.listings}
        yield Replayed(source, ready.report, _records(ready), unreadable, listings)
        return
    with (
        tempfile.TemporaryDirectory(prefix="tarn-rebuild-") as name,
        closing(Replay(Path(name))) as replay,
    ):
        for tables in (reader.base(), reader.passes()):
            async for table in tables:
                for batch in table.to_batches():
                    replay.add(batch)
                    if take is not None:
                        for branch, entries in entries_in(batch):
                            if entries is None:
                                unreadable[branch] += 1
                            else:
                                take(branch, entries)
        yield Replayed(source, accounts.report(), replay.results(), unreadable)


async def _check(ready: ReplayedJournal, namespace: str, epoch: Epoch, reader: EpochReader) -> None:
    names = await reader.names()
    files = files_digest(epoch, reader.selector.compaction, names)
    if (ready.namespace, ready.folder, ready.files_sha256) != (namespace, epoch.folder, files):
        text = (
            f"the replayed journal was made of epoch {ready.epoch} in {ready.namespace}, and {namespace} has other "
            f"files now, in epoch {epoch.number}: run tarn_spark.rebuild again"
        )
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)


def _records(ready: ReplayedJournal) -> Iterator[Record]:
    for key, payload, order in ready.records:
        yield record_of(key, payload, order)

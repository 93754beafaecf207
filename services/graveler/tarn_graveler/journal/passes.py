"""Passes over one repository by one process: what it reads becomes files, and it remembers what is in them.

Most passes read new events only, from ten minutes before the pass before on: the keys of events begin with times. So
clocks and pauses decide how far behind the files are, never what is in them in the end: the last scan of a token reads
all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from tarn.block.port import BlockStore
from tarn.core.clock import Clock, IdSource
from tarn.core.ids import BranchId
from tarn.journal.epochs import Epoch
from tarn.journal.events import EventRow, table_of
from tarn.journal.writing import BranchPass, JournalWriter
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Companion, Kv
from tarn_graveler.journal.epochs import JournalPlace
from tarn_graveler.journal.records import DrainedRecord
from tarn_graveler.journal.scanning import BranchScan, OverToken, start_at

__all__ = ["AGAIN_US", "RepositoryPasses"]

AGAIN_US: Final = 600_000_000
"""How far before the pass before a pass begins to read."""
_PART_ROWS: Final = 50_000
_PART_BYTES: Final = 16 << 20
"""Rows that are in memory before they are written as a part of the pass."""
_SEEN_MAX: Final = 200_000
"""Events of the last minutes that are known to be in a file. When they are more, they are written again."""
_BRANCHES_AT_ONCE: Final = 500
"""Branches of one pass: a file names each of them."""
_BRANCHES_MAX: Final = 50_000
"""Branches whose records are remembered. When they are more, the events of records are read more often."""


@dataclass(slots=True)
class _Known:
    """What this holder has drained of a token.

    Attributes:
        since_us: events with earlier keys are in files.
        seen: later ones that are in files: the order of each, by its key.
        damage: why one of its events cannot be read; empty: all can. A pass over new events does not meet it again.
    """

    since_us: int = 0
    seen: dict[bytes, int] = field(default_factory=dict)
    damage: str = ""


_UNKNOWN: Final = _Known()
_ReadRecords = Callable[[Container[bytes]], AsyncIterator[DrainedRecord]]
_Drained = dict[tuple[int, bytes], DrainedRecord]
"""By hour and key of the event."""
_Tokens = dict[str, _Known]


class _Rows:
    """The rows of one pass: each once, as long as they can be remembered."""

    def __init__(self, writer: JournalWriter, begin_us: int) -> None:
        self._writer = writer
        self._begin_us = begin_us
        self._waiting: list[EventRow] = []
        self._size = 0
        self.count = 0

    async def add(self, known: _Known, seen: dict[bytes, int], page: _Page) -> None:
        """Adds those rows of a page that are neither in a file nor in this pass; they are `seen` from now on."""
        for found, row in page:
            # A row that was written again is another event, of another order.
            if found.order in (known.seen.get(found.key), seen.get(found.key)):
                continue
            if len(seen) >= _SEEN_MAX:
                seen.clear()
            seen[found.key] = found.order
            self._add(row)
        await self._write_part()

    async def add_record(self, row: EventRow) -> None:
        """Adds the event of a record."""
        self._add(row)
        await self._write_part()

    def _add(self, row: EventRow) -> None:
        self._waiting.append(row)
        self.count += 1
        self._size += len(row.key) + len(row.payload)

    async def _write_part(self) -> None:
        if len(self._waiting) >= _PART_ROWS or self._size >= _PART_BYTES:
            await self._writer.write_part(self._begin_us, await self._taken())

    async def _taken(self) -> pa.Table:
        rows, self._waiting, self._size = self._waiting, [], 0
        return await asyncio.to_thread(table_of, rows)

    async def end(self, branches: Sequence[BranchPass], until_us: int, *, is_full: bool) -> None:
        """Writes the file that ends the pass."""
        rows = await self._taken()
        await self._writer.write(self._begin_us, rows, branches, is_full=is_full, until_us=until_us)


_Page = Sequence[tuple[Companion, EventRow]]


class RepositoryPasses:
    """The passes of one process over one repository, one after the other, with one holder.

    After an error nobody knows which files landed. Then it is thrown away: another one, with a new holder, reads all
    events again.

    Args:
        kv: the store.
        blocks: gets the files.
        place: the repository.
        epoch: that of the repository, the newest one.
        clock: times of passes.
        ids: makes the holder.

    Attributes:
        damaged: why a branch cannot be read, by its name, as its last pass has found it: its events stay in the store.
        kept: tokens that were over and have an event that cannot be read, by their ids: they are not read again.
    """

    def __init__(
        self,
        kv: Kv,
        blocks: BlockStore,
        place: JournalPlace,
        epoch: Epoch,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._kv = kv
        self._clock = clock
        self._keys = RepositoryKeys(place.root)
        self.epoch = epoch
        self._writer = JournalWriter(blocks, place.namespace, epoch, ids.nonce().hex())
        self._known: dict[BranchId, _Tokens] = {}
        self._records: dict[BranchId, bytes] = {}
        self._orders: dict[str, int] = {}
        self.damaged: dict[BranchId, str] = {}
        self.kept: set[str] = set()
        self._blind: set[BranchId] = set()
        """Those of `damaged` whose record cannot be read."""

    def has_drained(self, branch_id: BranchId, token_id: str) -> bool:
        """Whether all events of a token are in files that was over in the last call of `run`."""
        return branch_id not in self._blind and token_id not in self.kept

    async def run(
        self,
        branches: AsyncIterator[BranchId],
        over: Mapping[BranchId, Sequence[OverToken]],
        read_records: _ReadRecords,
        *,
        has_records: bool = True,
        is_full: bool = False,
    ) -> list[DrainedRecord]:
        """Reads branches, and writes what is new of them. It is durable on return.

        Args:
            branches: those to read; all of the repository unless some tokens are `over`.
            over: tokens that were over before this call, by branch, oldest first.
            read_records: reads the events of the records, of all branches and of what else is there; gets the keys of
                those that are in files of this call.
            has_records: there are some; otherwise they are read only if the record of a branch is not the one that was
                drained last.
            is_full: reads all events of all tokens.

        Returns:
            What `read_records` yielded, without its rows: they are in files.

        Raises:
            TarnError: CORRUPT: the event of a record is damaged; errors of the stores.
        """
        drained: _Drained = {}
        some: list[BranchId] = []
        damaged_before = set(self.damaged)
        # Only the file that ends the call can say so of all branches, and the records come after these.
        until_us = 0 if over else self._clock.now_us()
        async for branch_id in branches:
            some.append(branch_id)
            damaged_before.discard(branch_id)
            if len(some) == _BRANCHES_AT_ONCE:
                await self._pass(some, over, read_records, drained, has_records, 0, is_full=is_full)
                some = []
        if some or has_records:
            await self._pass(
                some, over, read_records, drained, has_records, until_us, is_full=is_full
            )
        for branch_id in () if over else damaged_before:
            self._blind.discard(branch_id)  # it is gone
            del self.damaged[branch_id]
        return list(drained.values())

    async def _pass(
        self,
        branches: Sequence[BranchId],
        over: Mapping[BranchId, Sequence[OverToken]],
        read_records: _ReadRecords,
        drained: _Drained,
        has_records: bool,
        until_us: int,
        *,
        is_full: bool,
    ) -> None:
        begin_us = self._clock.now_us()
        rows = _Rows(self._writer, begin_us)
        told: set[str] = set()
        scans: dict[str, BranchPass] = {}
        learnt: dict[BranchId, _Tokens] = {}
        seen: dict[BranchId, bytes] = {}
        damaged: dict[BranchId, str] = {}
        news, blind, kept = set[BranchId](), set[BranchId](), set[str]()
        for branch_id in branches:
            count = rows.count
            known = {} if is_full else self._known.get(branch_id, {})
            scanned = _Scanned(rows, known)
            tokens = [each for each in over.get(branch_id, ()) if each.token_id not in self.kept]
            scan = BranchScan(
                self._kv, self._keys, branch_id, tokens, scanned.since_us, scanned.take
            )
            one = await scan.run()
            if scan.is_record_damaged:
                damaged[branch_id] = one.damage
                blind.add(branch_id)
            else:
                kept |= {each.token_id for each in tokens} & scan.damages.keys()
                named = [each for each in one.tokens if each not in kept]
                after = scanned.known_after(named, begin_us - AGAIN_US, scan.damages)
                learnt[branch_id] = after
                if damage := next((each.damage for each in after.values() if each.damage), ""):
                    damaged[branch_id] = damage
                    one = replace(one, damage=damage)
            seen[branch_id] = scan.record
            scans[branch_id] = one
            if damaged.get(branch_id) != self.damaged.get(branch_id):
                news.add(branch_id)
            if rows.count > count:
                told.add(branch_id)
        changed: dict[str, int] = {}
        if has_records or any(self._records.get(name) != value for name, value in seen.items()):
            changed = await _add_records(rows, read_records, drained)
        orders = self._orders | changed
        if rows.count or news:
            names = told | changed.keys() | damaged.keys() | news
            some = [scans.get(name, BranchPass(name, 0)) for name in names]
            some = [replace(one, order=orders.get(one.branch, 0)) for one in some]
            await rows.end(some, until_us, is_full=is_full)
        self.damaged = {name: why for name, why in self.damaged.items() if name not in seen}
        self.damaged |= damaged
        self._blind = (self._blind - seen.keys()) | blind
        self.kept |= kept
        self._learn(learnt)
        self._records |= seen
        self._orders = orders
        if max(len(self._records), len(self._orders)) > _BRANCHES_MAX:
            self._records, self._orders = {}, {}

    def _learn(self, learnt: Mapping[BranchId, _Tokens]) -> None:
        """Notes what is in files now."""
        for branch_id, tokens in learnt.items():
            if tokens:
                self._known[branch_id] = tokens
            else:
                self._known.pop(branch_id, None)
        seen = [known for tokens in self._known.values() for known in tokens.values()]
        if sum(len(known.seen) for known in seen) > _SEEN_MAX:
            for known in seen:
                known.seen = {}


async def _add_records(
    rows: _Rows, read_records: _ReadRecords, drained: _Drained
) -> dict[str, int]:
    """Adds the events of records to a pass, and to what is `drained` without their rows.

    Returns:
        The order of each branch's newest record among them.
    """
    in_files = {key for (_, key), each in drained.items() if each.is_in_file}
    orders: dict[str, int] = {}
    async for each in read_records(in_files):
        key = each.registration.event_key
        if (row := each.row) is not None:
            await rows.add_record(row)
            in_files.add(key)
            if row.branch:
                orders[row.branch] = max(orders.get(row.branch, 0), row.order)
            each = replace(each, row=None, is_in_file=True)  # noqa: PLW2901 - without the row
        drained[each.hour, key] = each
    return orders


class _Scanned:
    """One branch in one pass."""

    def __init__(self, rows: _Rows, known: _Tokens) -> None:
        self._rows = rows
        self._known = known
        self._seen: dict[str, dict[bytes, int]] = {}

    def since_us(self, token_id: str) -> int:
        """From when on the events of a token are read."""
        return self._known.get(token_id, _UNKNOWN).since_us

    async def take(self, token_id: str, page: _Page) -> None:
        """Takes events of a token."""
        known = self._known.get(token_id, _UNKNOWN)
        await self._rows.add(known, self._seen.setdefault(token_id, {}), page)

    def known_after(
        self, tokens: Sequence[str], since_us: int, damages: Mapping[str, str]
    ) -> _Tokens:
        """What is known of the tokens that the record names, once the pass is in the bucket."""
        start = start_at(since_us)
        found: _Tokens = {}
        for token_id in tokens:
            before = self._known.get(token_id, _UNKNOWN)
            seen = before.seen | self._seen.get(token_id, {})
            kept = {key: order for key, order in seen.items() if key >= start}
            found[token_id] = _Known(since_us, kept, damages.get(token_id, before.damage))
        return found

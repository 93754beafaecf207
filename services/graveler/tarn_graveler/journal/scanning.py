"""Reads one branch for the journal: its record, the events of its tokens, and the record again.

The tokens are read from the oldest to the newest: a row that hides another one was written after it, so it is not
missed where the other is found. If the record has changed meanwhile, everything is read again; what was read is kept.
The guards `oldest first` and `record again` of tests/models/journal_model.py show what breaks without that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tarn.core.branch import Branch
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId
from tarn.journal.events import ID_BYTES, EventRow, event_row
from tarn.journal.writing import BranchPass
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.paging import rows_of
from tarn.kv.port import COMPANION_KEYS, PAST_COMPANIONS, Companion, Kv, Partition, Versioned
from tarn.kv.records import decode_branch, parse_record
from tarn_proto.store.v1 import journal_pb2 as pb

__all__ = ["LOOKS", "BranchScan", "OverToken", "branch_ids", "companions_of", "start_at"]

LOOKS: Final = 16
"""How often a branch is read whose record changes each time."""
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class OverToken:
    """A token that a record named, and that none names any more: its rows are acknowledged, or never will be."""

    token_id: str
    partition: Partition


def start_at(time_us: int) -> bytes:
    """The first key of events since a time, Unix microseconds; 0: of all events."""
    return COMPANION_KEYS + time_us.to_bytes(8, "big") if time_us > 0 else COMPANION_KEYS


async def companions_of(
    kv: Kv, partition: Partition, start: bytes
) -> AsyncIterator[list[Companion]]:
    """Yields the companions of a partition from a key on, in pages."""
    while True:
        page = await kv.scan_companions(partition, start, PAST_COMPANIONS, _PAGE)
        if page:
            yield page
        if len(page) < _PAGE:
            return
        start = page[-1].key + b"\0"


async def branch_ids(kv: Kv, keys: RepositoryKeys) -> AsyncIterator[BranchId]:
    """Yields the branches of a repository that have a record, by name."""
    prefix = RepositoryKeys.branch(BranchId(""))
    async for key, _ in rows_of(kv, keys.refs, prefix, after_prefix(prefix), _PAGE):
        yield BranchId(key[len(prefix) :].decode())


class BranchScan:
    """Reads one branch for one pass.

    Args:
        kv: the store.
        keys: of the repository.
        branch_id: the branch.
        over: its tokens that were over before this scan began, oldest first.
        since_us: from when on the events of a token are read, by its id; 0: all. Those of `over` are all read.
        take: gets the events, in parts; some may come again.

    Attributes:
        record: the record of the branch as it was read last; empty: there was none.
        damages: why an event of a token cannot be read, by the token's id; the others of that token were taken.
        is_record_damaged: the record cannot be read, so nobody knows its tokens.
    """

    def __init__(
        self,
        kv: Kv,
        keys: RepositoryKeys,
        branch_id: BranchId,
        over: Sequence[OverToken],
        since_us: Callable[[str], int],
        take: Callable[[str, Sequence[tuple[Companion, EventRow]]], Awaitable[None]],
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._branch_id = branch_id
        self._over = over
        self._since_us = since_us
        self._take = take
        self._read_ids: dict[str, None] = {}
        self.record = b""
        self.damages: dict[str, str] = {}
        self.is_record_damaged = False

    async def run(self) -> BranchPass:
        """Reads everything; returns what the file says of the branch.

        What is damaged costs this branch only, and is told: a record that cannot be read lets none of its tokens be
        over, and an event lets its own token not.

        Raises:
            TarnError: errors of the store.
        """
        try:
            return await self._run()
        except _DamagedRecordError as error:
            self.is_record_damaged = True
            return self._told(None, is_unsettled=False, damage=str(error))

    async def _run(self) -> BranchPass:
        if self._over:
            _decoded(await self._record())  # if it is damaged, no row is taken again in each pass
        for each in self._over:
            await self._read(each.token_id, each.partition, 0)
        found = await self._record()
        for _ in range(LOOKS):
            branch = _decoded(found)
            await self._read_tokens(branch)
            again = await self._record()
            if _same(found, again):
                return self._told(branch, is_unsettled=False)
            found = again
        return self._told(_decoded(found), is_unsettled=True)

    async def _record(self) -> Versioned | None:
        key = RepositoryKeys.branch(self._branch_id)
        (found,) = await self._kv.get_many(self._keys.refs, [key], settle=True)
        self.record = b"" if found is None else found.value
        return found

    async def _read_tokens(self, branch: Branch | None) -> None:
        for token in reversed(() if branch is None else branch.tokens):
            partition = self._keys.token(self._branch_id, token)
            self._read_ids[token.token_id] = None
            await self._read(token.token_id, partition, self._since_us(token.token_id))

    async def _read(self, token_id: str, partition: Partition, since_us: int) -> None:
        async for page in companions_of(self._kv, partition, start_at(since_us)):
            rows = [(each, row) for each in page if (row := self._row(token_id, each)) is not None]
            await self._take(token_id, rows)

    def _row(self, token_id: str, found: Companion) -> EventRow | None:
        try:
            event = parse_record(pb.JournalEvent(), found.value)
        except TarnError as error:
            self.damages[token_id] = f"event {found.key.hex()} of token {token_id}: {error.message}"
            return None
        key_id = found.key[len(COMPANION_KEYS) :][:ID_BYTES]
        return event_row(key_id, event, branch=self._branch_id, token=token_id, order=found.order)

    def _told(self, branch: Branch | None, *, is_unsettled: bool, damage: str = "") -> BranchPass:
        read = [] if self.is_record_damaged else [each.token_id for each in self._over]
        over = [token_id for token_id in read if token_id not in self.damages]
        named = [] if branch is None else [token.token_id for token in branch.tokens]
        # A token that left the record during the pass is not over: its last scan begins after that.
        known = dict.fromkeys((*named, *self._read_ids, *(each.token_id for each in self._over)))
        tokens = [each for each in known if each not in over]
        damage = damage or next(iter(self.damages.values()), "")
        return BranchPass(self._branch_id, 0, tokens, over, is_unsettled, damage)


class _DamagedRecordError(Exception):
    """The record of a branch cannot be read."""


def _decoded(found: Versioned | None) -> Branch | None:
    try:
        return None if found is None else decode_branch(found.value)
    except TarnError as error:
        raise _DamagedRecordError(error.message) from error


def _same(one: Versioned | None, other: Versioned | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.predicate == other.predicate

"""The rows of reflogs: writing, reading in order, and expiry (docs/design/reflog.md).

An entry becomes durable in the outbox of its branch record. Its row is written later, by the next change of
the head, and again after every lost answer: key and value depend on the entry only, so repetitions change
nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tarn.aio.bounded_map import BoundedMap
from tarn.core.clock import DAY_US, Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadChange
from tarn.core.ids import BranchId
from tarn.kv.drop_records import Drop, ReflogOwner
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.paging import rows_of
from tarn.kv.port import Group, Kv
from tarn.kv.records import decode_head_change, encode_head_change
from tarn_graveler.records.drop_list import DropList

__all__ = ["ReflogLimits", "ReflogRows"]

_EXPIRE_EVERY = 64
"""Number of new entries after which the rows of a branch are counted, so it exceeds its limit by about this many."""
_PAGE = 128
_DELETED_AT_ONCE = 256
_REGISTERED_MAX = 10_000
_TRIES = 4
"""How often a row is written while its outcome is unknown, as for announcements (`guards/drops.py`)."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReflogLimits:
    """How much of a reflog is kept.

    Attributes:
        retention_us: entries older than this are expired; microseconds.
        entries_max: number of newest entries that a branch name keeps; older ones are expired.
    """

    retention_us: int
    entries_max: int


class ReflogRows:
    """The stored entries of the branches of an installation."""

    def __init__(self, kv: Kv, drop_list: DropList, clock: Clock, limits: ReflogLimits) -> None:
        self._kv = kv
        self._clock = clock
        self._drops = drop_list
        # The last registration of each branch by this process: one is enough for all entries of a day.
        self._registered: BoundedMap[str, int] = BoundedMap(_REGISTERED_MAX)
        self.limits = limits

    async def write(
        self, keys: RepositoryKeys, branch_id: BranchId, entries: Sequence[HeadChange]
    ) -> None:
        """Makes the rows of entries durable; repeating it changes nothing.

        Raises:
            TarnError: UNAVAILABLE: a row may be missing, so the change that needs them must not be made.
        """
        if not entries:
            return
        await self._register(keys, branch_id, entries)
        groups = []
        for entry in entries:
            value = encode_head_change(entry)
            rows = [keys.reflog_row(branch_id, entry)]
            if entry.is_deletion:
                rows.append(keys.deleted_row(branch_id, entry))
            groups += [Group(row, ((row, value),)) for row in rows]
        await self._repeat(branch_id, groups, partial(self._kv.set_many, keys.reflog))

    async def _register(
        self, keys: RepositoryKeys, branch_id: BranchId, entries: Iterable[HeadChange]
    ) -> None:
        """Registers the reflog for expiry: on the day when an entry expires, and whenever it has grown by many
        entries. Done before the rows exist, so that none is forgotten.
        """
        drops = []
        for entry in entries:
            expiry = self._expiry(keys, branch_id, entry.time_us)
            if self._registered.get(expiry.partition.name) != expiry.drop_time_us:
                drops.append(expiry)
            if entry.sequence % _EXPIRE_EVERY == 0:
                drops.append(self._drop(keys, branch_id, 0))
        if drops:
            await self._add(branch_id, drops)
        for drop in drops:
            if drop.drop_time_us % DAY_US == 0:
                self._registered.put(drop.partition.name, drop.drop_time_us)

    async def _add(self, branch_id: BranchId, drops: Sequence[Drop]) -> None:
        await self._repeat(branch_id, drops, self._drops.add)

    @staticmethod
    async def _repeat(
        branch_id: BranchId,
        items: Sequence[T],
        write: Callable[[Sequence[T]], Awaitable[Sequence[TarnError | None]]],
    ) -> None:
        """Writes rows that may be written twice; those whose outcome is unknown again, a few times."""
        left = list(items)
        for tries_left in reversed(range(_TRIES)):
            try:
                errors = await write(left)
            except TarnError as error:
                errors = [error] * len(left)
            for each in filter(None, errors):
                if not tries_left or each.kind is not Kind.UNKNOWN_OUTCOME:
                    text = f"cannot write the reflog of branch {branch_id}: {each.message}"
                    raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from each
            left = [item for item, error in zip(left, errors, strict=True) if error]
            if not left:
                return

    def _drop(self, keys: RepositoryKeys, branch_id: BranchId, time_us: int) -> Drop:
        """A registration for a time. Not for the past: passes over the list do not read that again."""
        owner = ReflogOwner(keys.root, branch_id)
        time_us = max(time_us, self._clock.now_us())
        return Drop(keys.reflog_expiry(branch_id), time_us, reflog=owner)

    def _expiry(self, keys: RepositoryKeys, branch_id: BranchId, time_us: int) -> Drop:
        """The registration for the end of the day on which an entry of this time expires.

        By the day, so that a branch is looked at once a day and all replicas write the same row.
        """
        due_us = time_us + self.limits.retention_us
        return self._drop(keys, branch_id, (due_us // DAY_US + 1) * DAY_US)

    async def newest(self, keys: RepositoryKeys, branch_id: BranchId) -> HeadChange | None:
        """Returns the row with the greatest sequence; None if there is none."""
        start = keys.reflog_rows(branch_id)
        rows = await self._kv.scan(keys.reflog, start, after_prefix(start), 1)
        return decode_head_change(rows[0][1]) if rows else None

    async def scan(
        self, keys: RepositoryKeys, branch_id: BranchId, start: bytes = b""
    ) -> AsyncIterator[tuple[bytes, HeadChange]]:
        """Yields the keys and entries of a branch, newest first; also those of failed deletions.

        Args:
            keys: those of the repository.
            branch_id: the branch.
            start: the first key to yield; empty for the newest.
        """
        prefix = keys.reflog_rows(branch_id)
        end = after_prefix(prefix)
        async for key, value in rows_of(self._kv, keys.reflog, start or prefix, end, _PAGE):
            yield key, decode_head_change(value)

    async def expire(self, owner: ReflogOwner) -> None:
        """Removes the expired rows of a reflog; registers it again if rows are left.

        Raises:
            TarnError: errors of the store; the cleaner repeats the call.
        """
        keys, branch_id = RepositoryKeys(owner.root), owner.branch_id
        oldest_us = self._clock.now_us() - self.limits.retention_us
        newest, left = 0, None
        expired: list[bytes] = []
        index: list[bytes] = []
        async for key, entry in self.scan(keys, branch_id):
            newest = newest or entry.sequence
            if entry.time_us >= oldest_us and entry.sequence > newest - self.limits.entries_max:
                left = entry
                continue
            expired.append(key)
            if entry.is_deletion:
                index.append(keys.deleted_row(branch_id, entry))
        # The index first: once an entry is gone, nothing leads to its row there.
        for gone in (index, expired):
            for at in range(0, len(gone), _DELETED_AT_ONCE):
                await self._kv.delete_many(keys.reflog, gone[at : at + _DELETED_AT_ONCE])
        if left is not None:
            await self._add(branch_id, [self._expiry(keys, branch_id, left.time_us)])

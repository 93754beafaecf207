"""Writes the journal of reads of one replica (docs/design/last-read.md).

A lookup notes the address of what it found, in memory: once a day and address. A task writes what is new into files
in the bucket, then the row that names the files, then the row of the session, which says until when the journal is
whole. So a session never claims what is not stored. No lookup waits, and none fails.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from tarn.block.port import BlockKey, BlockStore
from tarn.core.clock import DAY_US, Clock, IdSource
from tarn.core.entry import ADDRESS_AT, address_of
from tarn.core.errors import Kind, TarnError
from tarn.core.levels import Feature, FeatureGate
from tarn.core.retention import READ_DAYS_MAX
from tarn.kv.fence import fence_partition
from tarn.kv.keys import InstallationKeys, after_prefix
from tarn.kv.paging import rows_of
from tarn.kv.port import Group, Kv, Partition
from tarn.kv.read_records import (
    ADDRESS_BYTES,
    FILE_ROWS,
    FILES_KEY,
    ON_KEY,
    SESSIONS_KEY,
    DayFiles,
    Session,
    encode_addresses,
    encode_on,
)
from tarn.kv.records import Repository
from tarn_graveler.reads.coverage import DEAD_US

__all__ = ["FLUSH_SECONDS", "OUTCOMES", "SEEN_MAX", "WAITING_MAX", "ReadJournal", "end_journal"]

OUTCOMES = ("noted", "written", "dropped")
"""The outcomes that `ReadJournal.outcomes` counts: addresses are `noted`, and then `written`, or `dropped` before."""
FLUSH_SECONDS: Final = 60.0
"""Pause between two writes."""
KEPT_US: Final = (READ_DAYS_MAX + 2) * DAY_US
"""How long files and rows are kept."""

SEEN_MAX: Final = 200_000
"""Addresses that were noted today: some 20 MB. When they are more, all are noted again."""
WAITING_MAX: Final = 1_000_000
"""Addresses that wait to be written: 16 MB. More are dropped, and the session says so."""
_FORGET_SECONDS: Final = 3_600.0
_PAGE: Final = 1_000
_END_SECONDS: Final = 10.0

_log = structlog.get_logger()


@dataclass(slots=True)
class _Waiting:
    """Addresses of one repository that are not written yet."""

    namespace: str
    addresses: bytearray = field(default_factory=bytearray)


class ReadJournal:
    """The journal of one replica.

    Args:
        kv: the store of graveler.
        blocks: gets the files.
        clock: times of lookups and rows.
        ids: makes the id of the session.
        keys: of the installation.
        features: tells when no replica of a release without a journal runs any more.

    Attributes:
        outcomes: counts of addresses, see `OUTCOMES`.
    """

    def __init__(
        self,
        kv: Kv,
        blocks: BlockStore,
        clock: Clock,
        ids: IdSource,
        keys: InstallationKeys,
        features: FeatureGate,
    ) -> None:
        self._kv = kv
        self._partition = keys.reads
        self._place = fence_partition(keys.installation_id)
        self._blocks = blocks
        self._clock = clock
        self._features = features
        self._session = Session(ids.uuid7().hex(), clock.now_us())
        self.outcomes: Counter[str] = Counter()
        self._day = 0
        self._seen: set[bytes] = set()
        self._waiting: dict[str, _Waiting] = {}
        self._waiting_count = 0
        self._lost_us = 0
        self._number = 0
        self._files: dict[bytes, DayFiles] = {}
        self._forget_at = 0.0

    @property
    def waiting(self) -> int:
        """How many addresses wait to be written."""
        return self._waiting_count

    def note(self, repository: Repository, packed: bytes) -> None:
        """Notes that an object was looked up; returns at once."""
        now_us = self._clock.now_us()
        address = packed[ADDRESS_AT]
        if now_us // DAY_US == self._day:
            if address in self._seen:
                return
        else:
            self._day = now_us // DAY_US
            self._seen.clear()
        if address_of(packed) is None:
            return
        if self._waiting_count >= WAITING_MAX:
            self._lost_us = now_us
            self.outcomes["dropped"] += 1
            return
        if len(self._seen) >= SEEN_MAX:
            self._seen.clear()
        self._seen.add(address)
        found = self._waiting.get(repository.instance_uid)
        if found is None:
            found = _Waiting(repository.storage_namespace)
            self._waiting[repository.instance_uid] = found
        found.addresses += address
        self._waiting_count += 1
        self.outcomes["noted"] += 1

    async def begin(self) -> None:
        """Says that this replica keeps a journal, before it answers anything.

        Raises:
            TarnError: errors of the store.
        """
        self._session = replace(self._session, until_us=self._clock.now_us())
        await self._set(self._session.key, self._session.encode())
        await self._turn_on()

    async def run(self) -> None:
        """Writes until cancelled; logs errors. What was not written is written later."""
        while True:
            await self._clock.sleep(FLUSH_SECONDS)
            try:
                await self.flush()
                await self._turn_on()
                await self._forget_old()
            except TarnError as error:
                _log.warning(
                    "the journal of reads was not written",
                    reason=error.reason.value,
                    error=error.message,
                )

    async def end(self) -> None:
        """Writes what waits, and ends the session, for at most some seconds.

        If that fails, the session looks like one that was killed.
        """
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self.flush()
                if self._session.lost_us:
                    ended = replace(self._session, is_ended=True)
                    await self._set(ended.key, ended.encode())
                else:
                    await self._kv.delete_many(self._partition, [self._session.key])
        except (TarnError, TimeoutError) as error:
            _log.warning(
                "the journal of reads was not ended: what may have been read is kept",
                error=str(error),
            )

    async def flush(self) -> None:
        """Writes what was noted so far.

        Raises:
            TarnError: errors of the stores. What was not written waits.
        """
        cut_us = self._clock.now_us()
        lost_us = self._lost_us
        for instance_uid in list(self._waiting):
            waiting = self._waiting.pop(instance_uid)
            try:
                while waiting.addresses:
                    part = bytes(waiting.addresses[: FILE_ROWS * ADDRESS_BYTES])
                    await self._write(instance_uid, waiting.namespace, part)
                    del waiting.addresses[: len(part)]
                    count = len(part) // ADDRESS_BYTES
                    self._waiting_count -= count
                    self.outcomes["written"] += count
            except BaseException:
                noted = self._waiting.get(instance_uid)
                if noted is not None:
                    waiting.addresses += noted.addresses
                self._waiting[instance_uid] = waiting
                raise
        session = replace(self._session, until_us=cut_us, lost_us=lost_us)
        await self._set(session.key, session.encode())
        self._session = session

    async def _write(self, instance_uid: str, namespace: str, addresses: bytes) -> None:
        """Writes one file, and then the row that names it."""
        day = self._clock.now_us() // DAY_US
        row = DayFiles(instance_uid, day, self._session.session_id, namespace)
        row = self._files.get(row.key, row)
        self._number += 1  # also after a failure: a path is written once
        row = replace(row, numbers=(*row.numbers, self._number))
        body = await asyncio.to_thread(encode_addresses, addresses)
        await self._blocks.put(BlockKey(namespace, row.paths[-1]), body)
        await self._set(row.key, row.encode())
        if row.key not in self._files:
            self._files = {key: each for key, each in self._files.items() if each.day == day}
        self._files[row.key] = row

    async def _turn_on(self) -> None:
        """Says since when all replicas keep the journal, unless a row says it.

        The setting is equal in all replicas, and each has begun its session before it answers. A release that does not
        know the journal cannot run at the level of the feature.
        """
        if not self._features.allows(Feature.NEW_FIELDS):
            return
        (found,) = await self._kv.get_many(self._place, [ON_KEY])
        if found is None:
            await self._set(ON_KEY, encode_on(self._clock.now_us()), self._place)

    async def _set(self, key: bytes, value: bytes, partition: Partition | None = None) -> None:
        """Writes a row, by default of the journal's own partition."""
        partition = partition or self._partition
        group = Group(key, ((key, value),))
        (error,) = await self._kv.set_many(partition, [group])
        if error is not None and error.kind is Kind.UNKNOWN_OUTCOME:
            (error,) = await self._kv.set_many(partition, [group])
        if error is not None:
            raise error

    async def _forget_old(self) -> None:
        """Once an hour, deletes files and rows that no rule can need any more."""
        if self._clock.monotonic() < self._forget_at:
            return
        self._forget_at = self._clock.monotonic() + _FORGET_SECONDS
        before_us = self._clock.now_us() - KEPT_US
        files = rows_of(self._kv, self._partition, FILES_KEY, after_prefix(FILES_KEY), _PAGE)
        async for key, value in files:
            row = DayFiles.decode(value)
            if row.day < before_us // DAY_US:
                await self._forget_day(key, row)
        rows = await self._kv.scan(self._partition, SESSIONS_KEY, after_prefix(SESSIONS_KEY), _PAGE)
        sessions = [Session.decode(value) for _, value in rows]
        old = [
            each.key for each in sessions if max(each.until_us + DEAD_US, each.lost_us) < before_us
        ]
        if old:
            await self._kv.delete_many(self._partition, old)

    async def _forget_day(self, key: bytes, row: DayFiles) -> None:
        """Deletes files, and the row that names them. A bucket that is gone does not keep the others."""
        try:
            await self._blocks.delete_many(row.namespace, row.paths)
            await self._kv.delete_many(self._partition, [key])
        except TarnError as error:
            _log.warning(
                "old files of the journal of reads were not deleted",
                namespace=row.namespace,
                error=error.message,
            )


async def end_journal(kv: Kv, keys: InstallationKeys) -> None:
    """Notes that a replica without a journal begins: what it answers is in no journal.

    Raises:
        TarnError: errors of the store.
    """
    partition = fence_partition(keys.installation_id)
    (found,) = await kv.get_many(partition, [ON_KEY])
    if found is not None:
        await kv.delete_many(partition, [ON_KEY])

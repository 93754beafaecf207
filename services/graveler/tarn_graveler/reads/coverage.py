"""Reads the journal of reads: since when it is whole, and the objects that it names (docs/design/last-read.md).

Every doubt counts as a read: the journal was off, a replica died before it had written all, a file is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError, BlockStore
from tarn.core.clock import DAY_US, Clock
from tarn.core.errors import Kind, TarnError
from tarn.kv.fence import fence_partition
from tarn.kv.keys import InstallationKeys, after_prefix
from tarn.kv.port import Kv
from tarn.kv.read_records import (
    FILES_KEY,
    ON_KEY,
    SESSIONS_KEY,
    DayFiles,
    Session,
    decode_addresses,
    decode_on,
)
from tarn.kv.records import Repository

__all__ = ["DEAD_US", "STALE_US", "ReadObjects", "ReadsPage"]

STALE_US: Final = 600_000_000
"""A replica that has not written its session for this long has died, or cannot write."""
DEAD_US: Final = DAY_US
"""How long a replica that could write no row may have answered lookups."""

_SKEW_US: Final = 3_600_000_000
"""Clocks of replicas differ by less."""
_SESSIONS_MAX: Final = 10_000
_ROWS_AT_ONCE: Final = 8
_FILES_AT_ONCE: Final = 8
"""Files of one page: at most 2.6 MB of addresses."""
_FILE_BYTES_MAX: Final = 1 << 20

_log = structlog.get_logger()

Place = list[Any]
"""Where a page begins: the key of a row, and how many of its files were read."""


@dataclass(frozen=True, slots=True)
class ReadsPage:
    """Some of the objects that were read.

    Attributes:
        addresses: 16 bytes for each; one may come more than once.
        is_in_doubt: the journal is not whole: any object may have been read. There is no further page.
        following: where the next page begins; None: there is none.
    """

    addresses: bytes = b""
    is_in_doubt: bool = False
    following: Place | None = None


class ReadObjects:
    """Reads the journal of all replicas of an installation."""

    def __init__(self, kv: Kv, blocks: BlockStore, clock: Clock, keys: InstallationKeys) -> None:
        self._kv = kv
        self._blocks = blocks
        self._clock = clock
        self._partition = keys.reads
        self._place = fence_partition(keys.installation_id)

    async def known_since_us(self, repository: Repository) -> int:
        """Returns since when every lookup is in the journal, but for those of the last minutes; 0: it is off.

        The time is in the future while a replica may be dead that has not written all.

        Raises:
            TarnError: CORRUPT: a row cannot be read. Also the store's errors.
        """
        (on,) = await self._kv.get_many(self._place, [ON_KEY])
        if on is None:
            return 0
        # Objects that were restored or recovered may have been read before, under another instance.
        since_us = max(decode_on(on.value), repository.create_time_us)
        end = after_prefix(SESSIONS_KEY)
        rows = await self._kv.scan(self._partition, SESSIONS_KEY, end, _SESSIONS_MAX)
        if len(rows) == _SESSIONS_MAX:
            return 0
        stale_us = self._clock.now_us() - STALE_US
        for _, value in rows:
            session = Session.decode(value)
            since_us = max(since_us, session.lost_us)
            if not session.is_ended and session.until_us < stale_us:
                since_us = max(since_us, session.until_us + DEAD_US)
        return since_us

    async def page(self, repository: Repository, since_us: int, place: Place) -> ReadsPage:
        """Returns a page of the objects that were read in a repository since a time, microseconds since the epoch.

        Args:
            repository: the repository.
            since_us: begin of the time; the same for all pages.
            place: empty: the first page.

        Raises:
            TarnError: errors of the stores.
        """
        first = DayFiles.day_key(repository.instance_uid, (since_us - _SKEW_US) // DAY_US)
        if not place:
            known_us = await self.known_since_us(repository)
            if not known_us or known_us > since_us:
                return ReadsPage(is_in_doubt=True)
            place = [first.decode(), 0]
        start, done = place[0].encode(), int(place[1])
        end = after_prefix(FILES_KEY + f"{repository.instance_uid}/".encode())
        rows = await self._kv.scan(self._partition, start, end, _ROWS_AT_ONCE)
        paths: list[str] = []
        following: Place | None = None
        for key, value in rows:
            files = DayFiles.decode(value).paths
            skipped = done if key == start else 0
            taken = files[skipped : skipped + _FILES_AT_ONCE - len(paths)]
            paths += taken
            following = [key.decode(), skipped + len(taken)]
            if len(paths) == _FILES_AT_ONCE:
                break
        else:
            if len(rows) < _ROWS_AT_ONCE:
                following = None
        return await self._read(repository, paths, following)

    async def _read(
        self, repository: Repository, paths: Sequence[str], following: Place | None
    ) -> ReadsPage:
        found: list[bytes] = []

        async def work(path: str) -> None:
            key = BlockKey(repository.storage_namespace, path)
            body = await self._blocks.read(key, 0, _FILE_BYTES_MAX)
            found.append(await asyncio.to_thread(decode_addresses, body))

        try:
            await for_each(paths, work, _FILES_AT_ONCE)
        except (BlockNotFoundError, ValueError, TarnError) as error:
            if isinstance(error, TarnError) and error.kind not in (Kind.NOT_FOUND, Kind.CORRUPT):
                raise
            _log.warning(
                "a file of the journal of reads is missing or damaged: all objects count as read",
                repository=repository.repository_id,
                error=str(error)[:300],
            )
            return ReadsPage(is_in_doubt=True)
        return ReadsPage(b"".join(found), following=following)

"""The partitions of uploads: one per day on which uploads began, each dropped whole.

No row is ever deleted: deleting rows from an index one by one would make every listing on Cassandra read
the Cassandra tombstones of all earlier uploads (docs/design/kv.md). An upload's id contains its day. The
days in use are rows of the repository's `refs`; the replica that begins a day also looks for older days
that are finished. A day is finished when two things hold: it ended so long ago that no repeated
completion needs the first answer any more, and all of its uploads have ended. Then nothing in it can
change: these states are final, and no more ids of that day are created. An upload that is never completed
or aborted keeps its day. An issued address that was never linked ends with its time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import structlog

from tarn.aio.bounded_map import BoundedMap
from tarn.aio.task_set import TaskSet
from tarn.core.clock import DAY_US, Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UploadId
from tarn.kv.keys import RepositoryKeys, after_prefix, day_of_upload, key_error
from tarn.kv.paging import pages_of, rows_of
from tarn.kv.port import Kv, Partition, PredicateFailedError
from tarn.kv.records import ENDED_UPLOAD, Repository, parse_record
from tarn_graveler.guards.drops import Drops
from tarn_graveler.records.repositories import Repositories
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = ["LIVE", "FoundUpload", "DailyUploads", "upload_not_found"]


LIVE = frozenset({pb.UPLOAD_STATE_OPEN, pb.UPLOAD_STATE_COMPLETING})

_KEPT_DAYS = 3
"""Days after its own for which an ended upload is kept, so that a repeated completion gets its answer."""
_KNOWN_MAX = 10_000
_PAGE = 1_000

_log = structlog.get_logger()


def upload_not_found(upload_id: str) -> TarnError:
    """Returns the error for an upload that does not exist."""
    text = f"upload {upload_id[:64]!r} does not exist"
    return TarnError(Kind.NOT_FOUND, Reason.UPLOAD_NOT_FOUND, text)


def _day_of(upload_id: str) -> int:
    day = day_of_upload(upload_id)
    if day is None:
        raise upload_not_found(upload_id)
    return day


@dataclass(frozen=True, slots=True)
class FoundUpload:
    """An upload that has not ended, and its key in the index."""

    key: bytes
    upload_id: UploadId
    record: pb.UploadRecord


class DailyUploads:
    """Begins days, finds uploads in them, and gives up finished days."""

    def __init__(
        self,
        kv: Kv,
        repositories: Repositories,
        drops: Drops,
        clock: Clock,
        tasks: TaskSet,
    ) -> None:
        self._kv = kv
        self._repositories = repositories
        self._drops = drops
        self._clock = clock
        self._tasks = tasks
        # The last day of each repository that is known to have its row.
        self._begun: BoundedMap[str, int] = BoundedMap(_KNOWN_MAX)

    def of(self, repository: Repository, upload_id: str) -> Partition:
        """Returns the partition of an upload, whether or not the upload exists.

        Raises:
            TarnError: UPLOAD_NOT_FOUND: no upload can have this id.
        """
        return self._repositories.keys_of(repository).uploads(_day_of(upload_id))

    async def begin(self, repository: Repository, upload_id: UploadId) -> Partition:
        """Returns the partition for a new upload; the row of its day exists when this returns.

        Raises:
            TarnError: UNAVAILABLE, UNKNOWN_OUTCOME.
        """
        keys = self._repositories.keys_of(repository)
        day = _day_of(upload_id)
        partition = keys.uploads(day)
        if self._begun.get(keys.root) == day:
            return partition
        try:
            await self._kv.set_if(keys.refs, keys.upload_day(day), b"", None)
        except PredicateFailedError:
            pass  # another replica began it
        else:
            self._tasks.spawn(self._tidy(repository))
        self._begun.put(keys.root, day)
        return partition

    async def days(self, repository: Repository) -> list[int]:
        """Returns the days whose uploads are kept, oldest first.

        Raises:
            TarnError: CORRUPT: a row does not name a day.
        """
        keys = self._repositories.keys_of(repository)
        start, end = keys.UPLOAD_DAYS, after_prefix(keys.UPLOAD_DAYS)
        found: list[int] = []
        async for key, _ in rows_of(self._kv, keys.refs, start, end, _PAGE):
            day = keys.day_of(key)
            if day is None:
                raise key_error(key, "day")
            found.append(day)
        return sorted(found)

    async def open_rows(
        self,
        repository: Repository,
        start: bytes,
        end: bytes,
        limit: int,
        is_listed: Callable[[pb.UploadRecord], bool],
    ) -> list[FoundUpload]:
        """Returns up to `limit` unfinished multipart uploads of a range of the index that are listed, in its order.

        Costs one scan for each day that is kept; ended uploads of these days are skipped.
        """
        keys = self._repositories.keys_of(repository)
        found: list[FoundUpload] = []
        for day in await self.days(repository):
            of_day: list[FoundUpload] = []
            async for upload in self._open_of(keys.uploads(day), start, end, limit):
                if upload.record.link_until_us or not is_listed(upload.record):
                    continue
                of_day.append(upload)
                if len(of_day) == limit:
                    break
            found = sorted([*found, *of_day], key=lambda upload: upload.key)[:limit]
        return found

    async def open_before(
        self, repository: Repository, before_us: int
    ) -> AsyncIterator[FoundUpload]:
        """Yields the unfinished multipart uploads that were begun before a time, by day; costs a scan of each day."""
        keys = self._repositories.keys_of(repository)
        start = RepositoryKeys.OPEN_UPLOADS
        for day in await self.days(repository):
            if day * DAY_US >= before_us:
                return
            async for upload in self._open_of(keys.uploads(day), start, after_prefix(start), _PAGE):
                record = upload.record
                if not record.link_until_us and record.create_time_us < before_us:
                    yield upload

    async def run_out_links(
        self, repository: Repository, day: int, before_us: int
    ) -> AsyncIterator[FoundUpload]:
        """Yields the issued addresses of a day whose time ended before `before_us` without a link; scans the day."""
        partition = self._repositories.keys_of(repository).uploads(day)
        start = RepositoryKeys.OPEN_UPLOADS
        async for upload in self._live_of(partition, start, after_prefix(start), _PAGE):
            record = upload.record
            if record.state == pb.UPLOAD_STATE_OPEN and 0 < record.link_until_us < before_us:
                yield upload

    async def count_open(self, repository: Repository, most: int) -> int:
        """Counts unfinished uploads, and issued addresses that can still be linked, up to `most`; 0: all."""
        keys = self._repositories.keys_of(repository)
        start = RepositoryKeys.OPEN_UPLOADS
        count = 0
        for day in await self.days(repository):
            async for _ in self._open_of(keys.uploads(day), start, after_prefix(start), _PAGE):
                count += 1
                if count == most:
                    return count
        return count

    async def _open_of(
        self, partition: Partition, start: bytes, end: bytes, limit: int
    ) -> AsyncIterator[FoundUpload]:
        async for upload in self._live_of(partition, start, end, limit):
            if not self._has_run_out(upload.record):
                yield upload

    async def _live_of(
        self, partition: Partition, start: bytes, end: bytes, limit: int
    ) -> AsyncIterator[FoundUpload]:
        async for rows in pages_of(self._kv, partition, start, end, limit):
            keys = [key for key, value in rows if value != ENDED_UPLOAD]
            ids = [RepositoryKeys.upload_of(key) for key in keys]
            records = await self._kv.get_many(partition, [RepositoryKeys.upload(i) for i in ids])
            for key, upload_id, found in zip(keys, ids, records, strict=True):
                if found is not None:
                    record = parse_record(pb.UploadRecord(), found.value)
                    if record.state in LIVE:
                        yield FoundUpload(key, upload_id, record)

    def _has_run_out(self, record: pb.UploadRecord) -> bool:
        """Whether it is an issued address that can no longer be linked. A claim may begin at its last moment."""
        is_open = record.state == pb.UPLOAD_STATE_OPEN
        return is_open and 0 < record.link_until_us < self._clock.now_us()

    async def _tidy(self, repository: Repository) -> None:
        try:
            await self.tidy(repository)
        except TarnError as error:  # the replica that begins the next day tries again
            _log.warning("cannot tidy uploads", reason=error.reason, error=error.message)

    async def tidy(self, repository: Repository) -> int:
        """Gives up the finished days; returns how many. May be repeated.

        A day's partition is registered to be dropped before its row is removed, so that one of the two
        always names it.
        """
        keys = self._repositories.keys_of(repository)
        today = self._clock.now_us() // DAY_US
        count = 0
        for day in await self.days(repository):
            if day + _KEPT_DAYS >= today:
                break
            partition = keys.uploads(day)
            if await self._is_ended(partition) and await self._drops.register([partition]):
                await self._kv.delete_many(keys.refs, [keys.upload_day(day)])
                count += 1
        return count

    async def _is_ended(self, partition: Partition) -> bool:
        start = RepositoryKeys.OPEN_UPLOADS
        async for _ in self._open_of(partition, start, after_prefix(start), _PAGE):
            return False
        return True

"""Aborts multipart uploads that are never completed: the rule `uploads` of a repository (docs/operate/retention.md).
Ends issued addresses that ran out, whose parts would stay in the bucket (docs/design/links.md).

Every replica looks once an hour. A compare-and-set of the record decides whether an upload is aborted, as for
completions. So of several replicas one aborts it, and an abort and a completion cannot both succeed. The parts are
removed after that; if the block store fails, by the next pass. A process that dies in between leaves them, as a gateway
that dies during an abort does.

Of an issued address the parts go first: after its time no unfinished upload can be linked, so no client waits for the
record. A failure in between leaves the record, and with it the work, to the next pass.
"""

from __future__ import annotations

from typing import Final

import structlog

from tarn.aio.bounded_map import BoundedMap
from tarn.block.port import BlockKey, BlockStore, PresignsWrites
from tarn.core.clock import DAY_US, Clock
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import UploadId, physical_path
from tarn.core.moments import iso_time
from tarn.kv.records import Repository
from tarn_graveler.iterators.opening import Iterators
from tarn_graveler.records.settings import RepositorySettings
from tarn_graveler.uploads.daily_partitions import DailyUploads, FoundUpload
from tarn_graveler.uploads.links import LINK_SECONDS
from tarn_graveler.uploads.state import Uploads

__all__ = ["AbandonedUploads"]

_PAUSE_SECONDS: Final = 3600.0
_ABORTED_AT_ONCE: Final = 1_000
"""Most aborts in one repository in one pass; the next pass goes on."""

_LINK_GRACE_US: Final = 600 * 1_000_000
"""Time after the end of an issued address in which nothing is aborted: clocks differ."""

_REPOSITORIES_MAX: Final = 10_000

_LEFT_MAX: Final = 10_000
"""Most aborted uploads whose parts a replica remembers to remove."""

_log = structlog.get_logger()


class AbandonedUploads:
    """Looks for abandoned uploads and aborts them. Several replicas may do so concurrently."""

    def __init__(
        self,
        iterators: Iterators,
        settings: RepositorySettings,
        days: DailyUploads,
        uploads: Uploads,
        blocks: BlockStore,
        clock: Clock,
    ) -> None:
        self._iterators = iterators
        self._settings = settings
        self._days = days
        self._uploads = uploads
        self._blocks = blocks
        self._clock = clock
        # Aborted uploads whose parts could not be removed.
        self._left: dict[UploadId, BlockKey] = {}
        # The last day of each repository all of whose issued addresses have ended: it is not scanned again.
        self._linked: BoundedMap[str, int] = BoundedMap(_REPOSITORIES_MAX)

    async def run(self) -> None:
        """Aborts the abandoned uploads once an hour, until cancelled; logs errors and goes on."""
        while True:
            await self._clock.sleep(_PAUSE_SECONDS)
            try:
                await self.abort_due()
            except TarnError as error:
                _log.warning("cannot look for abandoned uploads", error=error.message)

    async def abort_due(self) -> int:
        """Aborts the abandoned uploads of all repositories that have the rule; returns how many. Ends issued addresses.

        A repository that fails is logged, and does not keep the others.

        Raises:
            TarnError: the repositories cannot be listed.
        """
        for upload_id, key in list(self._left.items()):
            await self._discard(key, upload_id)
            if upload_id in self._left:
                break  # the block store still fails
        count = 0
        async for repository_id, repository in self._iterators.repositories():
            try:
                count += await self._abort_in(repository)
                await self._end_links(repository)
            except TarnError as error:
                where = {"repository": repository_id, "reason": error.reason}
                _log.warning("abandoned uploads not aborted", **where, error=error.message)
        return count

    async def _abort_in(self, repository: Repository) -> int:
        days = (await self._settings.read(repository)).retention.abort_upload_days
        if days is None:
            return 0
        before_us = self._clock.now_us() - days * DAY_US
        count = 0
        async for found in self._days.open_before(repository, before_us):
            if not await self._abort(repository, found.upload_id):
                continue
            key = BlockKey(repository.storage_namespace, physical_path(found.record.address))
            await self._discard(key, found.upload_id)
            count += 1
            _log.info(
                "abandoned upload aborted",
                repository=repository.repository_id,
                branch=found.record.branch_id,
                upload_id=found.upload_id,
                begun=iso_time(found.record.create_time_us),
            )
            if count == _ABORTED_AT_ONCE:
                break
        return count

    async def _end_links(self, repository: Repository) -> None:
        """Ends the issued addresses that ran out, and aborts the uploads that were begun at them in the bucket."""
        if not isinstance(self._blocks, PresignsWrites):
            return
        before_us = self._clock.now_us() - _LINK_GRACE_US
        done, count = self._linked.get(repository.instance_uid), 0
        for day in await self._days.days(repository):
            if done is not None and day <= done:
                continue
            async for found in self._days.run_out_links(repository, day, before_us):
                await self._end_link(repository, self._blocks, found)
                count += 1
                if count == _ABORTED_AT_ONCE:
                    return
            if (day + 1) * DAY_US + LINK_SECONDS * 1_000_000 < before_us:
                self._linked.put(repository.instance_uid, day)

    async def _end_link(
        self, repository: Repository, bucket: PresignsWrites, found: FoundUpload
    ) -> None:
        key = BlockKey(repository.storage_namespace, physical_path(found.record.address))
        if count := await bucket.abort_writes(key):
            where = {"repository": repository.repository_id, "upload_id": found.upload_id}
            _log.info("unfinished upload of an issued address aborted", **where, uploads=count)
        await self._uploads.end_link(repository, found.upload_id)

    async def _abort(self, repository: Repository, upload_id: UploadId) -> bool:
        try:
            return await self._uploads.abort_abandoned(repository, upload_id)
        except TarnError as error:
            if error.reason is Reason.UPLOAD_NOT_FOUND:
                return False  # its day has been given up
            raise

    async def _discard(self, key: BlockKey, upload_id: UploadId) -> None:
        """Removes the parts of an aborted upload, which no completion can join any more; or remembers to do so."""
        try:
            await self._blocks.uploads.discard(key, upload_id)
        except TarnError as error:
            if len(self._left) < _LEFT_MAX:
                self._left[upload_id] = key
            _log.warning("parts left behind", upload_id=upload_id, error=error.message)
        else:
            self._left.pop(upload_id, None)

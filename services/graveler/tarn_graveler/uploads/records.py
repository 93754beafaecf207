"""Reads and changes the records of multipart uploads, with the state of their completion."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UploadId
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Kv, OutcomeUnknownError, PredicateFailedError, Versioned
from tarn.kv.records import Repository, parse_record, token_from, token_to
from tarn.kv.register import Register
from tarn_graveler.uploads.completion import StagingAttempt
from tarn_graveler.uploads.daily_partitions import DailyUploads, upload_not_found
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = ["RecordedAttempts", "UploadRecords", "require_claim"]

_log = structlog.get_logger()

_ATTEMPTS_MAX = 64
"""Greatest number of attempts to stage one upload; each is a token in its record."""


def require_claim(record: pb.UploadRecord, upload_id: str, claim: bytes) -> None:
    """Checks that a completion still holds its claim.

    Raises:
        TarnError: UPLOAD_BUSY: the claim was taken over or given up, or the upload has ended.
    """
    # A claim that was given up leaves an empty id, which is that of no completion.
    is_ours = record.completing_op_id == claim != b""
    if record.state != pb.UPLOAD_STATE_COMPLETING or not is_ours:
        text = f"upload {upload_id} has ended, or another completion took it over; repeat the completion"
        raise TarnError(Kind.UNAVAILABLE, Reason.UPLOAD_BUSY, text)


class UploadRecords:
    """Reads and changes the records of uploads."""

    def __init__(self, kv: Kv, days: DailyUploads) -> None:
        self._kv = kv
        self._days = days

    async def read(
        self, repository: Repository, upload_id: str
    ) -> tuple[pb.UploadRecord, Versioned]:
        """Reads the current record.

        Raises:
            TarnError: UPLOAD_NOT_FOUND.
        """
        day = self._days.of(repository, upload_id)
        (found,) = await self._kv.get_many(day, [RepositoryKeys.upload(UploadId(upload_id))])
        if found is None:
            raise upload_not_found(upload_id)
        return parse_record(pb.UploadRecord(), found.value), found

    async def change(
        self,
        repository: Repository,
        upload_id: str,
        edit: Callable[[pb.UploadRecord], None],
        holds: Callable[[pb.UploadRecord], bool] | None = None,
    ) -> pb.UploadRecord:
        """Changes a record: `edit` changes it in place, or leaves it. Returns it. See `Register.change`.

        Raises:
            TarnError: UPLOAD_NOT_FOUND; as `Register.change`.
        """

        def decode(value: bytes | None) -> pb.UploadRecord:
            if value is None:
                raise upload_not_found(upload_id)
            return parse_record(pb.UploadRecord(), value)

        def decide(before: pb.UploadRecord) -> pb.UploadRecord:
            after = pb.UploadRecord()
            after.CopyFrom(before)
            edit(after)
            return after

        register = Register(
            self._kv,
            self._days.of(repository, upload_id),
            RepositoryKeys.upload(UploadId(upload_id)),
            decode,
            pb.UploadRecord.SerializeToString,
            f"upload {upload_id}",
        )
        return await register.change(decide, holds)

    async def replace(
        self, repository: Repository, upload_id: str, record: pb.UploadRecord, read: Versioned
    ) -> None:
        """Compare-and-set of a record over the version that was read.

        Raises:
            PredicateFailedError, OutcomeUnknownError: as `Kv.set_if`.
        """
        day = self._days.of(repository, upload_id)
        key = RepositoryKeys.upload(UploadId(upload_id))
        await self._kv.set_if(day, key, record.SerializeToString(), read.predicate)


class RecordedAttempts:
    """The staging attempts in an upload's record: `CompletionLog` for one claim."""

    def __init__(
        self,
        records: UploadRecords,
        clock: Clock,
        repository: Repository,
        upload_id: str,
        claim: bytes,
    ) -> None:
        self._records = records
        self._clock = clock
        self._repository = repository
        self._upload_id = upload_id
        self._claim = claim
        self._read: tuple[pb.UploadRecord, Versioned] | None = None

    async def load(self) -> list[StagingAttempt] | None:
        """See `CompletionLog.load`."""
        record, version = await self._records.read(self._repository, self._upload_id)
        is_ours = record.completing_op_id == self._claim
        if record.state == pb.UPLOAD_STATE_COMPLETED and is_ours:
            return None
        require_claim(record, self._upload_id, self._claim)
        self._read = record, version
        return [
            StagingAttempt(token_from(each.token), each.is_comparison) for each in record.attempts
        ]

    async def add(self, attempt: StagingAttempt) -> bool:
        """See `CompletionLog.add`. Renews the claim. A lost answer counts as a change of the record, which
        is then read again.
        """
        assert self._read is not None, "loaded before"
        record, version = self._read
        if len(record.attempts) >= _ATTEMPTS_MAX:
            text = f"{_ATTEMPTS_MAX} attempts to complete upload {self._upload_id} failed"
            raise OutcomeUnknownError(f"{text}; upload again")
        record.attempts.add(token=token_to(attempt.token), is_comparison=attempt.is_comparison)
        record.completing_time_us = self._clock.now_us()
        try:
            await self._records.replace(self._repository, self._upload_id, record, version)
        except (PredicateFailedError, OutcomeUnknownError):
            return False
        return True

    async def withdraw(self) -> None:
        """See `CompletionLog.withdraw`."""
        assert self._read is not None, "loaded before"
        added = self._read[0].attempts[-1]

        def remove(record: pb.UploadRecord) -> None:
            if record.completing_op_id == self._claim and record.attempts[-1:] == [added]:
                del record.attempts[-1]

        try:
            await self._records.change(self._repository, self._upload_id, remove)
        except TarnError as error:
            _log.info("attempt not withdrawn", upload_id=self._upload_id, error=error.message)

    async def complete(self, entry: bytes, *, unless_added: bool) -> bool:
        """See `CompletionLog.complete`."""
        known = None if self._read is None else list(self._read[0].attempts)
        is_added = False

        def complete(record: pb.UploadRecord) -> None:
            nonlocal is_added
            if record.state == pb.UPLOAD_STATE_COMPLETED:
                return
            require_claim(record, self._upload_id, self._claim)
            is_added = unless_added and list(record.attempts) != known
            if not is_added:
                record.state = pb.UPLOAD_STATE_COMPLETED
                record.completed_entry = entry

        await self._records.change(self._repository, self._upload_id, complete)
        return not is_added

"""The state of multipart uploads (docs/design/protocol.md, "Uploads").

The state is stored in the repository's partition of the day on which the upload began, and names no
staging token, so it survives restarts, other replicas and commits. Rows are never deleted one by one: the
partition is dropped whole, some days after the last of its uploads has ended (see daily_partitions.py).

Completion is `open → completing → completed(answer)`, each arrow a compare-and-set: a repeated completion
returns the stored answer and never stages an old object over a newer one; an abort and a completion
cannot both succeed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.clock import DAY_US, Clock, IdSource
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.entry_check import PARTS_MAX
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, UploadId
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Group, Kv
from tarn.kv.records import ENDED_UPLOAD, Repository, parse_record
from tarn.kv.register import unknown_if
from tarn_graveler.branch.object_events import TARN_ITSELF, Origin
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.uploads.completion import Completion, UploadedObject
from tarn_graveler.uploads.daily_partitions import LIVE, DailyUploads, upload_not_found
from tarn_graveler.uploads.records import RecordedAttempts, UploadRecords, require_claim
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = ["Claim", "NewUpload", "OpenUpload", "Uploads"]

_CLAIM_US = 300_000_000
"""A completion without progress for five minutes counts as dead; another one may take over."""


@dataclass(frozen=True, slots=True)
class NewUpload:
    """The initial state of an upload; see `UploadRecord` of the store's proto.

    Attributes:
        is_copied: whether it gets a `linked_address`.
    """

    branch_id: BranchId
    path: str
    template: bytes
    user_id: str
    checksum_algorithm: str = ""
    is_full_object_checksum: bool = False
    link_until_us: int = 0
    branch_incarnation: bytes = b""
    is_copied: bool = False


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """An upload and its id."""

    upload_id: UploadId
    record: pb.UploadRecord


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to complete an upload (`op_id`), or the answer of an earlier completion.

    Attributes:
        may_be_staged: whether an earlier completion began to stage the object.
        linked_address: of a link that copies: the address of its copy. Empty otherwise.
    """

    op_id: bytes
    completed_entry: bytes
    may_be_staged: bool = False
    linked_address: bytes = b""


class Uploads:
    """Begins, records, completes and ends uploads.

    Attributes:
        abandoned_count: abandoned uploads that this process aborted, for metrics.
    """

    def __init__(
        self,
        kv: Kv,
        branches: Branches,
        days: DailyUploads,
        completion: Completion,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._kv = kv
        self._branches = branches
        self._days = days
        self._completion = completion
        self._records = UploadRecords(kv, days)
        self._clock = clock
        self._ids = ids
        self.abandoned_count = 0

    async def create(self, repository: Repository, new: NewUpload) -> OpenUpload:
        """Begins an upload; the address of its block is fixed from now on. An issued address is its own id."""
        own_id = self._ids.uuid7()
        address = own_id if new.link_until_us else self._ids.uuid7()
        upload_id = UploadId(own_id.hex())
        record = pb.UploadRecord(
            path=new.path,
            branch_id=new.branch_id,
            address=address,
            template=new.template,
            create_time_us=self._clock.now_us(),
            user_id=new.user_id,
            state=pb.UPLOAD_STATE_OPEN,
            checksum_algorithm=new.checksum_algorithm,
            is_full_object_checksum=new.is_full_object_checksum,
            link_until_us=new.link_until_us,
            branch_incarnation=new.branch_incarnation,
            linked_address=self._ids.uuid7() if new.is_copied else b"",
        )
        day = await self._days.begin(repository, upload_id)
        value = record.SerializeToString()
        await self._kv.set_if(day, RepositoryKeys.upload(upload_id), value, None)
        index = RepositoryKeys.open_upload(new.branch_id, new.path, upload_id)
        await self._kv.set_if(day, index, b"", None)
        return OpenUpload(upload_id, record)

    async def get(self, repository: Repository, upload_id: str) -> OpenUpload:
        """Returns an upload that is not aborted; also a complete one, so that its answer can be repeated.

        Raises:
            TarnError: UPLOAD_NOT_FOUND.
        """
        upload = await self.get_any(repository, upload_id)
        if upload.record.state == pb.UPLOAD_STATE_ABORTED:
            raise upload_not_found(upload_id)
        return upload

    async def get_any(self, repository: Repository, upload_id: str) -> OpenUpload:
        """Returns an upload in any state.

        Raises:
            TarnError: UPLOAD_NOT_FOUND.
        """
        record, _ = await self._records.read(repository, upload_id)
        return OpenUpload(UploadId(upload_id), record)

    async def require_life(self, repository: Repository, upload: OpenUpload) -> None:
        """Refuses a step of an upload that was begun on an earlier branch of the name of its branch.

        An upload that was completed, or may be, passes: its answer does not depend on the present branch. So does one
        whose branch does not exist.

        Raises:
            TarnError: UPLOAD_NOT_FOUND.
        """
        record = upload.record
        is_done = record.state == pb.UPLOAD_STATE_COMPLETED or bool(record.attempts)
        if is_done or not record.branch_incarnation:
            return
        name = BranchName(repository, BranchId(record.branch_id))
        cached = self._branches.cached(name)
        if cached is not None and _is_of(record, cached.incarnation):
            return  # at most two seconds old; the completion reads the record afresh
        if not _is_of(record, await self._life(name)):
            raise upload_not_found(upload.upload_id)

    async def _life(self, name: BranchName) -> bytes | None:
        """Returns the incarnation of a branch; None if it does not exist."""
        try:
            return (await self._branches.fresh(name)).branch.incarnation
        except TarnError as error:
            if error.reason is not Reason.BRANCH_NOT_FOUND:
                raise
            return None

    async def record_part(
        self, repository: Repository, upload_id: str, part: pb.UploadPartRecord
    ) -> None:
        """Records a part whose bytes are durable; replaces an earlier part of the same number.

        Raises:
            TarnError: UPLOAD_NOT_FOUND, also when the upload was completed or aborted.
        """
        record, _ = await self._records.read(repository, upload_id)
        if record.state not in LIVE:
            raise upload_not_found(upload_id)
        key = RepositoryKeys.upload_part(UploadId(upload_id), part.part_number)
        day = self._days.of(repository, upload_id)
        row = (key, part.SerializeToString())
        (error,) = await self._kv.set_many(day, [Group(key, (row,))])
        if error is not None:
            raise error

    async def parts(
        self, repository: Repository, upload_id: str, after: int, limit: int
    ) -> list[pb.UploadPartRecord]:
        """Returns up to `limit` parts in order of their numbers."""
        await self.get(repository, upload_id)
        day = self._days.of(repository, upload_id)
        start = RepositoryKeys.upload_part(UploadId(upload_id), after + 1)
        end = RepositoryKeys.upload_part(UploadId(upload_id), PARTS_MAX + 1)
        rows = await self._kv.scan(day, start, end, limit)
        return [parse_record(pb.UploadPartRecord(), value) for _, value in rows]

    async def page(
        self, name: BranchName, prefix: str, after: tuple[str, str], limit: int
    ) -> list[OpenUpload]:
        """Returns up to `limit` open uploads of a branch after (path, id), in byte order of both.

        Those of an earlier branch of this name are left out.
        """
        branch_id = name.branch_id
        first = RepositoryKeys.open_upload(branch_id, "", "")[:-1]
        start = first + prefix.encode()
        # The least key that is greater than every path of the prefix; UTF-8 never contains this byte.
        end = start + b"\xff"
        if after[0]:
            upload_id = after[1] or "\x7f"
            start = max(start, RepositoryKeys.open_upload(branch_id, after[0], upload_id) + b"\0")
        if start >= end:
            return []
        life = await self._life(name)

        def is_listed(record: pb.UploadRecord) -> bool:
            return _is_of(record, life)

        found = await self._days.open_rows(name.repository, start, end, limit, is_listed)
        return [OpenUpload(each.upload_id, each.record) for each in found]

    async def begin_complete(
        self, repository: Repository, upload_id: str, manifest_hash: bytes, claim_id: bytes = b""
    ) -> Claim:
        """Claims the completion, or returns the answer if the same part list already completed it.

        Args:
            repository: repository of the upload.
            upload_id: id of the upload.
            manifest_hash: SHA-256 of the part list.
            claim_id: of the caller, who repeats the call with it when an answer was lost; empty: a new one.

        Raises:
            TarnError: UPLOAD_NOT_FOUND; UPLOAD_BUSY while another completion is alive.
        """
        op_id = claim_id or self._ids.nonce()

        def claim(record: pb.UploadRecord) -> None:
            if record.state == pb.UPLOAD_STATE_COMPLETED:
                if record.manifest_hash != manifest_hash:
                    raise upload_not_found(upload_id)
                return
            if record.state == pb.UPLOAD_STATE_ABORTED:
                raise upload_not_found(upload_id)
            now = self._clock.now_us()
            is_mine = record.completing_op_id == op_id and record.manifest_hash == manifest_hash
            is_held = bool(record.completing_op_id) and _is_fresh(record, now)
            if is_held and not is_mine:
                text = f"another completion of upload {upload_id} is under way; try again when it has ended"
                raise TarnError(Kind.UNAVAILABLE, Reason.UPLOAD_BUSY, text)
            record.state = pb.UPLOAD_STATE_COMPLETING
            record.completing_op_id = op_id
            record.completing_time_us = now
            record.manifest_hash = manifest_hash
            if record.linked_address and not is_mine and not record.attempts:
                # A copy that an earlier claim asked for may still arrive. Nothing will ever name its address.
                record.linked_address = self._ids.uuid7()

        def is_claimed(record: pb.UploadRecord) -> bool:
            return record.state == pb.UPLOAD_STATE_COMPLETING and record.completing_op_id == op_id

        record = await self._records.change(repository, upload_id, claim, is_claimed)
        if record.state == pb.UPLOAD_STATE_COMPLETED:
            return Claim(b"", record.completed_entry)
        return Claim(op_id, b"", bool(record.attempts), record.linked_address)

    async def finish_complete(
        self,
        repository: Repository,
        upload_id: str,
        claim: bytes,
        entry: bytes,
        condition: WriteCondition = UNCONDITIONAL,
        origin: Origin = TARN_ITSELF,
    ) -> None:
        """Stages the object, then records the answer; acknowledged only when both are durable.

        May be repeated under one claim, also while an earlier call is running: the object is staged once.

        Args:
            repository: repository of the upload.
            upload_id: id of the upload.
            claim: claim that `begin_complete` returned.
            entry: the packed entry; its operation is the upload.
            condition: condition on the state of the path immediately before the write.
            origin: for the journal.

        Raises:
            TarnError: UPLOAD_BUSY when the claim was lost; UPLOAD_NOT_FOUND when it was begun on an earlier branch of
                the name; errors of `Completion.stage`; OUTCOME_UNKNOWN when the object is staged and the answer is not
                recorded, or may not be.
        """
        record, _ = await self._records.read(repository, upload_id)
        branch = BranchName(repository, BranchId(record.branch_id))
        life = record.branch_incarnation
        made = UploadedObject(branch, record.path, upload_id, entry, condition, life, origin)
        log = RecordedAttempts(self._records, self._clock, repository, upload_id, claim)
        try:
            await self._completion.stage(made, log)
        except TarnError as error:
            # Surely nothing is staged. The upload has ended with its branch if the name has another one now.
            if error.reason is Reason.BRANCH_NOT_FOUND and not _is_of(
                record, await self._life(branch)
            ):
                raise upload_not_found(upload_id) from error
            raise

        with unknown_if(written=True):  # whatever the error, the object can be read
            await self._end(repository, upload_id, record)

    async def reopen(
        self, repository: Repository, upload_id: str, claim: bytes, *, may_be_staged: bool = False
    ) -> None:
        """Gives up a claim. If the object may be staged, the upload waits for the completion that takes over.

        Args:
            repository: repository of the upload.
            upload_id: id of the upload.
            claim: claim that `begin_complete` returned.
            may_be_staged: whether a call under this claim may have staged it. What an earlier claim recorded counts
                without this.

        Raises:
            TarnError: UPLOAD_BUSY when the claim was lost; UPLOAD_NOT_FOUND.
        """

        def give_up(record: pb.UploadRecord) -> None:
            require_claim(record, upload_id, claim)
            # The state and its time stay if an abort must wait: a call may be on its way to the row.
            record.completing_op_id = b""
            if not may_be_staged and not record.attempts:
                record.state = pb.UPLOAD_STATE_OPEN

        def is_given_up(record: pb.UploadRecord) -> bool:
            return record.completing_op_id != claim

        await self._records.change(repository, upload_id, give_up, is_given_up)

    async def abort(self, repository: Repository, upload_id: str) -> pb.UploadRecord:
        """Aborts an upload; may be repeated.

        Raises:
            TarnError: UPLOAD_NOT_FOUND, also when it is complete; UPLOAD_BUSY while it is being
                completed.
        """

        def abort(record: pb.UploadRecord) -> None:
            if record.state == pb.UPLOAD_STATE_COMPLETED:
                raise upload_not_found(upload_id)
            if _is_fresh(record, self._clock.now_us()):
                text = (
                    f"upload {upload_id} is being completed; abort it when its completion has ended"
                )
                raise TarnError(Kind.UNAVAILABLE, Reason.UPLOAD_BUSY, text)
            record.state = pb.UPLOAD_STATE_ABORTED

        record = await self._records.change(repository, upload_id, abort)
        await self._end(repository, upload_id, record)
        return record

    async def abort_abandoned(self, repository: Repository, upload_id: str) -> bool:
        """Aborts an upload that has been silent for days, unless it has ended or may be being completed.

        No client waits for this abort, so it is more careful than `abort`: a completion that showed life in the
        last day may still go on, and its client may still repeat it.

        Returns:
            Whether this call aborted it.

        Raises:
            TarnError: UPLOAD_NOT_FOUND; UNAVAILABLE; OUTCOME_UNKNOWN.
        """
        is_ours = False

        def abort(record: pb.UploadRecord) -> None:
            nonlocal is_ours
            alive_us = self._clock.now_us() - record.completing_time_us
            is_completing = record.state == pb.UPLOAD_STATE_COMPLETING and alive_us < DAY_US
            is_ours = record.state in LIVE and not is_completing
            if is_ours:
                record.state = pb.UPLOAD_STATE_ABORTED

        record = await self._records.change(
            repository, upload_id, abort, lambda now: now.state == pb.UPLOAD_STATE_ABORTED
        )
        if is_ours:
            self.abandoned_count += 1
            await self._end(repository, upload_id, record)
        return is_ours

    async def end_link(self, repository: Repository, upload_id: str) -> bool:
        """Ends an issued address that ran out, unless a link has begun, also one that checked the time long ago.

        Raises:
            TarnError: UPLOAD_NOT_FOUND; UNAVAILABLE; OUTCOME_UNKNOWN.
        """

        def end(record: pb.UploadRecord) -> None:
            if record.state == pb.UPLOAD_STATE_OPEN:
                record.state = pb.UPLOAD_STATE_ABORTED

        record = await self._records.change(repository, upload_id, end)
        if record.state != pb.UPLOAD_STATE_ABORTED:
            return False
        await self._end(repository, upload_id, record)
        return True

    async def _end(self, repository: Repository, upload_id: str, record: pb.UploadRecord) -> None:
        """Marks an ended upload in the index. This only speeds up listings, which also read its record."""
        day = self._days.of(repository, upload_id)
        index = RepositoryKeys.open_upload(record.branch_id, record.path, upload_id)
        (error,) = await self._kv.set_many(day, [Group(index, ((index, ENDED_UPLOAD),))])
        if error is not None:
            raise error


def _is_fresh(record: pb.UploadRecord, now_us: int) -> bool:
    """Whether a completion has begun and may go on."""
    claimed = record.state == pb.UPLOAD_STATE_COMPLETING
    return claimed and now_us - record.completing_time_us < _CLAIM_US


def _is_of(record: pb.UploadRecord, incarnation: bytes | None) -> bool:
    """Whether an upload can be completed on a life of its branch; None: the branch does not exist."""
    return incarnation is None or record.branch_incarnation in (b"", incarnation)

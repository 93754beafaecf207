"""UploadService: the state of S3 multipart uploads."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from tarn.block.keys import check_part
from tarn.core.access.policy import Grant
from tarn.core.branch import Branch
from tarn.core.change_kind import ChangeKind
from tarn.core.entry import TIME_US_MAX, address_of
from tarn.core.entry_check import (
    CHECKSUM_BYTES,
    OBJECT_BYTES_MAX,
    PARTS_MAX,
    check_checksum,
    check_entry,
    check_template,
    invalid_entry,
)
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_path
from tarn.core.levels import Feature, FeatureGate
from tarn.core.part_list import check_parts
from tarn.core.refs import branch_to_write
from tarn.gate.permits import Caller, RepositoryPermit
from tarn.kv.port import OutcomeUnknownError
from tarn.kv.records import Repository
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.object_events import origin_of
from tarn_graveler.handlers.requests import (
    RepositoryRequest,
    paging,
    require_features,
    timestamp,
    write_condition,
)
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.settings import RepositorySettings
from tarn_graveler.uploads.daily_partitions import upload_not_found
from tarn_graveler.uploads.state import NewUpload, OpenUpload
from tarn_graveler.usage.admission import NOT_LIMITED, Admission
from tarn_proto.graveler.v1 import upload_service_pb2 as pb
from tarn_proto.store.v1 import graveler_pb2 as store

__all__ = ["UploadHandler", "allow_step", "life_to_note"]


_HASH_BYTES = 32
_CLAIM_BYTES = 16
_MD5_BYTES = 16


def _message(repository: Repository, upload: OpenUpload) -> pb.Upload:
    record = upload.record
    return pb.Upload(
        upload_id=upload.upload_id,
        branch_id=record.branch_id,
        path=record.path,
        address=record.address,
        template=record.template,
        create_time=timestamp(record.create_time_us),
        user_id=record.user_id,
        checksum_algorithm=record.checksum_algorithm,
        is_full_object_checksum=record.is_full_object_checksum,
        storage_namespace=repository.storage_namespace,
    )


def _invalid(text: str) -> TarnError:
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)


def life_to_note(features: FeatureGate, branch: Branch) -> bytes:
    """Returns the incarnation to record with an upload to a branch; empty while the last release may run, too."""
    return branch.incarnation if features.allows(Feature.NEW_FIELDS) else b""


def _check_algorithm(request: pb.CreateUploadRequest) -> None:
    """Refuses a checksum algorithm that S3 does not have."""
    if request.checksum_algorithm and request.checksum_algorithm not in CHECKSUM_BYTES:
        known = ", ".join(CHECKSUM_BYTES)
        text = f"is {request.checksum_algorithm[:20]!r}, which is none of {known}"
        raise invalid_entry("checksum_algorithm", text, known)


def _checked_part(part: pb.UploadPart, algorithm: str) -> store.UploadPartRecord:
    """Returns the record of a part. Listings and the completion of the upload read it, so it is checked here.

    Raises:
        TarnError: INVALID_ARGUMENT with the field and its limit.
    """
    if not 1 <= part.part_number <= PARTS_MAX:
        text = f"is {part.part_number}, not 1 to {PARTS_MAX}"
        raise invalid_entry("part.part_number", text, PARTS_MAX)
    check_part(part.part_number, part.attempt)
    if not 0 <= part.size_bytes <= OBJECT_BYTES_MAX:
        text = f"is {part.size_bytes}, not 0 to {OBJECT_BYTES_MAX}"
        raise invalid_entry("part.size_bytes", text, OBJECT_BYTES_MAX)
    if len(part.md5) != _MD5_BYTES:
        text = f"has {len(part.md5)} bytes, not {_MD5_BYTES}"
        raise invalid_entry("part.md5", text, _MD5_BYTES)
    create_time_us = part.create_time.seconds * 1_000_000 + part.create_time.nanos // 1000
    if not 0 <= create_time_us <= TIME_US_MAX:
        text = f"is {create_time_us}, not 0 to {TIME_US_MAX} microseconds since 1970"
        raise invalid_entry("part.create_time", text, TIME_US_MAX)
    if bool(part.checksum) != bool(algorithm):
        text = f"is {part.checksum[:80]!r}; the checksum algorithm of the upload is {algorithm or 'none'}"
        raise invalid_entry("part.checksum", text)
    if algorithm and check_checksum("part.checksum", algorithm, part.checksum):
        raise invalid_entry("part.checksum", f"{part.checksum[:80]} has a number of parts")
    return store.UploadPartRecord(
        part_number=part.part_number,
        attempt=part.attempt,
        size_bytes=part.size_bytes,
        md5=part.md5,
        create_time_us=create_time_us,
        checksum=part.checksum,
    )


async def allow_step(
    settings: RepositorySettings, repository: Repository, upload: OpenUpload, grant: Grant
) -> None:
    """Refuses a step of an upload that the rules of the repository block.

    An upload of which an attempt at completion is recorded may be staged already. Its outcome is then
    unknown, because the gateway removes the block of an upload that is refused.

    Raises:
        TarnError: DENIED, BRANCH_PROTECTED or REPOSITORY_READ_ONLY; OUTCOME_UNKNOWN.
    """
    record = upload.record
    if record.state == store.UPLOAD_STATE_COMPLETED:
        return  # nothing is left to be written; the recorded answer is repeated
    try:
        await settings.require(repository, record.branch_id, ChangeKind.WRITE, grant)
    except TarnError as error:
        if error.kind is Kind.DENIED and record.attempts:
            text = (
                f"upload {upload.upload_id} may have been completed before: {error.message}; read the path "
                "to find out"
            )
            raise OutcomeUnknownError(text) from error
        raise


async def admit_step(
    admission: Admission, repository: Repository, upload: OpenUpload, size_bytes: int
) -> AbstractContextManager[None]:
    """Admits the object of an upload, unless it may be staged already: then it was admitted before.

    Returns the block in which to stage it.

    Raises:
        TarnError: EXHAUSTED, QUOTA_EXCEEDED.
    """
    record = upload.record
    if record.state != store.UPLOAD_STATE_COMPLETED and not record.attempts:
        return await admission.object(repository, size_bytes)
    return NOT_LIMITED


class _UploadRequest(RepositoryRequest, Protocol):
    """A request about one upload."""

    @property
    def upload_id(self) -> str:
        """Id of the upload."""
        ...


class UploadHandler:
    """Answers `tarn.graveler.v1.UploadService`."""

    def __init__(self, graveler: Graveler) -> None:
        self._repositories = graveler.repositories
        self._settings = graveler.settings
        self._uploads = graveler.uploads
        self._branches = graveler.branches
        self._admission = graveler.admission
        self._features = graveler.features

    async def CreateUpload(
        self, request: pb.CreateUploadRequest, permit: RepositoryPermit
    ) -> pb.CreateUploadResponse:
        """Begins an upload to a path of an existing branch."""
        repository, grant = permit.repository, permit.grant
        check_template(request.template)
        require_features(self._features, request.template)
        _check_algorithm(request)
        branch_id = branch_to_write(request.branch_id)
        version = await self._branches.fresh(BranchName(repository, branch_id))
        new = NewUpload(
            branch_id=branch_id,
            path=parse_path(request.path),
            template=request.template,
            user_id=grant.user_id,
            checksum_algorithm=request.checksum_algorithm,
            is_full_object_checksum=request.is_full_object_checksum,
            branch_incarnation=life_to_note(self._features, version.branch),
        )
        with await self._admission.upload(repository):
            upload = await self._uploads.create(repository, new)
        return pb.CreateUploadResponse(upload=_message(repository, upload))

    async def _enter(
        self, request: _UploadRequest, caller: Caller, *, ends: bool = False
    ) -> tuple[Repository, OpenUpload]:
        """Returns the upload of a call whose caller may access its path.

        The path is read from the upload's record, not from the request. An upload that was begun on an earlier branch
        of the name is not found, unless the call ends it.
        """
        repository = await self._repositories.get(request.repository_id)
        upload = await self._uploads.get(repository, request.upload_id)
        if upload.record.link_until_us:  # an issued address, see `LinkHandler`
            raise upload_not_found(request.upload_id)
        caller.require(caller.resource(upload=upload.record))
        if not ends:
            await self._uploads.require_life(repository, upload)
        return repository, upload

    async def GetUpload(self, request: pb.GetUploadRequest, permit: Caller) -> pb.GetUploadResponse:
        """Returns one upload, if its branch and path are those of the request."""
        repository, upload = await self._enter(request, permit)
        record = upload.record
        if (record.branch_id, record.path) != (request.branch_id, request.path):
            text = f"upload {upload.upload_id} belongs to another branch or path"
            raise TarnError(Kind.NOT_FOUND, Reason.UPLOAD_NOT_FOUND, text)
        return pb.GetUploadResponse(upload=_message(repository, upload))

    async def RecordUploadPart(
        self, request: pb.RecordUploadPartRequest, permit: Caller
    ) -> pb.RecordUploadPartResponse:
        """Records a part whose bytes are durable."""
        repository, upload = await self._enter(request, permit)
        await allow_step(self._settings, repository, upload, permit.grant)
        record = _checked_part(request.part, upload.record.checksum_algorithm)
        await self._uploads.record_part(repository, upload.upload_id, record)
        return pb.RecordUploadPartResponse()

    async def ListUploadParts(
        self, request: pb.ListUploadPartsRequest, permit: Caller
    ) -> pb.ListUploadPartsResponse:
        """Returns one page of parts."""
        repository, upload = await self._enter(request, permit)
        limit = paging(request.page_size, default=1000)
        if request.after_part_number < 0:
            raise _invalid("after_part_number must not be negative")
        after = min(request.after_part_number, PARTS_MAX)
        parts = await self._uploads.parts(repository, upload.upload_id, after, limit + 1)
        return pb.ListUploadPartsResponse(
            parts=[
                pb.UploadPart(
                    part_number=part.part_number,
                    attempt=part.attempt,
                    size_bytes=part.size_bytes,
                    md5=part.md5,
                    create_time=timestamp(part.create_time_us),
                    checksum=part.checksum,
                )
                for part in parts[:limit]
            ],
            is_truncated=len(parts) > limit,
        )

    async def ListUploads(
        self, request: pb.ListUploadsRequest, permit: RepositoryPermit
    ) -> pb.ListUploadsResponse:
        """Returns one page of the open uploads of a branch."""
        repository = permit.repository
        name = BranchName(repository, branch_to_write(request.branch_id))
        limit = paging(request.page_size, default=1000)
        after = (request.after_path, request.after_upload_id)
        found = await self._uploads.page(name, request.prefix, after, limit + 1)
        return pb.ListUploadsResponse(
            uploads=[_message(repository, upload) for upload in found[:limit]],
            is_truncated=len(found) > limit,
        )

    async def BeginCompleteUpload(
        self, request: pb.BeginCompleteUploadRequest, permit: Caller
    ) -> pb.BeginCompleteUploadResponse:
        """Claims the completion, or returns the answer of an earlier completion."""
        repository, upload = await self._enter(request, permit)
        if len(request.manifest_hash) != _HASH_BYTES:
            raise _invalid("manifest_hash must be a SHA-256")
        if len(request.claim) not in (0, _CLAIM_BYTES):
            raise _invalid(f"claim must have {_CLAIM_BYTES} bytes")
        if upload.record.state == store.UPLOAD_STATE_OPEN:
            # Otherwise a completion has begun. Whether a rule blocks it is decided with its last step.
            await allow_step(self._settings, repository, upload, permit.grant)
            await self._admission.room(repository)
        claim = await self._uploads.begin_complete(
            repository, upload.upload_id, request.manifest_hash, request.claim
        )
        return pb.BeginCompleteUploadResponse(
            claim=claim.op_id, completed_entry=claim.completed_entry
        )

    async def FinishCompleteUpload(
        self, request: pb.FinishCompleteUploadRequest, permit: Caller
    ) -> pb.FinishCompleteUploadResponse:
        """Stages the object and records the answer."""
        repository, upload = await self._enter(request, permit)
        await allow_step(self._settings, repository, upload, permit.grant)
        size_bytes, operation_id = check_entry(request.entry)
        require_features(self._features, request.entry)
        if address_of(request.entry) != upload.record.address:
            raise invalid_entry("entry.address", "is not that of the upload")
        condition = write_condition(request.condition)
        if condition.if_match:
            permit.require_further("if_match", upload=upload.record)
        if operation_id != upload.upload_id:
            text = "is not the upload, which the entry of its completion must name"
            raise invalid_entry("entry.operation_id", text)
        entry = check_parts(request.entry, request.parts) if request.parts else request.entry
        if not self._features.allows(Feature.NEW_FIELDS):
            entry = request.entry
        with await admit_step(self._admission, repository, upload, size_bytes):
            await self._uploads.finish_complete(
                repository,
                upload.upload_id,
                request.claim,
                entry,
                condition,
                origin_of(permit.grant),
            )
        return pb.FinishCompleteUploadResponse()

    async def ReopenUpload(
        self, request: pb.ReopenUploadRequest, permit: Caller
    ) -> pb.ReopenUploadResponse:
        """Gives up a claim."""
        repository, upload = await self._enter(request, permit, ends=True)
        await self._uploads.reopen(
            repository, upload.upload_id, request.claim, may_be_staged=request.may_be_staged
        )
        return pb.ReopenUploadResponse()

    async def AbortUpload(
        self, request: pb.AbortUploadRequest, permit: Caller
    ) -> pb.AbortUploadResponse:
        """Aborts an upload."""
        repository, upload = await self._enter(request, permit, ends=True)
        await self._uploads.abort(repository, upload.upload_id)
        return pb.AbortUploadResponse()

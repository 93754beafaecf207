"""LinkService: addresses to which clients write themselves."""

from __future__ import annotations

from typing import Final

from tarn.core.access.policy import Grant
from tarn.core.change_kind import ChangeKind
from tarn.core.entry import Entry, pack
from tarn.core.entry_check import check_template
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_path
from tarn.core.levels import Feature
from tarn.core.refs import branch_to_write
from tarn.gate.permits import Caller, RepositoryPermit
from tarn.kv.records import Repository
from tarn.rpc.wire.pagination import PageTokens
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.object_events import origin_of
from tarn_graveler.handlers.requests import (
    microseconds,
    require_features,
    timestamp,
    write_condition,
)
from tarn_graveler.handlers.uploads import admit_step, allow_step, life_to_note
from tarn_graveler.records.branches import BranchName
from tarn_graveler.uploads.links import WrittenObject, is_link
from tarn_graveler.uploads.state import OpenUpload
from tarn_proto.graveler.v1 import link_service_pb2 as pb
from tarn_proto.store.v1 import journal_pb2 as pb_journal

__all__ = ["LinkHandler"]

_PURPOSE: Final = "LinkService.LinkPhysicalAddress"
_NO_TEMPLATE: Final = pack(Entry(size=0, mtime_us=0, address=bytes(16), md5=bytes(16)))


class LinkHandler:
    """Answers `tarn.graveler.v1.LinkService`.

    A token is signed like a page token: it names the upload, and is bound to the caller, the repository, the branch
    and the path. An address without a token is compared with its record, which names the same four.
    """

    def __init__(self, graveler: Graveler) -> None:
        self._repositories = graveler.repositories
        self._settings = graveler.settings
        self._branches = graveler.branches
        self._uploads = graveler.uploads
        self._links = graveler.links
        self._admission = graveler.admission
        self._page_keys = graveler.page_keys
        self._features = graveler.features

    async def GetPhysicalAddress(
        self, request: pb.GetPhysicalAddressRequest, permit: RepositoryPermit
    ) -> pb.GetPhysicalAddressResponse:
        """Issues an address, a token and URLs."""
        repository, grant = permit.repository, permit.grant
        template = request.template or _NO_TEMPLATE
        check_template(template)
        require_features(self._features, template)
        branch_id, path = branch_to_write(request.branch_id), parse_path(request.path)
        is_copied = self._is_copied(request)
        version = await self._branches.fresh(BranchName(repository, branch_id))
        life = life_to_note(self._features, version.branch)
        with await self._admission.upload(repository):
            issued = await self._links.issue(
                repository,
                branch_id,
                path,
                template,
                grant.user_id,
                request.part_count,
                life,
                is_copied=is_copied,
            )
        tokens = await self._tokens(grant, request)
        return pb.GetPhysicalAddressResponse(
            physical_address=issued.physical_address,
            token=tokens.encode(issued.upload.upload_id),
            expire_time=timestamp(issued.upload.record.link_until_us),
            put_url=issued.write.put_url,
            headers=dict(issued.write.headers),
            part_urls=issued.write.part_urls,
            complete_url=issued.write.complete_url,
            bucket_upload_id=issued.write.upload_id,
        )

    def _is_copied(self, request: pb.GetPhysicalAddressRequest) -> bool:
        """Whether the client may write again after the link, so that the link copies the object.

        Raises:
            TarnError: FEATURE_LEVEL.
        """
        if request.part_count:
            return False  # a completed upload takes no further part
        if request.rewritable:
            self._features.require(Feature.COPIED_LINKS)
            return True
        return not self._links.binds_writes and self._features.allows(Feature.COPIED_LINKS)

    async def LinkPhysicalAddress(
        self, request: pb.LinkPhysicalAddressRequest, permit: Caller
    ) -> pb.LinkPhysicalAddressResponse:
        """Stages the object that was written to an issued address."""
        grant = permit.grant
        permit.require(permit.resource())
        repository = await self._repositories.get(request.repository_id)
        condition = write_condition(request.condition)
        if condition.if_match:
            permit.require_further("if_match")
        upload = await self._issued(repository, grant, request)
        if upload is None:
            await self._settings.require(repository, request.branch_id, ChangeKind.WRITE, grant)
            field = "address" if request.address else "token"
            text = (
                f"the {field} was not issued to this caller for this repository, branch and path; "
                "call GetPhysicalAddress for one"
            )
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field=field)
        await self._uploads.require_life(repository, upload)
        await allow_step(self._settings, repository, upload, grant)
        mtime_us = None
        if request.HasField("modify_time"):
            mtime_us = microseconds("modify_time", request.modify_time)
        written = WrittenObject(request.size_bytes, request.etag, mtime_us)
        if request.template:
            check_template(request.template)
            require_features(self._features, request.template)
        with await admit_step(self._admission, repository, upload, request.size_bytes):
            packed = await self._links.link(
                repository,
                upload,
                written,
                condition,
                request.template,
                origin=origin_of(grant, pb_journal.JOURNAL_OPERATION_LINK),
            )
        return pb.LinkPhysicalAddressResponse(entry=packed)

    async def _issued(
        self, repository: Repository, grant: Grant, request: pb.LinkPhysicalAddressRequest
    ) -> OpenUpload | None:
        """Returns the upload of a token or an address; None if it was not issued to this caller for this path.

        Raises:
            TarnError: UPLOAD_NOT_FOUND: the token is days old.
        """
        if request.address:
            return None if request.token else await self._issued_address(repository, grant, request)
        tokens = await self._tokens(grant, request)
        try:
            upload_id = tokens.decode(request.token)
        except TarnError as error:
            if error.reason is not Reason.INVALID_PAGE_TOKEN:
                raise
            upload_id = ""
        if upload_id:
            upload = await self._uploads.get_any(repository, upload_id)
            return upload if is_link(upload) else None
        return None

    async def _issued_address(
        self, repository: Repository, grant: Grant, request: pb.LinkPhysicalAddressRequest
    ) -> OpenUpload | None:
        try:
            upload = await self._uploads.get_any(repository, request.address.hex())
        except TarnError as error:
            if error.reason is not Reason.UPLOAD_NOT_FOUND:
                raise
            return None
        record = upload.record
        issued = (record.user_id, record.branch_id, record.path)
        asked = (grant.user_id, request.branch_id, request.path)
        return upload if is_link(upload) and issued == asked else None

    async def _tokens(
        self, grant: Grant, request: pb.GetPhysicalAddressRequest | pb.LinkPhysicalAddressRequest
    ) -> PageTokens:
        return await self._page_keys.tokens(
            grant.user_id,
            _PURPOSE,
            repository_id=request.repository_id,
            branch_id=request.branch_id,
            path=request.path,
        )

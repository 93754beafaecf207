"""EntryService: lookups, stages, unstages and listings."""

from __future__ import annotations

from tarn.core.access.service import Service
from tarn.core.change_kind import ChangeKind
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.entry import is_tombstone
from tarn.core.entry_check import check_entry, check_tombstone, invalid_entry
from tarn.core.erasure import ADDRESS_BYTES
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_path
from tarn.core.levels import Feature
from tarn.core.listing.pages import PageRequest
from tarn.core.part_list import check_parts
from tarn.core.refs import branch_to_write
from tarn.gate.access import Access
from tarn.gate.permits import Caller, RepositoryPermit
from tarn.rpc.wire.errors import error_to_operation
from tarn.telemetry.audit.note import note_item
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.object_events import origin_of
from tarn_graveler.handlers.requests import (
    delete_condition,
    paging,
    require_features,
    timestamp,
    write_condition,
)
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.repositories import repository_not_found
from tarn_proto.graveler.v1 import entry_service_pb2 as pb
from tarn_proto.store.v1 import journal_pb2 as pb_journal

__all__ = ["EntryHandler"]


_UNSTAGE_MAX = 1000
_DELIMITER_BYTES_MAX = 1024
_FRONTS = (Service.GATEWAY, Service.API)
"""Services that make addresses for the bodies of their clients."""


class EntryHandler:
    """Answers `tarn.graveler.v1.EntryService`."""

    def __init__(self, graveler: Graveler, access: Access) -> None:
        self._access = access
        self._repositories = graveler.repositories
        self._settings = graveler.settings
        self._reading = graveler.reading
        self._staging = graveler.staging
        self._conditional = graveler.conditional
        self._tags = graveler.tags
        self._copy_sources = graveler.copy_sources
        self._gateways_prove = graveler.gateways_prove
        self._features = graveler.features
        self._admission = graveler.admission
        self._page_keys = graveler.page_keys
        self._journal = graveler.journal
        self._erased = graveler.erased

    async def lookup(self, request: pb.Lookup, permit: RepositoryPermit) -> pb.LookupResult:
        """Reads one entry."""
        repository, path = permit.repository, parse_path(request.path)
        if request.is_copy_source:
            packed = await self._copy_sources.find(repository, request.ref, path)
        else:
            packed = await self._reading.lookup(repository, request.ref, path)
        if self._journal is not None:
            self._journal.note(repository, packed)
        return pb.LookupResult(
            entry=packed,
            storage_namespace=repository.storage_namespace,
            may_be_shared=request.is_copy_source,
        )

    async def stage(self, request: pb.Stage, permit: RepositoryPermit) -> pb.StageResult:
        """Writes one entry, or deletes one path if a condition holds."""
        repository = permit.repository
        if repository.instance_uid != request.instance_uid:
            raise repository_not_found(request.repository_id)
        path, entry = request.path, request.entry
        parse_path(path)
        name = BranchName(repository, branch_to_write(request.branch_id))
        if len(entry) > 1 and is_tombstone(entry):
            return await self._delete_if(request, permit, name)
        size_bytes, operation_id = check_entry(entry)
        require_features(self._features, entry)
        condition, is_conditional = UNCONDITIONAL, False
        if request.HasField("condition"):
            condition = write_condition(request.condition)
            is_conditional = bool(condition)
        if is_conditional != bool(operation_id):
            # Without a condition, a row that names an upload would pass for its completion.
            text = "names a conditional write or an upload; exactly the entries of these do"
            raise invalid_entry("entry.operation_id", text)
        if request.parts:
            entry = self._with_parts(request, condition)
        is_new = request.is_new_address
        if not await self._access.is_service(permit.call, *_FRONTS):
            is_new = False
            self._check_issued(request)
        is_repeat = False
        # An address of another object; a write of the same object with other tags names its identity.
        is_copy = not is_new and not condition.names_identity
        operation = pb_journal.JOURNAL_OPERATION_COPY if is_copy else None
        origin = origin_of(permit.grant, operation)
        admitted = await self._admission.object(repository, size_bytes)
        try:
            with admitted:
                if is_conditional:
                    is_repeat = await self._conditional.stage(
                        name, path, entry, condition, origin=origin
                    )
                else:
                    await self._staging.stage(name, path, entry, is_new=is_new, origin=origin)
        except TarnError as error:
            raise await self._not_writable(name, error) from error
        return pb.StageResult(is_repeat=is_repeat)

    def _with_parts(self, request: pb.Stage, condition: WriteCondition) -> bytes:
        """Returns the entry with the list of its parts, which it keeps from the object that it replaces."""
        if not condition.names_identity:
            text = "are kept only by a write whose condition names the identity of the object"
            raise invalid_entry("parts", text)
        self._features.require(Feature.NEW_FIELDS)
        return check_parts(request.entry, request.parts)

    async def _delete_if(
        self, request: pb.Stage, permit: RepositoryPermit, name: BranchName
    ) -> pb.StageResult:
        """Deletes one path if a condition holds. It takes no space, so no quota stops it."""
        self._features.require(Feature.CONDITIONAL_DELETES)
        permit.require_further("if_match")
        check_tombstone(request.entry)
        condition = delete_condition(request.condition)
        try:
            await self._conditional.stage(
                name, request.path, request.entry, condition, origin=origin_of(permit.grant)
            )
        except TarnError as error:
            raise await self._not_writable(name, error) from error
        return pb.StageResult()

    def _check_issued(self, request: pb.Stage) -> None:
        """Refuses an address of the namespace from anyone who is not proven to be a gateway or a REST endpoint.

        Only gateways and REST endpoints (`_FRONTS`) stage addresses in the namespace: they make them, or they found
        them by a lookup for a copy. A client links the object that it wrote to an issued address
        (docs/design/links.md). An address from elsewhere may be that of a block which is about to be deleted.

        Raises:
            TarnError: DENIED, ADDRESS_NOT_ISSUED.
        """
        if not self._gateways_prove():
            return  # perhaps a gateway of release 0.9.0
        text = (
            f"{request.path}: the entry names an address in the storage namespace, which only gateways and REST "
            "endpoints may stage; write the object by S3 or REST, or ask for an address to write to "
            "(GetPhysicalAddress) and link it (LinkPhysicalAddress)"
        )
        raise TarnError(Kind.DENIED, Reason.ADDRESS_NOT_ISSUED, text, path=request.path)

    async def unstage(self, request: pb.Unstage, permit: RepositoryPermit) -> pb.UnstageResult:
        """Deletes one path."""
        repository = permit.repository
        path = parse_path(request.path)
        name = BranchName(repository, branch_to_write(request.branch_id))
        try:
            (error,) = await self._staging.unstage(name, [path], origin=origin_of(permit.grant))
        except TarnError as failed:
            raise await self._not_writable(name, failed) from failed
        if error is not None:
            raise error
        return pb.UnstageResult()

    async def _not_writable(self, name: BranchName, error: TarnError) -> TarnError:
        """Returns the error that says so if the name is a tag, otherwise `error`."""
        if error.reason is not Reason.BRANCH_NOT_FOUND:
            return error
        try:
            await self._tags.get(name.repository, name.branch_id)
        except TarnError:
            return error
        text = f"{name.branch_id} is a tag; only branches take writes"
        return TarnError(Kind.INVALID, Reason.REF_NOT_WRITABLE, text, ref=name.branch_id)

    async def UnstageEntries(
        self, request: pb.UnstageEntriesRequest, permit: Caller
    ) -> pb.UnstageEntriesResponse:
        """Unstages up to 1,000 paths; each is authorised and answered separately."""
        if len(request.paths) > _UNSTAGE_MAX:
            text = f"{len(request.paths)} paths in one request; at most {_UNSTAGE_MAX} are allowed"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        # Each path is authorised separately; the path is the last part of its resource.
        objects = permit.resource(paths="")
        outcomes: list[TarnError | None] = [None] * len(request.paths)
        allowed: dict[int, str] = {}
        for number, path in enumerate(request.paths):
            try:
                permit.require(objects + path)
                allowed[number] = parse_path(path)
            except TarnError as error:
                outcomes[number] = error
        if allowed:
            repository = await self._repositories.get(request.repository_id)
            name = BranchName(repository, branch_to_write(request.branch_id))
            await self._settings.require(repository, name.branch_id, ChangeKind.WRITE, permit.grant)
            try:
                errors = await self._staging.unstage(
                    name, list(allowed.values()), origin=origin_of(permit.grant)
                )
            except TarnError as failed:
                raise await self._not_writable(name, failed) from failed
            outcomes_of = zip(allowed, errors, strict=True)
            for number, unstaged in outcomes_of:
                outcomes[number] = unstaged
        for path, outcome in zip(request.paths, outcomes, strict=True):
            note_item(objects + path, outcome)
        return pb.UnstageEntriesResponse(
            outcomes=[
                pb.UnstageOutcome(error=None if error is None else error_to_operation(error))
                for error in outcomes
            ]
        )

    async def FindErased(
        self, request: pb.FindErasedRequest, permit: RepositoryPermit
    ) -> pb.FindErasedResponse:
        """Tells whether the object whose block a reader missed was erased."""
        repository = permit.repository
        address = request.address
        if len(address) != ADDRESS_BYTES:
            text = f"an address has {ADDRESS_BYTES} bytes, not {len(address)}"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="address")
        found = (await self._erased.find(repository, [address])).get(address)
        if found is None:
            return pb.FindErasedResponse()
        return pb.FindErasedResponse(plan_id=found.plan_id, erase_time=timestamp(found.time_us))

    async def ListEntries(
        self, request: pb.ListEntriesRequest, permit: RepositoryPermit
    ) -> pb.ListEntriesResponse:
        """Returns one page of a ref's listing."""
        repository, grant = permit.repository, permit.grant
        if request.prefix:
            parse_path(request.prefix)
        if len(request.delimiter.encode()) > _DELIMITER_BYTES_MAX:
            text = f"the delimiter is longer than {_DELIMITER_BYTES_MAX} bytes"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "EntryService.ListEntries",
            repository=request.repository_id,
            ref=request.ref,
            prefix=request.prefix,
            delimiter=request.delimiter,
        )
        after = tokens.decode(request.page_token) or request.after
        page = await self._reading.page(
            repository,
            request.ref,
            PageRequest(
                prefix=request.prefix,
                delimiter=request.delimiter,
                after=after,
                limit=paging(request.page_size, default=1000),
            ),
        )
        next_token = ""
        if page.next_after is not None:
            next_token = tokens.encode(page.next_after)
        return pb.ListEntriesResponse(
            paths=page.paths,
            packed_entries=page.entries,
            next_page_token=next_token,
            storage_namespace=repository.storage_namespace,
        )

"""EntryService: lookups, stages, unstages and listings."""

from __future__ import annotations

from tarn.core.access.policy import Grant
from tarn.core.condition import UNCONDITIONAL
from tarn.core.entry_check import check_entry, invalid_entry
from tarn.core.erasure import ADDRESS_BYTES
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_path
from tarn.core.levels import Feature
from tarn.core.listing.pages import PageRequest
from tarn.rpc.rules import rules_of
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import error_to_operation
from tarn.telemetry.audit.note import note_item
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.requests import (
    AccessGuard,
    paging,
    read_condition,
    timestamp,
)
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.repositories import repository_not_found
from tarn_graveler.refs.resolving import branch_to_write
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

__all__ = ["EntryHandler"]

_RULES = rules_of(pb.DESCRIPTOR.services_by_name["EntryService"])
_LOOKUP, _STAGE, _UNSTAGE = _RULES["lookup"], _RULES["stage"], _RULES["unstage"]

_UNSTAGE_MAX = 1000
_DELIMITER_BYTES_MAX = 1024


class EntryHandler:
    """Answers `tarn.graveler.v1.EntryService`."""

    def __init__(self, guard: AccessGuard, graveler: Graveler) -> None:
        self._guard = guard
        self._reading = graveler.reading
        self._staging = graveler.staging
        self._conditional = graveler.conditional
        self._tags = graveler.tags
        self._copy_sources = graveler.copy_sources
        self._is_online = graveler.online is not None
        self._features = graveler.features
        self._admission = graveler.admission
        self._page_keys = graveler.page_keys
        self._journal = graveler.journal
        self._erased = graveler.erased

    async def operate(self, operation: pb.Operation, call: Call) -> pb.OperationResult:
        """Runs one operation of the hot path: lookup, stage or unstage."""
        match operation.WhichOneof("operation"):
            case "lookup":
                return await self._lookup(operation.lookup, call)
            case "stage":
                return await self._stage(operation.stage, call)
            case "unstage":
                return await self._unstage(operation.unstage, call)
            case _:
                text = "the operation is not a lookup, stage or unstage"
                raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)

    async def _lookup(self, request: pb.Lookup, call: Call) -> pb.OperationResult:
        repository, _ = await self._guard.enter_repository(call, _LOOKUP, request)
        path = parse_path(request.path)
        result = pb.OperationResult()
        if request.is_copy_source:
            packed = await self._copy_sources.find(repository, request.ref, path)
            result.lookup.may_be_shared = True
        else:
            packed = await self._reading.lookup(repository, request.ref, path)
        # Set field by field: a constructor copies a message by serialising it.
        found = result.lookup
        found.entry, found.storage_namespace = packed, repository.storage_namespace
        if self._journal is not None:
            self._journal.note(repository, packed)
        return result

    async def _stage(self, request: pb.Stage, call: Call) -> pb.OperationResult:
        repository, _ = await self._guard.enter_repository(call, _STAGE, request)
        if repository.instance_uid != request.instance_uid:
            raise repository_not_found(request.repository_id)
        path, entry = request.path, request.entry
        parse_path(path)
        size_bytes, operation_id = check_entry(entry)
        name = BranchName(repository, branch_to_write(request.branch_id))
        condition = UNCONDITIONAL
        if request.HasField("condition"):
            resource = _STAGE.also["if_match"].resource.of(request)
            condition = await read_condition(self._guard, call, _STAGE, request.condition, resource)
        if bool(condition) != bool(operation_id):
            # Without a condition, a row that names an upload would pass for its completion.
            text = "names a conditional write or an upload; exactly the entries of these do"
            raise invalid_entry("entry.operation_id", text)
        is_new = await self._check_issued(request, call)
        is_repeat = False
        admitted = await self._admission.object(repository, size_bytes)
        try:
            with admitted:
                if condition:
                    is_repeat = await self._conditional.stage(name, path, entry, condition)
                else:
                    await self._staging.stage(name, path, entry, is_new=is_new)
        except TarnError as error:
            raise await self._not_writable(name, error) from error
        result = pb.OperationResult()
        result.stage.is_repeat = is_repeat
        return result

    async def _check_issued(self, request: pb.Stage, call: Call) -> bool:
        """Whether the address of an entry was made for this call.

        Only gateways stage addresses in the namespace: they make them, or they found them by a lookup for a copy. A
        client links the object that it wrote to an issued address (docs/design/links.md). An address from elsewhere may
        be that of a block which is about to be deleted.

        Raises:
            TarnError: DENIED, ADDRESS_NOT_ISSUED.
        """
        if await self._guard.is_gateway(call, request.gateway_token):
            return request.is_new_address
        if not self._is_online and not self._features.allows(Feature.ISSUED_ADDRESSES):
            return False  # perhaps a gateway of release 0.9.0
        text = (
            f"{request.path}: the entry names an address in the storage namespace, which only gateways may stage; "
            "write the object by S3, or ask for an address to write to (GetPhysicalAddress) and link it "
            "(LinkPhysicalAddress)"
        )
        raise TarnError(Kind.DENIED, Reason.ADDRESS_NOT_ISSUED, text, path=request.path)

    async def _unstage(self, request: pb.Unstage, call: Call) -> pb.OperationResult:
        repository, _ = await self._guard.enter_repository(call, _UNSTAGE, request)
        path = parse_path(request.path)
        name = BranchName(repository, branch_to_write(request.branch_id))
        try:
            (error,) = await self._staging.unstage(name, [path])
        except TarnError as failed:
            raise await self._not_writable(name, failed) from failed
        if error is not None:
            raise error
        return pb.OperationResult(unstage=pb.UnstageResult())

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
        self, request: pb.UnstageEntriesRequest, call: Call
    ) -> pb.UnstageEntriesResponse:
        """Unstages up to 1,000 paths; each is authorised and answered separately."""
        if len(request.paths) > _UNSTAGE_MAX:
            text = f"{len(request.paths)} paths in one request; at most {_UNSTAGE_MAX} are allowed"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        rule = _RULES["UnstageEntries"]
        # Each path is authorised separately; the path is the last part of its resource.
        objects = rule.resource.of_found(request, paths="")
        outcomes: list[TarnError | None] = [None] * len(request.paths)
        allowed: dict[int, str] = {}
        grant: Grant | None = None
        for number, path in enumerate(request.paths):
            try:
                grant = await self._guard.enter(call, rule, objects + path)
                allowed[number] = parse_path(path)
            except TarnError as error:
                if error.kind is Kind.UNAUTHENTICATED:
                    raise
                outcomes[number] = error
        if allowed:
            repository = await self._guard.repository(request.repository_id)
            name = BranchName(repository, branch_to_write(request.branch_id))
            assert grant is not None, "a path is allowed"
            await self._guard.allow(rule, repository, name.branch_id, grant)
            try:
                errors = await self._staging.unstage(name, list(allowed.values()))
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

    async def FindErased(self, request: pb.FindErasedRequest, call: Call) -> pb.FindErasedResponse:
        """Tells whether the object whose block a reader missed was erased."""
        repository, _ = await self._guard.enter_repository(call, _RULES["FindErased"], request)
        address = request.address
        if len(address) != ADDRESS_BYTES:
            text = f"an address has {ADDRESS_BYTES} bytes, not {len(address)}"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="address")
        found = (await self._erased.find(repository, [address])).get(address)
        if found is None:
            return pb.FindErasedResponse()
        return pb.FindErasedResponse(plan_id=found.plan_id, erase_time=timestamp(found.time_us))

    async def ListEntries(
        self, request: pb.ListEntriesRequest, call: Call
    ) -> pb.ListEntriesResponse:
        """Returns one page of a ref's listing."""
        repository, grant = await self._guard.enter_repository(call, _RULES["ListEntries"], request)
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

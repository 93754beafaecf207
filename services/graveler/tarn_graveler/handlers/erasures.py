"""ErasureService: deletes data that collections keep."""

from __future__ import annotations

from collections.abc import Sequence

from tarn.core import collection as core
from tarn.core.erasure import ADDRESS_BYTES, ADDRESSES_MAX, check_plan_id
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_path
from tarn.core.levels import Feature
from tarn.core.refs import branch_to_write
from tarn.gate.permits import Permit, RepositoryPermit
from tarn.kv.namespace_records import Namespace
from tarn.kv.records import Repository
from tarn_graveler.assembly import Graveler
from tarn_graveler.compaction.discarding import Discarded, Discarding
from tarn_graveler.handlers.requests import paging
from tarn_graveler.records.branches import BranchName
from tarn_proto.graveler.v1 import erasure_service_pb2 as pb

__all__ = ["ErasureHandler"]

_ROWS_DEFAULT = 5_000
_ROWS_MAX = 10_000
_OUTCOMES = {
    Discarded.DISCARDED: pb.DISCARD_OUTCOME_DISCARDED,
    Discarded.REPLACED: pb.DISCARD_OUTCOME_REPLACED,
    Discarded.COMMITTED: pb.DISCARD_OUTCOME_COMMITTED,
    Discarded.ABSENT: pb.DISCARD_OUTCOME_ABSENT,
}


class ErasureHandler:
    """Answers `tarn.graveler.v1.ErasureService`."""

    def __init__(self, graveler: Graveler) -> None:
        self._purges = graveler.purges
        self._drain = graveler.drain
        self._collections = graveler.collections
        self._erased = graveler.erased
        self._staged_rows = graveler.staged_rows
        self._discarding = Discarding(graveler.branches, graveler.layers, graveler.part_resets)
        self._clock = graveler.clock
        self._features = graveler.features
        self._page_keys = graveler.page_keys

    async def ListDoomedNamespaces(
        self, request: pb.ListDoomedNamespacesRequest, permit: Permit
    ) -> pb.ListDoomedNamespacesResponse:
        """Returns a page of the doomed namespaces."""
        grant = permit.grant
        tokens = await self._page_keys.tokens(grant.user_id, "ErasureService.ListDoomedNamespaces")
        after, limit = tokens.decode(request.page_token), paging(request.page_size)
        found, last = await self._purges.page(after, limit)
        return pb.ListDoomedNamespacesResponse(
            namespaces=[_message(name, held) for name, held in found],
            next_page_token=tokens.encode(last) if last else "",
        )

    async def BeginPurge(
        self, request: pb.BeginPurgeRequest, permit: Permit
    ) -> pb.BeginPurgeResponse:
        """Begins or confirms the deletion of data; with a journal, after the event of the deletion is in the bucket."""
        if self._drain is not None:
            await self._drain.before_deletion(None, self._clock.monotonic())
        held = await self._purges.begin(request.storage_namespace, request.instance_uid)
        return pb.BeginPurgeResponse(namespace=_message(request.storage_namespace, held))

    async def EndPurge(self, request: pb.EndPurgeRequest, permit: Permit) -> pb.EndPurgeResponse:
        """Notes the end of the deletion of data."""
        if min(request.purged_count, request.purged_bytes) < 0:
            text = "counts of a purge must not be negative"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="purged_count")
        held = await self._purges.end(
            request.storage_namespace,
            request.instance_uid,
            request.purged_count,
            request.purged_bytes,
        )
        return pb.EndPurgeResponse(namespace=_message(request.storage_namespace, held))

    async def SpareNamespace(
        self, request: pb.SpareNamespaceRequest, permit: Permit
    ) -> pb.SpareNamespaceResponse:
        """Keeps the data of a doomed namespace."""
        await self._purges.spare(request.storage_namespace)
        return pb.SpareNamespaceResponse()

    async def ListStagedRows(
        self, request: pb.ListStagedRowsRequest, permit: RepositoryPermit
    ) -> pb.ListStagedRowsResponse:
        """Returns a page of staged rows."""
        repository, grant = permit.repository, permit.grant
        limit = paging(request.page_size, _ROWS_DEFAULT, _ROWS_MAX)
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "ErasureService.ListStagedRows",
            instance=repository.instance_uid,
            run=request.run_id,
            prefix=request.prefix,
        )
        cursor = tokens.decode(request.page_token)
        await self._require_run(repository, request.run_id)
        page = await self._staged_rows.page(repository, request.prefix, cursor, limit)
        return pb.ListStagedRowsResponse(
            branch_id=page.branch_id,
            paths=page.paths,
            addresses=b"".join(page.addresses),
            sizes=page.sizes,
            next_page_token=tokens.encode(page.cursor) if page.cursor else "",
        )

    async def EraseAddresses(
        self, request: pb.EraseAddressesRequest, permit: RepositoryPermit
    ) -> pb.EraseAddressesResponse:
        """Notes addresses as erased."""
        repository = permit.repository
        check_plan_id(request.plan_id)
        self._features.require(Feature.NEW_FIELDS)
        addresses = _addresses(request.addresses)
        if request.run_id:  # without one, nothing is deleted next
            await self._require_run(repository, request.run_id)
        await self._erased.erase(repository, addresses, request.plan_id)
        if request.run_id:
            await self._drained(repository)
        return pb.EraseAddressesResponse()

    async def DiscardErased(
        self, request: pb.DiscardErasedRequest, permit: RepositoryPermit
    ) -> pb.DiscardErasedResponse:
        """Discards uncommitted entries of erased addresses."""
        repository = permit.repository
        addresses = _addresses(request.addresses)
        if len(addresses) != len(request.paths):
            text = f"{len(addresses)} addresses for {len(request.paths)} paths"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="addresses")
        entries = list(zip(map(parse_path, request.paths), addresses, strict=True))
        name = BranchName(repository, branch_to_write(request.branch_id))
        await self._require_run(repository, request.run_id)
        if request.validate_only:
            outcomes = await self._discarding.judge(name, entries)
        else:
            await self._require_erased(repository, addresses)
            outcomes = await self._discarding.discard(name, entries)
            await self._drained(repository)
        return pb.DiscardErasedResponse(outcomes=[_OUTCOMES[each] for each in outcomes])

    async def _drained(self, repository: Repository) -> None:
        """Returns when what this call has written is in the journal's files: the run deletes the blocks next.

        Both are changes of records, which every pass reads.

        Raises:
            TarnError: as `Drain.drain`: the blocks must stay.
        """
        if self._drain is not None:
            await self._drain.drain(self._drain.place_of(repository))

    async def _require_erased(self, repository: Repository, addresses: Sequence[bytes]) -> None:
        erased = await self._erased.find(repository, addresses)
        for address in addresses:
            if address not in erased:
                text = f"the block {address.hex()} is not erased, so no entry that names it is discarded"
                raise TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)

    async def _require_run(self, repository: Repository, run_id: str) -> None:
        current = await self._collections.read(repository)
        core.require_run(current, run_id, self._clock.now_us())


def _addresses(packed: bytes) -> list[bytes]:
    count, left = divmod(len(packed), ADDRESS_BYTES)
    if left or not 0 < count <= ADDRESSES_MAX:
        text = (
            f"{len(packed)} bytes are not 1 to {ADDRESSES_MAX} addresses of {ADDRESS_BYTES} bytes"
        )
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="addresses")
    return [packed[at : at + ADDRESS_BYTES] for at in range(0, len(packed), ADDRESS_BYTES)]


def _message(name: str, held: Namespace) -> pb.DoomedNamespace:
    message = pb.DoomedNamespace(
        storage_namespace=name,
        repository_id=held.repository_id,
        instance_uid=held.instance_uid,
        purged_count=held.purged_count,
        purged_bytes=held.purged_bytes,
    )
    message.doom_time.FromMicroseconds(held.doom_time_us)
    message.purge_not_before_time.FromMicroseconds(held.purge_after_us)
    if held.purge_begin_us:
        message.purge_begin_time.FromMicroseconds(held.purge_begin_us)
    if held.purge_end_us:
        message.purge_end_time.FromMicroseconds(held.purge_end_us)
    return message

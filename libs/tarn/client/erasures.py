"""Client of graveler's erasures (docs/design/erase.md): they delete data that collections keep."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import erasure_service_pb2 as pb
from tarn_proto.graveler.v1.erasure_service_rpc import ErasureServiceClient

__all__ = ["ErasureClient"]


class ErasureClient:
    """Runs erasures. Methods raise the `TarnError` that graveler raised; all may be repeated."""

    def __init__(self, transport: Transport) -> None:
        self._erasure_service = ErasureServiceClient(transport)

    async def doomed_namespaces(
        self, call: Callable[[], Call], *, page_size: int = 0
    ) -> AsyncIterator[pb.DoomedNamespace]:
        """Yields the namespaces whose data are to be deleted or were deleted, in byte order of their names."""
        token = ""
        while True:
            request = pb.ListDoomedNamespacesRequest(page_size=page_size, page_token=token)
            page = await self._erasure_service.ListDoomedNamespaces(request, call())
            for each in page.namespaces:
                yield each
            token = page.next_page_token
            if not token:
                return

    async def begin_purge(
        self, call: Call, storage_namespace: str, instance_uid: str
    ) -> pb.DoomedNamespace:
        """Begins to delete the data of a doomed namespace, or confirms that it goes on.

        Raises:
            TarnError: FAILED_PRECONDITION: NAMESPACE_NOT_DOOMED, COLLECTION_TOO_EARLY; CORRUPT: a repository uses it.
        """
        request = pb.BeginPurgeRequest(
            storage_namespace=storage_namespace, instance_uid=instance_uid
        )
        answer = await self._erasure_service.BeginPurge(request, call)
        return answer.namespace

    async def end_purge(
        self, call: Call, storage_namespace: str, instance_uid: str, count: int, size_bytes: int
    ) -> pb.DoomedNamespace:
        """Notes that the data of a namespace are deleted.

        Raises:
            TarnError: FAILED_PRECONDITION: NAMESPACE_NOT_DOOMED.
        """
        request = pb.EndPurgeRequest(
            storage_namespace=storage_namespace,
            instance_uid=instance_uid,
            purged_count=count,
            purged_bytes=size_bytes,
        )
        answer = await self._erasure_service.EndPurge(request, call)
        return answer.namespace

    async def spare_namespace(self, call: Call, storage_namespace: str) -> None:
        """Keeps the data of a doomed namespace, of which nothing is deleted yet.

        Raises:
            TarnError: FAILED_PRECONDITION: NAMESPACE_NOT_DOOMED.
        """
        request = pb.SpareNamespaceRequest(storage_namespace=storage_namespace)
        await self._erasure_service.SpareNamespace(request, call)

    async def staged_rows(
        self, call: Call, repository_id: str, run_id: str, prefix: str, page_token: str = ""
    ) -> pb.ListStagedRowsResponse:
        """Returns a page of the staged rows of all branches whose paths have a prefix, also of hidden ones.

        Args:
            call: the caller.
            repository_id: the repository.
            run_id: a run of a collection that holds the lease.
            prefix: of the paths.
            page_token: of the previous page.

        Raises:
            TarnError: FAILED_PRECONDITION: COLLECTION_LOST, COLLECTION_HELD.
        """
        request = pb.ListStagedRowsRequest(
            repository_id=repository_id, run_id=run_id, prefix=prefix, page_token=page_token
        )
        return await self._erasure_service.ListStagedRows(request, call)

    async def erase_addresses(
        self, call: Call, repository_id: str, run_id: str, plan_id: str, addresses: bytes
    ) -> None:
        """Notes addresses as erased; their rows are durable afterwards.

        Args:
            call: the caller.
            repository_id: the repository.
            run_id: a run of a collection that holds the lease; empty: nothing is deleted next.
            plan_id: 32 hex digits.
            addresses: 16 bytes for each, at most `ADDRESSES_MAX` of `tarn.core.erasure`.

        Raises:
            TarnError: FAILED_PRECONDITION: COLLECTION_LOST, COLLECTION_HELD, ADDRESS_TOO_YOUNG.
        """
        request = pb.EraseAddressesRequest(
            repository_id=repository_id, run_id=run_id, plan_id=plan_id, addresses=addresses
        )
        await self._erasure_service.EraseAddresses(request, call)

    async def discard_erased(
        self,
        call: Call,
        repository_id: str,
        run_id: str,
        branch_id: str,
        entries: Sequence[tuple[str, bytes]],
        *,
        validate_only: bool = False,
    ) -> list[pb.DiscardOutcome]:
        """Discards uncommitted entries of a branch that name erased addresses; returns the outcome of each, in order.

        Args:
            call: the caller.
            repository_id: the repository.
            run_id: a run of a collection that holds the lease.
            branch_id: the branch.
            entries: paths and addresses of 16 bytes, at most `ADDRESSES_MAX` of `tarn.core.erasure`.
            validate_only: discard nothing, and return the outcomes that a discard would have now.

        Raises:
            TarnError: BRANCH_NOT_FOUND; FAILED_PRECONDITION: COLLECTION_LOST, COLLECTION_HELD, PRECONDITION_FAILED (an
                address is not erased); UNAVAILABLE or UNKNOWN_OUTCOME: repeat the call.
        """
        request = pb.DiscardErasedRequest(
            repository_id=repository_id,
            run_id=run_id,
            branch_id=branch_id,
            paths=[path for path, _ in entries],
            addresses=b"".join(address for _, address in entries),
            validate_only=validate_only,
        )
        answer = await self._erasure_service.DiscardErased(request, call)
        return list(answer.outcomes)

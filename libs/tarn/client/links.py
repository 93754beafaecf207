"""Client of graveler's addresses to which clients write themselves."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.client.entries import condition_message
from tarn.client.rpc_client import RpcClient
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import link_service_pb2 as pb
from tarn_proto.graveler.v1.link_service_rpc import LinkServiceClient

__all__ = ["LinkClient"]


class LinkClient(RpcClient):
    """Issues addresses and links objects. Methods raise the `TarnError` that graveler raised."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._link_service = LinkServiceClient(transport)

    async def get_physical_address(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        path: str,
        *,
        template: bytes = b"",
        part_count: int = 0,
        rewritable: bool = False,
    ) -> pb.GetPhysicalAddressResponse:
        """Returns an address in the bucket, with a token and presigned URLs. They are secrets.

        Args:
            call: the request that this rpc belongs to.
            repository_id: the repository to write to.
            branch_id: the branch to write to; other refs take no writes.
            path: the path that the object will have.
            template: packed entry with content type and metadata; empty for none.
            part_count: number of parts, at most 1,000; 0: one PUT.
            rewritable: the caller lets the client write without the signed headers, so it may write twice.

        Raises:
            TarnError: BRANCH_NOT_FOUND; NOT_IMPLEMENTED: the block store is no bucket.
        """
        request = pb.GetPhysicalAddressRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            path=path,
            template=template,
            part_count=part_count,
            rewritable=rewritable,
        )
        return await self._link_service.GetPhysicalAddress(request, call)

    async def link_physical_address(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        path: str,
        *,
        token: str,
        size_bytes: int,
        etag: str,
        condition: WriteCondition = UNCONDITIONAL,
        template: bytes = b"",
        modify_time: Timestamp | None = None,
    ) -> bytes:
        """Stages the object that was written to an issued address, once; returns the packed entry. May be repeated.

        Args:
            call: the request that this rpc belongs to.
            repository_id: as in `get_physical_address`.
            branch_id: likewise.
            path: likewise.
            token: its token.
            size_bytes: size of the object.
            etag: the bucket's ETag, without quotes.
            condition: must hold immediately before the write.
            template: takes the place of the template with which the address was issued; empty: it does not.
            modify_time: when the object was made; None: now.

        Raises:
            TarnError: INVALID for a token of another caller or path; LINK_EXPIRED, LINK_USED, LINK_MISMATCH,
                BLOCK_NOT_FOUND, PRECONDITION_FAILED: nothing was staged; UPLOAD_BUSY; OUTCOME_UNKNOWN.
        """
        request = pb.LinkPhysicalAddressRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            path=path,
            token=token,
            size_bytes=size_bytes,
            etag=etag,
            condition=condition_message(condition),
            template=template,
            modify_time=modify_time,
        )
        answer = await self._link_service.LinkPhysicalAddress(request, call)
        return answer.entry

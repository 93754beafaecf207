"""Client of graveler's operations on the limits of repositories and users."""

from __future__ import annotations

from dataclasses import asdict

from tarn.client.rpc_client import RpcClient
from tarn.core.quota import Limits, QuotaKind
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import quota_service_pb2 as pb
from tarn_proto.graveler.v1.quota_service_rpc import QuotaServiceClient

__all__ = ["QuotaClient", "limits_of"]


def limits_of(message: pb.QuotaLimits) -> Limits:
    """Returns the limits of a message."""
    return Limits(
        staged_objects=message.staged_objects,
        staged_bytes=message.staged_bytes,
        branches=message.branches,
        uploads=message.uploads,
        requests_per_second=message.requests_per_second,
        bytes_per_second=message.bytes_per_second,
    )


class QuotaClient(RpcClient):
    """Reads and changes quotas. Methods raise the `TarnError` that graveler raised."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._quota_service = QuotaServiceClient(transport)

    async def set_quota(self, call: Call, kind: QuotaKind, name: str, limits: Limits) -> None:
        """Sets all limits of a repository or user; without any, removes its quota."""
        message = pb.QuotaLimits(**asdict(limits))
        request = pb.SetQuotaRequest(kind=kind, name=name, limits=message)
        await self._quota_service.SetQuota(request, call)

    async def get_quota(self, call: Call, kind: QuotaKind, name: str) -> pb.GetQuotaResponse:
        """Returns `limits`, `is_set` and, for a repository, `used`."""
        request = pb.GetQuotaRequest(kind=kind, name=name)
        return await self._quota_service.GetQuota(request, call)

    async def list_quotas(
        self, call: Call, *, page_size: int = 0, page_token: str = ""
    ) -> pb.ListQuotasResponse:
        """Returns a page of quotas: `quotas`, `next_page_token`, `repository_default`, `user_default`."""
        request = pb.ListQuotasRequest(page_size=page_size, page_token=page_token)
        return await self._quota_service.ListQuotas(request, call)

    async def report_requests(self, call: Call, month: str, source: str, total: int) -> None:
        """Tells how many requests a source has answered in a month, such as `2026-11`; may be repeated."""
        request = pb.ReportRequestsRequest(month=month, source=source, total=total)
        await self._quota_service.ReportRequests(request, call)

    async def get_request_counts(self, call: Call) -> pb.GetRequestCountsResponse:
        """Returns `installation_id`, and `months` with their `month` and `count`."""
        return await self._quota_service.GetRequestCounts(pb.GetRequestCountsRequest(), call)

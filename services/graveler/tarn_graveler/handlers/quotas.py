"""QuotaService: the limits of repositories and users, and the counts of requests."""

from __future__ import annotations

from dataclasses import asdict

from tarn.client.quotas import limits_of
from tarn.core.errors import Kind, TarnError
from tarn.core.listing.sizes import bounded
from tarn.core.quota import Limits, Quota, QuotaKind, check_quota, parse_kind
from tarn.gate.permits import Permit
from tarn.kv.records import Repository
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.requests import paging
from tarn_proto.graveler.v1 import quota_service_pb2 as pb

__all__ = ["QuotaHandler"]


class QuotaHandler:
    """Answers `tarn.graveler.v1.QuotaService`."""

    def __init__(self, graveler: Graveler) -> None:
        self._repositories = graveler.repositories
        self._admission = graveler.admission
        self._records = graveler.admission.records
        self._page_keys = graveler.page_keys
        self._request_counts = graveler.request_counts

    async def SetQuota(self, request: pb.SetQuotaRequest, permit: Permit) -> pb.SetQuotaResponse:
        """Sets or removes a quota."""
        quota = Quota(parse_kind(request.kind), request.name, limits_of(request.limits))
        check_quota(quota)
        await self._records.set(quota)
        return pb.SetQuotaResponse()

    async def GetQuota(self, request: pb.GetQuotaRequest, permit: Permit) -> pb.GetQuotaResponse:
        """Returns limits and use."""
        kind = parse_kind(request.kind)
        check_quota(Quota(kind, request.name, Limits()))
        found = await self._records.get(kind, request.name)
        limits = found or self._records.defaults.of(kind)
        answer = pb.GetQuotaResponse(limits=_message(limits), is_set=bool(found))
        if kind is QuotaKind.REPOSITORY:
            try:
                repository = await self._repositories.get(request.name)
            except TarnError as error:
                if error.kind is not Kind.NOT_FOUND:
                    raise
            else:
                answer.used.CopyFrom(_message(await self._used(repository)))
        return answer

    async def _used(self, repository: Repository) -> Limits:
        counter = self._admission.counter
        objects, size = await counter.staged(repository, Limits())
        return Limits(
            staged_objects=objects,
            staged_bytes=bounded(size),
            branches=await counter.branches(repository, 0),
            uploads=await counter.uploads(repository, 0),
        )

    async def ListQuotas(
        self, request: pb.ListQuotasRequest, permit: Permit
    ) -> pb.ListQuotasResponse:
        """Returns a page of the quotas that are set."""
        grant = permit.grant
        tokens = await self._page_keys.tokens(grant.user_id, "QuotaService.ListQuotas")
        after, count = tokens.decode(request.page_token), paging(request.page_size)
        found = [each for each in await self._records.load() if _key(each) > after]
        page = found[:count]
        defaults = self._records.defaults
        return pb.ListQuotasResponse(
            quotas=[
                pb.Quota(kind=each.kind, name=each.name, limits=_message(each.limits))
                for each in page
            ],
            next_page_token=tokens.encode(_key(page[-1])) if len(found) > len(page) else "",
            repository_default=_message(defaults.repository),
            user_default=_message(defaults.user),
        )

    async def ReportRequests(
        self, request: pb.ReportRequestsRequest, permit: Permit
    ) -> pb.ReportRequestsResponse:
        """Takes the total of a source."""
        await self._request_counts.report(request.month, request.source, request.total)
        return pb.ReportRequestsResponse()

    async def GetRequestCounts(
        self, request: pb.GetRequestCountsRequest, permit: Permit
    ) -> pb.GetRequestCountsResponse:
        """Returns the counts of all months."""
        found = await self._request_counts.months()
        return pb.GetRequestCountsResponse(
            installation_id=self._request_counts.installation_id,
            months=[pb.MonthlyRequests(month=month, count=count) for month, count in found],
        )


def _key(quota: Quota) -> str:
    return f"{quota.kind}/{quota.name}"


def _message(limits: Limits) -> pb.QuotaLimits:
    return pb.QuotaLimits(**asdict(limits))

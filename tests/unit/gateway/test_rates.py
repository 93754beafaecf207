"""Rates of requests and bytes: whom they slow down, what the client is told, and how a gateway learns of them."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from tests.support.clock import ManualClock, SeededIds

from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.core.access.policy import Grant, Policy
from tarn.core.access.service import Service
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UserId
from tarn.gate.access import Access
from tarn.gate.rates import RateLimits
from tarn.gate.service_calls import ServiceCalls
from tarn.rpc.wire.call import Call
from tarn_gateway.rates import RateExceededError, admit
from tarn_gateway.s3error import S3Error
from tarn_proto.graveler.v1 import quota_service_pb2 as pb


class _Auth:
    async def authorize_service(self, call: Call, service: str) -> Grant:
        assert (call.caller_token, service) == ("", Service.GATEWAY)
        return Grant(UserId("service:gateway"), Policy(()), "token", 1000)


class _Graveler:
    """Answers pages of one quota each."""

    def __init__(self) -> None:
        self.quotas: list[pb.Quota] = []
        self.user = pb.QuotaLimits()
        self.fails_at: int | None = None

    async def list_quotas(
        self, call: Call, *, page_size: int, page_token: str
    ) -> pb.ListQuotasResponse:
        assert page_size
        assert call.caller_token == "token"
        at = int(page_token or 0)
        if at == self.fails_at:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no answer")
        more = str(at + 1) if at + 1 < len(self.quotas) else ""
        return pb.ListQuotasResponse(
            quotas=self.quotas[at : at + 1], next_page_token=more, user_default=self.user
        )


class _LimitedGateway:
    def __init__(self, gateways: int = 1) -> None:
        self.clock = ManualClock()
        self.graveler = _Graveler()
        ids = SeededIds(self.clock, seed=1)
        access = Access(cast("AuthClient", _Auth()), self.clock)
        calls = ServiceCalls(access, Service.GATEWAY, self.clock, ids)
        client = cast("GravelerClient", self.graveler)
        self.rates = RateLimits(client, calls, self.clock, gateways=gateways)

    async def limit(self, kind: str, name: str, requests: int = 0, transfer: int = 0) -> None:
        limits = pb.QuotaLimits(requests_per_second=requests, bytes_per_second=transfer)
        self.graveler.quotas.append(pb.Quota(kind=kind, name=name, limits=limits))
        await self.rates.refresh()

    def admitted(self, user: str = "ann", repository: str = "lake", count: int = 100) -> int:
        for number in range(count):
            try:
                admit(self.rates, user, repository)
            except S3Error:
                return number
        return count


async def test_without_quotas_everything_passes() -> None:
    lab = _LimitedGateway()
    await lab.rates.refresh()
    assert not lab.rates.is_on
    assert lab.admitted() == 100


async def test_requests_beyond_the_rate_are_told_when_to_come_again() -> None:
    lab = _LimitedGateway()
    await lab.limit("repository", "lake", requests=5)
    assert lab.admitted() == 5
    with pytest.raises(RateExceededError) as raised:
        admit(lab.rates, "ann", "lake")
    assert (raised.value.code, raised.value.status) == ("SlowDown", 503)
    assert raised.value.throttled_by == ("repository", "requests_per_second")
    assert raised.value.headers == {"Retry-After": "1"}
    assert "repository lake may have 5 requests_per_second" in raised.value.message
    assert lab.admitted(repository="other") == 100
    lab.clock.advance(1)
    assert lab.admitted() == 5


async def test_a_user_is_limited_in_all_repositories_together() -> None:
    lab = _LimitedGateway()
    await lab.limit("user", "ann", requests=4)
    assert lab.admitted(repository="a", count=3) == 3
    assert lab.admitted(repository="b") == 1
    assert lab.admitted(repository="") == 0
    assert lab.admitted(user="bob") == 100


async def test_a_refused_request_costs_its_user_nothing() -> None:
    lab = _LimitedGateway()
    await lab.limit("user", "ann", requests=4)
    await lab.limit("repository", "lake", requests=1)
    assert lab.admitted() == 1
    assert lab.admitted(repository="other") == 3


async def test_bytes_are_charged_afterwards_and_then_waited_for() -> None:
    lab = _LimitedGateway()
    await lab.limit("repository", "lake", transfer=1000)
    admit(lab.rates, "ann", "lake")
    lab.rates.charge("ann", "lake", 3000)
    with pytest.raises(S3Error, match="1000 bytes_per_second; try again after 3 s"):
        admit(lab.rates, "ann", "lake")
    lab.clock.advance(2.1)
    admit(lab.rates, "ann", "lake")


async def test_each_gateway_enforces_its_share() -> None:
    lab = _LimitedGateway(gateways=4)
    await lab.limit("repository", "lake", requests=8)
    assert lab.admitted() == 2


async def test_the_defaults_bind_all_others() -> None:
    lab = _LimitedGateway()
    lab.graveler.user = pb.QuotaLimits(requests_per_second=2)
    await lab.limit("user", "ann", requests=3)
    assert lab.admitted(user="ann") == 3
    assert lab.admitted(user="bob") == 2
    assert lab.admitted(user="eve") == 2


async def test_a_changed_limit_counts_from_its_reading() -> None:
    lab = _LimitedGateway()
    await lab.limit("repository", "lake", requests=1)
    assert lab.admitted() == 1
    lab.graveler.quotas.clear()
    await lab.limit("repository", "lake", requests=3)
    assert lab.admitted() == 3
    lab.graveler.quotas.clear()
    await lab.rates.refresh()
    assert lab.admitted() == 100


@pytest.mark.parametrize("page", [0, 1])
async def test_limits_stay_in_force_while_graveler_does_not_answer(page: int) -> None:
    """Also those on later pages than the last one that it answered."""
    lab = _LimitedGateway()
    await lab.limit("user", "bob", requests=1)
    await lab.limit("repository", "lake", requests=1)
    lab.graveler.fails_at = page
    with pytest.raises(TarnError):
        await lab.rates.refresh()
    assert lab.admitted() == 1


async def test_a_reading_of_the_same_limits_fills_no_bucket() -> None:
    lab = _LimitedGateway()
    await lab.limit("repository", "lake", requests=3)
    assert lab.admitted() == 3
    await lab.rates.refresh()
    assert lab.admitted() == 0


async def test_each_gateway_enforces_its_share_of_the_bytes() -> None:
    lab = _LimitedGateway(gateways=4)
    await lab.limit("repository", "lake", transfer=1000)
    lab.rates.charge("ann", "lake", 500)
    lab.clock.advance(0.9)
    with pytest.raises(S3Error):
        admit(lab.rates, "ann", "lake")
    lab.clock.advance(0.2)
    admit(lab.rates, "ann", "lake")


async def test_a_default_alone_is_enforced() -> None:
    lab = _LimitedGateway()
    lab.graveler.user = pb.QuotaLimits(requests_per_second=2)
    await lab.rates.refresh()
    assert lab.admitted() == 2


async def test_a_quota_of_a_later_version_is_passed_over() -> None:
    lab = _LimitedGateway()
    lab.graveler.quotas.append(pb.Quota(kind="team", name="blue"))
    await lab.limit("repository", "lake", requests=1)
    assert lab.admitted() == 1


async def test_a_client_is_never_told_to_wait_for_more_than_a_minute() -> None:
    lab = _LimitedGateway()
    await lab.limit("repository", "lake", transfer=1)
    lab.rates.charge("ann", "lake", 3600)
    with pytest.raises(S3Error) as raised:
        admit(lab.rates, "ann", "lake")
    assert raised.value.headers == {"Retry-After": "60"}


async def test_a_refused_token_is_replaced_with_the_next_reading() -> None:
    """Auth has another secret since a rotation; the token is dropped although it would be kept for longer."""
    lab = _LimitedGateway()
    await lab.rates.refresh()
    asked: list[str] = []

    class Refusing:
        async def list_quotas(self, call: Call, **_: object) -> pb.ListQuotasResponse:
            raise TarnError(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, "rotated")

    class Counting(_Auth):
        async def authorize_service(self, call: Call, service: str) -> Grant:
            asked.append(service)
            return await super().authorize_service(call, service)

    calls = ServiceCalls(
        Access(cast("AuthClient", Counting()), lab.clock),
        Service.GATEWAY,
        lab.clock,
        SeededIds(lab.clock, seed=1),
    )
    rates = RateLimits(cast("GravelerClient", Refusing()), calls, lab.clock, gateways=1)
    await calls.call(1)
    running = asyncio.ensure_future(rates.run())
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    await calls.call(1)
    assert asked == [Service.GATEWAY] * 2

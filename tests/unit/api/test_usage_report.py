"""The usage report: what counts, what survives, and who may read it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from rest_service import Rest, basic

from tarn.core.access.service import Service
from tarn.core.errors import Kind, Reason, TarnError
from tarn.gate.access import Access
from tarn.gate.request_counts import RequestCounts
from tarn.gate.service_calls import ServiceCalls
from tarn.telemetry.meters import Meters

SUMMARY = "/usage-report/summary"
DAY_S = 86_400.0


class Process:
    """Another process that answers requests."""

    def __init__(self, rest: Rest, service: Service = Service.GATEWAY) -> None:
        found = rest.service
        self.meters = Meters()
        self._counter = self.meters.counter("gateway.requests", operation="GetObject", status="200")
        ids = rest.endpoint._ids
        access = Access(found.auth, found.clock)
        self.calls = ServiceCalls(access, service, found.clock, ids)
        self.graveler: Any = found.graveler
        self.counts = RequestCounts(self.meters, self.graveler, self.calls, found.clock, ids)

    def answer(self, requests: int) -> None:
        self._counter.add(requests)

    async def tell(self, requests: int) -> None:
        self.answer(requests)
        await self.counts.flush()


async def report(rest: Rest) -> dict[str, int]:
    """Month → requests, without those of the endpoint that is asked."""
    answer = await rest.ask("GET", SUMMARY)
    assert answer.status == 200, answer.body
    assert answer.json["installation_id"] == "test"
    own = rest.meters.total("api.requests") - 1  # this one was not counted yet
    found = {f"{each['year']}-{each['month']}": each["count"] for each in answer.json["reports"]}
    now = datetime.fromtimestamp(rest.service.clock.now_us() / 1e6, UTC)
    name = f"{now.year}-{now.month}"
    if name in found:
        found[name] -= own
    return {month: count for month, count in found.items() if count}


async def test_requests_of_all_processes_are_summed(rest: Rest) -> None:
    assert await report(rest) == {}
    one, two = Process(rest), Process(rest, Service.API)
    await one.tell(10)
    await two.tell(5)
    await one.tell(1)
    await one.counts.flush()
    assert await report(rest) == {"2026-11": 16}
    two.meters.counter("api.requests", operation="x", status="500").add(2)
    await two.counts.flush()
    assert await report(rest) == {"2026-11": 18}


async def test_requests_of_the_endpoint_that_is_asked_are_in_its_report(rest: Rest) -> None:
    for _ in range(3):
        await rest.ask("GET", "/repositories")
    await rest.ask("GET", "/repositories", caller=None)
    await rest.ask("GET", "/healthcheck", caller=None)
    (month,) = (await rest.ask("GET", SUMMARY)).json["reports"]
    assert month == {"year": 2026, "month": 11, "count": 4}


async def test_each_month_has_its_own_count(rest: Rest) -> None:
    process = Process(rest)
    await process.tell(3)
    rest.service.clock.advance(31 * DAY_S)
    object.__setattr__(rest, "service", await rest.service.logged_in())
    await process.tell(4)
    assert (await report(rest))["2026-11"] == 3
    assert (await report(rest))["2026-12"] == 4


class Unreliable:
    """graveler, or no answer of it.

    Attributes:
        fault: `refuses` before anything is done, or `loses` the answer.
    """

    def __init__(self, graveler: Any) -> None:
        self._graveler = graveler
        self.fault = ""

    async def report_requests(self, *arguments: Any) -> None:
        if self.fault == "refuses":
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "graveler is away")
        await self._graveler.report_requests(*arguments)
        if self.fault == "loses":
            raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "the answer is lost")


@pytest.mark.parametrize("fault", ["refuses", "loses"])
async def test_a_report_that_fails_is_made_up_for_by_the_next(rest: Rest, fault: str) -> None:
    process = Process(rest)
    link = Unreliable(process.graveler)
    process.counts._graveler = link  # type: ignore[assignment]
    link.fault = fault
    for _ in range(3):
        await process.tell(5)
    link.fault = ""
    await process.tell(1)
    assert await report(rest) == {"2026-11": 16}


async def test_a_process_that_was_silent_for_long_is_not_counted_twice(rest: Rest) -> None:
    silent, busy = Process(rest), Process(rest)
    await silent.tell(5)
    rest.service.clock.advance(3 * 3600)  # others take it for one that has ended
    object.__setattr__(rest, "service", await rest.service.logged_in())
    await busy.tell(1)
    await silent.tell(2)
    await silent.tell(3)
    assert await report(rest) == {"2026-11": 11}


async def test_administrators_may_read_and_only_services_report(rest: Rest) -> None:
    service = rest.service
    await service.auth.create_user(service.admin, "dev", ["Developer"])
    made = await service.auth.create_credential(service.admin, user_id="dev")
    developer = basic(made.credential.access_key_id, made.secret_access_key)
    assert (await rest.ask("GET", SUMMARY, caller=developer)).status == 403
    assert (await rest.ask("GET", SUMMARY, caller=None)).status == 401
    body = {"month": "2026-11", "source": "a" * 32, "total": "5"}
    path = "/tarn.graveler.v1.QuotaService/ReportRequests"
    answer = await rest.ask("POST", path, body, caller=developer, base="/api/tarn/v1")
    assert answer.status == 403
    assert await report(rest) == {}


@pytest.mark.parametrize(
    ("month", "source", "total"),
    [
        ("2026-8", "a" * 32, 1),
        ("2020-11", "a" * 32, 1),
        ("2027-03", "a" * 32, 1),
        ("2026-11", "a", 1),
        ("2026-11", "a" * 32, -1),
        ("2026-11", "a" * 32, 1 << 60),
    ],
)
async def test_reports_are_checked(rest: Rest, month: str, source: str, total: int) -> None:
    process = Process(rest)
    call = await process.calls.call(10.0)
    with pytest.raises(TarnError) as caught:
        await process.graveler.report_requests(call, month, source, total)
    assert caught.value.kind is Kind.INVALID
    assert await report(rest) == {}


async def test_a_report_may_be_text(rest: Rest) -> None:
    await Process(rest).tell(7)
    answer = await rest.ask("GET", SUMMARY, headers={"accept": "text/plain"})
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.body == b"Usage for installation ID: test\n2026-11:            7\n"


async def test_without_counts_the_answer_is_that_of_lakefs(rest: Rest) -> None:
    object.__setattr__(rest.endpoint._backend, "request_counts", None)
    answer = await rest.ask("GET", SUMMARY)
    assert (answer.status, answer.message) == (404, "usage report is not enabled")

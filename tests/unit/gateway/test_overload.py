"""A gateway with more requests than it can answer, and the headers of every answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from bench.load.signing import Signer
from gateway_lake import GatewayLake

from tarn.gate.request_queue import LIMIT_MIN, WAIT_MAX_S
from tarn_gateway.http import HttpLimits, HttpServer
from tarn_gateway.s3error import head_refusal

pytestmark = pytest.mark.timeout(30)
T = TypeVar("T")


@dataclass
class Answer:
    status: int
    lines: list[str]
    body: bytes

    def all(self, name: str) -> list[str]:
        pairs = (line.split(": ", 1) for line in self.lines)
        return [value for found, value in pairs if found.lower() == name]


class Client:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self, *, is_head: bool = False) -> Answer:
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            answer = Answer(int(first.split()[1]), lines, b"")
            if lengths := answer.all("content-length"):
                answer.body = await self.reader.readexactly(0 if is_head else int(lengths[0]))
            return answer

    async def ask(self, data: bytes, *, is_head: bool = False) -> Answer:
        self.writer.write(data)
        return await self.answer(is_head=is_head)


class Gateway:
    """A lake behind a socket."""

    def __init__(self, lake: GatewayLake, port: int) -> None:
        self.lake, self.port = lake, port
        self.clients: list[Client] = []
        host = f"127.0.0.1:{port}"
        self.admin = Signer(host, "AKIAADMIN", "admin-secret", lake.clock)
        self.reader = Signer(host, "AKIAREADER", "reader-secret", lake.clock)

    async def connect(self) -> Client:
        self.clients.append(Client(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self.clients[-1]


CONNECTIONS = LIMIT_MIN + 8


@pytest.fixture
async def gateway(lake: GatewayLake) -> AsyncIterator[Gateway]:
    server = HttpServer(
        lake.handler,
        HttpLimits(connections_max=CONNECTIONS, linger_s=0.1),
        clock=lake.clock,
        ids=lake.backend.ids,
        on_error=lake.handler.refuse,
        observer=lake.traces.end,
        on_head_error=head_refusal,
    )
    async with server:
        made = Gateway(lake, await server.listen("127.0.0.1", 0))
        yield made
        for client in made.clients:
            client.writer.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.001)


async def refused_by_the_queue(lake: GatewayLake, asking: Coroutine[Any, Any, T]) -> T:
    """Has a request wait for its turn until it is refused; returns its answer."""
    while lake.queue.enters():
        pass
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.queue, "_adapt", lambda _: None)
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(asking)
            await until(lambda: lake.queue.length == 1)
            while not asked.done():
                lake.clock.advance(WAIT_MAX_S / 10)
                await asyncio.sleep(0.011)
        return asked.result()


# --- overload


async def test_a_request_that_waits_too_long_is_refused_before_its_signature_and_body(
    lake: GatewayLake,
) -> None:
    reply = await refused_by_the_queue(lake, lake.ask("PUT", "/lake/main/a", body=b"x", tamper="0"))
    assert (reply.status, reply.code, reply.reads, reply.identified) == (503, "SlowDown", 0, False)
    assert reply.headers["retry-after"] == "1"
    assert reply.line["code"] == "SlowDown"
    assert lake.queue.under_way == LIMIT_MIN
    assert lake.meters.counter("gateway.shed").value == 1


async def test_every_answer_gives_its_place_back(lake: GatewayLake) -> None:
    for key in ("AKIAADMIN", "AKIAUNKNOWN"):
        for method, target in (("PUT", "/lake/main/a"), ("GET", "/lake/main/b"), ("OPTIONS", "/")):
            await lake.ask(method, target, body=b"x" if method == "PUT" else b"", key=key)
    assert lake.queue.under_way == 0


async def test_requests_that_wait_for_their_clients_take_no_place(gateway: Gateway) -> None:
    lake = gateway.lake
    slow = []
    for number in range(LIMIT_MIN + 2):
        head, found, body = gateway.admin.request(
            "PUT", f"/lake/main/{number}", body=b"slow"
        ).head.partition(b"\r\n\r\n")
        slow.append(await gateway.connect())
        slow[-1].writer.write(head + found + body[:2])
    await until(lambda: len(lake.traces._open) == len(slow) and not lake.queue.under_way)
    for client in slow:
        assert (await client.ask(b"ow")).status == 200
    assert lake.queue.under_way == 0


async def test_large_bodies_take_no_place_however_fast_they_come(gateway: Gateway) -> None:
    """Else 32 uploads of large objects would keep everyone out."""
    lake = gateway.lake
    size = 70_000  # more than a small body
    request = gateway.admin.request("PUT", "/lake/main/large", body=bytes(size))
    seen: list[int] = []

    def entered(name: str) -> None:
        if name == "stage":
            seen.append(lake.queue.under_way)

    lake.graveler.entered = entered
    client = await gateway.connect()
    client.writer.write(request.head)
    await until(lambda: bool(lake.traces._open) and not lake.queue.under_way)
    assert (await client.ask(request.body)).status == 200
    assert (seen, lake.queue.under_way) == ([0], 0)
    small = gateway.admin.request("PUT", "/lake/main/small", body=b"small").head
    client.writer.write(small[:-5])
    await until(lambda: bool(lake.traces._open) and not lake.queue.under_way)
    assert (await client.ask(small[-5:])).status == 200
    assert (seen, lake.queue.under_way) == ([0, 1], 0)


async def test_a_connection_belongs_to_the_user_whom_it_had_last(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its signature is verified, a request counts as one of the last user of its connection."""
    lake, seen = gateway.lake, []
    client = await gateway.connect()
    for signer in (gateway.reader, gateway.admin):
        assert (await client.ask(signer.request("GET", "/lake/main/none").head)).status == 404
    await client.ask(b"GET /lake/main/none HTTP/1.1\r\nHost: h\r\n\r\n")
    while lake.queue.enters():
        pass

    async def wait(tenant: str) -> None:
        seen.append(tenant)
        lake.queue.resume()

    monkeypatch.setattr(lake.queue, "wait", wait)
    await client.ask(gateway.reader.request("GET", "/lake/main/none").head)
    await (await gateway.connect()).ask(gateway.reader.request("GET", "/lake/main/none").head)
    assert seen == ["akiaadmin", ""]


# --- the headers of every answer

GET = b"GET /lake/main/none HTTP/1.1\r\nHost: h\r\n"
STS = (
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nAuthorization: AWS4-HMAC-SHA256 "
    b"Credential=A/20260101/us-east-1/sts/aws4_request\r\n\r\n"
)
OF_STRANGERS = [
    (GET + b"\r\n", 403),
    (b"OPTIONS /lake HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    (b"OPTIONS /lake HTTP/1.1\r\nHost: h\r\nOrigin: http://a\r\n\r\n", 400),
    (STS, 400),
    (b"NONSENSE\r\n\r\n", 400),
    (GET + b"A: b\r\n" * 200 + b"\r\n", 431),
    (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 414),
    (b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 405),
    (b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
]
TOTAL = r"total;dur=\d+\.\d"
PHASES = rf"auth;dur=\d+\.\d, perform;dur=\d+\.\d, {TOTAL}"


def check(answer: Answer, timing: str) -> str:
    """Checks the headers that every answer has once; returns the request id."""
    (found,) = answer.all("server-timing")
    assert re.fullmatch(timing, found), found
    (request_id,) = answer.all("x-amz-request-id")
    assert re.fullmatch("[0-9A-F]{20}", request_id)
    if b"<Error>" in answer.body:
        assert f"<RequestId>{request_id}<".encode() in answer.body
    return request_id


@pytest.mark.parametrize(("data", "status"), OF_STRANGERS)
async def test_answers_to_strangers_have_an_id_and_a_total(
    data: bytes, status: int, gateway: Gateway
) -> None:
    answer = await (await gateway.connect()).ask(data)
    assert answer.status == status
    check(answer, TOTAL)


async def test_answers_to_clients_have_an_id_and_the_phases(gateway: Gateway) -> None:
    client, sign = await gateway.connect(), gateway.admin.request
    made = await client.ask(sign("PUT", "/lake/main/a", body=b"text").head)
    etag = made.all("etag")[0]
    sent = [
        (sign("GET", "/lake/main/a"), 200),
        (sign("HEAD", "/lake/main/a"), 200),
        (sign("GET", "/lake/main/a", headers={"if-none-match": etag}), 304),
        (sign("GET", "/lake/main/a", headers={"if-match": '"x"'}), 412),
        (sign("GET", "/lake/main/none"), 404),
        (sign("HEAD", "/lake/main/none"), 404),
        (sign("GET", "/lake", {"list-type": "2"}), 200),
        (sign("GET", "/none"), 404),
        (sign("PATCH", "/lake/main/a"), 405),
        (sign("DELETE", "/lake/main/a"), 204),
    ]
    seen = {check(made, PHASES)}
    for request, status in sent:
        answer = await client.ask(request.head, is_head=request.is_head)
        assert answer.status == status
        seen.add(check(answer, PHASES))
    assert len(seen) == 1 + len(sent)


async def test_phases_of_a_known_client_are_not_told_to_a_stranger_after_it(
    gateway: Gateway,
) -> None:
    client = await gateway.connect()
    check(await client.ask(gateway.admin.request("GET", "/lake/main/none").head), PHASES)
    check(await client.ask(GET + b"\r\n"), TOTAL)


async def test_refusals_of_the_queue_and_of_the_listener_have_them(gateway: Gateway) -> None:
    lake = gateway.lake
    known = await gateway.connect()
    request = gateway.admin.request("GET", "/lake/main/none").head
    await known.ask(request)
    refused = await refused_by_the_queue(lake, known.ask(request))
    assert refused.status == 503
    check(refused, TOTAL)
    full = [await gateway.connect() for _ in range(CONNECTIONS)][-1]
    answer = await full.answer()
    assert answer.status == 503
    assert b"<Code>SlowDown</Code>" in answer.body
    assert answer.all("retry-after") == ["1"]
    check(answer, TOTAL)


async def test_a_waited_request_tells_its_wait(gateway: Gateway) -> None:
    lake, client = gateway.lake, await gateway.connect()
    while lake.queue.enters():
        pass
    client.writer.write(gateway.admin.request("GET", "/lake/main/none").head)
    await until(lambda: lake.queue.length == 1)
    lake.clock.advance(0.05)
    lake.queue.leave()
    check(await client.answer(), rf"queue;dur=50\.0, {PHASES}")

"""Answers whose heads are encoded already say the same as those that ASGI sends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from http_exchanges import KeptSocket, exchange_of
from hypothesis import given
from hypothesis import strategies as st
from rest_service import Rest
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tarn.core.entry import Entry, pack, unpack
from tarn.objects.conditions import answer_to
from tarn_api.answers import JSON_LINES, Whole
from tarn_api.http import Exchange, HttpBounds, HttpServer
from tarn_api.operations import reading, shapes

ADDRESS = bytes(16)
TEXTS = st.text(max_size=12) | st.sampled_from(["text/csv", "attachment; filename=a", "a\r\nb: c"])


@given(
    status=st.sampled_from([200, 201, 202]),
    lines=st.sampled_from([JSON_LINES, b'etag: "a"\r\n' + JSON_LINES, JSON_LINES + b"x-a: \r\n"]),
    body=st.sampled_from([b"", b"{}", bytes(70_000)]),
    method=st.sampled_from(["GET", "HEAD", "POST"]),
    keep_alive=st.booleans(),
    is_gone=st.booleans(),
)
async def test_an_answer_past_asgi_is_the_one_that_uvicorn_sends(
    status: int, lines: bytes, body: bytes, method: str, keep_alive: bool, is_gone: bool
) -> None:
    to, ended = KeptSocket(), list[bool]()
    past = exchange_of(to, Exchange, method, keep_alive=keep_alive, ended=ended)
    past.disconnected = is_gone
    answer = Whole(status, lines, body)
    if not past.send_whole(answer.status, answer.lines, answer.body):
        assert not keep_alive or is_gone
        assert (to.written, ended, past.response_started) == (b"", [], False)
        return
    assert keep_alive
    assert not is_gone
    other, other_ended = KeptSocket(), list[bool]()
    by_events = exchange_of(
        other, RequestResponseCycle, method, keep_alive=keep_alive, ended=other_ended
    )
    scope = {"type": "http", "method": method}
    await answer.response()(scope, by_events.receive, by_events.send)
    assert (to.written, to.is_closed, ended) == (other.written, other.is_closed, other_ended)
    assert past.response_complete
    assert past.message_event.is_set()


ENTRIES = st.builds(
    Entry,
    size=st.integers(0, 100),
    mtime_us=st.integers(0, 4 * 10**15),
    address=st.just(ADDRESS),
    md5=st.binary(min_size=16, max_size=16),
    etag_parts=st.integers(0, 3),
    content_type=TEXTS,
    content_disposition=TEXTS,
    metadata=st.sampled_from([(), (("a", "b"), ("x-lakefs-internal-c", "d"))]),
    external_address=st.sampled_from(["", "s3://b/k"]),
)


@given(ENTRIES)
def test_the_lines_of_an_object_are_its_headers(entry: Entry) -> None:
    told = answer_to({}, entry.etag, entry.mtime_us, entry.size)
    general = Response(bytes(entry.size), 200, reading._headers(entry, told)).raw_headers
    lines = Whole(200, reading._lines(entry), bytes(entry.size)).response().raw_headers
    # Every answer has it.
    general = [each for each in general if each[0] != b"content-security-policy"]
    assert sorted(lines) == sorted(general)


@given(ENTRIES, st.booleans(), st.sampled_from(["local://lake-1", "s3://bucket/lake/"]))
def test_one_object_is_shown_as_on_a_page(entry: Entry, with_metadata: bool, place: str) -> None:
    page = shapes.stats_of_page(["a"], [pack(entry)], place, with_metadata=with_metadata)
    found = shapes.object_stats("a", unpack(pack(entry)), place, with_metadata=with_metadata)
    assert [found] == page


GET = "/repositories/lake/refs/main/objects"


async def answers(application: Any, requests: list[bytes]) -> list[tuple[bytes, list[bytes]]]:
    """Returns the body of each answer, and the sorted lines of its head without the id."""
    found = []
    async with HttpServer(application, HttpBounds()) as server:
        port = await server.listen("127.0.0.1", 0, tls=None, reuse_port=False)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in requests:
            writer.write(request)
            async with asyncio.timeout(20):
                head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
                length = next(each for each in head if each.startswith(b"content-length: "))
                body = await reader.readexactly(int(length.split()[1]))
            named = [each for each in head if each.startswith(b"x-request-id: ")]
            assert len(named) == 1
            found.append((body, sorted(set(head) - set(named))))
        writer.close()
    return found


@pytest.mark.parametrize("kind", ["text/plain", "", "text/html"])
async def test_the_endpoint_answers_the_same_past_asgi(
    rest: Rest, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"content-type": kind} if kind else {}
    objects = "/repositories/lake/branches/main/objects"
    uploads = [
        await rest.ask("POST", f"{objects}?path=a{number}", b"abc", headers=headers)
        for number in range(3)
    ]
    paths = [f"{GET}/stat?path=a0", f"{GET}/ls?amount=2", f"{GET}?path=a0", f"{GET}?path=none"]
    lines = f"host: x\r\nauthorization: {rest.admin}\r\n"
    requests = [f"GET /api/v1{path} HTTP/1.1\r\n{lines}\r\n".encode() for path in paths]
    requests.append(requests[2].replace(lines.encode(), lines.encode() + b"range: bytes=1-1\r\n"))
    requests.append(requests[0].replace(rest.admin.encode(), b"Basic nobody"))

    async def by_events(scope: Any, receive: Any, send: Any) -> None:
        async def sending(message: Any) -> None:
            await send(message)

        await rest.endpoint(scope, receive, sending)

    whole = []
    send_whole = Exchange.send_whole

    def noted(exchange: Exchange, *of: Any) -> bool:
        whole.append(send_whole(exchange, *of))
        return whole[-1]

    monkeypatch.setattr(Exchange, "send_whole", noted)
    past = await answers(rest.endpoint, requests)
    assert past == await answers(by_events, requests)
    assert [b"HTTP/1.1 200 OK" in head for _, head in past].count(True) == 3
    assert whole == [True] * 3
    assert past[2][0] == b"abc"
    sent = rest.meters.counter("api.sent").value
    assert sent == sum(len(body) for body, _ in past) * 2 + sum(len(each.body) for each in uploads)


@pytest.mark.parametrize(
    ("framing", "pieces"),
    [
        ("content-length: 6", [b"abcdef"]),
        ("content-length: 6", [b"abc", b"def"]),
        ("content-length: 6", [b"", b"abcdef"]),
        ("transfer-encoding: chunked", [b"6\r\nabcdef\r\n0\r\n\r\n"]),
        ("transfer-encoding: chunked", [b"6\r\nabcdef\r\n", b"0\r\n\r\n"]),
    ],
)
@pytest.mark.parametrize("path", ["/repositories/lake/branches/main/objects?path=a", "/auth/login"])
async def test_a_body_is_the_same_whether_it_has_come_or_is_waited_for(
    rest: Rest, framing: str, pieces: list[bytes], path: str
) -> None:
    head = f"POST /api/v1{path} HTTP/1.1\r\nhost: x\r\nauthorization: {rest.admin}\r\n"
    async with HttpServer(rest.endpoint, HttpBounds()) as server:
        port = await server.listen("127.0.0.1", 0, tls=None, reuse_port=False)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        begin, *later = pieces
        writer.write(f"{head}{framing}\r\n\r\n".encode() + begin)
        for piece in later:
            await asyncio.sleep(0.05)
            writer.write(piece)
        async with asyncio.timeout(20):
            status = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        writer.close()
    assert rest.meters.counter("api.received").value == 6
    if path == "/auth/login":
        assert status == b"400", "it is no JSON"
        return
    assert status == b"201"
    assert (await rest.ask("GET", f"{GET}?path=a")).body == b"abcdef"

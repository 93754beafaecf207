"""How long a request takes at most, however slow its neighbours are (docs/operate/cassandra.md, "When nodes fail")."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from hashlib import md5
from typing import Any

import pytest
from gateway_lake import GatewayLake

SECONDS = 20.0
GRANT_SECONDS = 60.0
"""A grant and a repository are not kept that long."""
LARGE = b"x" * 100_000
DELETE = b"<Delete><Object><Key>main/a</Key></Object><Object><Key>dev/a</Key></Object></Delete>"
MD5 = {"content-md5": b64encode(md5(DELETE, usedforsecurity=False).digest()).decode()}


@pytest.fixture
async def slow(lake: GatewayLake, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A lake with the object `main/a`; each call to auth and graveler is answered when its time is almost over."""
    assert (await lake.ask("PUT", "/lake/main/a", body=b"1")).status == 200
    lake.clock.advance(GRANT_SECONDS + 1)

    def slowed(ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def asked(service: Any, *rest: Any, **options: Any) -> Any:
            (call,) = [each for each in rest if hasattr(each, "deadline")]
            try:
                return await ask(service, *rest, **options)
            finally:
                lake.clock.advance(max(0.0, call.deadline - lake.clock.monotonic() - 0.001))

        return asked

    for name in ("unary", "operate"):
        monkeypatch.setattr(lake.transport, name, slowed(getattr(lake.transport, name)))
    return lake


@pytest.mark.parametrize(
    ("method", "target", "query", "body", "headers"),
    [
        ("GET", "/lake/main/a", "", b"", {}),
        ("HEAD", "/lake/main/a", "", b"", {}),
        ("GET", "/lake", "list-type=2&prefix=main/", b"", {}),
        ("GET", "/lake", "list-type=2", b"", {}),
        ("GET", "/lake", "list-type=2&delimiter=/", b"", {}),
        ("GET", "/lake", "uploads", b"", {}),
        ("PUT", "/lake/main/b", "", b"small", {}),
        ("PUT", "/lake/main/b", "", LARGE, {}),
        ("PUT", "/lake/main/b", "", LARGE, {"if-none-match": "*"}),
        ("PUT", "/lake/main/b", "", b"", {"x-amz-copy-source": "/lake/main/a"}),
        ("DELETE", "/lake/main/a", "", b"", {}),
        ("POST", "/lake", "delete", DELETE, MD5),
        ("POST", "/lake/main/big", "uploads", b"", {}),
    ],
)
async def test_the_time_limits_of_the_calls_of_a_request_do_not_add_up(
    slow: Any, method: str, target: str, query: str, body: bytes, headers: dict[str, str]
) -> None:
    began = slow.clock.monotonic()
    reply = await slow.ask(method, target, query, body, headers)
    assert reply.status < 300, reply
    took = slow.clock.monotonic() - began
    assert SECONDS / 2 < took <= SECONDS, "at least auth was asked, and the sum is bounded"


async def test_a_small_conditional_put_looks_up_its_key_in_a_time_of_its_own(slow: Any) -> None:
    began = slow.clock.monotonic()
    reply = await slow.ask("PUT", "/lake/main/b", "", b"small", {"if-none-match": "*"})
    assert reply.status == 200
    assert SECONDS < slow.clock.monotonic() - began <= SECONDS + slow.backend.bounds.call_timeout_s


async def test_a_slow_body_takes_nothing_from_the_time_of_the_calls_behind_it(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = lake.blocks.put

    async def slow_put(*given: Any) -> Any:
        lake.clock.advance(SECONDS + 1)
        return await put(*given)

    monkeypatch.setattr(lake.blocks, "put", slow_put)
    assert (await lake.ask("PUT", "/lake/main/a", body=b"1")).status == 200

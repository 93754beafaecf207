from __future__ import annotations

import asyncio
import socket

import pytest

from tarn.rpc.client.addresses import address_of, host_and_port, host_of, is_literal, resolve


@pytest.mark.parametrize(
    ("address", "host", "literal"),
    [
        ("127.0.0.1:80", "127.0.0.1", True),
        ("[::1]:80", "::1", True),
        ("unix:/run/tarn.sock", "", True),
        ("graveler:7001", "graveler", False),
        ("graveler.tarn.svc:7001", "graveler.tarn.svc", False),
    ],
)
def test_only_names_need_a_look_up(address: str, host: str, literal: bool) -> None:
    assert host_of(address) == host
    assert is_literal(address) is literal


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("127.0.0.1:80", "127.0.0.1", 80), ("[::1]:0", "::1", 0), ("tarn.svc:7001", "tarn.svc", 7001)],
)
def test_an_address_has_parts_and_is_made_of_them(address: str, host: str, port: int) -> None:
    assert host_and_port(address) == (host, port)
    assert address_of(host, port) == address


async def test_name_becomes_all_addresses_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        if host == "gone":
            raise socket.gaierror
        v4 = (socket.AF_INET, 1, 6, "", ("10.0.0.1", port))
        v6 = (socket.AF_INET6, 1, 6, "", ("fd00::1", port, 0, 0))
        return [v4, v4, v6]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)

    found = await resolve(["graveler:7001", "gone:7001", "127.0.0.1:7002"])

    assert found == {
        "10.0.0.1:7001": "graveler",
        "[fd00::1]:7001": "graveler",
        "127.0.0.1:7002": "127.0.0.1",
    }

"""Resolves configured addresses to the addresses to connect to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

__all__ = ["host_of", "is_literal", "resolve"]


def host_of(address: str) -> str:
    """Returns the host of `host:port`, without brackets; empty for a Unix socket."""
    if address.startswith("unix:"):
        return ""
    return address.rpartition(":")[0].strip("[]")


def is_literal(address: str) -> bool:
    """Returns whether an address needs no look-up: an IP address or a Unix socket."""
    host = host_of(address)
    if not host:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def resolve(addresses: Iterable[str]) -> dict[str, str]:
    """Maps every IP address behind the configured ones to the host name that resolved to it.

    One name may stand for many replicas (a headless service). Each becomes a separate address, so that
    all of them receive load. A name that does not resolve now adds no address.
    """
    found: dict[str, str] = {}
    loop = asyncio.get_running_loop()
    for address in addresses:
        if is_literal(address):
            found[address] = host_of(address)
            continue
        host, _, port = address.rpartition(":")
        try:
            infos = await loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        except OSError:
            continue
        for family, _, _, _, peer in infos:
            ip = f"[{peer[0]}]" if family == socket.AF_INET6 else peer[0]
            found[f"{ip}:{port}"] = host
    return found

"""Addresses `host:port`: their parts, and the addresses to connect to behind configured ones."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

__all__ = ["address_of", "host_and_port", "host_of", "is_literal", "resolve"]


def address_of(host: str, port: int) -> str:
    """Returns `host:port`; an IPv6 address gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    """Returns the parts of `host:port` that was checked before (`Sort.ADDRESS`), the host without brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


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
        host, port = host_and_port(address)
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            continue
        for _, _, _, _, peer in infos:
            found[address_of(str(peer[0]), port)] = host
    return found

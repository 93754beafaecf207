"""Finds the cluster again after all its nodes have changed their addresses, as pods of Kubernetes do when they restart.

The driver resolves the contact points once, and then learns of new addresses from nodes to which it is connected. If it
is connected to none, it tries the old addresses for ever. So while no node is up, the contact points are resolved
again, and the driver is told of addresses that it does not know. It then removes the nodes that are no longer part of
the cluster.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import structlog
from cassandra.cluster import Cluster
from cassandra.connection import DefaultEndPoint

from tarn.core.clock import Clock

__all__ = ["Rediscovery", "contact_point"]

_PAUSE_SECONDS = 2.0

_log = structlog.get_logger()


def contact_point(text: str) -> tuple[str, int]:
    """Returns host and port of `host:port`. Raises ValueError for anything else."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        message = f"a contact point must be host:port, not {text!r}"
        raise ValueError(message)
    return host.strip("[]"), int(port)


class Rediscovery:
    """Watches whether any node is up.

    Args:
        cluster: connected.
        contact_points: as in the settings, each `host:port`.
        clock: measures the pauses.
        pause_s: time between two looks, in seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        contact_points: Sequence[str],
        clock: Clock,
        pause_s: float = _PAUSE_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._contact_points = [contact_point(text) for text in contact_points]
        self._clock = clock
        self._pause_s = pause_s

    async def run(self) -> None:
        """Looks until it is cancelled. A failure is logged, and the next look tries again."""
        while True:
            await self._clock.sleep(self._pause_s)
            if any(host.is_up for host in self._cluster.metadata.all_hosts()):
                continue
            try:
                await asyncio.to_thread(self._add_new)
            except Exception as error:  # noqa: BLE001 - the driver's; it must not end the watch
                _log.warning("cassandra was not found again", error=str(error))

    def _add_new(self) -> None:
        """Tells the driver of addresses that it does not know; blocks while it connects to them."""
        known = {host.endpoint for host in self._cluster.metadata.all_hosts()}
        for host, port in self._contact_points:
            for address in _resolve(host, port):
                endpoint = DefaultEndPoint(address, port)
                if endpoint in known:
                    continue  # the driver tries it
                known.add(endpoint)
                _log.info("cassandra has another address", contact_point=host, address=address)
                # Without a refresh of the list of nodes: the connection that would read it is down.
                self._cluster.add_host(endpoint, signal=True, refresh_nodes=False)


def _resolve(host: str, port: int) -> list[str]:
    """Returns the addresses of a name; none if it does not resolve now."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(address[0]) for _, _, _, _, address in found]

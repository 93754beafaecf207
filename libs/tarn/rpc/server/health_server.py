"""Answers the health checks of a process at an address of its own, for an orchestrator such as Kubernetes.

The probes of Kubernetes have no client certificate, so they cannot use the address of the rpcs. This server has no
TLS and no service but `grpc.health.v1.Health`, which tells nothing but whether the process serves.
"""

from __future__ import annotations

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

__all__ = ["LIVE", "READY", "HealthServer"]

READY = ""
"""SERVING while the process takes requests: not before everything has started, not after it was asked to stop."""

LIVE = "live"
"""SERVING while the event loop runs. It does not depend on a store, as a restart does not make a store faster."""

_RPCS_MAX = 64
_REQUEST_BYTES_MAX = 4096
_CLOSE_SECONDS = 0.5


class HealthServer:
    """Serves `grpc.health.v1.Health` with the services `READY` and `LIVE`.

    Args:
        listen: `host:port`, port 0 for a free one.
    """

    def __init__(self, listen: str) -> None:
        self._listen = listen
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> str:
        """Starts to answer, as alive and not ready; returns the address with the port that was bound.

        Raises:
            OSError: the address is in use or does not belong to this machine.
        """
        await self._set(LIVE, is_serving=True)
        await self._set(READY, is_serving=False)
        server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", _REQUEST_BYTES_MAX),
            ],
            maximum_concurrent_rpcs=_RPCS_MAX,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        try:
            port = server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._listen}: {error}") from error
        await server.start()
        self._server = server
        return f"{self._listen.rpartition(':')[0]}:{port}"

    async def set_ready(self, is_ready: bool) -> None:
        """Sets the answer for `READY`."""
        await self._set(READY, is_serving=is_ready)

    async def close(self) -> None:
        """Stops answering. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(_CLOSE_SECONDS)

    async def _set(self, service: str, *, is_serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        await self._health.set(service, status.SERVING if is_serving else status.NOT_SERVING)

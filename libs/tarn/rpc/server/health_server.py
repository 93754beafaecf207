"""Answers the health checks of a process at an address of its own, for an orchestrator such as Kubernetes.

The probes of Kubernetes have no client certificate, so they cannot use the address of the rpcs. This server has no
TLS and no service but `grpc.health.v1.Health`, which tells nothing but whether the process serves.
"""

from __future__ import annotations

import grpc

from tarn.core.clock import Clock
from tarn.rpc.server import health
from tarn.rpc.server.slots import SlotLimits, Slots
from tarn.telemetry.meters import Meters

__all__ = ["LIVE", "READY", "HealthServer"]

READY = ""
"""SERVING while the process takes requests: not before everything has started, not after it was asked to stop."""

LIVE = "live"
"""SERVING while the event loop runs. It does not depend on a store, as a restart does not make a store faster."""

_LIMITS = SlotLimits(unauthenticated_max=48, watches_max=16, message_s=5.0)
"""No caller has a token here. Probes ask with `Check`; a full share drops the oldest of those that do not go on."""

_REQUEST_BYTES_MAX = 4096
_CLOSE_SECONDS = 0.5


class HealthServer:
    """Serves `grpc.health.v1.Health` with the services `READY` and `LIVE`.

    Args:
        listen: `host:port`, port 0 for a free one.
        clock: measures waits for clients.
    """

    def __init__(self, listen: str, clock: Clock) -> None:
        self._listen = listen
        self._slots = Slots(
            _LIMITS, clock, Meters()
        )  # not those of the process: probes are no rpcs of services
        self._health = health.Health(self._slots)
        self._server: grpc.aio.Server | None = None

    async def start(self) -> str:
        """Starts to answer, as alive and not ready; returns the address with the port that was bound.

        Raises:
            OSError: the address is in use or does not belong to this machine.
        """
        self._health.set(LIVE, is_serving=True)
        self._health.set(READY, is_serving=False)
        server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", _REQUEST_BYTES_MAX),
            ],
        )
        handlers = dict(self._health.handlers())
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(health.SERVICE, handlers),)
        )
        try:
            port = server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._listen}: {error}") from error
        await server.start()
        self._server = server
        return f"{self._listen.rpartition(':')[0]}:{port}"

    def set_ready(self, *, is_ready: bool) -> None:
        """Sets the answer for `READY`."""
        self._health.set(READY, is_serving=is_ready)

    async def close(self) -> None:
        """Stops answering. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(_CLOSE_SECONDS)
        self._slots.close()

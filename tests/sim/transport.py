"""The transport to replicas of graveler and auth: production's, including its only place that resends.

It is `GrpcTransport` without connections: `unary` is production's code, with its attempts after UNAVAILABLE.
A hot operation is sent once; a read-only one is sent again if its replica died, as a connection does.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from math import inf
from typing import TYPE_CHECKING, cast

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from tests.sim.lost import LostError
from tests.sim.machine import some
from tests.support.sim.clock import SimClock

from tarn.core.access.policy import Grant, Policy, Statement
from tarn.core.access.service import Service
from tarn.core.errors import TarnError
from tarn.core.ids import UserId
from tarn.gate.access import Access
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.client.peer import Peer
from tarn.rpc.rules import rules_of
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import deadline_error, unavailable_error, unknown_outcome_error
from tarn.rpc.wire.methods import UnaryMethod

if TYPE_CHECKING:
    from tests.sim.machine import Server
    from tests.sim.world import World

__all__ = ["GATEWAY_TOKEN", "EVERYTHING", "OPEN", "MixedAccess", "SimTransport"]

_LOOK_AGAIN_SECONDS = 0.05
_ON_THE_WAY_SECONDS = 0.01

EVERYTHING = Grant(UserId("ann"), Policy([Statement(True, ("*",), ("*",))]), "token", 1_000_000)
"""Permissions are not simulated."""


GATEWAY_TOKEN = "gateway"
"""The token of every gateway as a service."""


class _OpenAccess:
    """Admits every caller."""

    def grant_cached(self, call: Call) -> Grant:
        return EVERYTHING

    def grant_end(self, token: str) -> float:
        return inf

    def accepts(self, token: str) -> bool:
        return True

    async def grant(self, call: Call) -> Grant:
        return EVERYTHING

    async def is_service(self, call: Call, *services: Service) -> bool:
        return call.service_token == GATEWAY_TOKEN and Service.GATEWAY in services


OPEN = cast("Access", _OpenAccess())


class MixedAccess(Access):
    """Production's for callers who have a token of auth; admits all others, whose permissions are not simulated."""

    def grant_cached(self, token: str) -> Grant | None:
        """See `Access.grant_cached`."""
        if token == EVERYTHING.caller_token:
            return EVERYTHING
        return super().grant_cached(token)

    def grant_end(self, token: str) -> float:
        """See `Access.grant_end`."""
        return inf if token == EVERYTHING.caller_token else super().grant_end(token)

    def accepts(self, token: str) -> bool:
        """See `Access.accepts`."""
        return token == EVERYTHING.caller_token or super().accepts(token)

    async def is_service(self, call: Call, *services: Service) -> bool:
        """See `Access.is_service`. Services have fixed tokens here."""
        return await OPEN.is_service(call, *services)


class SimTransport(GrpcTransport):
    """A `Transport` to any replica that is up.

    Args:
        world: the installation.
        rng: chooses the replica and the time between attempts.
        servers: returns the replicas of the service; graveler's by default.
    """

    def __init__(
        self,
        world: World,
        rng: random.Random,
        servers: Callable[[], Sequence[Server]] | None = None,
    ) -> None:
        self.clock = SimClock(world.loop)
        super().__init__(["sim:1"], clock=self.clock, rng=rng)
        self._servers = servers or (lambda: world.replicas)
        self._random = rng
        self._ids = itertools.count(1)

    def call(self, seconds: float) -> Call:
        """Returns a call of a client that waits for `seconds`."""
        return Call(f"{next(self._ids):020X}", "token", self.clock.monotonic() + seconds)

    def _start(self) -> None:
        """Does nothing: there are no connections."""

    async def _ready_peer(self, call: Call, failed: AbstractSet[str] = frozenset()) -> Peer:
        """Returns any replica that is up, also one that has failed the call; waits until there is one.

        Raises:
            TarnError: UNAVAILABLE; no replica came up in time.
        """
        while not any(server.is_up for server in self._servers()):
            if call.deadline <= self.clock.monotonic() + _LOOK_AGAIN_SECONDS:
                raise unavailable_error("no replica is up")
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        return cast("Peer", _Peer(some(self._servers(), self._random), self.clock))

    async def operate(
        self, service: ServiceDescriptor, operation: str, request: Message, call: Call
    ) -> Message:
        """See `Transport.operate`."""
        read_only = rules_of(service)[operation].read_only
        while True:
            peer = cast("_Peer", await self._ready_peer(call))
            try:
                return await peer.operate(service, operation, request, call)
            except LostError as error:
                if call.deadline <= self.clock.monotonic():
                    raise _late(call, read_only=read_only) from None
                if not read_only:
                    raise unknown_outcome_error(str(error)) from None


class _Peer:
    """One replica, for one call."""

    address = "sim"

    def __init__(self, server: Server, clock: SimClock) -> None:
        self._server = server
        self._clock = clock

    async def unary(
        self, method: UnaryMethod, request: Message, call: Call, timeout_s: float
    ) -> Message:
        """See `Peer.unary`."""
        server = self._server
        service_name, _, name = method.path[1:].partition("/")
        try:
            return await server.ask(
                lambda: server.server.unary(server.services[service_name], name, request, call),
                timeout_s + _ON_THE_WAY_SECONDS,
            )
        except LostError as error:
            if call.deadline <= self._clock.monotonic():
                raise _late(call, read_only=method.read_only) from None
            if method.read_only:
                raise unavailable_error(str(error)) from None
            raise unknown_outcome_error(str(error)) from None

    async def operate(
        self, service: ServiceDescriptor, operation: str, request: Message, call: Call
    ) -> Message:
        """Performs one hot operation.

        Raises:
            LostError: there was no answer.
        """
        server = self._server
        seconds = max(0.0, call.deadline - self._clock.monotonic()) + _ON_THE_WAY_SECONDS
        return await server.ask(
            lambda: server.server.operate(service, operation, request, call), seconds
        )


def _late(call: Call, *, read_only: bool) -> TarnError:
    if read_only:
        return deadline_error(call.request_id)
    return unknown_outcome_error(f"request {call.request_id} had no answer in time")

"""One transport to each replica of a service, for callers that must reach all of them.

`GrpcTransport` sends a call to any replica. Here the caller chooses: each configured address, and each address that a
configured name resolves to, has its own transport.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client.addresses import resolve
from tarn.rpc.client.peer import Peer
from tarn.rpc.client.transport import Transport
from tarn.rpc.process.tls import ChannelTls
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.methods import unary_methods

__all__ = ["PeerTransport", "Replicas"]


class PeerTransport:
    """A `Transport` to one address, for unary calls. Makes one attempt for each call."""

    def __init__(self, peer: Peer, clock: Clock) -> None:
        self._peer = peer
        self._clock = clock

    @property
    def credentials(self) -> grpc.ChannelCredentials | None:
        """The TLS credentials of its connection; None for plain text."""
        return self._peer.credentials

    async def unary(
        self, service: ServiceDescriptor, method: str, request: Message, call: Call
    ) -> Message:
        """Makes one unary call; see `Transport.unary`."""
        known = unary_methods(service)[method]
        return await self._peer.unary(known, request, call, call.remaining(self._clock))

    async def operate(
        self,
        service: ServiceDescriptor,
        operation: str,  # noqa: ARG002 - the port's signature
        request: Message,  # noqa: ARG002
        call: Call,  # noqa: ARG002
    ) -> Message:
        """Is not offered."""
        text = f"operations of {service.full_name} need a transport to all replicas"
        raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)

    async def close(self) -> None:
        """Ends calls in flight and closes the connection."""
        await self._peer.channel.close()


class Replicas:
    """The transports to all replicas of a service.

    Args:
        addresses: each `host:port` or `unix:/path`; a name may stand for many replicas.
        tls: certificates, which may be renewed; None for plain text.
        clock: measures deadlines.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        tls: ChannelTls | None = None,
        clock: Clock,
    ) -> None:
        self._addresses = tuple(addresses)
        self._tls = tls
        self._clock = clock
        self._transports: dict[str, PeerTransport] = {}

    async def transports(self) -> Mapping[str, Transport]:
        """Resolves the names again, and returns the transport of each replica by its address.

        Closes the transports of addresses that are gone. If no name resolves, nothing changes: the name service fails.
        If the certificates were renewed, all connections are made anew.
        """
        found = await resolve(self._addresses)
        if found:
            credentials = None if self._tls is None else self._tls.credentials()
            for address, transport in [*self._transports.items()]:
                if address not in found or transport.credentials is not credentials:
                    del self._transports[address]
                    await transport.close()
            for address in found.keys() - self._transports.keys():
                peer = Peer(address, found[address], credentials)
                self._transports[address] = PeerTransport(peer, self._clock)
        return dict(self._transports)

    async def close(self) -> None:
        """Closes all transports."""
        while self._transports:
            _, transport = self._transports.popitem()
            await transport.close()

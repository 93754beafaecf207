"""Calls to services behind gRPC: several addresses, deadlines, and the only place that retries.

Only UNAVAILABLE is retried, because only it guarantees that the call had no effect: either a handler
said so, or there was no connection to send on. A connection that breaks during a call guarantees
nothing: a read becomes UNAVAILABLE, a change UNKNOWN_OUTCOME.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterable, Sequence
from collections.abc import Set as AbstractSet

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from tarn.aio.backoff import backoff_seconds
from tarn.aio.task_set import TaskSet
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client.addresses import is_literal, resolve
from tarn.rpc.client.operation_streams import OperationStreams
from tarn.rpc.client.patience import Patience
from tarn.rpc.client.peer import Peer
from tarn.rpc.process.tls import ChannelTls
from tarn.rpc.rules import rules_of
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import unavailable_error
from tarn.rpc.wire.methods import UnaryMethod, operate_method, unary_methods

__all__ = ["GrpcTransport"]

_ATTEMPTS_MAX = 3
_CONNECT_SECONDS = 3.0
"""How long a call waits for the first connection, after all of them are lost or none was made."""
_BRIEF_SECONDS = 0.25
"""How long each call waits when that time is over: enough to try the addresses once more."""
_RESOLVE_SECONDS = 15.0
_RETIRE_SECONDS = 30.0
_RENEW_SECONDS = 15.0

_log = structlog.get_logger()


class GrpcTransport:
    """A `Transport` to the replicas of one service.

    Names are resolved again periodically, so that new replicas receive load and removed ones receive none.

    Args:
        addresses: each `host:port` or `unix:/path`; a name may stand for many replicas.
        tls: certificates, which may be renewed; None for plain text.
        clock: measures deadlines.
        rng: adds jitter.
        attempts_max: bound on sending one unary call.
        renew_s: longest time after which renewed certificates are noticed, in seconds.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        tls: ChannelTls | None = None,
        clock: Clock,
        rng: random.Random,
        attempts_max: int = _ATTEMPTS_MAX,
        renew_s: float = _RENEW_SECONDS,
    ) -> None:
        if not addresses:
            raise ValueError("a transport needs an address")
        self._addresses = tuple(addresses)
        self._tls = tls
        self._credentials: grpc.ChannelCredentials | None = None
        self._renew_s = renew_s
        self._clock = clock
        self._rng = rng
        self._attempts_max = attempts_max
        self._peers: dict[str, Peer] = {}
        self._streams: dict[str, OperationStreams] = {}
        self._methods: dict[str, dict[str, UnaryMethod]] = {}
        self._tasks = TaskSet()
        self._changed = asyncio.Event()
        self._name = "the service"
        self._was_connected = False
        self._patience = Patience(_CONNECT_SECONDS, _BRIEF_SECONDS)
        self._started = False
        self._closed = False

    async def unary(
        self, service: ServiceDescriptor, method: str, request: Message, call: Call
    ) -> Message:
        """Makes one unary call; see `Transport.unary`."""
        self._start()
        known = self._method(service, method)
        failed: set[str] = set()
        for attempt in range(self._attempts_max):
            try:
                peer = await self._ready_peer(call, failed)
                self._was_connected = True
                # Another replica may answer where this one cannot: it may stop, or be cut off from its store.
                failed.add(peer.address)
                return await peer.unary(known, request, call, call.remaining(self._clock))
            except TarnError as error:
                pause = backoff_seconds(self._rng, attempt)
                late = self._clock.monotonic() + pause >= call.deadline
                last = late or self._closed or attempt == self._attempts_max - 1
                last = (
                    last or not self._was_connected
                )  # a service that never answered: its address is wrong
                if error.kind is not Kind.UNAVAILABLE or last:
                    raise
            await self._clock.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def operate(
        self, service: ServiceDescriptor, operation: str, request: Message, call: Call
    ) -> Message:
        """Sends one operation on the stream; see `Transport.operate`."""
        streams = self._streams.get(service.full_name)
        if streams is None:
            self._start()
            streams = self._open_streams(service)
        return await streams.operate(
            operation, request, call, read_only=rules_of(service)[operation].read_only
        )

    async def close(self) -> None:
        """Ends calls in flight and closes the connections. Idempotent."""
        self._closed = True
        self._changed.set()
        for streams in self._streams.values():
            await streams.close()
        await self._tasks.close()
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            await peer.channel.close()

    def _start(self) -> None:
        """Called by the first call, because only then is an event loop sure to run."""
        if self._closed:
            raise unavailable_error("the transport has been closed")
        if self._started:
            return
        self._started = True
        if self._tls is not None:
            self._credentials = self._tls.credentials()
            self._tasks.spawn(self._keep_renewing(self._tls))
        literal = {address: "" for address in self._addresses if is_literal(address)}
        self._connect(literal)
        if len(literal) < len(self._addresses):
            self._tasks.spawn(self._keep_resolving())

    async def _keep_resolving(self) -> None:
        while True:
            found = await resolve(self._addresses)
            # An empty answer is a failure of the name service, not the loss of all replicas.
            if found and found.keys() != self._peers.keys():
                _log.info("replicas changed", addresses=sorted(found))
                self._connect(found)
            await self._clock.sleep(
                _RESOLVE_SECONDS * self._rng.uniform(0.5, 1.0) if found else _CONNECT_SECONDS / 10
            )

    def _connect(self, found: dict[str, str]) -> None:
        """Replaces the peers with those of `found`, which maps an address to the host name in its certificate."""
        for address in self._peers.keys() - found.keys():
            self._remove(address)
        for address in found.keys() - self._peers.keys():
            self._add(Peer(address, found[address], self._credentials))

    def _add(self, peer: Peer) -> None:
        self._peers[peer.address] = peer
        for streams in self._streams.values():
            streams.add(peer.address, peer.channel)
        self._changed.set()

    def _remove(self, address: str) -> None:
        """Sends nothing more to an address; calls that were sent are still answered."""
        peer = self._peers.pop(address)
        for streams in self._streams.values():
            streams.retire(address)
        self._tasks.spawn(peer.channel.close(_RETIRE_SECONDS))
        self._changed.set()

    async def _keep_renewing(self, tls: ChannelTls) -> None:
        """Connects again to every address after the certificates were renewed."""
        while True:
            await self._clock.sleep(self._renew_s * self._rng.uniform(0.5, 1.0))
            self._credentials = tls.credentials()
            for old in [*self._peers.values()]:
                if old.credentials is not self._credentials:
                    await self._renew(Peer(old.address, old.host, self._credentials), old)

    async def _renew(self, new: Peer, old: Peer) -> None:
        """Replaces a peer by one that is connected; keeps the old one if the new one does not connect in time."""
        is_connected = False
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await new.channel.channel_ready()
                is_connected = self._peers.get(old.address) is old
        except TimeoutError:
            _log.warning("cannot connect with the renewed certificates", address=old.address)
        finally:
            if not is_connected:
                await new.channel.close()
        if is_connected:
            self._remove(old.address)
            self._add(new)

    def _open_streams(self, service: ServiceDescriptor) -> OperationStreams:
        method = operate_method(service)
        if method is None:
            text = f"{service.full_name} has no coalesced stream"
            raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)
        self._name = service.full_name.split(".")[1]
        patience = Patience(_CONNECT_SECONDS, _BRIEF_SECONDS)
        streams = OperationStreams(method, self._clock, self._rng, self._place(), patience)
        self._streams[service.full_name] = streams
        for address, peer in self._peers.items():
            streams.add(address, peer.channel)
        return streams

    def _method(self, service: ServiceDescriptor, method: str) -> UnaryMethod:
        methods = self._methods.get(service.full_name)
        if methods is None:
            methods = self._methods[service.full_name] = unary_methods(service)
            self._name = service.full_name.split(".")[1]
        return methods[method]

    async def _ready_peer(self, call: Call, failed: AbstractSet[str] = frozenset()) -> Peer:
        """Returns the least busy connected peer; waits a limited time if none is connected.

        Args:
            call: the call to make.
            failed: addresses that come last, because this call failed there.

        Raises:
            TarnError: UNAVAILABLE if no peer connects in time.
        """
        others = (peer for address, peer in self._peers.items() if address not in failed)
        if peer := _least_busy(others) or _least_busy(self._peers.values()):
            # Among equally busy peers the first is chosen, so the last used one goes to the end.
            self._peers[peer.address] = self._peers.pop(peer.address)
            self._patience.end()
            return peer
        wait_s = self._patience.left_s(self._clock.monotonic())
        try:
            async with asyncio.timeout(min(wait_s, call.remaining(self._clock))):
                while not self._closed:
                    self._changed.clear()
                    await _until_ready(self._peers.values(), self._changed)
                    if peer := _least_busy(self._peers.values()):
                        self._patience.end()
                        return peer
        except TimeoutError:
            pass
        raise unavailable_error(f"cannot connect to {self._place()}")

    def _place(self) -> str:
        """The services' name and addresses, for errors."""
        return f"{self._name} at {', '.join(self._addresses)}"


def _least_busy(peers: Iterable[Peer]) -> Peer | None:
    ready = [peer for peer in peers if peer.is_ready]
    return min(ready, key=lambda peer: peer.in_flight, default=None)


async def _until_ready(peers: Iterable[Peer], changed: asyncio.Event) -> None:
    """Returns as soon as a peer is connected or `changed` is set."""
    first = asyncio.Event()

    async def tell(waiting: Awaitable[object]) -> None:
        await waiting
        first.set()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(tell(peer.channel.channel_ready())) for peer in peers]
        tasks.append(group.create_task(tell(changed.wait())))
        await first.wait()
        for task in tasks:
            task.cancel()

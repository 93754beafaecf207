"""The asynchronous client: the addresses, the log-in and the deadlines of all calls."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Self

from tarn.client.auth import AuthClient
from tarn.client.collections import CollectionClient
from tarn.client.erasures import ErasureClient
from tarn.client.graveler import GravelerClient
from tarn.client.operations import Operations
from tarn.client.raising import call_error
from tarn.client.session import LogIn, SessionTransport
from tarn.client.values import KeyPair
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.client.transport import Transport
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.process.tls import ChannelTls, TlsFiles
from tarn.rpc.wire.call import Call

__all__ = ["AsyncClient"]

_ATTEMPTS_MAX = 5
"""Bound on sending a call that surely had no effect: the pauses between the attempts add up to 0.7 s."""


class AsyncClient(Operations):
    """A client of Tarn for programs that use asyncio. It belongs to one event loop.

    Nothing is sent before the first call, which also logs in. A call goes to the least busy of the addresses.
    It is sent again, to another address if there is one, if it surely had no effect, or if it changes nothing and
    its connection broke. A change whose answer is lost raises `UnknownOutcomeError` and is never sent again.

    Args:
        addresses: of graveler, each `host:port`; a name that stands for several addresses stands for all of them.
        access_key_id: half of the key pair to log in with; empty for calls that need no user.
        secret_access_key: the other half. It is never sent.
        session_token: of a session key, sent at log-in; empty for a key pair.
        auth_addresses: of auth, if it does not listen at `addresses`.
        tls: certificates; `TlsFiles()` for TLS with the authorities of the system, None for plain text.
        timeout_s: most seconds that one call may take, with its log-in and its attempts.
        name: first part of the request ids, which appear in the logs of the servers.
        clock: measures deadlines.
        ids: makes request ids and nonces.

    Raises:
        ValueError: no address, only one half of a key pair, or only one of certificate and key.
        OSError: a certificate cannot be read.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:8102",
        *,
        access_key_id: str = "",
        secret_access_key: str = "",
        session_token: str = "",
        auth_addresses: str | Sequence[str] = (),
        tls: TlsFiles | None = None,
        timeout_s: float = 60.0,
        name: str = "client",
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        if bool(access_key_id) != bool(secret_access_key):
            raise ValueError("access_key_id and secret_access_key must be given together")
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds(self._clock)
        self._timeout_s = timeout_s
        self._name = name
        rng = random.Random(self._ids.nonce())  # noqa: S311 - jitter
        credentials = None if tls is None else ChannelTls(tls)

        def connect(places: str | Sequence[str]) -> GrpcTransport:
            return GrpcTransport(
                [places] if isinstance(places, str) else places,
                tls=credentials,
                clock=self._clock,
                rng=rng,
                attempts_max=_ATTEMPTS_MAX,
            )

        graveler: Transport = connect(addresses)
        auth: Transport = connect(auth_addresses) if auth_addresses else graveler
        self._transports = (graveler, auth)
        self._log_in: LogIn | None = None
        if access_key_id:
            pair = KeyPair(access_key_id, secret_access_key, session_token)
            self._log_in = LogIn(AuthClient(auth), pair, self._clock, self._ids, rng)
        self.graveler = GravelerClient(SessionTransport(graveler, self._log_in))
        self.collections = CollectionClient(SessionTransport(graveler, self._log_in))
        self.erasures = ErasureClient(SessionTransport(graveler, self._log_in))
        self.auth = AuthClient(SessionTransport(auth, self._log_in))

    def call(self) -> Call:
        """Returns the context of a new call: request id and deadline. The transport adds the caller token."""
        request_id = f"{self._name}-{self._ids.nonce().hex()[:16]}"
        return Call(request_id, "", self._clock.monotonic() + self._timeout_s)

    def new_task_id(self) -> str:
        """Returns an id for a new task. It is valid for 15 minutes."""
        return self._ids.uuid7().hex()

    async def log_in(self) -> str:
        """Logs in now, unless it has, and returns the caller token: a secret, valid for about an hour.

        Raises:
            UnauthenticatedError: the key pair is wrong, or the client has none.
        """
        try:
            if self._log_in is None:
                text = "the client has no key pair: give access_key_id and secret_access_key"
                raise TarnError(Kind.UNAUTHENTICATED, Reason.CREDENTIAL_NOT_FOUND, text)
            return await self._log_in.token(self.call())
        except TarnError as error:
            raise call_error(error, {}) from error

    def with_timeout(self, seconds: float) -> Self:
        """Returns this client with another limit on the time of a call. It shares everything else: close one."""
        other = copy.copy(self)
        other._timeout_s = seconds  # noqa: SLF001 - of this class
        return other

    async def close(self) -> None:
        """Ends calls in flight and closes the connections. Idempotent."""
        for transport in self._transports:
            await transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

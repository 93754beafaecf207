"""Assembles auth from its parts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Self

import structlog

from tarn.aio.task_set import TaskSet
from tarn.core.access.service import Service
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, TarnError
from tarn.core.levels import ALL_FEATURES, FeatureGate
from tarn.kv.keys import AuthKeys
from tarn.kv.port import Kv
from tarn.kv.record_events import JournaledKv
from tarn.rpc.wire.methods import Endpoint
from tarn_auth.authorization_service import AuthorizationService
from tarn_auth.authorizer import Authorizer
from tarn_auth.credentials import Credentials
from tarn_auth.gate import AuthGate
from tarn_auth.key_uses import KeyUses
from tarn_auth.keyring import Keyring
from tarn_auth.log_in import LogIn
from tarn_auth.registers import Registers
from tarn_auth.secret_box import RandomBytes
from tarn_auth.secret_change import SecretChange
from tarn_auth.secret_mark import check_secret
from tarn_auth.service_callers import Callers, RemoteServices, SameProcess
from tarn_auth.session_key_service import SessionKeyService
from tarn_auth.session_keys import SessionKeys
from tarn_auth.session_service import SessionService
from tarn_auth.set_up import SetUp
from tarn_auth.user_service import UserService
from tarn_auth.users import Users
from tarn_auth.web_sessions import WebSessions
from tarn_proto.auth.v1.authorization_service_rpc import authorization_service
from tarn_proto.auth.v1.session_key_service_rpc import session_key_service
from tarn_proto.auth.v1.session_service_rpc import session_service
from tarn_proto.auth.v1.user_service_rpc import user_service

__all__ = ["AuthApplication"]

_log = structlog.get_logger()


class AuthApplication:
    """The endpoints of auth over one store, which its owner closes.

    Replicas are independent: all state is in the store, except the log-in proofs that a process has seen.

    Args:
        installation_secret: at least 32 bytes; the root of all of auth's keys.
        previous_secrets: still open the secrets sealed with them (see `tarn_auth.secret_box`).
        random_bytes: unpredictable; source of keys and nonces.
        certificates: the DNS name in the certificates of each service.
        features: what the feature level of the store allows.
        remote_services: services that run in other processes and may ask this one for authorisations.
        keeps_events: whether changes of users and key pairs leave events; must be equal in all replicas.

    Attributes:
        endpoints: for a port.
        endpoints_in_process: the same for callers in this process, which are services and prove nothing. No port may
            serve them.
    """

    name = "auth"

    def __init__(
        self,
        kv: Kv,
        installation_id: str,
        installation_secret: bytes,
        clock: Clock,
        ids: IdSource,
        *,
        previous_secrets: Sequence[bytes] = (),
        random_bytes: RandomBytes = os.urandom,
        certificates: Mapping[Service, str] = MappingProxyType({}),
        remote_services: Collection[Service] = tuple(Service),
        features: FeatureGate = ALL_FEATURES,
        keeps_events: bool = False,
    ) -> None:
        if keeps_events:
            kv = JournaledKv(kv, installation_id, clock, ids, features)
        registers = Registers(kv, AuthKeys(installation_id).partition)
        keyring = Keyring((installation_secret, *previous_secrets), random_bytes)
        box = keyring.box
        self._check = partial(check_secret, registers, installation_id, box.key_ids)
        self._secret_change = SecretChange(registers, installation_id, keyring)
        credentials = Credentials(registers, box, clock, random_bytes)
        session_keys = SessionKeys(registers, box, clock, random_bytes, features)
        self._users = Users(registers, credentials, session_keys, clock, ids, features)
        self._uses = uses = KeyUses(registers, clock, features)
        self._writing = TaskSet()
        authorizer = Authorizer(self._users, credentials, session_keys, keyring, clock, uses)
        set_up = SetUp(registers, self._users, credentials, authorizer, keyring, clock)
        log_in = LogIn(authorizer, credentials, session_keys, box, clock, random_bytes, uses)
        web_sessions = WebSessions(registers, authorizer, clock, random_bytes, features, uses)
        sessions = SessionService(
            installation_id, set_up, log_in, authorizer, self._users, web_sessions
        )
        users = UserService(self._users, credentials, authorizer, keyring)
        keys = SessionKeyService(self._users, session_keys, authorizer, keyring)

        def endpoints(callers: Callers) -> Sequence[Endpoint]:
            gate = AuthGate(authorizer, callers)
            return (
                authorization_service(AuthorizationService(authorizer, web_sessions), gate),
                session_service(sessions, gate),
                user_service(users, gate),
                session_key_service(keys, gate),
            )

        self.endpoints = endpoints(RemoteServices(keyring, clock, certificates, remote_services))
        self.endpoints_in_process = endpoints(SameProcess())

    async def __aenter__(self) -> Self:
        """Checks the installation's secret, finishes deletions that a crash interrupted, and begins to write uses
        of key pairs.

        An unavailable store does not prevent the start.

        Raises:
            TarnError: FAILED_PRECONDITION if the store was made with another secret.
        """
        try:
            await self._check()
        except TarnError as error:
            if error.kind is Kind.FAILED_PRECONDITION:
                raise
            _log.warning("the secret was not checked", reason=error.reason, error=error.message)
        try:
            finished = await self._users.finish_deletions()
        except TarnError as error:
            _log.warning("deletions were not finished", reason=error.reason, error=error.message)
        else:
            if finished:
                _log.info("deletions finished", users=finished)
        self._writing.spawn(self._uses.run())
        return self

    async def use_secrets(self, secrets: Sequence[bytes]) -> None:
        """Takes other installation secrets into use, the current one first (`SecretChange.use`)."""
        await self._secret_change.use(secrets)

    async def __aexit__(self, *exc: object) -> None:
        """Ends the writer of uses."""
        await self._writing.close()

    async def drain(self, timeout_s: float) -> None:
        """Writes the uses of key pairs that wait. No other work outlives a call."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._uses.write()

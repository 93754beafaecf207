"""Auth over a store in memory, called through its client and a transport."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.support.clock import ManualClock, SeededIds

from tarn.client.auth import AuthClient, NewCredential
from tarn.kv.keys import AuthKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import Kv, OutcomeUnknownError, Row
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.wire.call import Call
from tarn_auth.application import AuthApplication

SECRET = bytes(range(32))
CHANGES = {"set_if", "set_many", "delete_if", "delete_many"}


class CrashError(Exception):
    """The process ends here."""


class FaultyKv:
    """A store whose n-th change fails, before or after its effect, and that varies the order of tasks.

    Attributes:
        requests: the operations, oldest first.
        before: called with an operation's name and arguments before it is performed.
        fail_at: number of the failing change, from 0; None for none.
        lands: whether the failing change takes effect.
        unknown: whether it raises OutcomeUnknownError instead of CrashError.
    """

    def __init__(self, inner: Kv, seed: int) -> None:
        self.inner = inner
        self.random = random.Random(seed)
        self.requests: list[str] = []
        self.before: Callable[[str, object], Awaitable[None]] | None = None
        self.count = 0
        self.fail_at: int | None = None
        self.lands = False
        self.unknown = False

    def fail(self, at: int | None, *, lands: bool = False, unknown: bool = False) -> None:
        self.count, self.fail_at, self.lands, self.unknown = 0, at, lands, unknown

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name == "close":
            return method

        async def operate(*args: object, **options: object) -> object:
            for _ in range(self.random.randrange(4)):
                await asyncio.sleep(0)
            self.requests.append(name)
            if self.before is not None:
                await self.before(name, args[1])
            fails = name in CHANGES and self.count == self.fail_at
            self.count += name in CHANGES
            if fails and not self.lands:
                raise self.error()
            result = await method(*args, **options)
            if fails:
                raise self.error()
            return result

        return operate

    def error(self) -> Exception:
        return OutcomeUnknownError("injected") if self.unknown else CrashError()


class World:
    """One or more replicas of auth on one store."""

    def __init__(self) -> None:
        self.transports: list[InProcessTransport] = []
        self.reset()

    def reset(self, seed: int = 7) -> None:
        """Starts again with an empty store and another seed."""
        self.clock = ManualClock()
        self.ids = SeededIds(self.clock, seed=1)
        self.random = random.Random(seed)
        self.requests: list[str] = []
        self.before: Callable[[str, object], Awaitable[None]] | None = None
        self.kv = FaultyKv(MemKv(), seed)
        self.secret = SECRET
        self.auth = self.replica()
        self.admin = self.admin_key = self.admin_secret = ""

    def replica(self, *, secret: bytes = SECRET, previous: tuple[bytes, ...] = ()) -> AuthClient:
        """Starts another process of auth, which learns of the others only through the store."""
        application = AuthApplication(
            self.kv,
            "test",
            secret,
            self.clock,
            self.ids,
            previous_secrets=previous,
            random_bytes=self.random.randbytes,
        )
        self.application = application
        transport = InProcessTransport(application.endpoints_in_process, self.clock)
        self.transports.append(transport)
        return AuthClient(transport)

    def call(self, token: str = "") -> Call:
        return Call("r1", token, self.clock.monotonic() + 1e6)

    async def set_up(self) -> NewCredential:
        """Creates the first admin; `admin` is its token."""
        made = await self.auth.set_up(self.call(), SECRET, "root")
        self.admin = await self.log_in(made)
        self.admin_key = made.credential.access_key_id
        self.admin_secret = made.secret_access_key
        return made

    async def log_in(self, made: NewCredential, auth: AuthClient | None = None) -> str:
        """Returns a caller token of a credential."""
        session = await (auth or self.auth).log_in(
            self.call(),
            made.credential.access_key_id,
            made.secret_access_key,
            now_us=self.clock.now_us(),
            nonce=self.ids.nonce(),
        )
        return session.grant.caller_token

    async def user(self, user_id: str, role: str) -> NewCredential:
        """Creates a user with a key pair."""
        await self.auth.create_user(self.call(self.admin), user_id, [role])
        return await self.auth.create_credential(self.call(self.admin), user_id=user_id)

    async def rows(self) -> list[Row]:
        """Returns all rows that auth has stored."""
        rows: list[Row] = await self.kv.scan(AuthKeys("test").partition, b"", None, 1000)
        return rows

    def day(self) -> str:
        """Returns today's date in the form of a credential scope."""
        now = dt.datetime.fromtimestamp(self.clock.now_us() / 1e6, dt.UTC)
        return now.strftime("%Y%m%d")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    for transport in made.transports:
        await transport.close()


@pytest.fixture
async def ready(world: World) -> World:
    """An installation of auth with its first admin."""
    await world.set_up()
    return world

"""Commits and history over gRPC, with a new log-in before the caller token expires."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from slowness import scaled

from chaos.s3 import Target
from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.core.errors import TarnError
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import commit_service_pb2 as pb

__all__ = ["Metadata", "metadata_of"]

_LOG_IN_SECONDS = scaled(60.0)
_LOG_IN_PAUSE_SECONDS = 0.1
_CALM_SECONDS = scaled(60.0)


class Metadata:
    """The graveler of a target."""

    def __init__(self, target: Target, graveler: GrpcTransport, auth: GrpcTransport) -> None:
        self._target = target
        self._graveler = GravelerClient(graveler)
        self._auth = AuthClient(auth)
        self._clock = SystemClock()
        self._ids = SystemIds(self._clock)
        self._token = ""
        self._logged_in_s = 0.0

    async def _log_in(self) -> None:
        """Repeats until a server answers: logging in changes nothing."""
        while not self._token or self._clock.monotonic() - self._logged_in_s > _LOG_IN_SECONDS:
            try:
                session = await self._auth.log_in(
                    self._call(5.0),
                    self._target.access_key_id,
                    self._target.secret_access_key,
                    now_us=self._clock.now_us(),
                    nonce=self._ids.nonce(),
                )
            except TarnError:
                await asyncio.sleep(_LOG_IN_PAUSE_SECONDS)
            else:
                self._token = session.grant.caller_token
                self._logged_in_s = self._clock.monotonic()

    def _call(self, seconds: float) -> Call:
        name = f"chaos-{self._ids.nonce().hex()[:16]}"
        return Call(name, self._token, self._clock.monotonic() + seconds)

    async def ready(self) -> None:
        """Returns when it is logged in."""
        await self._log_in()

    async def commit(self, branch: str, message: str, patience_seconds: float) -> str:
        """Commits; returns the new commit's id. Call `ready` first.

        Raises:
            TarnError: as `create_commit`.
        """
        made = await self._graveler.create_commit(
            self._call(patience_seconds), self._target.repository, branch, message
        )
        return made.commit.commit_id

    async def log(self, ref: str) -> list[pb.Commit]:
        """Returns all ancestors of a ref, newest first."""
        await self._log_in()
        found: list[pb.Commit] = []
        token = ""
        while True:
            page = await self._graveler.list_commits(
                self._call(_CALM_SECONDS), self._target.repository, ref, page_token=token
            )
            found += page.commits
            token = page.next_page_token
            if not token:
                return found


@asynccontextmanager
async def metadata_of(target: Target, rng: random.Random) -> AsyncIterator[Metadata]:
    """Connects; closed at the end."""
    clock = SystemClock()
    graveler = GrpcTransport(target.servers, clock=clock, rng=rng)
    auth = GrpcTransport([target.auth_server], clock=clock, rng=rng)
    try:
        yield Metadata(target, graveler, auth)
    finally:
        await graveler.close()
        await auth.close()

"""S3 gateways: production's operations for uploads, on requests that are already authorised; and production's
authentication, resolution of buckets and authorisation, of requests with session keys.

Routes and HTTP are not simulated. The rest is production's code: how a completion is claimed, joined, finished,
repeated and abandoned; and how a caller is known, what a bucket stands for, and what the caller may do.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.sim.machine import Machine
from tests.sim.transport import EVERYTHING, GATEWAY_TOKEN, SimTransport

from tarn.client.auth import SigningGrant
from tarn.client.graveler import GravelerClient
from tarn.core.access.policy import Grant
from tarn.core.errors import TarnError
from tarn.gate.access import Access
from tarn.objects.repository_cache import RepositoryCache
from tarn.rpc.wire.call import Call
from tarn_gateway.backend import Backend, Bounds
from tarn_gateway.bucket_cache import BucketCache, Place
from tarn_gateway.grants import Authenticator, authorize
from tarn_gateway.http import BodyReader, Headers, Request, Response
from tarn_gateway.operations.table import Row
from tarn_gateway.requests.address import Address
from tarn_gateway.requests.query import Query
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request
from tarn_gateway.signing.sigv4 import UNSIGNED_PAYLOAD, SignedRequest, SigV4Policy

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["Gateway"]


class _GivenBody(BodyReader):
    """A request body that has arrived completely."""

    __slots__ = ("_rest",)

    def __init__(self, body: bytes) -> None:
        super().__init__(0)
        self.length = len(body)
        self._rest = body

    async def read(self) -> bytes | memoryview:
        rest, self._rest = self._rest, b""
        return rest


async def _own_token(_: Call) -> str:
    return GATEWAY_TOKEN


class Gateway(Machine):
    """One gateway process."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.start()

    def start(self) -> None:
        """Starts a new process."""
        super().start()
        world, plan = self.world, self.world.plan
        rng = random.Random(f"gateway {plan.seed} {self.name} {self._life}")
        self._transport = SimTransport(world, rng)
        self.blocks = world.block_link(self.wire)
        graveler = GravelerClient(self._transport)
        self._backend = Backend(
            graveler=graveler,
            blocks=self.blocks,
            repositories=RepositoryCache(graveler, self.clock),
            buckets=BucketCache(graveler, self.clock),
            clock=self.clock,
            ids=self.ids,
            bounds=Bounds(
                call_timeout_s=plan.claim_seconds,
                list_timeout_s=plan.claim_seconds,
                complete_timeout_s=plan.claim_seconds / 5,
            ),
            region="us-east-1",
            own_token=_own_token,
        )
        if plan.session_users:
            self._authenticator = Authenticator(
                Access(world.auth_client(rng), self.clock),
                self.clock,
                SigV4Policy(),
                timeout_s=plan.hang_up_seconds,
            )

    async def admit(
        self, request: Request, operation: Row, address: Address, *, seconds: float
    ) -> tuple[Place, Grant]:
        """Knows the caller of a request, resolves its bucket, and authorises it, as before each operation.

        Args:
            request: as it was received.
            operation: its row.
            address: its bucket and key.
            seconds: how long the client waits.

        Returns:
            What the bucket stands for, and what the caller may do.

        Raises:
            LostError: there was no answer.
            S3Error: the error that the client gets.
            TarnError: an error that the gateway turns into an S3 error.
        """

        async def admit() -> tuple[Place, Grant]:
            began = self.clock.monotonic()
            signed, granted = await self._authenticator.authenticate(request)
            place = await self._backend.resolve(request, granted, address.bucket, began)
            authorize(
                S3Request(request, began, operation, address, place, Query({}), signed, granted)
            )
            return place, granted.grant

        return await self.ask(admit, seconds, expected=(TarnError, S3Error))

    async def request(
        self,
        operation: Row,
        bucket: str,
        key: str,
        query: dict[str, str],
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        seconds: float,
    ) -> Response:
        """Performs a request of a client that hangs up after `seconds`.

        Raises:
            LostError: there was no answer.
            S3Error: the error that the client gets.
            TarnError: an error that the gateway turns into an S3 error.
        """
        pairs = [*(headers or {}).items(), ("content-length", str(len(body)))]
        request = Request("POST", b"/", b"", Headers(pairs), _GivenBody(body), request_id="0" * 20)
        signed = SignedRequest(
            access_key_id="AKIASIM",
            date="20260101",
            region="us-east-1",
            service="s3",
            timestamp="20260101T000000Z",
            signed_headers=(),
            signature="0" * 64,
            payload_hash=UNSIGNED_PAYLOAD,
            request=request,
            headers=request.headers,
        )
        s3_request = S3Request(
            request,
            self.clock.monotonic(),
            operation,
            Address(bucket, key),
            Place(bucket),
            Query(query),
            signed,
            SigningGrant(b"", EVERYTHING),
        )
        return await self.ask(
            lambda: operation.perform(self._backend, s3_request),
            seconds,
            expected=(TarnError, S3Error),
        )

"""Requests without a signature: which of them may go on, and how many.

They may read and list bucket views that are marked public-read, and nothing else. Whatever else they ask for is refused
by the same AccessDenied, whether it exists or not. What is decided here is a guess by the cache of bucket names;
graveler confirms it by the row of the view (`AccessGate.through_view`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tarn.aio.bounded_map import BoundedMap
from tarn.client.auth import SigningGrant
from tarn.core.access.anonymous import ANONYMOUS, anonymous_grant
from tarn.core.errors import TarnError
from tarn.core.ids import parse_repository_id
from tarn.core.quota import QuotaKind, TokenBucket
from tarn.gate.addresses import network_of
from tarn.gate.rates import RateRefusal
from tarn.rpc.wire.call import Call
from tarn_gateway.backend import Backend
from tarn_gateway.http import Request
from tarn_gateway.rates import RateExceededError
from tarn_gateway.requests.address import Address
from tarn_gateway.requests.query import Query, parse_query
from tarn_gateway.router import route
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv4 import SignedRequest, anonymous_refusal, unsigned
from tarn_gateway.trace import Trace

__all__ = ["AnonymousBounds", "AnonymousRequests"]

_LOOKUPS_PER_SECOND: Final = 50.0
"""Of names that are not cached, by all anonymous callers of this gateway: they can ask for any name."""
_ADDRESSES_MAX: Final = 10_000
_LIMIT: Final = "requests_per_second"


@dataclass(frozen=True, slots=True)
class AnonymousBounds:
    """How many anonymous requests one gateway answers.

    Attributes:
        requests_per_second: of all addresses.
        address_requests_per_second: of one address; of 2^64 addresses of IPv6, which one client may have.
        concurrent_max: requests whose answers are not sent yet.
    """

    requests_per_second: float = 1000.0
    address_requests_per_second: float = 200.0
    concurrent_max: int = 2500


class AnonymousRequests:
    """Admits requests without a signature.

    Args:
        backend: resolves bucket names.
        bounds: see `AnonymousBounds`.
    """

    def __init__(self, backend: Backend, bounds: AnonymousBounds | None = None) -> None:
        self._backend = backend
        self._bounds = bounds or AnonymousBounds()
        now = backend.clock.monotonic()
        self._lookups = TokenBucket(_LOOKUPS_PER_SECOND, now)
        self._all = TokenBucket(self._bounds.requests_per_second, now)
        self._addresses: BoundedMap[str, TokenBucket] = BoundedMap(_ADDRESSES_MAX)
        self._running = 0

    async def enter(
        self, request: Request, address: Address, began: float, trace: Trace
    ) -> tuple[SignedRequest, SigningGrant]:
        """Returns the absent signature of a request for a public-read view, and a grant that allows nothing.

        Args:
            request: without any authentication.
            address: what it asks for.
            began: when it was received.
            trace: tells when it has ended.

        Raises:
            S3Error: AccessDenied for everything else; InvalidRequest for parameters that only signed requests may have;
                SlowDown: there are too many.
            TarnError: graveler or auth gives no answer.
        """
        trace.user = ANONYMOUS
        query = _public_query(request, address)
        place = self._backend.buckets.cached(address.bucket)
        if place is None:
            self._take_lookup()
        elif not place.is_public:
            raise anonymous_refusal()
        call = Call(request.request_id, "", began + self._backend.bounds.call_timeout_s)
        granted = SigningGrant(b"", anonymous_grant(await self._backend.own_token(call)))
        place = place or await self._backend.resolve(request, granted, address.bucket, began)
        if not place.is_public:
            raise anonymous_refusal()
        if any(name.startswith("response-") for name in query):
            text = "Request specific response headers cannot be used for anonymous GET requests."
            raise S3Error("InvalidRequest", text)
        self._admit(request.remote_addr)
        self._running += 1
        trace.on_end = self._leave
        return unsigned(request), granted

    def _leave(self) -> None:
        self._running -= 1

    def _take_lookup(self) -> None:
        now = self._backend.clock.monotonic()
        if self._lookups.wait_seconds(now, 1):
            text = "Too many buckets are asked for without a signature at once; try again."
            raise S3Error("SlowDown", text)
        self._lookups.take(now, 1)

    def _admit(self, remote: str) -> None:
        """Takes a request from both rates.

        Raises:
            RateExceededError: nothing was taken.
            S3Error: SlowDown: too many run.
        """
        bounds, now = self._bounds, self._backend.clock.monotonic()
        if self._running >= bounds.concurrent_max:
            text = f"{self._running} anonymous requests run already; try again."
            raise S3Error("SlowDown", text)
        name = network_of(remote)
        of_address = self._addresses.get(name)
        if of_address is None:
            of_address = TokenBucket(bounds.address_requests_per_second, now)
            self._addresses.put(name, of_address)
        for bucket, whose in ((of_address, f"{ANONYMOUS} at {name}"), (self._all, ANONYMOUS)):
            if wait := bucket.wait_seconds(now, 1):
                refusal = RateRefusal(QuotaKind.USER, whose, _LIMIT, int(bucket.rate), wait)
                raise RateExceededError(refusal)
        of_address.take(now, 1)
        self._all.take(now, 1)


def _public_query(request: Request, address: Address) -> Query:
    """Returns the parameters of a request whose operation anonymous requests may have.

    Raises:
        S3Error: AccessDenied for all others, also those that are not offered.
    """
    try:
        parse_repository_id(address.bucket)
        query = parse_query(request.raw_query)
        operation = route(request.method, address, query, request.headers)
    except (S3Error, TarnError):
        raise anonymous_refusal() from None
    if not operation.is_public:
        raise anonymous_refusal()
    return query

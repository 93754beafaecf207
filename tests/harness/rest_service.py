"""The REST endpoint over real graveler and auth in this process, without a socket."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graveler_service import Service, running_service
from tests.support.clock import ManualClock, SeededIds

from tarn.block.mem import MemBlockStore
from tarn.core.access.service import Service as ServiceName
from tarn.gate.access import Access
from tarn.gate.addresses import AddressRate
from tarn.gate.rates import RateLimits
from tarn.gate.request_counts import RequestCounts
from tarn.gate.service_calls import ServiceCalls
from tarn.gate.sign_in import SignIn
from tarn.objects.backend import ObjectBackend
from tarn.objects.repository_cache import RepositoryCache
from tarn.telemetry.audit.record import AuditRecord
from tarn.telemetry.meters import Meters
from tarn_api.bodies import BodyBounds
from tarn_api.context import Backend
from tarn_api.endpoint import BASE, Endpoint
from tarn_api.feed.feeds import FeedLimits, Feeds
from tarn_api.rpcs import Rpcs
from tarn_api.traces import Traces

__all__ = ["Answer", "Rest", "basic", "running_rest"]


def basic(key: str, secret: str) -> str:
    """Returns the header `Authorization` of a key pair."""
    return "Basic " + base64.b64encode(f"{key}:{secret}".encode()).decode()


@dataclass(frozen=True)
class Answer:
    """What a client gets.

    Attributes:
        is_whole: whether the answer was completed.
        unread: pieces of the body that nobody asked for.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool = True
    unread: int = 0

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        text: str = self.json["message"]
        return text


FAILED_SIGN_INS = 20


class Audited:
    """An audit log that keeps its records."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []
        self.reads = False

    def add(self, record: AuditRecord) -> None:
        self.records.append(record)

    def now_us(self) -> int:
        return 0


@dataclass
class Rest:
    """The endpoint and what is behind it.

    Attributes:
        admin: the header `Authorization` of the administrator.
    """

    service: Service
    endpoint: Endpoint
    admin: str
    audit: Audited
    meters: Meters
    rates: RateLimits
    feeds: Feeds

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        caller: str | None = "",
        headers: Mapping[str, str] | None = None,
        base: str = BASE,
        pieces: Sequence[bytes] = (),
        stalls: bool = False,
        departs: bool = False,
        remote: str = "192.0.2.1",
        scheme: str = "http",
        connection: dict[str, str] | None = None,
    ) -> Answer:
        """Sends a request as the administrator, as another caller, or without credentials (None).

        Args:
            method: of HTTP.
            path: below the base path, with the query.
            body: JSON, or bytes.
            caller: the header `Authorization`; empty for the administrator's.
            headers: more headers, with lower-case names.
            base: precedes the path.
            pieces: a body that comes in chunks, instead of `body`.
            stalls: whether the last of the pieces does not come.
            departs: whether the client goes instead of that, or once the body was received.
            remote: the client's address.
            scheme: `https` over TLS.
            connection: what is known of the connection; None: it is a new one.
        """
        content = body if isinstance(body, bytes) else b"" if body is None else to_json(body)
        sent = {**(headers or {})}
        if pieces:
            sent["transfer-encoding"] = "chunked"
        elif content:
            sent.setdefault("content-length", str(len(content)))
        if caller is not None:
            sent["authorization"] = caller or self.admin
        scope = scope_of(method, base + path, sent) | {"client": (remote, 5), "scheme": scheme}
        scope["state"] = {} if connection is None else {"connection": connection}
        got: list[dict[str, Any]] = []

        left = [*pieces] or [content]

        async def receive() -> dict[str, Any]:
            if len(left) > stalls:
                return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}
            if not departs:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            got.append(message)

        await self.endpoint(scope, receive, send)
        start, *answered = got
        return Answer(
            start["status"],
            {name.decode(): value.decode() for name, value in start["headers"]},
            b"".join(bytes(piece["body"]) for piece in answered),
            not answered or not answered[-1].get("more_body", False),
            len(left),
        )


def scope_of(method: str, target: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Returns what a server tells the endpoint about a request."""
    raw_path, _, query = target.partition("?")
    return {
        "type": "http",
        "method": method,
        "path": raw_path,
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }


def to_json(value: object) -> bytes:
    return json.dumps(value).encode()


@asynccontextmanager
async def running_rest(
    folder: Path,
    *,
    requests_max: int = 16,
    store: Callable[[ManualClock], MemBlockStore] = MemBlockStore,
    namespace_prefix: str = "local://",
    bodies: BodyBounds | None = None,
    presigned_links: bool = True,
    feed_limits: FeedLimits | None = None,
    audit_folder: Path | None = None,
    keeps_events: bool = False,
) -> AsyncIterator[Rest]:
    """Yields the endpoint over one replica with a repository `lake`."""
    async with running_service(
        folder, store=store, namespace_prefix=namespace_prefix, keeps_events=keeps_events
    ) as service:
        meters, audit = Meters(), Audited()
        ids = SeededIds(service.clock, seed=5)
        access = Access(service.auth, service.clock)
        sign_in = SignIn(service.auth, access, service.clock, ids)
        rpcs = Rpcs(service.transport, service.auth_transport)
        calls = ServiceCalls(access, ServiceName.API, service.clock, ids)
        objects = ObjectBackend(
            graveler=service.graveler,
            blocks=service.replicas.blocks,
            repositories=RepositoryCache(service.graveler, service.clock),
            clock=service.clock,
            ids=ids,
            own_token=calls.proof,
        )
        feeds = Feeds(service.graveler, service.clock, ids, feed_limits or FeedLimits())
        backend = Backend(
            service.graveler,
            service.auth,
            rpcs,
            sign_in,
            service.clock,
            "1.2.3",
            namespace_prefix,
            AddressRate(service.clock, FAILED_SIGN_INS),
            objects,
            feeds,
            bodies or BodyBounds(),
            presigned_links,
            audit_folder=audit_folder,
            request_counts=RequestCounts(meters, service.graveler, calls, service.clock, ids),
        )
        traces = Traces(meters, audit, access_log=False)  # type: ignore[arg-type]
        rates = RateLimits(service.graveler, calls, service.clock, gateways=1)
        endpoint = Endpoint(backend, traces, ids, meters, requests_max, rates)
        yield Rest(service, endpoint, basic(*service.admin_key), audit, meters, rates, feeds)
        await feeds.close()

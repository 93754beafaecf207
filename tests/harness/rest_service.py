"""The REST endpoint over real graveler and auth in this process, without a socket."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graveler_service import Service, running_service

from tarn.gate.access import Access
from tarn.gate.sign_in import SignIn
from tarn.telemetry.audit.record import AuditRecord
from tarn.telemetry.meters import Meters
from tarn.testing.clock import SeededIds
from tarn_api.context import Backend
from tarn_api.endpoint import BASE, Endpoint
from tarn_api.rpcs import Rpcs
from tarn_api.traces import Traces

__all__ = ["Answer", "Rest", "basic", "running_rest"]


def basic(key: str, secret: str) -> str:
    """Returns the header `Authorization` of a key pair."""
    return "Basic " + base64.b64encode(f"{key}:{secret}".encode()).decode()


@dataclass(frozen=True)
class Answer:
    """What a client gets."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        text: str = self.json["message"]
        return text


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

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        caller: str | None = "",
        headers: Mapping[str, str] | None = None,
        base: str = BASE,
    ) -> Answer:
        """Sends a request as the administrator, as another caller, or without credentials (None).

        Args:
            method: of HTTP.
            path: below the base path, with the query.
            body: JSON, or bytes.
            caller: the header `Authorization`; empty for the administrator's.
            headers: more headers, with lower-case names.
            base: precedes the path.
        """
        content = body if isinstance(body, bytes) else b"" if body is None else to_json(body)
        sent = {**(headers or {})}
        if content:
            sent.setdefault("content-length", str(len(content)))
        if caller is not None:
            sent["authorization"] = caller or self.admin
        raw_path, _, query = (base + path).partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": raw_path,
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("192.0.2.1", 5),
        }
        got: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Any) -> None:
            got.append(message)

        await self.endpoint(scope, receive, send)
        start, *pieces = got
        return Answer(
            start["status"],
            {name.decode(): value.decode() for name, value in start["headers"]},
            b"".join(piece["body"] for piece in pieces),
        )


def to_json(value: object) -> bytes:
    return json.dumps(value).encode()


@asynccontextmanager
async def running_rest(folder: Path, *, requests_max: int = 16) -> AsyncIterator[Rest]:
    """Yields the endpoint over one replica with a repository `lake`."""
    async with running_service(folder) as service:
        meters, audit = Meters(), Audited()
        ids = SeededIds(service.clock, seed=5)
        access = Access(service.auth, service.clock)
        sign_in = SignIn(service.auth, access, service.clock, ids)
        rpcs = Rpcs(service.transport, service.auth_transport)
        backend = Backend(
            service.graveler, service.auth, rpcs, sign_in, service.clock, "1.2.3", "local://"
        )
        traces = Traces(meters, audit, access_log=False)  # type: ignore[arg-type]
        endpoint = Endpoint(backend, traces, ids, meters, requests_max)
        yield Rest(service, endpoint, basic(*service.admin_key), audit, meters)

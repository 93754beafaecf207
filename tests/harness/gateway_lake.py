"""A gateway over doubles of its neighbours: real handler, real transports, blocks in memory.

Requests are signed by botocore and given to the handler directly, without a socket; `GatewayLake.ask` does what
the HTTP server does with the handler's answer.
"""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import gateway_doubles as doubles
import structlog.testing
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from lxml import etree
from tests.support.clock import ManualClock, SeededIds

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey, FileSlice
from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.core.entry import Entry, unpack
from tarn.core.ids import physical_path
from tarn.gate.access import Access
from tarn.objects.repository_cache import RepositoryCache
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.wire.call import Call
from tarn.telemetry.audit.log import AuditLog
from tarn.telemetry.meters import Meters
from tarn_gateway.backend import Backend, Bounds
from tarn_gateway.bucket_cache import BucketCache
from tarn_gateway.grants import Authenticator
from tarn_gateway.handler import S3Handler
from tarn_gateway.http import BodyReader, BodyTruncatedError, Exchange, Headers, Request
from tarn_gateway.overload import request_queue
from tarn_gateway.signing.sigv4 import SigV4Policy
from tarn_gateway.traces import Traces


class GivenBody(BodyReader):
    """A request body that has arrived, or that breaks off after the bytes that have arrived."""

    __slots__ = ("_broken", "_rest", "reads")

    def __init__(self, body: bytes, length: int | None, *, broken: bool) -> None:
        super().__init__(0)
        self.length = length
        self._rest, self._broken = body, broken
        self.reads = 0

    async def read(self) -> bytes | memoryview:
        self.reads += 1
        piece, self._rest = self._rest[:200_000], self._rest[200_000:]
        if not piece and self._broken:
            raise BodyTruncatedError(0)
        return piece

    async def read_all(self, limit: int) -> bytes | None:
        body = b""
        while piece := await self.read():
            body += piece
            if len(body) > limit:
                return None
        return body


@dataclass(frozen=True)
class Reply:
    """The answer that a client gets."""

    status: int
    headers: dict[str, str]
    body: bytes
    line: dict[str, Any]
    reads: int
    identified: bool = False

    @property
    def code(self) -> str:
        """S3's error code."""
        text = self.body.decode()
        return text[text.index("<Code>") + 6 : text.index("</Code>")]

    @property
    def message(self) -> str:
        """The sentence of an error."""
        return self.element("Message")

    def element(self, tag: str) -> str:
        """Returns the text of an element of an error; empty if there is none."""
        return etree.fromstring(self.body).findtext(tag, "")

    def all(self, tag: str) -> list[str]:
        """Returns the texts of all elements with a name."""
        root = etree.fromstring(self.body)
        return [each.text or "" for each in root.iter() if str(each.tag).endswith(f"}}{tag}")]


async def own_token(_: Call) -> str:
    """The token of the gateway as a service; the double of graveler takes any."""
    return "t1.gateway"


class GatewayClock(ManualClock):
    """A clock whose sleeps can end at once."""

    def __init__(self, now_us: int) -> None:
        super().__init__(now_us)
        self.hurries = False
        self.pauses: list[float] = []
        """The sleeps that ended at once, in seconds."""

    async def sleep(self, seconds: float) -> None:
        if self.hurries:
            self.pauses.append(seconds)
        else:
            await super().sleep(seconds)


class GatewayLake:
    """The gateway, its doubles, and a client."""

    def __init__(self, audit: AuditLog | None = None) -> None:
        self.clock = GatewayClock(now_us=time.time_ns() // 1000)
        ids = SeededIds(self.clock)
        self.graveler = doubles.FakeGraveler(self.clock, ids)
        self.blocks = MemBlockStore(self.clock)
        self.transport = InProcessTransport(doubles.endpoints(self.graveler), self.clock)
        self.client = GravelerClient(self.transport)
        self.access = Access(AuthClient(self.transport), self.clock)
        self.repositories = RepositoryCache(self.client, self.clock)
        self.backend = Backend(
            graveler=self.client,
            blocks=self.blocks,
            repositories=self.repositories,
            buckets=BucketCache(self.client, self.clock),
            clock=self.clock,
            ids=ids,
            bounds=Bounds(),
            region="us-east-1",
            own_token=own_token,
        )
        authenticator = self.authenticator = Authenticator(
            self.access, self.clock, SigV4Policy(), timeout_s=self.backend.bounds.call_timeout_s
        )
        self.meters = Meters()
        self.traces = Traces(access_log=True, meters=self.meters, audit=audit)
        self.queue = request_queue(self.clock, self.meters)
        self.handler = S3Handler(
            authenticator, self.backend, self.traces, domains=("s3.test",), queue=self.queue
        )
        self._count = 0

    def secret(self, key: str) -> str:
        """Returns the secret of an access key."""
        return str(doubles.SECRETS[key])

    def create(self, name: str, *branches: str, tags: tuple[str, ...] = ()) -> Any:
        """Creates a repository; its namespace has its name."""
        self._count += 1
        repo = doubles.Repo(f"uid-{self._count}", f"mem://{name}")
        repo.branches = {branch: {} for branch in branches or ("main",)}
        repo.tags = {tag: {} for tag in tags}
        self.graveler.repos[name] = repo
        return repo

    def entry(self, repository: str, ref: str, path: str) -> Entry:
        """Returns the entry of a path."""
        repo = self.graveler.repos[repository]
        return unpack(repo.branches.get(ref, repo.tags.get(ref, {}))[path])

    def block(self, repository: str, entry: Entry) -> BlockKey:
        """Returns the block path of an entry."""
        return BlockKey(self.graveler.repos[repository].namespace, physical_path(entry.address))

    async def blocks_of(self, repository: str) -> list[str]:
        """Returns every block of a repository, after the removals that continue after answers."""
        assert await self.backend.removals.drain(5.0)
        namespace = self.graveler.repos[repository].namespace
        return [info.path for info in await self.blocks.list_page(namespace, "", "", 1000)]

    async def ask(
        self,
        method: str,
        target: str,
        query: str = "",
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        key: str = "AKIAADMIN",
        secret: str | None = None,
        presign_s: int = 0,
        received: bytes | None = None,
        length: int | None = -1,
        host: str = "s3.test",
        tamper: str = "",
    ) -> Reply:
        """Passes one request to the handler; returns the answer as the client sees it.

        Args:
            target: `/bucket/key`, not encoded.
            query: encoded.
            received: the bytes of the body that arrive before the connection breaks.
            length: Content-Length; -1 for that of the body, None for chunked.
            tamper: replaces the signature.
        """
        url = f"http://{host}{quote(target, safe='/~')}" + (f"?{query}" if query else "")
        request = AWSRequest(method, url, headers=dict(headers or {}), data=body)
        if key:
            credentials = Credentials(key, secret or doubles.SECRETS.get(key, "unknown"))
            if presign_s:
                S3SigV4QueryAuth(credentials, "s3", "us-east-1", presign_s).add_auth(request)
            else:
                S3SigV4Auth(credentials, "s3", "us-east-1").add_auth(request)
        return await self.send(request, body, host, received=received, length=length, tamper=tamper)

    async def send(
        self,
        request: AWSRequest,
        body: bytes = b"",
        host: str = "s3.test",
        *,
        received: bytes | None = None,
        length: int | None = -1,
        tamper: str = "",
    ) -> Reply:
        """Passes a request, as it was signed, to the handler. Arguments as `ask`."""
        method = request.method
        parts = urlsplit(request.url)
        pairs = [("host", host)]
        for name, value in request.headers.items():
            if name.lower() != "host":
                pairs.append((name.lower(), value))
        if tamper:
            pairs = [(n, v[:-64] + tamper * 64 if n == "authorization" else v) for n, v in pairs]
        size = len(body) if length == -1 else length
        if size is not None and (body or method in ("PUT", "POST")):
            pairs.append(("content-length", str(size)))
        data = body if received is None else received
        reader = GivenBody(data, size, broken=received is not None)
        self._count += 1
        wire_request = Request(
            method,
            parts.path.encode(),
            parts.query.encode(),
            Headers(pairs),
            reader,
            request_id=f"{self._count:020X}",
        )
        return await self._answer(wire_request, reader)

    async def post(
        self,
        bucket: str,
        fields: dict[str, str],
        file: bytes = b"text",
        *,
        filename: str | None = "a.txt",
        conditions: list[Any] | None = None,
        policy: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        key: str = "AKIAADMIN",
        signed_with: str = "",
        replaced: dict[str, str | None] | None = None,
        **more: Any,
    ) -> Reply:
        """Uploads a form, signed as a client would.

        Args:
            bucket: of the request.
            fields: without those of the signature.
            file: the bytes of the file.
            filename: None: none.
            conditions: of the policy; by default one for each field, and the bucket.
            policy: the whole policy.
            headers: of the request.
            key: the access key.
            signed_with: another secret than that of the key.
            replaced: fields changed after the signature; None: left out.
            more: arguments of `ask`.
        """
        seconds = self.clock.now_us() / 1e6
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(seconds))
        scope = [date[:8], "us-east-1", "s3", "aws4_request"]
        signed = {
            "x-amz-algorithm": "AWS4-HMAC-SHA256",
            "x-amz-credential": "/".join([key, *scope]),
            "x-amz-date": date,
        }
        if conditions is None:
            named = [{name: value} for name, value in fields.items() if not name.startswith("x-ig")]
            conditions = [{"bucket": bucket}, *named]
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds + 60))
        signed_conditions = [*conditions, *[{name: value} for name, value in signed.items()]]
        text = json.dumps(policy or {"expiration": end, "conditions": signed_conditions})
        encoded = base64.b64encode(text.encode()).decode()
        proof = f"AWS4{signed_with or doubles.SECRETS.get(key, 'unknown')}".encode()
        for step in (*scope, encoded):
            proof = hmac.digest(proof, step.encode(), "sha256")
        sent: dict[str, str | None] = {
            **fields,
            **signed,
            "policy": encoded,
            "x-amz-signature": proof.hex(),
            **(replaced or {}),
        }
        start = '--limit\r\nContent-Disposition: form-data; name="'
        parts = [f'{start}{n}"\r\n\r\n{v}\r\n'.encode() for n, v in sent.items() if v is not None]
        named_file = "" if filename is None else f'; filename="{filename}"'
        parts.append(f'{start}file"{named_file}\r\n\r\n'.encode() + file + b"\r\n--limit--\r\n")
        kind = {"content-type": "multipart/form-data; boundary=limit"}
        body = b"".join(parts)
        return await self.ask(
            "POST", f"/{bucket}", body=body, headers=kind | (headers or {}), key="", **more
        )

    async def _answer(self, wire_request: Request, reader: GivenBody) -> Reply:
        try:
            response = await self.handler(wire_request)
        except Exception as error:  # noqa: BLE001 - as the HTTP server does
            response = self.handler.refuse(wire_request, error)
        body = await _collect(response.body)
        if wire_request.method == "HEAD":
            body = b""
        # This block must not wait, because requests may run concurrently.
        with structlog.testing.capture_logs() as lines:
            self.traces.end(Exchange(wire_request, response.status, len(body), 0, 0.001, None))
        (line,) = [line for line in lines if line["event"] == "s3"]
        headers = {name.lower(): value for name, value in response.headers}
        if response.length is not None:
            headers["content-length"] = str(response.length)
        identified = wire_request.identified
        return Reply(response.status, headers, body, dict(line), reader.reads, identified)


async def _collect(body: bytes | AsyncIterator[bytes | memoryview] | FileSlice) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, FileSlice):
        with body.file as file:
            file.seek(body.offset)
            return file.read(body.count)
    return b"".join([bytes(piece) async for piece in body])

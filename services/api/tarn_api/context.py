"""What handlers get: graveler and auth as the caller, and the facts of the installation. They keep no state."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from tarn.block.port import BlockStore, PresignsReads
from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.core.access.actions import Action, object_resource, ref_object_resource
from tarn.core.access.policy import Grant
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.value import hot_value
from tarn.gate.addresses import AddressRate
from tarn.gate.request_counts import RequestCounts
from tarn.gate.sign_in import SignIn
from tarn.objects.backend import ObjectBackend
from tarn.rpc.wire.call import Call
from tarn_api.bodies import BodyBounds
from tarn_api.feed.feeds import Feeds
from tarn_api.requests import ApiRequest
from tarn_api.rpcs import CHANGE_S, READ_S, Rpcs
from tarn_api.signing_in import Authenticator
from tarn_api.symlinks import SymlinkLimits
from tarn_api.traces import Trace

__all__ = ["CHANGE_S", "READ_S", "Backend", "Context", "S3Endpoint"]


@dataclass(frozen=True, slots=True)
class S3Endpoint:
    """Where S3 clients reach this installation, for pages that tell it.

    Attributes:
        url: of the endpoint; empty: it has the host of the page.
        port: of the endpoint, if there is no URL.
        is_tls: whether it speaks TLS, if there is no URL.
        region: that clients sign for.
    """

    url: str = ""
    port: int = 8000
    is_tls: bool = False
    region: str = "us-east-1"


@dataclass(frozen=True, slots=True)
class Backend:
    """Shared by all requests.

    Attributes:
        graveler: metadata.
        auth: users and key pairs.
        rpcs: both, for calls that are passed on as they are.
        sign_in: exchanges key pairs for tokens.
        clock: time.
        version: of Tarn.
        namespace_prefix: begins the storage namespace of each repository, such as `local://`.
        failures: how often an address may fail to sign in.
        objects: moves the bytes of objects.
        feeds: the streams of events of branches.
        bodies: limits of the bodies of objects.
        presigned_links: whether clients get URLs of the bucket.
        s3: where S3 clients reach the installation.
        previewing: held while a preview of retention rules reads a history: one at a time.
        reading_parquet: held while a child process reads a Parquet file for its preview: one at a time.
        reading_markdown: held while a thread renders Markdown of users: one at a time.
        audit_folder: of the audit log's files on this machine; None: there are none.
        searching_audit: held while a search reads them: one at a time.
        symlink_limits: of a request that writes symlink manifests.
        writing_symlinks: held by such requests: two at a time.
        request_counts: of this process; None: requests are not counted by month.
    """

    graveler: GravelerClient
    auth: AuthClient
    rpcs: Rpcs
    sign_in: SignIn
    clock: Clock
    version: str
    namespace_prefix: str
    failures: AddressRate
    objects: ObjectBackend
    feeds: Feeds
    bodies: BodyBounds = field(default_factory=BodyBounds)
    presigned_links: bool = True
    s3: S3Endpoint = field(default_factory=S3Endpoint)
    previewing: asyncio.Lock = field(default_factory=asyncio.Lock)
    reading_parquet: asyncio.Lock = field(default_factory=asyncio.Lock)
    reading_markdown: asyncio.Lock = field(default_factory=asyncio.Lock)
    audit_folder: Path | None = None
    searching_audit: asyncio.Lock = field(default_factory=asyncio.Lock)
    symlink_limits: SymlinkLimits = field(default_factory=SymlinkLimits)
    request_counts: RequestCounts | None = None
    writing_symlinks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))

    def call(self, request_id: str, caller_token: str, timeout_s: float) -> Call:
        """Returns the context of a call that begins now."""
        return Call(request_id, caller_token, self.clock.monotonic() + timeout_s)


@hot_value
class Context:
    """One request. It is the `Caller` of `tarn.objects`.

    Attributes:
        backend: see `Backend`.
        request: as Starlette has it: headers, and the body of an operation that reads it itself.
        request_id: in every log line and answer.
        grant: of its caller; None for an operation without one.
        trace: what is recorded of it.
        authenticator: finds the callers of requests.
        headers: more headers of the answer, such as a cookie.
    """

    backend: Backend
    request: ApiRequest
    request_id: str
    grant: Grant | None
    trace: Trace
    authenticator: Authenticator
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def caller_token(self) -> str:
        """Proves who the caller is; empty for an operation without one. A secret."""
        return "" if self.grant is None else self.grant.caller_token

    @property
    def remote(self) -> str:
        """The address of the client, `host:port`."""
        return self.trace.remote

    @property
    def began(self) -> float:
        """When the request was received, on the monotonic clock in seconds."""
        return self.trace.started

    @property
    def view(self) -> str:
        """Requests of REST come through no bucket view."""
        return ""

    @property
    def objects(self) -> ObjectBackend:
        """Moves the bytes of objects."""
        return self.backend.objects

    @property
    def blocks(self) -> BlockStore:
        """The bytes of objects."""
        return self.backend.objects.blocks

    @property
    def linking_blocks(self) -> PresignsReads | None:
        """The bytes of objects, if clients get URLs to read them."""
        blocks = self.blocks
        if self.backend.presigned_links and isinstance(blocks, PresignsReads):
            return blocks
        return None

    @property
    def graveler(self) -> GravelerClient:
        """Metadata."""
        return self.backend.graveler

    async def authenticate(self, call: Call) -> Grant:
        """Asks for the grant of the caller again, for an answer that takes long; as for a request."""
        return await self.authenticator.grant(self.request, call, self.trace)

    def read(self) -> Call:
        """Returns a call that reads, as the caller."""
        return self._call(READ_S)

    def change(self) -> Call:
        """Returns a call that changes something, as the caller."""
        return self._call(CHANGE_S)

    def require(self, action: Action, resource: str) -> None:
        """Raises `TarnError` DENIED unless the caller may do that, for operations that ask and do nothing.

        What is done is decided by graveler and auth.
        """
        if self.grant is None:
            raise TarnError(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, "there is no caller")
        self.grant.require(action, resource)

    def may(self, action: Action, resource: str) -> bool:
        """Whether the caller may do that: for what a page offers. What is done is decided by graveler and auth."""
        return self.grant is not None and self.grant.allows(action, resource)

    def _call(self, timeout_s: float) -> Call:
        return self.backend.call(self.request_id, self.caller_token, timeout_s)

    def may_read(self, repository: str, ref: str, path: str) -> bool:
        """Whether the caller may read an object: before a link to it is given out, which needs no permission."""
        return self.may(Action.READ_REPO, ref_object_resource(repository, ref, path))

    def require_write(
        self, repository: str, branch: str, path: str, *, reads: bool = False
    ) -> None:
        """Refuses a caller who may not write a path, before bytes are moved for it or links are given out. Graveler
        decides again when the object is staged.

        Args:
            repository: of the path.
            branch: of the path.
            path: to be written.
            reads: whether the answer tells about the object that is there (`If-Match`).

        Raises:
            TarnError: DENIED, ACCESS_DENIED; INVALID for names that nothing can have.
        """
        assert self.grant is not None, "operations that write are not public"
        self.grant.require(Action.WRITE_REPO, object_resource(repository, branch, path))
        if reads:
            self.grant.require(Action.READ_REPO, ref_object_resource(repository, branch, path))

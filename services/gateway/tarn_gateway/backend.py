"""The resources that operations use: metadata, blocks, time and limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from tarn.aio.task_set import TaskSet
from tarn.block.port import BlockStore
from tarn.client.graveler import GravelerClient
from tarn.core.clock import Clock, IdSource
from tarn.rpc.wire.call import Call
from tarn_gateway.bodies.checksums import Algorithm
from tarn_gateway.bodies.payload import Payload, PayloadPolicy, open_payload
from tarn_gateway.documents.reading import DOCUMENT_MEMORY_BYTES, DocumentReader
from tarn_gateway.http import Request
from tarn_gateway.key_locks import KeyLocks
from tarn_gateway.repository_cache import RepositoryCache
from tarn_gateway.s3request import S3Request

__all__ = ["Backend", "Bounds"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of operations.

    Attributes:
        call_timeout_s: time limit of one call to graveler or auth.
        list_timeout_s: time limit of a listing, with the authentication of its caller; above `call_timeout_s` because
            many deleted keys may precede a page.
        complete_timeout_s: time limit for graveler to stage a completed upload.
        small_body_bytes: bodies up to this size are held in memory and stored in one piece.
        refs_max: number of refs that a listing of a whole bucket searches.
        removals_max: number of blocks that may be removed after their answers concurrently; further
            answers wait for their removal.
        document_memory_bytes: see `DocumentReader`.
        payload: the bodies that are accepted.
    """

    call_timeout_s: float = 10.0
    list_timeout_s: float = 20.0
    complete_timeout_s: float = 60.0
    small_body_bytes: int = 64 * 1024
    refs_max: int = 10_000
    removals_max: int = 256
    document_memory_bytes: int = DOCUMENT_MEMORY_BYTES
    payload: PayloadPolicy = field(default_factory=PayloadPolicy)


@dataclass(frozen=True, slots=True)
class Backend:
    """The shared resources of all operations, which keep no state of their own.

    Attributes:
        own_token: returns the caller token of this gateway as a service, which proves that it made an address.
        locks: locks of keys that are written conditionally.
        documents: reads the documents of requests, within their bounds.
        removals: blocks of refused writes that are being removed after the answers.
    """

    graveler: GravelerClient
    blocks: BlockStore
    repositories: RepositoryCache
    clock: Clock
    ids: IdSource
    bounds: Bounds
    region: str
    own_token: Callable[[Call], Awaitable[str]]
    locks: KeyLocks = field(default_factory=KeyLocks)
    documents: DocumentReader = field(default_factory=DocumentReader)
    removals: TaskSet = field(default_factory=TaskSet)

    def call(self, request: S3Request, timeout_s: float = 0.0) -> Call:
        """Returns the context of one call to graveler. Its time begins now: the transfer of a body is not
        bounded, so a request as a whole has no deadline."""
        now = self.clock.monotonic()
        return self._call(request, now + (timeout_s or self.bounds.call_timeout_s))

    async def proven_call(self, request: S3Request, timeout_s: float = 0.0) -> Call:
        """Returns the context of a call that only a gateway may make for a user (`Rule.through`).

        Raises:
            TarnError: the errors of auth.
        """
        call = self.call(request, timeout_s)
        return replace(call, service_token=await self.own_token(call))

    def opening_call(self, request: S3Request, timeout_s: float = 0.0) -> Call:
        """Returns the context of calls before any byte of a body or a block is moved. Their time began with the
        request: authentication and all of them together take no longer than one call may."""
        return self._call(request, request.began + (timeout_s or self.bounds.call_timeout_s))

    @staticmethod
    def _call(request: S3Request, deadline: float) -> Call:
        return Call(request.http.request_id, request.granted.grant.caller_token, deadline)

    def payload(
        self,
        request: S3Request,
        *,
        head: Request | None = None,
        wanted: frozenset[Algorithm] = frozenset(),
    ) -> Payload:
        """Returns the request's body.

        Args:
            request: the request.
            head: its headers replace the request's; see `completing`.
            wanted: checksums to compute even if the client sent none.

        Raises:
            S3Error: as `open_payload`.
        """
        key = request.granted.signing_key
        return open_payload(head or request.http, request.signed, key, self.bounds.payload, wanted)

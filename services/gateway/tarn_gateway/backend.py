"""What operations work with: metadata, blocks, time, and the bounds they keep."""

from __future__ import annotations

from dataclasses import dataclass, field

from tarn.aio.task_set import TaskSet
from tarn.block.port import BlockStore
from tarn.client.graveler import GravelerClient
from tarn.core.clock import Clock, IdSource
from tarn.rpc.wire.call import Call
from tarn_gateway.bodies.checksums import Algorithm
from tarn_gateway.bodies.payload import Payload, PayloadPolicy, open_payload
from tarn_gateway.http import Request
from tarn_gateway.key_locks import KeyLocks
from tarn_gateway.repository_cache import RepositoryCache
from tarn_gateway.s3request import S3Request

__all__ = ["Backend", "Bounds"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of operations.

    Attributes:
        call_timeout_s: how long one call to graveler or auth may take.
        list_timeout_s: how long a listing may search; above `call_timeout_s` because a page may lie
            behind many deleted keys.
        complete_timeout_s: how long graveler may take to stage a completed upload.
        small_body_bytes: bodies up to this size are held in memory and stored in one piece.
        refs_max: refs that a listing of a whole bucket looks through.
        removals_max: blocks that may be removed behind answers at a time; further answers wait for
            the removal of theirs.
        payload: which bodies are accepted.
    """

    call_timeout_s: float = 10.0
    list_timeout_s: float = 30.0
    complete_timeout_s: float = 60.0
    small_body_bytes: int = 64 * 1024
    refs_max: int = 10_000
    removals_max: int = 256
    payload: PayloadPolicy = field(default_factory=PayloadPolicy)


@dataclass(frozen=True, slots=True)
class Backend:
    """Everything that operations reach for; they keep no state of their own.

    Attributes:
        locks: of keys that are written conditionally.
        removals: blocks of refused writes that are being removed behind the answers.
    """

    graveler: GravelerClient
    blocks: BlockStore
    repositories: RepositoryCache
    clock: Clock
    ids: IdSource
    bounds: Bounds
    region: str
    locks: KeyLocks = field(default_factory=KeyLocks)
    removals: TaskSet = field(default_factory=TaskSet)

    def call(self, request: S3Request, timeout_s: float = 0.0) -> Call:
        """The context of one call to graveler, its time beginning now: bodies take as long as they
        take, so a request as a whole has no deadline."""
        return Call(
            request.http.request_id,
            request.granted.grant.caller_token,
            self.clock.monotonic() + (timeout_s or self.bounds.call_timeout_s),
        )

    def payload(
        self,
        request: S3Request,
        *,
        head: Request | None = None,
        wanted: frozenset[Algorithm] = frozenset(),
    ) -> Payload:
        """The request's body.

        Args:
            request: whose body.
            head: read its headers instead; see `completing`.
            wanted: checksums to compute although the client sent none.

        Raises:
            S3Error: as `open_payload`.
        """
        key = request.granted.signing_key
        return open_payload(head or request.http, request.signed, key, self.bounds.payload, wanted)

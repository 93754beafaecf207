"""The resources that operations use: metadata, blocks, time and limits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from tarn.client.auth import SigningGrant
from tarn.core.errors import TarnError
from tarn.core.ids import parse_repository_id
from tarn.objects.backend import ObjectBackend, ObjectBounds
from tarn.objects.checksums import NO_ALGORITHMS, Algorithm
from tarn.rpc.wire.call import Call
from tarn_gateway.bodies.payload import Payload, PayloadPolicy, open_payload
from tarn_gateway.bucket_cache import BucketCache, Place
from tarn_gateway.cors import CorsCache
from tarn_gateway.documents.reading import DOCUMENT_MEMORY_BYTES, DocumentReader
from tarn_gateway.http import Request
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["Backend", "Bounds", "BucketMode", "check_bucket_name"]

BucketMode = Literal["view", "repository", "refuse"]
"""What CreateBucket makes; see `docs/user/buckets.md`."""

_SERVICE: Final = Place("")


def check_bucket_name(bucket: str) -> None:
    """Raises S3Error InvalidBucketName for a name that nothing can have."""
    try:
        parse_repository_id(bucket)
    except TarnError as error:
        raise S3Error("InvalidBucketName", error.message, BucketName=bucket[:80]) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds(ObjectBounds):
    """The limits of operations, beside those of what moves objects.

    Attributes:
        list_timeout_s: time limit of a listing, with the authentication of its caller; above `call_timeout_s` because
            many deleted keys may precede a page.
        delete_timeout_s: time limit for graveler to decide all conditional deletes of one request.
        refs_max: number of refs that a listing of a whole bucket searches.
        document_memory_bytes: see `DocumentReader`.
        payload: the bodies that are accepted.
    """

    list_timeout_s: float = 20.0
    delete_timeout_s: float = 60.0
    refs_max: int = 10_000
    document_memory_bytes: int = DOCUMENT_MEMORY_BYTES
    payload: PayloadPolicy = field(default_factory=PayloadPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend(ObjectBackend):
    """The shared resources of all operations, which keep no state of their own.

    Attributes:
        buckets: what bucket names stand for.
        cors: the CORS rules of buckets.
        bucket_mode: what CreateBucket makes.
        documents: reads the documents of requests, within their bounds.
    """

    bounds: Bounds = field(default_factory=Bounds)
    buckets: BucketCache
    region: str
    bucket_mode: BucketMode = "view"
    documents: DocumentReader = field(default_factory=DocumentReader)
    cors: CorsCache = field(init=False)

    def __post_init__(self) -> None:
        cors = CorsCache(self.graveler, self.clock, self.ids, self.own_token)
        object.__setattr__(self, "cors", cors)

    async def place(self, request: S3Request, bucket: str, *, is_fresh: bool = False) -> Place:
        """Returns what the bucket of a request's copy source stands for; `is_fresh`: not according to the cache.

        Raises:
            S3Error: InvalidBucketName.
            TarnError: errors of graveler.
        """
        if is_fresh:
            self.buckets.forget(bucket)
        return await self.resolve(request.http, request.granted, bucket, request.began)

    async def is_public(self, request: S3Request) -> bool:
        """Whether anonymous requests may read what the bucket of a request shows, by a read that is sent now.

        Raises:
            TarnError: errors of graveler.
        """
        bucket = request.address.bucket
        return (
            bool(request.place.ref) and (await self.place(request, bucket, is_fresh=True)).is_public
        )

    async def resolve(
        self,
        http: Request,
        granted: SigningGrant,
        bucket: str,
        began: float,
        *,
        is_fresh: bool = False,
    ) -> Place:
        """Returns what a bucket name stands for, perhaps what it did some seconds ago. Bindings of the caller's session
        key precede repositories and views.

        Args:
            http: the request.
            granted: its caller.
            bucket: the name.
            began: when the request was received.
            is_fresh: ask graveler, unless the name is known as that of a repository.

        Raises:
            S3Error: InvalidBucketName for a name that nothing can have.
            TarnError: errors of graveler.
        """
        if not bucket:
            return _SERVICE
        for binding in granted.grant.bindings:
            if binding.bucket == bucket:
                # Without a version: nothing can change it, so graveler has nothing to confirm.
                return Place(binding.repository, binding.ref)
        place = self.buckets.cached(bucket)
        if place is not None and not (is_fresh and place.ref):
            return place
        check_bucket_name(bucket)
        deadline = began + self.bounds.call_timeout_s
        call = Call(http.request_id, granted.grant.caller_token, deadline)
        proven = replace(call, service_token=await self.own_token(call))
        if place is None:
            place = await self.buckets.shared(proven, bucket)
            if not (is_fresh and place.ref):
                return place
        return await self.buckets.fresh(proven, bucket)

    def payload(
        self,
        request: S3Request,
        *,
        head: Request | None = None,
        wanted: frozenset[Algorithm] = NO_ALGORITHMS,
    ) -> Payload:
        """Returns the request's body.

        Args:
            request: the request.
            head: its headers replace the request's; see `completing`.
            wanted: checksums to compute even if the client sent none.

        Raises:
            S3Error: as `open_payload`.
        """
        request.is_body_taken = True
        key = request.granted.signing_key
        return open_payload(head or request.http, request.signed, key, self.bounds.payload, wanted)

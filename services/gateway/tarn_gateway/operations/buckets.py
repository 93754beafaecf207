"""Operations on buckets. A bucket is a repository, or a view of one of its refs."""

from __future__ import annotations

import re

from tarn.core.errors import Kind, TarnError
from tarn.rpc.wire.call import Call
from tarn_gateway.backend import Backend
from tarn_gateway.documents import xml_out
from tarn_gateway.http import Response
from tarn_gateway.requests.query import Query
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["get_bucket_location", "get_bucket_versioning", "head_bucket", "list_buckets"]

_PAGE = 1000
_BUCKETS_MAX = 10_000
"""S3's bound of `max-buckets`, and its quota of buckets."""
_TOKEN_CHARS_MAX = 1024
_PARAMETERS = ("prefix", "max-buckets", "continuation-token", "bucket-region")
_REGION = re.compile(r"[a-z0-9-]{1,64}")


async def list_buckets(backend: Backend, request: S3Request) -> Response:
    """ListBuckets: the repositories that the caller may read, and the views of them, at most 10,000 per page.

    Graveler filters. Its page token is the continuation token, which is also opaque in S3. As in S3, a request with any
    parameter is told the region of each bucket. All buckets are in one region, so in every other one there is none. The
    names that a session key binds, which have no creation time, are shown if there is only one page.
    """
    query = request.query
    prefix, token = query.text("prefix"), query.text("continuation-token")
    size = query.integer("max-buckets", _BUCKETS_MAX, least=1, most=_BUCKETS_MAX + 1)
    if size > _BUCKETS_MAX:
        raise _invalid("max-buckets", f"must be at most {_BUCKETS_MAX}", query)
    if len(token) > _TOKEN_CHARS_MAX:
        raise _invalid("continuation-token", "was not issued by this endpoint", query)
    region = query.text("bucket-region") if "bucket-region" in query else backend.region
    if region != backend.region:
        if not _REGION.fullmatch(region):
            raise _invalid("bucket-region", "is not the name of a region", query)
        size, token = 0, ""
    call = backend.opening_call(request, backend.bounds.list_timeout_s)
    buckets: list[xml_out.ListedBucket] = []
    while len(buckets) < size:
        page_size = min(_PAGE, size - len(buckets))
        found, token = await _page(backend, call, prefix, page_size, token)
        buckets += found
        if not token:
            break
    bound = {each.bucket for each in request.granted.grant.bindings}
    if bound and region == backend.region:
        buckets = [each for each in buckets if each.name not in bound]
        if "max-buckets" not in query and "continuation-token" not in query:
            buckets += [xml_out.ListedBucket(name, 0) for name in bound if name.startswith(prefix)]
            buckets.sort(key=lambda each: each.name)
    document = xml_out.list_buckets(
        buckets,
        request.granted.grant.user_id,
        prefix=prefix,
        continuation_token=token,
        region=region if any(name in query for name in _PARAMETERS) else "",
    )
    return xml_out.answer(document)


def _invalid(name: str, fault: str, query: Query) -> S3Error:
    value = query.text(name)[:80]
    return S3Error("InvalidArgument", f"{name} {fault}.", ArgumentName=name, ArgumentValue=value)


async def _page(
    backend: Backend, call: Call, prefix: str, size: int, token: str
) -> tuple[list[xml_out.ListedBucket], str]:
    """Returns some bucket names, and the token of the next ones."""
    try:
        page = await backend.graveler.list_buckets(
            call, prefix=prefix, page_size=size, page_token=token
        )
    except TarnError as error:
        if error.kind is not Kind.UNIMPLEMENTED:
            raise
        # A replica of the last release, which has no views.
        old = await backend.graveler.list_repositories(
            call, prefix=prefix, page_size=size, page_token=token
        )
        rows = [(each.repository_id, each.create_time) for each in old.repositories]
        next_token = old.next_page_token
    else:
        rows = [(each.bucket_id, each.create_time) for each in page.buckets]
        next_token = page.next_page_token
    return [xml_out.ListedBucket(name, time.ToMicroseconds()) for name, time in rows], next_token


async def head_bucket(backend: Backend, request: S3Request) -> Response:
    """HeadBucket: whether the repository exists, and the ref that a view shows; not according to a cache."""
    await backend.repositories.fresh(backend.call(request), request.repository)
    if request.place.ref:
        await backend.graveler.get_commit(
            backend.call(request), request.repository, request.place.ref
        )
    return Response(200, [("x-amz-bucket-region", backend.region)])


async def get_bucket_location(backend: Backend, request: S3Request) -> Response:
    """GetBucketLocation: the configured region; S3 returns an empty element for us-east-1."""
    await backend.repositories.get(backend.call(request), request.repository)
    region = "" if backend.region == "us-east-1" else backend.region
    return xml_out.answer(xml_out.location_constraint(region))


async def get_bucket_versioning(backend: Backend, request: S3Request) -> Response:
    """GetBucketVersioning: never enabled; commits are versions."""
    await backend.repositories.get(backend.call(request), request.repository)
    return xml_out.answer(xml_out.versioning_configuration())

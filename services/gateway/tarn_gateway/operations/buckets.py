"""Operations on buckets. A bucket is a repository, or a view of one of its refs."""

from __future__ import annotations

from tarn.core.errors import Kind, TarnError
from tarn_gateway.backend import Backend
from tarn_gateway.documents import xml_out
from tarn_gateway.http import Response
from tarn_gateway.s3request import S3Request

__all__ = ["get_bucket_location", "get_bucket_versioning", "head_bucket", "list_buckets"]

_PAGE = 1000


async def list_buckets(backend: Backend, request: S3Request) -> Response:
    """ListBuckets: the repositories that the caller may read, and the views of them, at most 1,000 per page.

    Graveler filters. Its page token is the continuation token, which is also opaque in S3. A client
    that sends neither `max-buckets` nor a token expects all buckets (S3 before 2024 had no pages). It
    receives all, up to 10,000, which is S3's own quota of buckets; and the names that its session key binds, which
    have no creation time.
    """
    query = request.query
    prefix, token = query.text("prefix"), query.text("continuation-token")
    paged = "max-buckets" in query or bool(token)
    size = query.integer("max-buckets", _PAGE, least=1, most=_PAGE)
    buckets: list[xml_out.ListedBucket] = []
    while True:
        found, token = await _page(backend, request, prefix, size, token)
        buckets += found
        if paged or not token or len(buckets) >= 10 * _PAGE:
            break
    bound = {each.bucket for each in request.granted.grant.bindings}
    if bound:
        buckets = [each for each in buckets if each.name not in bound]
        if not paged:
            buckets += [xml_out.ListedBucket(name, 0) for name in bound if name.startswith(prefix)]
            buckets.sort(key=lambda each: each.name)
    user_id = request.granted.grant.user_id
    return xml_out.answer(
        xml_out.list_buckets(buckets, user_id, prefix=prefix, continuation_token=token)
    )


async def _page(
    backend: Backend, request: S3Request, prefix: str, size: int, token: str
) -> tuple[list[xml_out.ListedBucket], str]:
    """Returns some bucket names, and the token of the next ones."""
    call = backend.call(request)
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

"""Operations on buckets. A bucket is a repository, or a view of one of its refs."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
_ANY = -(10**10)
_TOKEN_CHARS_MAX = 1024
_PARAMETERS = ("prefix", "max-buckets", "continuation-token", "bucket-region")
_REGION = re.compile(r"[a-z0-9-]{1,64}")


async def list_buckets(backend: Backend, request: S3Request) -> Response:
    """ListBuckets: the repositories that the caller may read, the views of them, and the names that a session key
    binds, which have no creation time; at most 10,000 per page.

    Graveler filters. As in S3, a request with any parameter is told the region of each bucket. All buckets are in one
    region, so in every other one there is none.
    """
    query = request.query
    prefix, token = query.text("prefix"), query.text("continuation-token")
    size = query.integer("max-buckets", _BUCKETS_MAX, least=_ANY, most=_BUCKETS_MAX + 1)
    if not 1 <= size <= _BUCKETS_MAX:
        told = f"Argument max-buckets must be an integer between 1 and {_BUCKETS_MAX}."
        raise _invalid("max-buckets", told, query)
    if len(token) > _TOKEN_CHARS_MAX:
        raise _foreign(query)
    region = query.text("bucket-region") if "bucket-region" in query else backend.region
    if region != backend.region:
        if not _REGION.fullmatch(region):
            raise _invalid("bucket-region", "bucket-region is not the name of a region.", query)
        size, token = 0, ""
    buckets: list[xml_out.ListedBucket] = []
    if size:
        bound = frozenset(each.bucket for each in request.granted.grant.bindings)
        call = backend.opening_call(request, backend.bounds.list_timeout_s)
        position = _Position.of(token, query) if bound else _Position(token=token)
        buckets, position = await _merged(backend, call, prefix, size, position, bound)
        token = position.text if bound else position.token
    document = xml_out.list_buckets(
        buckets,
        request.granted.grant.user_id,
        prefix=prefix,
        continuation_token=token,
        region=region if any(name in query for name in _PARAMETERS) else "",
    )
    return xml_out.answer(document)


@dataclass(frozen=True, slots=True)
class _Position:
    """Where a page of ListBuckets begins.

    Attributes:
        after: the last name of the page before. Names of graveler's page up to it are left out.
        token: of graveler's page; it is also the continuation token of callers without bindings.
        is_end: whether there is no page.
    """

    after: str = ""
    token: str = ""
    is_end: bool = False

    @classmethod
    def of(cls, text: str, query: Query) -> _Position:
        """Returns the position of a continuation token; raises S3Error InvalidArgument."""
        after, slash, token = text.partition("/")
        if text and not slash:
            raise _foreign(query)
        return cls(after, token)

    @property
    def text(self) -> str:
        """The continuation token; empty at the end."""
        return "" if self.is_end else f"{self.after}/{self.token}"


async def _merged(
    backend: Backend, call: Call, prefix: str, size: int, position: _Position, bound: frozenset[str]
) -> tuple[list[xml_out.ListedBucket], _Position]:
    """Returns a page of the names that graveler lists, and of bound names, in order; and where the next page begins.

    A page of graveler's is left behind when all of it is in a page of ours. Until then the next page begins with it
    again.
    """
    after, token = position.after, position.token
    buckets: list[xml_out.ListedBucket] = []
    while len(buckets) < size:
        page_size = min(_PAGE, size - len(buckets))
        found, following = await _page(backend, call, prefix, page_size, token)
        rows = [each for each in found if each.name > after and each.name not in bound]
        # A bound name belongs to this page of graveler's if it precedes the next one.
        last = found[-1].name if found else after
        names = [each for each in bound if each.startswith(prefix) and each > after]
        rows += [xml_out.ListedBucket(each, 0) for each in names if each <= last or not following]
        rows.sort(key=lambda each: each.name)
        taken = rows[: size - len(buckets)]
        buckets += taken
        if len(taken) < len(rows):
            return buckets, _Position(taken[-1].name, token)
        after, token = max(after, last), following
        if not token:
            return buckets, _Position(is_end=True)
    return buckets, _Position(after, token)


def _invalid(name: str, text: str, query: Query) -> S3Error:
    value = query.text(name)[:80]
    return S3Error("InvalidArgument", text, ArgumentName=name, ArgumentValue=value)


def _foreign(query: Query) -> S3Error:
    name = "continuation-token"
    return _invalid(name, f"{name} was not issued by this endpoint.", query)


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

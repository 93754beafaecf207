"""PutObject. `tarn.objects.writing` stores the body and stages the entry."""

from __future__ import annotations

from typing import Final

from tarn.core.condition import ANY, UNCONDITIONAL, WriteCondition
from tarn.core.entry_check import LINEAGE_BYTES_MAX
from tarn.core.ids import BranchId, parse_path
from tarn.core.refs import branch_to_write
from tarn.objects.checksums import EMPTY_MD5
from tarn.objects.conditions import quoted
from tarn.objects.writing import check_branch, store_object
from tarn_gateway.backend import Backend
from tarn_gateway.bodies.checksums import checksum_headers
from tarn_gateway.bodies.payload import Payload
from tarn_gateway.http import Headers, Response
from tarn_gateway.operations.conditional import operation_id, requested_condition
from tarn_gateway.requests.object_headers import parse_object_headers
from tarn_gateway.requests.tagging import parse_tagging
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["lineage_of", "put_object"]

_AUDIT: Final = "https://audit.example.org/hadoop/"


async def put_object(backend: Backend, request: S3Request) -> Response:
    """PutObject."""
    condition = requested_condition(request)
    target = request.target
    branch, path = branch_to_write(target.ref), target.path
    if path:
        parse_path(path)
    about = parse_object_headers(request.headers)  # refuses before the body is read
    tags = parse_tagging(request.headers)
    payload = backend.payload(request)
    if not path:
        return await _put_root(backend, request, branch, payload, condition)
    entry = await store_object(
        backend,
        request,
        await backend.repository(request, request.repository),
        branch,
        path,
        payload,
        about,
        tags=tags,
        condition=condition,
        operation=operation_id(backend, request)
        if condition is not UNCONDITIONAL and condition
        else "",
        lineage=lineage_of(request.headers),
    )
    return Response(200, [("ETag", quoted(entry.etag)), *checksum_headers(entry.checksums)])


async def _put_root(
    backend: Backend,
    request: S3Request,
    branch: BranchId,
    payload: Payload,
    condition: WriteCondition,
) -> Response:
    """Answers a PUT of the directory marker `main/`, which always exists (see `reading`): stores nothing."""
    if payload.size or not request.target.slash:
        text = "The key must name an object on a branch: <branch>/<path>."
        raise S3Error("InvalidArgument", text, ArgumentName="key")
    await payload.read_all(0)
    await check_branch(backend, request.repository, branch, backend.call(request))
    etag = EMPTY_MD5.hex()
    if condition and condition.if_match not in (ANY, etag):
        raise S3Error("PreconditionFailed")
    return Response(200, [("ETag", quoted(etag))])


def lineage_of(headers: Headers) -> str:
    """Returns the audit header that S3A sends as Referer: job, task attempt and user of a write."""
    referer = headers.get("referer")
    if referer is None or not referer.startswith(_AUDIT) or len(referer) > LINEAGE_BYTES_MAX:
        return ""
    return referer

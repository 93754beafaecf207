"""CORS rules of a bucket. They belong to the bucket name: a view has rules of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tarn.core.cors import cors_to_json, parse_cors
from tarn.core.errors import TarnError
from tarn.rpc.wire.call import Call
from tarn_gateway.backend import Backend
from tarn_gateway.documents import xml_out
from tarn_gateway.documents.cors import CORS_DOCUMENT_BYTES_MAX, cors_document, cors_parser
from tarn_gateway.http import Response
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["delete_bucket_cors", "get_bucket_cors", "put_bucket_cors"]

_NONE: Final = ""


def _call(backend: Backend, request: S3Request) -> Call:
    """Not through the view: these calls are about it, not about what it shows."""
    return replace(backend.call(request), bucket="")


async def get_bucket_cors(backend: Backend, request: S3Request) -> Response:
    """GetBucketCors; not according to a cache."""
    bucket = request.address.bucket
    found = await backend.graveler.get_bucket_cors(_call(backend, request), bucket)
    rules = parse_cors(found.rules_json)
    if not rules:
        raise S3Error("NoSuchCORSConfiguration", BucketName=bucket)
    return xml_out.answer(cors_document(rules))


async def put_bucket_cors(backend: Backend, request: S3Request) -> Response:
    """PutBucketCors: replaces all rules."""
    payload = backend.payload(request)
    user_id = request.granted.grant.user_id
    rules = await backend.documents.read(payload, user_id, CORS_DOCUMENT_BYTES_MAX, cors_parser)
    try:
        rules_json = cors_to_json(rules)
    except TarnError as error:
        raise S3Error("InvalidRequest", error.message) from None
    await _set(backend, request, rules_json)
    return Response(200)


async def delete_bucket_cors(backend: Backend, request: S3Request) -> Response:
    """DeleteBucketCors; succeeds without rules, too."""
    await _set(backend, request, _NONE)
    return Response(204)


async def _set(backend: Backend, request: S3Request, rules_json: str) -> None:
    bucket = request.address.bucket
    try:
        await backend.graveler.set_bucket_cors(
            _call(backend, request), bucket, rules_json, is_view=bool(request.place.ref)
        )
    finally:
        backend.cors.forget(bucket)

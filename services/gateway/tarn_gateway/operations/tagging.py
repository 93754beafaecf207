"""GetObjectTagging, PutObjectTagging and DeleteObjectTagging. `tarn.objects.rewriting` changes the object."""

from __future__ import annotations

import dataclasses

from tarn.core.entry import unpack
from tarn.core.object_tags import Tags
from tarn.objects.rewriting import ObjectTooLargeError, ReplacedAgainError, rewrite
from tarn_gateway.backend import Backend
from tarn_gateway.documents import xml_out
from tarn_gateway.documents.tagging import TAGGING_BYTES_MAX, tagging_document, tagging_parser
from tarn_gateway.http import Response
from tarn_gateway.operations.reading import root_marker
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["delete_object_tagging", "get_object_tagging", "put_object_tagging"]


async def get_object_tagging(backend: Backend, request: S3Request) -> Response:
    """GetObjectTagging. An object without tags has an empty set, as in S3."""
    target = request.target
    tags: Tags = ()
    if target.path:
        found = await backend.graveler.lookup(
            backend.call(request), request.repository, target.ref, target.path
        )
        tags = unpack(found.entry).tags
    else:
        await root_marker(backend, request)
    return xml_out.answer(tagging_document(tags))


async def put_object_tagging(backend: Backend, request: S3Request) -> Response:
    """PutObjectTagging: replaces all tags."""
    _require_path(request)
    payload = backend.payload(request)
    user_id = request.granted.grant.user_id
    tags = await backend.documents.read(payload, user_id, TAGGING_BYTES_MAX, tagging_parser)
    await _replace(backend, request, tags)
    return Response(200)


async def delete_object_tagging(backend: Backend, request: S3Request) -> Response:
    """DeleteObjectTagging: removes all tags."""
    _require_path(request)
    await _replace(backend, request, ())
    return Response(204)


def _require_path(request: S3Request) -> None:
    """Refuses a key that no write can have, before the body is read."""
    if not (request.branch and request.path):
        raise S3Error("InvalidArgument", "The key must name an object on a branch.")


async def _replace(backend: Backend, request: S3Request, tags: Tags) -> None:
    """Gives the request's object other tags.

    Raises:
        S3Error: OperationAborted: other writes replaced the object again and again; InvalidRequest: it is too large.
        TarnError: as `rewrite`.
    """
    try:
        await rewrite(
            backend,
            request,
            request.repository,
            request.branch,
            request.path,
            lambda entry: dataclasses.replace(entry, tags=tags),
        )
    except ReplacedAgainError as error:
        raise S3Error("OperationAborted") from error
    except ObjectTooLargeError as error:
        raise S3Error("InvalidRequest", error.message) from error

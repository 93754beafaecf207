"""ACLs of buckets and objects. There are none: the caller, whom listings show as the owner, has full control, and what
others may do is in their policies. An ACL that says this is accepted and changes nothing; all others are refused, as in
a bucket of S3 whose ownership is BucketOwnerEnforced. That of a public-read bucket view shows that all may read."""

from __future__ import annotations

from functools import partial
from typing import Final

from tarn_gateway.backend import Backend
from tarn_gateway.documents import xml_out
from tarn_gateway.documents.xml_in import SETTINGS_BYTES_MAX, settings_parser
from tarn_gateway.http import Response
from tarn_gateway.operations.reading import root_marker
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["get_bucket_acl", "get_object_acl", "put_bucket_acl", "put_object_acl"]

_CANNED: Final = "x-amz-acl"
_OWNER: Final = "Owner"
_GRANT: Final = "AccessControlList/Grant"
_GRANTEE: Final = f"{_GRANT}/Grantee"
_NAMES: Final = frozenset({f"{_OWNER}/DisplayName", f"{_GRANTEE}/DisplayName"})
"""What people read; it changes nothing."""
_PLACES: Final = _NAMES | {
    f"{_OWNER}/ID",
    f"{_GRANTEE}/ID",
    f"{_GRANTEE}/URI",
    f"{_GRANTEE}/EmailAddress",
    f"{_GRANTEE}/Type",
    f"{_GRANT}/Permission",
}
_parser = partial(settings_parser, "AccessControlPolicy", _PLACES)


async def get_bucket_acl(backend: Backend, request: S3Request) -> Response:
    """GetBucketAcl."""
    await backend.repositories.get(backend.call(request), request.repository)
    return await _shown(backend, request)


async def put_bucket_acl(backend: Backend, request: S3Request) -> Response:
    """PutBucketAcl."""
    await backend.repositories.get(backend.call(request), request.repository)
    return await _confirmed(backend, request)


async def get_object_acl(backend: Backend, request: S3Request) -> Response:
    """GetObjectAcl, of an object that exists."""
    await _require_object(backend, request)
    return await _shown(backend, request)


async def put_object_acl(backend: Backend, request: S3Request) -> Response:
    """PutObjectAcl, of an object that exists. Graveler wants the permission to read, too, because the answer tells
    whether it does."""
    await _require_object(backend, request)
    return await _confirmed(backend, request)


async def _require_object(backend: Backend, request: S3Request) -> None:
    target = request.target
    if target.path:
        await backend.graveler.lookup(
            backend.call(request), request.repository, target.ref, target.path
        )
    else:
        await root_marker(backend, request)


async def _shown(backend: Backend, request: S3Request) -> Response:
    user_id, is_public = request.granted.grant.user_id, await backend.is_public(request)
    return xml_out.answer(xml_out.access_control_policy(user_id, is_public=is_public))


async def _confirmed(backend: Backend, request: S3Request) -> Response:
    """Accepts an ACL that says what is so.

    Raises:
        S3Error: AccessControlListNotSupported for any other, and for all in a public-read view, where none that is
            accepted says what is so; InvalidRequest for a document beside a canned ACL.
    """
    if await backend.is_public(request):
        raise S3Error("AccessControlListNotSupported")
    user_id = request.granted.grant.user_id
    if _CANNED in request.headers:
        # Its value is accepted: `header_table` refuses all that would change something.
        if request.http.body.length != 0:
            raise S3Error("InvalidRequest", f"Send either {_CANNED} or a document, not both.")
        return Response(200)
    payload = backend.payload(request)
    said = await backend.documents.read(payload, user_id, SETTINGS_BYTES_MAX, _parser)
    expected = {
        f"{_OWNER}/ID": user_id,
        f"{_GRANTEE}/ID": user_id,
        f"{_GRANT}/Permission": "FULL_CONTROL",
    }
    if sorted(each for each in said if each[0] not in _NAMES) != sorted(expected.items()):
        raise S3Error("AccessControlListNotSupported")
    return Response(200)

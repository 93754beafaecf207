"""The bytes of objects: getObject and headObject.

Objects are the content of users, and this origin serves people's sessions. So an object is never a page here: it is
downloaded (`attachment`), its type is not guessed (`nosniff`, of every answer), and it would have no rights
(`sandbox`).
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tarn.block.port import FileSlice
from tarn.core.entry import Entry, unpack
from tarn.objects.bodies import block_key, open_body
from tarn.objects.conditions import ReadAnswer, answer_to, http_date, quoted
from tarn.objects.erased import told_if_erased
from tarn_api.answers import Whole
from tarn_api.bodies import BlockAnswer
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.operations import shapes
from tarn_rest import operations as op

__all__ = ["get_object", "head_object", "object_response"]

_GUARDS: Final = {
    "Accept-Ranges": "bytes",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Frame-Options": "SAMEORIGIN",
}
_GUARD_LINES: Final = "accept-ranges: bytes\r\nx-frame-options: SAMEORIGIN\r\n"
"""Without the Content-Security-Policy, which every answer has."""


async def get_object(context: Context, at: op.GetObject) -> Response | Whole:
    """Sends the bytes of an object, or a range of them. With `presign`, sends the client to the bucket, if there is
    one."""
    found = await context.graveler.lookup(context.read(), at.repository, at.ref, at.path)
    entry = unpack(found.entry)
    told = _judge(context, entry)
    if told.status == 304:
        return Response(status_code=304, headers=_validators(entry))
    key = block_key(found.storage_namespace, entry)
    if at.presign and (linking := context.linking_blocks) is not None:
        url, _ = await shapes.link(context, linking, found.storage_namespace, entry)
        return Response(status_code=302, headers={"Location": url})
    small = context.objects.bounds.small_body_bytes
    async with told_if_erased(context.objects, context, at.repository, at.ref, at.path):
        body = await open_body(context.blocks, key, told.start, told.length, small, as_file=False)
    assert not isinstance(body, FileSlice), "it was not asked for"
    if not isinstance(body, bytes):
        return BlockAnswer(told.status, _headers(entry, told), body)
    if told.status != 200:
        return Response(body, told.status, _headers(entry, told))
    return Whole(200, _lines(entry), body)


async def object_response(context: Context, at: op.GetObject) -> Response:
    """Returns the answer of `get_object` as one whose headers can be changed."""
    answer = await get_object(context, at)
    return answer.response() if isinstance(answer, Whole) else answer


async def head_object(context: Context, at: op.HeadObject) -> Response:
    """Tells by headers what getObject would send."""
    found = await context.graveler.lookup(context.read(), at.repository, at.ref, at.path)
    entry = unpack(found.entry)
    told = _judge(context, entry)
    if told.status == 304:
        return Response(status_code=304, headers=_validators(entry))
    return Response(status_code=told.status, headers=_headers(entry, told))


def _judge(context: Context, entry: Entry) -> ReadAnswer:
    """Returns what of an object is asked for.

    Raises:
        ApiError: 412, 416.
    """
    told = answer_to(context.request.headers, entry.etag, entry.mtime_us, entry.size)
    if told.status == 412:
        text = "the object is not the one that the request names by its ETag or time"
        raise ApiError(412, text, reason="PRECONDITION_FAILED", headers=_validators(entry))
    if told.status == 416:
        text = f"no byte of the object is in the range; it has {entry.size}"
        headers = {"Content-Range": told.content_range}
        raise ApiError(416, text, reason="INVALID_RANGE", headers=headers)
    return told


def _validators(entry: Entry) -> dict[str, str]:
    return {"ETag": quoted(entry.etag), "Last-Modified": http_date(entry.mtime_us)}


def _headers(entry: Entry, told: ReadAnswer) -> dict[str, str]:
    headers = {
        **_validators(entry),
        **_GUARDS,
        "Content-Disposition": shapes.disposition(entry),
        "Content-Length": str(told.length),
        "Content-Type": shapes.content_type(entry),
    }
    if told.content_range:
        headers["Content-Range"] = told.content_range
    return headers


def _lines(entry: Entry) -> bytes:
    """Returns what `_headers` does of a whole object, but for the length of its body, with the guards that stay: as
    the lines of a head. A property test compares both."""
    return (
        f'etag: "{entry.etag}"\r\nlast-modified: {http_date(entry.mtime_us)}\r\n'
        f"{_GUARD_LINES}content-disposition: {shapes.disposition(entry)}\r\n"
        f"content-type: {shapes.content_type(entry)}\r\n"
    ).encode()

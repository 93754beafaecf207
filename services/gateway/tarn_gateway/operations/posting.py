"""PostObject: uploads by HTML forms. The handler has read the fields; the file follows."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode, urlsplit

from tarn.core.entry import Entry
from tarn.core.object_tags import Tags
from tarn.objects.conditions import quoted
from tarn.objects.writing import store_object
from tarn_gateway.backend import Backend
from tarn_gateway.bodies.checksums import checksum_headers
from tarn_gateway.documents import xml_out
from tarn_gateway.documents.tagging import parse_tagging_document
from tarn_gateway.http import Response
from tarn_gateway.operations.putting import lineage_of
from tarn_gateway.requests.address import object_url
from tarn_gateway.requests.object_headers import parse_object_headers
from tarn_gateway.requests.tagging import TAGGING, parse_tagging
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["post_object"]

_REDIRECTS: Final = ("success_action_redirect", "redirect")
_DEFAULT_STATUS: Final = "204"
_STATUSES: Final = frozenset({"200", "201", _DEFAULT_STATUS})
_URL_MAX: Final = 4096


async def post_object(backend: Backend, request: S3Request) -> Response:
    """PostObject: stores the file as PutObject stores a body, and answers as the form wants."""
    form = request.form
    assert form is not None, "the permission was checked for the key of the form"
    if not request.path:
        text = "The key must name an object on a branch: <branch>/<path>."
        raise S3Error("InvalidArgument", text, ArgumentName="key")
    about, tags = parse_object_headers(request.headers), _tags(request, form.fields)
    payload = form.payload(backend.bounds.payload)
    entry = await store_object(
        backend,
        request,
        await backend.repository(request, request.repository),
        request.branch,
        request.path,
        payload,
        about,
        tags=tags,
        lineage=lineage_of(request.headers),
    )
    return _answer(request, form.fields, entry)


def _tags(request: S3Request, fields: dict[str, str]) -> Tags:
    """Returns the tags of the field `tagging`, a document, or of the field that stands for the header.

    Raises:
        S3Error: InvalidArgument for both; errors of `parse_tagging_document` and `parse_tagging`.
    """
    document = fields.get("tagging")
    if document is None:
        return parse_tagging(request.headers)
    if TAGGING in request.headers:
        text = f"Send either the field tagging or {TAGGING}, not both."
        raise S3Error("InvalidArgument", text, ArgumentName=TAGGING)
    return parse_tagging_document(document.encode())


def _answer(request: S3Request, fields: dict[str, str], entry: Entry) -> Response:
    address, etag = request.address, quoted(entry.etag)
    location = object_url(request.http, address, safe="")
    headers = [("ETag", etag), ("Location", location), *checksum_headers(entry.checksums)]
    wanted = next(filter(None, map(fields.get, _REDIRECTS)), "")
    if to := _redirect(wanted, address.bucket, address.key, etag):
        return Response(303, [("ETag", etag), ("Location", to)])
    status = fields.get("success_action_status", _DEFAULT_STATUS)
    if status not in _STATUSES:
        status = _DEFAULT_STATUS
    if status != "201":
        return Response(int(status), headers)
    document = xml_out.post_response(location, address.bucket, address.key, entry.etag)
    return Response(201, [("Content-Type", "application/xml"), *headers], document)


def _redirect(url: str, bucket: str, key: str, etag: str) -> str:
    """Returns where to send the browser; empty for a URL that cannot be read, which S3 ignores, too.

    The policy names the URL, or allows any: whoever signed it decides. It must be an absolute one of http or https, in
    characters of which no header can be broken.
    """
    if not (url.isascii() and url.isprintable()) or " " in url or len(url) > _URL_MAX:
        return ""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.netloc or "\\" in url:
        return ""
    added = urlencode({"bucket": bucket, "key": key, "etag": etag})
    query = f"{parts.query}&{added}" if parts.query else added
    return parts._replace(query=query).geturl()

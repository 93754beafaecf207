"""ListObjects, both versions.

Keys are `<ref>/<path>`, so the prefix decides what is listed:

- with a `/` in it, it names a ref: that ref's paths, with any delimiter;
- without one and with delimiter `/`: the branches and tags, as common prefixes;
- without one and without a delimiter: the objects of every branch that matches, branch after branch.
  Tags and commits are left out: they repeat what branches hold, and `rm --recursive` cannot remove them;
- without one and with another delimiter: not implemented.

A ref that does not exist is 404 NoSuchKey, not an empty listing: that would let a typing error in a
branch's name pass for an empty table. S3A takes the 404 for an absent path; NoSuchBucket would end its job.
Pages are continued by the last key or common prefix that was given, never by a state kept here.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from itertools import compress
from operator import not_
from typing import Final

from tarn.client.graveler import ListingPage
from tarn.core.entry import listed_of
from tarn.core.errors import Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn_gateway.backend import Backend
from tarn_gateway.documents import xml_out
from tarn_gateway.http import Response
from tarn_gateway.operations.answers import url_encoding, xml
from tarn_gateway.operations.refs import branch_roots, ref_roots, within
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["list_objects", "list_objects_v2"]

KEYS_MAX: Final = 1000
_TOKEN_VERSION: Final = "1"  # noqa: S105 - of a page token


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is to be listed: keys and common prefixes greater than `after`."""

    prefix: str
    delimiter: str
    after: str
    max_keys: int


@dataclass(slots=True)
class _Page:
    """A page being filled."""

    keys: list[str] = field(default_factory=list)
    shown: list[tuple[int, str, int]] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    last: str = ""
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.keys) + len(self.prefixes)

    def add(self, root: str, found: ListingPage) -> None:
        if not found.paths:
            return
        keys = [root + path for path in found.paths]
        self.last = keys[-1]
        self.shown += listed_of(filter(None, found.entries))
        self.keys += compress(keys, found.entries)
        self.prefixes += compress(keys, map(not_, found.entries))


async def list_objects(backend: Backend, request: S3Request) -> Response:
    """ListObjects (version 1). NextMarker is given with or without a delimiter; S3 gives it only
    with one, and clients that know that read the last key."""
    query = request.query
    marker = query.text("marker")
    wanted = _wanted(request, marker)
    page = await _list(backend, request, wanted)
    listing = _document(request, wanted, page, owner=request.granted.grant.user_id)
    following = page.last if page.truncated else ""
    return xml(xml_out.list_objects_v1(listing, marker=marker, next_marker=following))


async def list_objects_v2(backend: Backend, request: S3Request) -> Response:
    """ListObjectsV2."""
    query = request.query
    token, start_after = query.text("continuation-token"), query.text("start-after")
    wanted = _wanted(request, _decode_token(token) if token else start_after)
    page = await _list(backend, request, wanted)
    owner = request.granted.grant.user_id if query.text("fetch-owner") == "true" else ""
    document = xml_out.list_objects_v2(
        _document(request, wanted, page, owner=owner),
        continuation_token=token,
        next_continuation_token=_encode_token(page.last) if page.truncated else "",
        start_after=start_after,
    )
    return xml(document)


def _wanted(request: S3Request, after: str) -> _Wanted:
    query = request.query
    max_keys = query.integer("max-keys", KEYS_MAX, least=0, most=KEYS_MAX)
    return _Wanted(query.text("prefix"), query.text("delimiter"), after, max_keys)


def _document(request: S3Request, wanted: _Wanted, page: _Page, *, owner: str) -> xml_out.Listing:
    return xml_out.Listing(
        request.bucket,
        page.keys,
        page.shown,
        page.prefixes,
        prefix=wanted.prefix,
        delimiter=wanted.delimiter,
        max_keys=wanted.max_keys,
        truncated=page.truncated,
        url_encoded=url_encoding(request.query),
        owner=owner,
    )


def _encode_token(last: str) -> str:
    return base64.urlsafe_b64encode(f"{_TOKEN_VERSION}{last}".encode()).decode("ascii")


def _decode_token(token: str) -> str:
    try:
        text = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith(_TOKEN_VERSION):
        raise S3Error(
            "InvalidArgument",
            "The continuation token is not one that was given.",
            ArgumentName="continuation-token",
        )
    return text[len(_TOKEN_VERSION) :]


async def _list(backend: Backend, request: S3Request, wanted: _Wanted) -> _Page:
    call = backend.call(request, backend.bounds.list_timeout_s)
    ref, slash, _ = wanted.prefix.partition("/")
    if wanted.max_keys == 0 or (slash and not ref):
        # Nothing was asked for, or what no key begins with; the bucket must be there all the same.
        await backend.repositories.get(call, request.bucket)
        return _Page()
    if slash:
        return await _list_ref(backend, request, wanted, call)
    if wanted.delimiter == "/":
        return await _list_refs(backend, request, wanted, call)
    if wanted.delimiter:
        text = "A delimiter other than / needs a prefix that names a branch: <branch>/."
        raise S3Error("NotImplemented", text, Parameter="delimiter")
    return await _list_branches(backend, request, wanted, call)


async def _list_ref(backend: Backend, request: S3Request, wanted: _Wanted, call: Call) -> _Page:
    ref, _, prefix = wanted.prefix.partition("/")
    page = _Page()
    await _fill(backend, request, call, wanted, page, f"{ref}/", prefix)
    return page


async def _list_refs(backend: Backend, request: S3Request, wanted: _Wanted, call: Call) -> _Page:
    roots = await ref_roots(backend, request, call, wanted.prefix)
    following = [root for root in roots if root > wanted.after]
    shown = following[: wanted.max_keys]
    last = shown[-1] if shown else ""
    return _Page([], [], shown, last, truncated=len(following) > len(shown))


async def _list_branches(
    backend: Backend, request: S3Request, wanted: _Wanted, call: Call
) -> _Page:
    roots = await branch_roots(backend, request, call, wanted.prefix)
    page = _Page()
    for root in roots:
        if len(page) >= wanted.max_keys or page.truncated:
            page.truncated = True
            break
        try:
            await _fill(backend, request, call, wanted, page, root, "")
        except TarnError as error:
            # A branch that was deleted since the branches were listed has no objects.
            if error.reason not in (Reason.REF_NOT_FOUND, Reason.BRANCH_NOT_FOUND):
                raise
    return page


async def _fill(
    backend: Backend,
    request: S3Request,
    call: Call,
    wanted: _Wanted,
    page: _Page,
    root: str,
    prefix: str,
) -> None:
    """Adds lines of one ref to a page until it is full or graveler gives a shorter one.

    Graveler may give an empty page before the end, where it looked through many deleted keys. S3 has no
    such thing (its pages continue behind their last key), so the search goes on for as long as the
    call may take.
    """
    after = within(root, wanted.after)
    if after is None:
        return
    token = ""
    while True:
        found = await backend.graveler.list_entries(
            call,
            request.bucket,
            root[:-1],
            prefix=prefix,
            delimiter=wanted.delimiter,
            after=after,
            page_size=wanted.max_keys - len(page),
            page_token=token,
        )
        page.add(root, found)
        token = found.next_page_token
        if found.paths or not token:
            page.truncated = bool(token)
            return

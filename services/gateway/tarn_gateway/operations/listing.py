"""ListObjects, both versions, and ListObjectVersions.

Keys are `<ref>/<path>`, so the prefix decides the content of the listing:

- with a `/`, the prefix names a ref: that ref's paths, with any delimiter;
- without a `/` and with delimiter `/`: the branches and tags, as common prefixes;
- without a `/` and without a delimiter: the objects of every matching branch, branch after branch.
  Tags and commits are omitted: they repeat objects of branches, and `rm --recursive` cannot remove them;
- without a `/` and with another delimiter: not implemented.

A ref that does not exist is 404 NoSuchKey, not an empty listing, which would make a misspelled branch look
like an empty table. S3A takes the 404 for an absent path; NoSuchBucket would end its job.
A page continues after the last returned key or common prefix; the gateway keeps no state for it.

In a bucket view keys are paths. It is listed as the prefix `<ref>/` of the repository, which the answer leaves out.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from itertools import compress
from operator import not_
from typing import Final

from tarn.client.graveler import ListingPage
from tarn.core.entry import ListedEntry, listed_of
from tarn.core.errors import Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn_gateway.backend import Backend
from tarn_gateway.bucket_cache import Place
from tarn_gateway.documents import xml_out
from tarn_gateway.http import Response
from tarn_gateway.operations.refs import branch_roots, ref_roots, within
from tarn_gateway.requests.query import url_encoding
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["list_object_versions", "list_objects", "list_objects_v2"]

KEYS_MAX: Final = 1000
_TOKEN_VERSION: Final = "1"  # noqa: S105 - of a page token
_TOKEN_VERSION_OF_VIEWS: Final = "2"  # noqa: S105 - likewise, of a listing of a bucket view


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The request, in keys of the repository: keys and common prefixes greater than `after`."""

    prefix: str
    delimiter: str
    after: str
    max_keys: int


@dataclass(slots=True)
class _Page:
    """A page being filled."""

    keys: list[str] = field(default_factory=list)
    shown: list[ListedEntry] = field(default_factory=list)
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
    """ListObjects (version 1). NextMarker is returned with or without a delimiter. S3 returns it only
    with one; clients that know that use the last key."""
    query = request.query
    marker = query.text("marker")
    wanted = _wanted(request, marker)
    page = await _list(backend, request, wanted)
    listing = _document(request, wanted, page, owner=request.granted.grant.user_id)
    following = page.last[len(request.place.root) :] if page.truncated else ""
    return xml_out.answer(xml_out.list_objects_v1(listing, marker=marker, next_marker=following))


async def list_objects_v2(backend: Backend, request: S3Request) -> Response:
    """ListObjectsV2."""
    query = request.query
    token, start_after = query.text("continuation-token"), query.text("start-after")
    wanted = _wanted(request, _decode_token(request.place, token) if token else start_after)
    page = await _list(backend, request, wanted)
    owner = request.granted.grant.user_id if query.text("fetch-owner") == "true" else ""
    document = xml_out.list_objects_v2(
        _document(request, wanted, page, owner=owner),
        continuation_token=token,
        next_continuation_token=_encode_token(request.place, page.last) if page.truncated else "",
        start_after=start_after,
    )
    return xml_out.answer(document)


async def list_object_versions(backend: Backend, request: S3Request) -> Response:
    """ListObjectVersions: as ListObjects, with the version id `null`. Older versions are in commits, whose keys begin
    with the commit."""
    query = request.query
    marker, version_id = query.text("key-marker"), query.text("version-id-marker")
    if version_id and (version_id != xml_out.ONLY_VERSION or not marker):
        text = f"version-id-marker can be {xml_out.ONLY_VERSION} only, and needs key-marker."
        raise S3Error(
            "InvalidArgument",
            text,
            ArgumentName="version-id-marker",
            ArgumentValue=version_id[:80],
        )
    wanted = _wanted(request, marker)
    page = await _list(backend, request, wanted)
    document = xml_out.list_object_versions(
        _document(request, wanted, page, owner=request.granted.grant.user_id),
        key_marker=marker,
        version_id_marker=version_id,
        next_key_marker=page.last[len(request.place.root) :] if page.truncated else "",
    )
    return xml_out.answer(document)


def _wanted(request: S3Request, after: str) -> _Wanted:
    query = request.query
    max_keys = query.integer("max-keys", KEYS_MAX, least=0, most=KEYS_MAX)
    root = request.place.root
    prefix = root + query.text("prefix")
    return _Wanted(prefix, query.text("delimiter"), root + after if after else "", max_keys)


def _document(request: S3Request, wanted: _Wanted, page: _Page, *, owner: str) -> xml_out.Listing:
    root = len(request.place.root)
    return xml_out.Listing(
        request.address.bucket,
        [key[root:] for key in page.keys] if root else page.keys,
        page.shown,
        [prefix[root:] for prefix in page.prefixes] if root else page.prefixes,
        prefix=wanted.prefix[root:],
        delimiter=wanted.delimiter,
        max_keys=wanted.max_keys,
        truncated=page.truncated,
        url_encoded=url_encoding(request.query),
        owner=owner,
    )


def _token_head(place: Place) -> str:
    """What a token begins with. That of a view names its version, that of a binding its ref, because a listing must not
    go on with the second half of another ref."""
    if not place.ref:
        return _TOKEN_VERSION
    return f"{_TOKEN_VERSION_OF_VIEWS}{place.version or f'{place.repository}:{place.ref}'}/"


def _encode_token(place: Place, last: str) -> str:
    text = _token_head(place) + last[len(place.root) :]
    return base64.urlsafe_b64encode(text.encode()).decode("ascii")


def _decode_token(place: Place, token: str) -> str:
    try:
        text = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    head = _token_head(place)
    if not text.startswith(head):
        was_view = text.startswith(_TOKEN_VERSION_OF_VIEWS)
        raise S3Error(
            "InvalidArgument",
            "The bucket shows something else than when the listing began; list from the beginning."
            if was_view
            else "The continuation token was not issued by this endpoint; list from the beginning.",
            ArgumentName="continuation-token",
        )
    return text[len(head) :]


async def _list(backend: Backend, request: S3Request, wanted: _Wanted) -> _Page:
    call = backend.opening_call(request, backend.bounds.list_timeout_s)
    ref, slash, _ = wanted.prefix.partition("/")
    if wanted.max_keys == 0 or (slash and not ref):
        # Zero keys were requested, or no key begins with the prefix; the bucket must exist all the same.
        repositories = backend.repositories
        # Of an anonymous request graveler decides, also about nothing.
        there = repositories.fresh if request.is_anonymous else repositories.get
        await there(call, request.repository)
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
            # A branch that was deleted after the branches were listed has no objects.
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
    """Adds rows of one ref to a page until it is full or graveler returns a shorter page.

    Graveler may return an empty page before the end, after searching many deleted keys. S3 has no empty
    pages (a page continues after its last key), so the search continues for as long as the call may take.
    """
    after = within(root, wanted.after)
    if after is None:
        return
    token = ""
    while True:
        found = await backend.graveler.list_entries(
            call,
            request.repository,
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

"""CopyObject, and the source half of UploadPartCopy. `tarn.objects.copying` makes the copy."""

from __future__ import annotations

import dataclasses

from tarn.core.access.actions import ref_object_resource
from tarn.core.errors import Kind, TarnError
from tarn.objects.copying import Source, copied, find_source
from tarn.objects.headers import with_headers
from tarn.objects.writing import stage
from tarn_gateway.backend import Backend
from tarn_gateway.bodies.checksums import parse_algorithm
from tarn_gateway.bucket_cache import MAY_HAVE_MOVED, Place
from tarn_gateway.documents import xml_out
from tarn_gateway.grants import require
from tarn_gateway.http import Response
from tarn_gateway.operation import COPY_SOURCE
from tarn_gateway.operations.conditional import operation_id, requested_condition
from tarn_gateway.operations.putting import lineage_of
from tarn_gateway.requests.address import parse_copy_source
from tarn_gateway.requests.condition_headers import check_copy_source
from tarn_gateway.requests.object_headers import parse_object_headers
from tarn_gateway.requests.tagging import parse_tagging
from tarn_gateway.s3error import S3Error, from_tarn_error
from tarn_gateway.s3request import S3Request, readable_ref, ref_path_of

__all__ = ["copy_object", "requested_source"]


async def requested_source(
    backend: Backend, request: S3Request, *, by_reference: bool = False
) -> Source:
    """Returns the object that `x-amz-copy-source` names, if the caller may read it and the
    `x-amz-copy-source-if-*` conditions hold.

    With `by_reference`, an object of the request's own bucket is looked up so that its block may be shared.

    Raises:
        S3Error: InvalidArgument, PreconditionFailed, NoSuchKey, NoSuchBucket.
        TarnError: DENIED if the caller may not read it; any error of `lookup`.
    """
    address = parse_copy_source(request.headers.text(COPY_SOURCE))
    is_own = address.bucket == request.address.bucket
    place = request.place if is_own else await _place_of(backend, request, address.bucket)
    try:
        source = await _looked_up(backend, request, place, address.key, by_reference)
    except TarnError as error:
        if is_own or error.reason not in MAY_HAVE_MOVED:
            raise
        place = await backend.place(request, address.bucket, is_fresh=True)
        source = await _looked_up(backend, request, place, address.key, by_reference)
    check_copy_source(request.headers, source.entry.etag, source.entry.mtime_us)
    return source


async def _place_of(backend: Backend, request: S3Request, bucket: str) -> Place:
    """Returns what the bucket of a copy source stands for; raises InvalidArgument for a name that nothing can have."""
    try:
        return await backend.place(request, bucket)
    except S3Error as error:
        if error.code != "InvalidBucketName":
            raise
        told = "Invalid copy source bucket name"
        raise S3Error("InvalidArgument", told, ArgumentName=COPY_SOURCE) from None


async def _looked_up(
    backend: Backend, request: S3Request, place: Place, key: str, by_reference: bool
) -> Source:
    """Returns what a place has at a key. Raises as `requested_source`."""
    target = ref_path_of(place, key)
    if not target.path:
        await backend.repositories.refuse_unknown(backend.opening_call(request), place.repository)
        raise S3Error("NoSuchKey", f"The copy source {target.ref!r} names no object.")
    resource = ref_object_resource(place.repository, readable_ref(target.ref), target.path)
    require(request, request.operation.source, resource)
    into = request.repository if by_reference else ""
    call = dataclasses.replace(backend.opening_call(request), bucket=place.version)
    try:
        return await find_source(
            backend, call, place.repository, target.ref, target.path, into=into
        )
    except TarnError as error:
        if error.kind is not Kind.NOT_FOUND or error.reason in MAY_HAVE_MOVED:
            raise
        # The source is read: its missing ref is NoSuchKey, although the request as a whole writes.
        raise from_tarn_error(error) from error


async def copy_object(backend: Backend, request: S3Request) -> Response:
    """CopyObject."""
    headers = request.headers
    condition = requested_condition(request)
    branch, path = request.branch, request.path
    if not path:
        raise S3Error("InvalidArgument", "The key must name an object on a branch.")
    replace, replace_tags = _replaces(request, "metadata"), _replaces(request, "tagging")
    about = parse_object_headers(headers)
    tags = parse_tagging(headers)
    named = headers.get("x-amz-checksum-algorithm")
    algorithm = parse_algorithm(named) if named else None
    # The repository first: if the repository is re-created after this, staging is refused.
    opening = backend.opening_call(request)
    repository = await backend.repositories.get(opening, request.repository)
    source = await requested_source(backend, request, by_reference=True)
    here = (request.repository, request.target.ref, request.target.path)
    is_same = (source.repository, source.ref, source.path) == here
    if is_same and not (replace or replace_tags):
        text = (
            "This copy request is illegal because it is trying to copy an object to itself without changing the "
            "object's metadata, storage class, website redirect location or encryption attributes."
        )
        raise S3Error("InvalidRequest", text)
    entry, block = await copied(
        backend,
        request,
        source,
        repository,
        branch,
        algorithm=algorithm,
        operation=operation_id(backend, request) if condition else "",
        lineage=lineage_of(headers),
    )
    if replace:
        entry = with_headers(entry, about, lineage_of(headers))
    if replace_tags:
        entry = dataclasses.replace(entry, tags=tags)
    await stage(backend, request, repository, branch, path, entry, block=block, condition=condition)
    return xml_out.answer(xml_out.copy_object_result(entry.etag, entry.mtime_us, entry.checksums))


def _replaces(request: S3Request, what: str) -> bool:
    """Whether a copy has its own `metadata` or `tagging`, instead of those of its source."""
    name = f"x-amz-{what}-directive"
    directive = request.headers.get(name, "COPY")
    if directive not in ("COPY", "REPLACE"):
        raise S3Error(
            "InvalidArgument",
            f"Unknown {what} directive. It must be COPY or REPLACE.",
            ArgumentName=name,
            ArgumentValue=str(directive)[:80],
        )
    return directive == "REPLACE"

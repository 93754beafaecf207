"""CopyObject, and the source half of UploadPartCopy.

Inside a repository a copy of a young object is one staged entry that refers to the same block. Blocks are never
changed and never reused, so sharing one is safe, and Spark's rename copies no byte. The lookup of the source notes it
as copied, so that its block is not deleted online (docs/design/online-deletion.md). The bytes are copied if the block
is older than some hours, because a garbage collection may judge it meanwhile (rule 11 of docs/design/protocol.md). They
are also copied between repositories, because each repository owns the blocks of its namespace.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from tarn.block.port import BlockKey
from tarn.client.graveler import Located
from tarn.core.access.actions import ref_object_resource
from tarn.core.address_age import is_young
from tarn.core.collection import LIMITS
from tarn.core.entry import Checksum, Entry, unpack
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import physical_path
from tarn_gateway.backend import Backend
from tarn_gateway.bodies.blocks import copy_block, digest_block
from tarn_gateway.bodies.checksums import Algorithm, BodySums, known_checksums, parse_algorithm
from tarn_gateway.bucket_cache import MAY_HAVE_MOVED, Place
from tarn_gateway.documents import xml_out
from tarn_gateway.grants import require
from tarn_gateway.http import Response
from tarn_gateway.operation import COPY_SOURCE
from tarn_gateway.operations.conditional import operation_id, requested_condition
from tarn_gateway.operations.erased import told_if_erased
from tarn_gateway.operations.reading import block_key, refuse_external
from tarn_gateway.operations.writing import check_branch, lineage_of, stage, with_request_headers
from tarn_gateway.repository_cache import CachedRepository
from tarn_gateway.requests.address import RefPath, parse_copy_source
from tarn_gateway.requests.conditions import copy_source_conditions
from tarn_gateway.requests.object_headers import parse_object_headers
from tarn_gateway.requests.tagging import parse_tagging
from tarn_gateway.s3error import S3Error, from_tarn_error
from tarn_gateway.s3request import S3Request, readable_ref, ref_path_of

__all__ = [
    "COPY_BYTES_MAX",
    "YOUNG",
    "Source",
    "copy_object",
    "copy_to_new_block",
    "find_source",
    "shares_block",
]

COPY_BYTES_MAX: Final = 5 * 1024**3
"""S3's limit for one copy; enforced only where bytes are copied."""
YOUNG: Final = dataclasses.replace(LIMITS, staging_us=LIMITS.staging_us - 3_600_000_000)
"""An hour is left for reading the source's bytes, if a checksum is wanted, and for staging the entry."""


@dataclass(frozen=True, slots=True)
class Source:
    """The object to be copied.

    Attributes:
        repository: its repository.
        target: its ref and path.
        entry: its current entry.
        namespace: of its block.
        may_be_shared: whether an entry may be staged that refers to the same block.
    """

    repository: str
    target: RefPath
    entry: Entry
    namespace: str
    may_be_shared: bool

    @property
    def block(self) -> BlockKey:
        """Returns the key of its block. Raises as `block_key`."""
        return block_key(self.namespace, self.entry)


async def find_source(
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
        found, target = await _looked_up(backend, request, place, address.key, by_reference)
    except TarnError as error:
        if is_own or error.reason not in MAY_HAVE_MOVED:
            raise
        place = await backend.place(request, address.bucket, is_fresh=True)
        found, target = await _looked_up(backend, request, place, address.key, by_reference)
    entry = unpack(found.entry)
    if entry.checksums:
        entry = dataclasses.replace(entry, checksums=known_checksums(entry.checksums))
    copy_source_conditions(request.headers).check_copy_source(entry.etag, entry.mtime_us)
    namespace, may_be_shared = found.storage_namespace, found.may_be_shared
    return Source(place.repository, target, entry, namespace, may_be_shared)


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
) -> tuple[Located, RefPath]:
    """Returns what a place has at a key, and the key's ref and path. Raises as `find_source`."""
    target = ref_path_of(place, key)
    if not target.path:
        await backend.repositories.refuse_unknown(backend.opening_call(request), place.repository)
        raise S3Error("NoSuchKey", f"The copy source {target.ref!r} names no object.")
    resource = ref_object_resource(place.repository, readable_ref(target.ref), target.path)
    require(request, request.operation.source, resource)
    is_shared = by_reference and place.repository == request.repository
    call = dataclasses.replace(backend.opening_call(request), bucket=place.version)
    try:
        found = await backend.graveler.lookup(
            call, place.repository, target.ref, target.path, is_copy_source=is_shared
        )
    except TarnError as error:
        if error.kind is not Kind.NOT_FOUND or error.reason in MAY_HAVE_MOVED:
            raise
        # The source is read: its missing ref is NoSuchKey, although the request as a whole writes.
        raise from_tarn_error(error) from error
    return found, target


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
    source = await find_source(backend, request, by_reference=True)
    is_same = (source.repository, source.target) == (request.repository, request.target)
    if is_same and not (replace or replace_tags):
        text = (
            "This copy request is illegal because it is trying to copy an object to itself without changing the "
            "object's metadata, storage class, website redirect location or encryption attributes."
        )
        raise S3Error("InvalidRequest", text)
    refuse_external(source.entry)
    is_here = source.repository == request.repository
    if is_here and source.namespace != repository.namespace:
        # A replica read the source in a deleted repository of this name; its blocks are not here.
        text = "The repository was deleted and created again; please try again."
        raise S3Error("ServiceUnavailable", text)
    block = None
    if shares_block(backend, request, source):
        entry = await _by_reference(backend, source, algorithm)
    else:
        await check_branch(backend, request, branch, opening)
        async with told_if_erased(backend, request, source.repository, source.target):
            entry = await _by_bytes(backend, source, repository, algorithm)
        block = BlockKey(repository.namespace, physical_path(entry.address))
    operation = operation_id(backend, request) if condition else ""
    entry = dataclasses.replace(
        entry,
        lineage=lineage_of(headers),
        operation_id=operation,
        judged_move_us=0,
        replaced_address=b"",
        parts=b"",  # as in S3, a copy is one part, although its ETag may count those of the source
    )
    if replace:
        entry = with_request_headers(entry, about, headers)
    if replace_tags:
        entry = dataclasses.replace(entry, tags=tags)
    await stage(backend, request, repository, entry, block=block, condition=condition)
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


def shares_block(backend: Backend, request: S3Request, source: Source) -> bool:
    """Whether an entry of the request's repository may refer to the block of a source. If not, the bytes are copied."""
    return (
        source.may_be_shared
        and source.repository == request.repository
        and is_young(source.entry.address, backend.clock.now_us(), YOUNG)
    )


async def _by_reference(backend: Backend, source: Source, algorithm: Algorithm | None) -> Entry:
    """Returns the source's entry with the current time. Its bytes are read only if a checksum is requested
    that the source does not have."""
    entry = source.entry
    checksums = entry.checksums
    if algorithm is not None and algorithm not in {each.algorithm for each in checksums}:
        wanted = frozenset({algorithm})
        sums = await digest_block(backend.blocks, source.block, entry.size, wanted)
        checksums = sums.checksums
    return dataclasses.replace(entry, mtime_us=backend.clock.now_us(), checksums=checksums)


async def _by_bytes(
    backend: Backend, source: Source, repository: CachedRepository, algorithm: Algorithm | None
) -> Entry:
    """Copies the source's bytes to a new block; returns its entry: one part, however many the source had."""
    entry = source.entry
    if entry.size > COPY_BYTES_MAX:
        text = f"The source is larger than {COPY_BYTES_MAX} bytes; copy it in parts."
        raise S3Error("InvalidRequest", text)
    wanted = _algorithms(entry.checksums) if algorithm is None else frozenset({algorithm})
    mtime_us = backend.clock.now_us()
    address, sums = await copy_to_new_block(backend, source, repository, wanted)
    return dataclasses.replace(
        entry,
        mtime_us=mtime_us,
        address=address,
        md5=sums.md5,
        etag_parts=0,
        checksums=sums.checksums,
    )


async def copy_to_new_block(
    backend: Backend,
    source: Source,
    repository: CachedRepository,
    wanted: frozenset[Algorithm] = frozenset(),
) -> tuple[bytes, BodySums]:
    """Copies the source's bytes to a new block of a repository; returns its address, and the digests of the bytes."""
    address = backend.ids.uuid7()
    key = BlockKey(repository.namespace, physical_path(address))
    async with await backend.blocks.open_write(key) as writer:
        sums = await copy_block(backend.blocks, source.block, 0, source.entry.size, writer, wanted)
        await writer.finish()
    return address, sums


def _algorithms(checksums: tuple[Checksum, ...]) -> frozenset[Algorithm]:
    return frozenset(Algorithm(each.algorithm) for each in checksums)

"""PutObject, and the last step of every write: staging an entry.

The order makes it safe: refuse invalid requests, receive and verify the body, make its block durable, then
stage the entry that refers to the block. A failure before the last step leaves nothing visible, and no block
unless the process dies (garbage collection removes that block).

The condition of a conditional write is also checked before its block is written. Of the writers that race
for one key, as table formats do for the next version of a table, most lose; this tells them early.
"""

from __future__ import annotations

from typing import Final

from tarn.block.port import BlockKey
from tarn.core.condition import ANY, WriteCondition
from tarn.core.entry import Entry, operation_of, pack
from tarn.core.entry_check import LINEAGE_BYTES_MAX
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, physical_path
from tarn.core.object_tags import Tags
from tarn.core.quota import is_quota_exceeded
from tarn.rpc.wire.call import Call
from tarn_gateway.backend import Backend
from tarn_gateway.bodies.blocks import discard, receive
from tarn_gateway.bodies.checksums import EMPTY_MD5, BodySums, checksum_headers
from tarn_gateway.bodies.payload import Payload
from tarn_gateway.http import Headers, Response
from tarn_gateway.operations.conditional import operation_id, requested_condition
from tarn_gateway.repository_cache import CachedRepository
from tarn_gateway.requests.conditions import quoted
from tarn_gateway.requests.object_headers import ObjectHeaders, parse_object_headers
from tarn_gateway.requests.tagging import parse_tagging
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = [
    "check_branch",
    "with_request_headers",
    "lineage_of",
    "look_again",
    "put_object",
    "refuse_early",
    "stage",
    "store_object",
]

_AUDIT: Final = "https://audit.example.org/hadoop/"

_REFUSED: Final = frozenset(
    {
        Kind.NOT_FOUND,
        Kind.INVALID,
        Kind.DENIED,
        Kind.UNAUTHENTICATED,
        Kind.FAILED_PRECONDITION,
        Kind.UNIMPLEMENTED,
    }
)
"""Kinds of error by which graveler says that it wrote nothing, so that the block may be removed. After any
other kind, including UNAVAILABLE (the row may be written and its acknowledgement lost), the block stays."""


async def put_object(backend: Backend, request: S3Request) -> Response:
    """PutObject."""
    condition = requested_condition(request)
    branch, path = request.branch, request.path
    about, tags = parse_object_headers(request.headers), parse_tagging(request.headers)
    payload = backend.payload(request)
    if not path:
        return await _put_root(backend, request, branch, payload, condition)
    entry = await store_object(backend, request, payload, about, tags, condition)
    return Response(200, [("ETag", quoted(entry.etag)), *checksum_headers(entry.checksums)])


async def store_object(
    backend: Backend,
    request: S3Request,
    payload: Payload,
    about: ObjectHeaders,
    tags: Tags,
    condition: WriteCondition,
) -> Entry:
    """Stores a body under the request's key, with some headers and tags; returns its entry.

    Raises:
        S3Error: errors of the payload.
        TarnError: an error of graveler or of the block store; the condition does not hold.
    """
    headers, branch, path = request.headers, request.branch, request.path
    opening = backend.opening_call(request)
    repository = await backend.repositories.get(opening, request.repository)
    small = backend.bounds.small_body_bytes
    is_large = payload.size is None or payload.size > small
    if is_large:
        await check_branch(backend, request, branch, opening)
    operation = operation_id(backend, request) if condition else ""
    address, mtime_us = backend.ids.uuid7(), backend.clock.now_us()
    key = BlockKey(repository.namespace, physical_path(address))

    def entry_of(sums: BodySums) -> Entry:
        size, md5, checksums = sums.size, sums.md5, sums.checksums
        entry = Entry(
            size, mtime_us, address, md5, operation_id=operation, checksums=checksums, tags=tags
        )
        return with_request_headers(entry, about, headers)

    if condition and not is_large:
        # The body first: a slow client must not hold the lock.
        body, sums = await payload.read_all(small)
        entry = entry_of(sums)
        async with backend.locks.hold((repository.instance_uid, branch, path)):
            await refuse_early(backend, request, condition, operation, backend.call(request))
            await backend.blocks.put(key, body)
            await stage(backend, request, repository, entry, block=key, condition=condition)
    else:
        if condition:
            await refuse_early(backend, request, condition, operation, opening)
        entry = entry_of(await receive(backend.blocks, key, payload, small))
        await stage(backend, request, repository, entry, block=key, condition=condition)
    return entry


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
    await check_branch(backend, request, branch, backend.call(request))
    etag = EMPTY_MD5.hex()
    if condition and condition.if_match not in (ANY, etag):
        raise S3Error("PreconditionFailed")
    return Response(200, [("ETag", quoted(etag))])


def lineage_of(headers: Headers) -> str:
    """Returns the audit header that S3A sends as Referer: job, task attempt and user of a write."""
    referer = headers.text("referer")
    if not referer.startswith(_AUDIT) or len(referer) > LINEAGE_BYTES_MAX:
        return ""
    return referer


def with_request_headers(entry: Entry, about: ObjectHeaders, headers: Headers) -> Entry:
    """Returns the entry with the stored headers of a request instead of its own, and the request's lineage."""
    return Entry(
        entry.size,
        entry.mtime_us,
        entry.address,
        entry.md5,
        etag_parts=entry.etag_parts,
        content_type=about.content_type,
        metadata=about.metadata,
        content_encoding=about.content_encoding,
        cache_control=about.cache_control,
        content_disposition=about.content_disposition,
        content_language=about.content_language,
        expires=about.expires,
        lineage=lineage_of(headers),
        operation_id=entry.operation_id,
        external_address=entry.external_address,
        checksums=entry.checksums,
        tags=entry.tags,
    )


async def check_branch(backend: Backend, request: S3Request, branch: BranchId, call: Call) -> None:
    """Checks that a branch accepts writes before much of the body is received.

    This only saves work: the answer may be stale when the entry is staged, and graveler decides then. A
    caller who may write but not read the branch is not stopped here.

    Raises:
        TarnError: BRANCH_NOT_FOUND if there is no such branch; REF_NOT_WRITABLE for a tag.
    """
    try:
        await backend.graveler.get_branch(call, request.repository, branch)
    except TarnError as error:
        if error.kind is Kind.DENIED:
            return
        if error.reason is not Reason.BRANCH_NOT_FOUND:
            raise
        try:
            await backend.graveler.get_tag(call, request.repository, branch)
        except TarnError:
            raise error from None
        text = f"{branch} is a tag; only branches take writes"
        raise TarnError(Kind.INVALID, Reason.REF_NOT_WRITABLE, text, ref=branch) from None


async def refuse_early(
    backend: Backend, request: S3Request, condition: WriteCondition, operation: str, call: Call
) -> None:
    """Refuses a conditional write of the request's key if its condition does not hold now.

    The loser of a race learns this by one read, and not after a block was written and removed for it. If the
    read finds the condition broken, it was broken at that moment, so the refusal is correct. If the condition
    holds, nothing is decided yet. A caller who may not read the key is not stopped here.

    Args:
        backend: the shared resources.
        request: names the key.
        condition: the condition of the write.
        operation: the request's operation id. If an earlier attempt of the same operation wrote the object,
            graveler returns the first attempt's answer.
        call: context of the reads.

    Raises:
        TarnError: FAILED_PRECONDITION, or NOT_FOUND with ENTRY_NOT_FOUND, if the condition does not hold;
            REF_NOT_WRITABLE for a tag.
    """
    try:
        newest = (
            await backend.graveler.lookup(call, request.repository, request.branch, request.path)
        ).entry
    except TarnError as error:
        if error.reason is not Reason.ENTRY_NOT_FOUND:
            return  # staging meets the same failure, or does not need the read
        newest = None
    if newest is not None and operation_of(newest) == operation:
        return
    try:
        condition.check(request.path, newest)
    except TarnError:
        await check_branch(backend, request, request.branch, call)  # a tag is read like a branch
        raise


async def stage(
    backend: Backend,
    request: S3Request,
    repository: CachedRepository,
    entry: Entry,
    *,
    block: BlockKey | None,
    condition: WriteCondition,
    parts: bytes = b"",
) -> None:
    """Stages an entry under the request's key.

    Args:
        backend: the shared resources.
        request: names the key.
        repository: the repository as it was when the block was written.
        entry: the new entry of the key.
        block: the entry's block if nothing else refers to it. It is removed if graveler refuses the entry, or
            finds that an earlier attempt of the same conditional operation succeeded.
        condition: must hold for the key immediately before the write.
        parts: the list of the object's parts (`tarn.core.part_list`) that the entry keeps; empty: none.

    Raises:
        TarnError: an error of graveler.
        S3Error: ServiceUnavailable if the repository was deleted and re-created in the meantime.
    """
    branch, path = request.branch, request.path
    try:
        is_repeat = await backend.graveler.stage(
            await backend.proven_call(request),
            request.repository,
            repository.instance_uid,
            branch,
            path,
            pack(entry),
            condition,
            is_new_address=block is not None,
            parts=parts,
        )
    except TarnError as error:
        refused = error.kind in _REFUSED or is_quota_exceeded(error)
        if block is not None and refused:
            await _remove(backend, block)
        if error.reason in (Reason.REPOSITORY_NOT_FOUND, Reason.REPOSITORY_DELETED):
            await look_again(backend, request, repository)
        raise
    if is_repeat and block is not None:
        await _remove(backend, block)


async def _remove(backend: Backend, block: BlockKey) -> None:
    """Removes an unreferenced block after the answer. A removal takes as long as a durable write, and the client should
    learn of the refusal without waiting for it."""
    removal = discard(backend.blocks, block)
    if len(backend.removals) < backend.bounds.removals_max:
        backend.removals.spawn(removal)
    else:
        await removal


async def look_again(backend: Backend, request: S3Request, repository: CachedRepository) -> None:
    """Distinguishes a repository that was deleted (REPOSITORY_NOT_FOUND) from one that was re-created,
    where a new attempt can succeed."""
    now = await backend.repositories.fresh(backend.call(request), request.repository)
    if now.instance_uid != repository.instance_uid:
        text = "The repository was deleted and created again; please try again."
        raise S3Error("ServiceUnavailable", text)

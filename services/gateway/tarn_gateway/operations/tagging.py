"""GetObjectTagging, PutObjectTagging and DeleteObjectTagging.

Tags are a part of the entry, so a change of them stages the entry anew. An old entry must not be staged with its old
address (rule 11 of docs/design/protocol.md): its bytes are copied to a new block. A young block is shared, as by
CopyObject.

Between the read of the entry and the write, another write may replace the object. The write is therefore conditional on
the identity of the entry that was read: it never puts old bytes or old metadata over newer ones. If the condition does
not hold, the newer entry is read and gets the tags.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from tarn.block.port import BlockKey
from tarn.client.graveler import Located
from tarn.core.condition import WriteCondition, identity_match
from tarn.core.entry import pack, unpack
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import physical_path
from tarn.core.object_tags import Tags
from tarn.core.part_list import parts_of, parts_to_keep
from tarn.objects.bodies import refuse_external
from tarn.objects.copying import COPY_BYTES_MAX, Source, copy_to_new_block, shares_block
from tarn.objects.erased import told_if_erased
from tarn.objects.repository_cache import CachedRepository
from tarn.objects.writing import check_branch, recreated, stage
from tarn_gateway.backend import Backend
from tarn_gateway.documents import xml_out
from tarn_gateway.documents.tagging import TAGGING_BYTES_MAX, tagging_document, tagging_parser
from tarn_gateway.http import Response
from tarn_gateway.operations.reading import root_marker
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["delete_object_tagging", "get_object_tagging", "put_object_tagging"]

_TRIES: Final = 5
"""Entries that one request reads, each of which another write may replace."""


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
        S3Error: OperationAborted: other writes replaced the object again and again; errors of a copy of its bytes.
        TarnError: an error of graveler.
    """
    # The repository first: if the repository is re-created after this, staging is refused.
    opening = backend.opening_call(request)
    repository = await backend.repositories.get(opening, request.repository)
    await check_branch(backend, request.repository, request.branch, opening)
    for _ in range(_TRIES):
        found = await backend.graveler.lookup(
            backend.call(request),
            request.repository,
            request.branch,
            request.path,
            is_copy_source=True,
        )
        try:
            await _write(backend, request, repository, found, tags)
        except TarnError as error:
            if error.reason is not Reason.PRECONDITION_FAILED:
                raise
        else:
            return
    raise S3Error("OperationAborted")


async def _write(
    backend: Backend,
    request: S3Request,
    repository: CachedRepository,
    found: Located,
    tags: Tags,
) -> None:
    """Writes an entry that was found, with other tags, unless it has them.

    Raises:
        TarnError: PRECONDITION_FAILED: the path holds another entry now, and nothing was written.
    """
    entry = unpack(found.entry)
    if entry.tags == tags:
        return
    refuse_external(entry)
    if found.storage_namespace != repository.namespace:
        # A replica read the object in a deleted repository of this name; its blocks are not here.
        raise recreated()
    branch, path, namespace = request.branch, request.path, found.storage_namespace
    source = Source(request.repository, branch, path, entry, namespace, found.may_be_shared)
    address, block = entry.address, None
    if not shares_block(backend, source, request.repository):
        if entry.size > COPY_BYTES_MAX:
            text = (
                f"The object is larger than {COPY_BYTES_MAX} bytes, and too old to get tags without a copy of its "
                "bytes; copy it onto itself by a multipart upload that has the tags."
            )
            raise S3Error("InvalidRequest", text)
        async with told_if_erased(backend, request, request.repository, branch, path):
            address, _ = await copy_to_new_block(backend, source, repository)
        block = BlockKey(repository.namespace, physical_path(address))
    tagged = dataclasses.replace(
        entry,
        address=address,
        tags=tags,
        operation_id=backend.ids.uuid7().hex(),
        judged_move_us=0,
        replaced_address=b"",
        parts=b"",  # graveler adds them
    )
    parts = parts_of(entry)
    condition = WriteCondition(if_match=identity_match(found.entry))
    await stage(
        backend,
        request,
        repository,
        branch,
        path,
        tagged,
        block=block,
        condition=condition,
        parts=b"" if parts is None else parts_to_keep(pack(tagged), parts),
    )

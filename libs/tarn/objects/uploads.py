"""Multipart uploads: begin, parts, abort. Graveler keeps their state; `tarn.objects.completing` ends them.

The bytes of a part become durable, then the part is recorded. Each attempt at a part has its own name, so that
concurrent attempts do not mix their bytes. The attempt that is recorded last counts, as in S3.
"""

from __future__ import annotations

from contextlib import suppress

import structlog

from tarn.block.port import BlockKey, BlockNotFoundError, BlockWriter, PartWriter
from tarn.core.entry import Entry, pack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, physical_path
from tarn.objects.backend import Caller, ObjectBackend
from tarn.objects.bodies import copy_block
from tarn.objects.checksums import NO_ALGORITHMS, Algorithm, BodySums
from tarn.objects.copying import Source
from tarn.objects.erased import told_if_erased
from tarn.objects.incoming import IncomingBody, thread_of
from tarn_proto.graveler.v1 import upload_service_pb2 as pb

__all__ = [
    "abort_upload",
    "algorithms_of",
    "begin_upload",
    "copy_part",
    "discard_parts",
    "store_part",
    "upload_block",
]

_log = structlog.get_logger()


async def begin_upload(
    backend: ObjectBackend,
    caller: Caller,
    repository_id: str,
    branch: BranchId,
    path: str,
    template: Entry,
    *,
    algorithm: Algorithm | None = None,
    is_full_object: bool = False,
) -> pb.Upload:
    """Begins an upload.

    Args:
        backend: the shared resources.
        caller: may write the path.
        repository_id: the repository.
        branch: of the path.
        path: of the object, not empty.
        template: `tarn.objects.headers.NOTHING` with the headers and tags of the object.
        algorithm: of the object's checksum; None for none.
        is_full_object: whether the checksum covers the whole object, not the parts' checksums.

    Raises:
        TarnError: an error of graveler or of the block store.
    """
    upload = await backend.graveler.create_upload(
        await backend.proven_call(caller),
        repository_id,
        branch,
        path,
        template=pack(template),
        checksum_algorithm=algorithm or "",
        is_full_object_checksum=is_full_object,
    )
    try:
        # Before the client knows the id, so that no part can arrive earlier.
        await backend.blocks.uploads.begin(upload_block(upload), upload.upload_id)
    except TarnError:
        # No client will ever use or end the record.
        with suppress(TarnError):
            call = await backend.proven_call(caller)
            await backend.graveler.abort_upload(call, repository_id, upload.upload_id)
        raise
    return upload


def upload_block(upload: pb.Upload) -> BlockKey:
    """Returns the key of the block that the parts of an upload become."""
    return BlockKey(upload.storage_namespace, physical_path(upload.address))


def algorithms_of(upload: pb.Upload) -> frozenset[Algorithm]:
    """Returns the checksum that every part of the upload needs, even if the client does not send it."""
    if not upload.checksum_algorithm:
        return NO_ALGORITHMS
    return frozenset({Algorithm(upload.checksum_algorithm)})


async def abort_upload(
    backend: ObjectBackend, caller: Caller, repository_id: str, upload: pb.Upload
) -> None:
    """Aborts an upload: changes the state first, so that no completion can begin, then removes the parts.

    Raises:
        TarnError: an error of graveler; UPLOAD_BUSY while it is being completed.
    """
    call = await backend.proven_call(caller)
    await backend.graveler.abort_upload(call, repository_id, upload.upload_id)
    await discard_parts(backend, upload)


async def discard_parts(backend: ObjectBackend, upload: pb.Upload) -> None:
    """Removes the parts of an upload that has ended; if that fails, garbage collection removes them."""
    try:
        await backend.blocks.uploads.discard(upload_block(upload), upload.upload_id)
    except TarnError as error:
        _log.warning("parts left behind", upload_id=upload.upload_id, error=error.message)


async def store_part(
    backend: ObjectBackend,
    caller: Caller,
    repository_id: str,
    upload: pb.Upload,
    number: int,
    body: IncomingBody,
) -> BodySums:
    """Stores and records a part; returns its digests.

    Args:
        backend: the shared resources.
        caller: began the upload, or may write its path.
        repository_id: of the upload.
        upload: an open one.
        number: of the part, from 1.
        body: computes the checksums that `algorithms_of` names.

    Raises:
        TarnError: UPLOAD_NOT_FOUND if the upload has ended; an error of the store.
        Exception: the errors of the body.
    """
    attempt = backend.ids.nonce().hex()
    async with await _open(backend, upload, number, attempt) as writer:
        sums = await body.pump(writer.write, thread_of(writer))
        await _close(writer, upload)
    part = _part(backend, upload, number, writer.receipt, sums)
    await _record(backend, caller, repository_id, upload, part)
    return sums


async def copy_part(
    backend: ObjectBackend,
    caller: Caller,
    repository_id: str,
    upload: pb.Upload,
    number: int,
    source: Source,
    start: int,
    length: int,
) -> tuple[pb.UploadPart, BodySums]:
    """Copies bytes `[start, start + length)` of an object to a part, and records it. A part is a piece of a new block,
    so its bytes are always copied. Raises as `store_part` and `told_if_erased`."""
    attempt = backend.ids.nonce().hex()
    async with await _open(backend, upload, number, attempt) as writer:
        async with told_if_erased(backend, caller, source.repository, source.ref, source.path):
            sums = await copy_block(
                backend.blocks, source.block, start, length, writer, algorithms_of(upload)
            )
        await _close(writer, upload)
    part = _part(backend, upload, number, writer.receipt, sums)
    await _record(backend, caller, repository_id, upload, part)
    return part, sums


async def _open(backend: ObjectBackend, upload: pb.Upload, number: int, attempt: str) -> PartWriter:
    key = upload_block(upload)
    return await backend.blocks.uploads.open_part(key, upload.upload_id, number, attempt)


async def _close(writer: BlockWriter, upload: pb.Upload) -> None:
    """Makes a part durable; raises UPLOAD_NOT_FOUND if the upload's parts were discarded in the meantime."""
    try:
        await writer.finish()
    except BlockNotFoundError:
        text = f"the upload {upload.upload_id} has ended; begin a new one"
        raise TarnError(Kind.NOT_FOUND, Reason.UPLOAD_NOT_FOUND, text) from None


def _part(
    backend: ObjectBackend, upload: pb.Upload, number: int, receipt: str, sums: BodySums
) -> pb.UploadPart:
    checksums = {each.algorithm: each.value for each in sums.checksums}
    part = pb.UploadPart(
        part_number=number,
        attempt=receipt,
        size_bytes=sums.size,
        md5=sums.md5,
        checksum=checksums.get(upload.checksum_algorithm, ""),
    )
    part.create_time.FromMicroseconds(backend.clock.now_us())
    return part


async def _record(
    backend: ObjectBackend,
    caller: Caller,
    repository_id: str,
    upload: pb.Upload,
    part: pb.UploadPart,
) -> None:
    """Records the part, so that it counts.

    Raises:
        TarnError: UPLOAD_NOT_FOUND if the upload has ended. The process that ended it may have discarded
            the parts before this part was written, so the parts are discarded again.
    """
    try:
        await backend.graveler.record_upload_part(
            await backend.proven_call(caller), repository_id, upload.upload_id, part
        )
    except TarnError as error:
        if error.reason is Reason.UPLOAD_NOT_FOUND:
            await discard_parts(backend, upload)
        raise

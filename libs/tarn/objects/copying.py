"""Copies of objects.

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
from tarn.core.address_age import is_young
from tarn.core.collection import LIMITS
from tarn.core.entry import Checksum, Entry, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, physical_path
from tarn.objects.backend import Caller, ObjectBackend
from tarn.objects.bodies import block_key, copy_block, digest_block, refuse_external
from tarn.objects.checksums import NO_ALGORITHMS, Algorithm, BodySums, known_checksums
from tarn.objects.erased import told_if_erased
from tarn.objects.repository_cache import CachedRepository
from tarn.objects.writing import check_branch, recreated
from tarn.rpc.wire.call import Call

__all__ = [
    "COPY_BYTES_MAX",
    "Source",
    "SourceTooLargeError",
    "YOUNG",
    "copied",
    "copy_to_new_block",
    "find_source",
    "shares_block",
]

COPY_BYTES_MAX: Final = 5 * 1024**3
"""S3's limit for one copy; enforced only where bytes are copied."""
YOUNG: Final = dataclasses.replace(LIMITS, staging_us=LIMITS.staging_us - 3_600_000_000)
"""An hour is left for reading the source's bytes, if a checksum is wanted, and for staging the entry."""


class SourceTooLargeError(TarnError):
    """The source is too large for one copy of its bytes."""

    def __init__(self) -> None:
        text = f"The source is larger than {COPY_BYTES_MAX} bytes; copy it in parts."
        super().__init__(Kind.INVALID, Reason.INVALID_ARGUMENT, text)


@dataclass(frozen=True, slots=True)
class Source:
    """The object to be copied.

    Attributes:
        repository: its repository.
        ref: of its path.
        path: its path.
        entry: its current entry.
        namespace: of its block.
        may_be_shared: whether an entry may be staged that refers to the same block.
    """

    repository: str
    ref: str
    path: str
    entry: Entry
    namespace: str
    may_be_shared: bool

    @property
    def block(self) -> BlockKey:
        """Returns the key of its block. Raises as `block_key`."""
        return block_key(self.namespace, self.entry)


async def find_source(
    backend: ObjectBackend, call: Call, repository_id: str, ref: str, path: str, *, into: str = ""
) -> Source:
    """Returns the object of a path, to be copied.

    Args:
        backend: the shared resources.
        call: of a caller who may read the object.
        repository_id: of the object.
        ref: of the object.
        path: of the object.
        into: the repository of the copy, if it may share the block; empty: the bytes are copied in any case.

    Raises:
        TarnError: any error of `lookup`.
    """
    found = await backend.graveler.lookup(
        call, repository_id, ref, path, is_copy_source=repository_id == into
    )
    entry = unpack(found.entry)
    if entry.checksums:
        entry = dataclasses.replace(entry, checksums=known_checksums(entry.checksums))
    return Source(repository_id, ref, path, entry, found.storage_namespace, found.may_be_shared)


async def copied(
    backend: ObjectBackend,
    caller: Caller,
    source: Source,
    repository: CachedRepository,
    branch: BranchId,
    *,
    algorithm: Algorithm | None = None,
    operation: str = "",
    lineage: str = "",
) -> tuple[Entry, BlockKey | None]:
    """Makes the entry of a copy, to be staged with `stage`.

    Args:
        backend: the shared resources.
        caller: may read the source and write the copy.
        source: the object.
        repository: of the copy, read before the source: if it is re-created later, staging is refused.
        branch: of the copy.
        algorithm: of a checksum that the copy has; None: those of the source.
        operation: of a conditional copy, as in `store_object`.
        lineage: likewise.

    Returns:
        The entry, and its block if only this entry refers to it; None if it shares the block of the source.

    Raises:
        SourceTooLargeError: the bytes must be copied, and are too many.
        ErasedObjectError: the source was erased.
        TarnError: NOT_IMPLEMENTED for bytes outside the namespace; BRANCH_NOT_FOUND and REF_NOT_WRITABLE if bytes would
            be copied in vain; UNAVAILABLE: the repository was deleted and re-created; an error of the store.
    """
    refuse_external(source.entry)
    if source.repository == repository.repository_id and source.namespace != repository.namespace:
        # A replica read the source in a deleted repository of this name; its blocks are not here.
        raise recreated()
    block = None
    if shares_block(backend, source, repository.repository_id):
        entry = await _by_reference(backend, source, algorithm)
    else:
        opening = backend.opening_call(caller)
        await check_branch(backend, repository.repository_id, branch, opening)
        async with told_if_erased(backend, caller, source.repository, source.ref, source.path):
            entry = await _by_bytes(backend, source, repository, algorithm)
        block = BlockKey(repository.namespace, physical_path(entry.address))
    entry = dataclasses.replace(
        entry,
        lineage=lineage,
        operation_id=operation,
        judged_move_us=0,
        replaced_address=b"",
        parts=b"",  # as in S3, a copy is one part, although its ETag may count those of the source
    )
    return entry, block


def shares_block(backend: ObjectBackend, source: Source, into: str) -> bool:
    """Whether an entry of a repository may refer to the block of a source. If not, the bytes are copied."""
    return (
        source.may_be_shared
        and source.repository == into
        and is_young(source.entry.address, backend.clock.now_us(), YOUNG)
    )


async def _by_reference(
    backend: ObjectBackend, source: Source, algorithm: Algorithm | None
) -> Entry:
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
    backend: ObjectBackend,
    source: Source,
    repository: CachedRepository,
    algorithm: Algorithm | None,
) -> Entry:
    """Copies the source's bytes to a new block; returns its entry: one part, however many the source had."""
    entry = source.entry
    if entry.size > COPY_BYTES_MAX:
        raise SourceTooLargeError
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
    backend: ObjectBackend,
    source: Source,
    repository: CachedRepository,
    wanted: frozenset[Algorithm] = NO_ALGORITHMS,
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

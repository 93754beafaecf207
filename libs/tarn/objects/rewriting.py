"""Changes of what an object says about itself: its tags, or its user metadata. Its bytes stay.

Both are a part of the entry, so a change of them stages the entry anew. An old entry must not be staged with its old
address (rule 11 of docs/design/protocol.md): its bytes are copied to a new block. A young block is
shared, as by a copy.

Between the read of the entry and the write, another write may replace the object. The write is therefore conditional on
the identity of the entry that was read: it never puts old bytes or old metadata over newer ones. If the condition does
not hold, the newer entry is read and gets the change.

A repetition after a lost answer finds the change and writes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final

from tarn.block.port import BlockKey
from tarn.client.graveler import Located
from tarn.core.condition import WriteCondition, identity_match
from tarn.core.entry import Entry, pack, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, physical_path
from tarn.core.part_list import parts_of, parts_to_keep
from tarn.objects.backend import Caller, ObjectBackend
from tarn.objects.bodies import refuse_external
from tarn.objects.copying import (
    COPY_BYTES_MAX,
    Source,
    copy_to_new_block,
    shares_block,
)
from tarn.objects.erased import told_if_erased
from tarn.objects.headers import stored_headers
from tarn.objects.repository_cache import CachedRepository
from tarn.objects.writing import check_branch, recreated, stage

__all__ = ["ObjectTooLargeError", "ReplacedAgainError", "rewrite", "set_metadata"]

_TRIES: Final = 5
"""Entries that one request reads, each of which another write may replace."""


class ObjectTooLargeError(TarnError):
    """The object is too large for a copy of its bytes, which its change needs; nothing was changed."""

    def __init__(self, path: str) -> None:
        text = (
            f"{path} is larger than {COPY_BYTES_MAX} bytes, and too old to be changed without a copy of its bytes; "
            "copy it onto itself by a multipart upload that has the change"
        )
        super().__init__(Kind.INVALID, Reason.INVALID_ARGUMENT, text, path=path)


class ReplacedAgainError(TarnError):
    """Other writes replaced the object again and again; nothing was changed."""

    def __init__(self, path: str) -> None:
        text = f"{path} was replaced by other writes {_TRIES} times while it was changed; try again"
        super().__init__(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text, path=path)


async def set_metadata(
    backend: ObjectBackend,
    caller: Caller,
    repository_id: str,
    branch: BranchId,
    path: str,
    metadata: Mapping[str, str],
) -> Entry:
    """Replaces all user metadata of an object; returns its entry. Its other headers, its tags, its ETag and its
    modification time stay.

    Raises:
        TarnError: METADATA_TOO_LARGE and INVALID_ARGUMENT as `stored_headers`; as `rewrite`.
    """
    wanted = stored_headers(metadata=metadata).metadata
    return await rewrite(
        backend,
        caller,
        repository_id,
        branch,
        path,
        lambda entry: dataclasses.replace(entry, metadata=wanted),
    )


async def rewrite(
    backend: ObjectBackend,
    caller: Caller,
    repository_id: str,
    branch: BranchId,
    path: str,
    change: Callable[[Entry], Entry],
) -> Entry:
    """Changes the entry of an object; returns the new one. An entry that has the change already is not written again.

    Args:
        backend: the shared resources.
        caller: may read and write the path.
        repository_id: the repository.
        branch: a name that may be a branch's.
        path: of the object.
        change: returns an entry with other tags or metadata and all else the same; called for each entry that is read.

    Raises:
        ReplacedAgainError: other writes were faster.
        ObjectTooLargeError: the block is old, and too large for a copy.
        ErasedObjectError: the object was erased.
        TarnError: ENTRY_NOT_FOUND; BRANCH_NOT_FOUND, REF_NOT_WRITABLE; an error of graveler or of the block store.
    """
    # The repository first: if the repository is re-created after this, staging is refused.
    opening = backend.opening_call(caller)
    repository = await backend.repositories.get(opening, repository_id)
    await check_branch(backend, repository_id, branch, opening)
    for _ in range(_TRIES):
        found = await backend.graveler.lookup(
            backend.call(caller), repository_id, branch, path, is_copy_source=True
        )
        try:
            return await _write(backend, caller, repository, branch, path, found, change)
        except TarnError as error:
            if error.reason is not Reason.PRECONDITION_FAILED:
                raise
    raise ReplacedAgainError(path)


async def _write(
    backend: ObjectBackend,
    caller: Caller,
    repository: CachedRepository,
    branch: BranchId,
    path: str,
    found: Located,
    change: Callable[[Entry], Entry],
) -> Entry:
    """Writes an entry that was found, with a change, unless it has it.

    Raises:
        TarnError: PRECONDITION_FAILED: the path holds another entry now, and nothing was written.
    """
    entry = unpack(found.entry)
    changed = change(entry)
    if changed == entry:
        return entry
    refuse_external(entry)
    if found.storage_namespace != repository.namespace:
        # A replica read the object in a deleted repository of this name; its blocks are not here.
        raise recreated()
    repository_id = repository.repository_id
    source = Source(
        repository_id, branch, path, entry, found.storage_namespace, found.may_be_shared
    )
    address, block = entry.address, None
    if not shares_block(backend, source, repository_id):
        if entry.size > COPY_BYTES_MAX:
            raise ObjectTooLargeError(path)
        async with told_if_erased(backend, caller, repository_id, branch, path):
            address, _ = await copy_to_new_block(backend, source, repository)
        block = BlockKey(repository.namespace, physical_path(address))
    changed = dataclasses.replace(
        changed,
        address=address,
        operation_id=backend.ids.uuid7().hex(),
        judged_move_us=0,
        replaced_address=b"",
        parts=b"",  # graveler adds them
    )
    parts = parts_of(entry)
    await stage(
        backend,
        caller,
        repository,
        branch,
        path,
        changed,
        block=block,
        condition=WriteCondition(if_match=identity_match(found.entry)),
        parts=b"" if parts is None else parts_to_keep(pack(changed), parts),
    )
    return changed

"""Stores bodies as objects, and the last step of every write: staging an entry.

The order makes it safe: refuse invalid requests, receive and verify the body, make its block durable, then
stage the entry that refers to the block. A failure before the last step leaves nothing visible, and no block
unless the process dies (garbage collection removes that block).

The condition of a conditional write is also checked before its block is written. Of the writers that race
for one key, as table formats do for the next version of a table, most lose; this tells them early.
"""

from __future__ import annotations

from typing import Final

from tarn.block.port import BlockKey
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.entry import Entry, operation_of, pack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, physical_path
from tarn.core.object_tags import Tags
from tarn.core.quota import is_quota_exceeded
from tarn.objects.backend import Caller, ObjectBackend
from tarn.objects.bodies import discard, receive
from tarn.objects.headers import NO_HEADERS, StoredHeaders, entry_of
from tarn.objects.incoming import IncomingBody
from tarn.objects.repository_cache import CachedRepository
from tarn.rpc.wire.call import Call

__all__ = ["check_branch", "look_again", "refuse_early", "stage", "store_object"]

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


async def store_object(
    backend: ObjectBackend,
    caller: Caller,
    repository: CachedRepository,
    branch: BranchId,
    path: str,
    payload: IncomingBody,
    headers: StoredHeaders = NO_HEADERS,
    *,
    tags: Tags = (),
    condition: WriteCondition = UNCONDITIONAL,
    operation: str = "",
    lineage: str = "",
) -> Entry:
    """Stores a body as an object; returns its entry.

    Args:
        backend: the shared resources.
        caller: may write the path.
        repository: see `ObjectBackend.repository`.
        branch: a name that may be a branch's.
        path: of the object, not empty.
        payload: the body.
        headers: stored with the object.
        tags: stored with the object.
        condition: must hold for the path immediately before the write.
        operation: of a conditional write: its id, the same in all attempts of the client.
        lineage: of the writing job, or empty.

    Raises:
        TarnError: an error of graveler or of the block store; the condition does not hold.
        Exception: the errors of the body.
    """
    repository_id = repository.repository_id
    small = backend.bounds.small_body_bytes
    is_large = payload.size is None or payload.size > small
    is_conditional = condition is not UNCONDITIONAL and bool(condition)
    if is_large:
        await check_branch(backend, repository_id, branch, backend.opening_call(caller))
    address, mtime_us = backend.ids.uuid7(), backend.clock.now_us()
    key = BlockKey(repository.namespace, physical_path(address))
    body = b""
    if is_large:
        if is_conditional:
            opening = backend.opening_call(caller)
            await refuse_early(backend, repository_id, branch, path, condition, operation, opening)
        sums = await receive(backend.blocks, key, payload)
    else:
        # The body first: a slow client must not hold the lock.
        body, sums = await payload.read_all(small)
    entry = entry_of(
        headers, sums.size, mtime_us, address, sums.md5, lineage, operation, sums.checksums, tags
    )
    if is_conditional and not is_large:
        async with backend.locks.hold((repository.instance_uid, branch, path)):
            call = backend.call(caller)
            await refuse_early(backend, repository_id, branch, path, condition, operation, call)
            await backend.blocks.put(key, body)
            await stage(
                backend, caller, repository, branch, path, entry, block=key, condition=condition
            )
        return entry
    if not is_large:
        await backend.blocks.put(key, body)
    await stage(backend, caller, repository, branch, path, entry, block=key, condition=condition)
    return entry


async def check_branch(
    backend: ObjectBackend, repository_id: str, branch: BranchId, call: Call
) -> None:
    """Checks that a branch accepts writes before much of the body is received.

    This only saves work: the answer may be stale when the entry is staged, and graveler decides then. A
    caller who may write but not read the branch is not stopped here.

    Raises:
        TarnError: BRANCH_NOT_FOUND if there is no such branch; REF_NOT_WRITABLE for a tag.
    """
    try:
        await backend.graveler.get_branch(call, repository_id, branch)
    except TarnError as error:
        if error.kind is Kind.DENIED:
            return
        if error.reason is not Reason.BRANCH_NOT_FOUND:
            raise
        try:
            await backend.graveler.get_tag(call, repository_id, branch)
        except TarnError:
            raise error from None
        text = f"{branch} is a tag; only branches take writes"
        raise TarnError(Kind.INVALID, Reason.REF_NOT_WRITABLE, text, ref=branch) from None


async def refuse_early(
    backend: ObjectBackend,
    repository_id: str,
    branch: BranchId,
    path: str,
    condition: WriteCondition,
    operation: str,
    call: Call,
) -> None:
    """Refuses a conditional write of a path if its condition does not hold now.

    The loser of a race learns this by one read, and not after a block was written and removed for it. If the
    read finds the condition broken, it was broken at that moment, so the refusal is correct. If the condition
    holds, nothing is decided yet. A caller who may not read the path is not stopped here.

    Args:
        backend: the shared resources.
        repository_id: the repository.
        branch: of the path.
        path: to be written.
        condition: the condition of the write.
        operation: the write's operation id. If an earlier attempt of the same operation wrote the object,
            graveler returns the first attempt's answer.
        call: context of the reads.

    Raises:
        TarnError: FAILED_PRECONDITION, or NOT_FOUND with ENTRY_NOT_FOUND, if the condition does not hold;
            REF_NOT_WRITABLE for a tag.
    """
    try:
        newest = (await backend.graveler.lookup(call, repository_id, branch, path)).entry
    except TarnError as error:
        if error.reason is not Reason.ENTRY_NOT_FOUND:
            return  # staging meets the same failure, or does not need the read
        newest = None
    if newest is not None and operation_of(newest) == operation:
        return
    try:
        condition.check(path, newest)
    except TarnError:
        await check_branch(backend, repository_id, branch, call)  # a tag is read like a branch
        raise


async def stage(
    backend: ObjectBackend,
    caller: Caller,
    repository: CachedRepository,
    branch: BranchId,
    path: str,
    entry: Entry,
    *,
    block: BlockKey | None,
    condition: WriteCondition = UNCONDITIONAL,
    parts: bytes = b"",
) -> None:
    """Stages an entry at a path.

    Args:
        backend: the shared resources.
        caller: may write the path.
        repository: the repository as it was when the block was written.
        branch: of the path.
        path: to be written.
        entry: the new entry of the path.
        block: the entry's block if nothing else refers to it. It is removed if graveler refuses the entry, or
            finds that an earlier attempt of the same conditional operation succeeded.
        condition: must hold for the path immediately before the write.
        parts: the list of the object's parts (`tarn.core.part_list`) that the entry keeps; empty: none.

    Raises:
        TarnError: an error of graveler; UNAVAILABLE if the repository was deleted and re-created in the meantime.
    """
    try:
        is_repeat = await backend.graveler.stage(
            await backend.proven_call(caller),
            repository.repository_id,
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
            await look_again(backend, caller, repository)
        raise
    if is_repeat and block is not None:
        await _remove(backend, block)


async def _remove(backend: ObjectBackend, block: BlockKey) -> None:
    """Removes an unreferenced block after the answer. A removal takes as long as a durable write, and the client should
    learn of the refusal without waiting for it."""
    removal = discard(backend.blocks, block)
    if len(backend.removals) < backend.bounds.removals_max:
        backend.removals.spawn(removal)
    else:
        await removal


async def look_again(backend: ObjectBackend, caller: Caller, repository: CachedRepository) -> None:
    """Distinguishes a repository that was deleted (REPOSITORY_NOT_FOUND) from one that was re-created,
    where a new attempt can succeed (UNAVAILABLE)."""
    now = await backend.repositories.fresh(backend.call(caller), repository.repository_id)
    if now.instance_uid != repository.instance_uid:
        raise recreated()


def recreated() -> TarnError:
    """Returns the error of a write into a repository that was deleted and created again meanwhile."""
    text = "The repository was deleted and created again; please try again."
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)

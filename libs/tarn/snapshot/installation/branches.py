"""Saves branches: each record, and all rows of the tokens that it names.

Tokens may leave a record and be dropped while they are read. So the record is read again afterwards: a token that it
still names was whole until then, because a token is dropped only after a read that found a record without it. If a
token is gone, the branch is read again.

The notes of completed uploads are read before the rows of paths. A completion writes both together; if it does so
between the two reads, the backup has the row without the note, and a repeated completion writes the row again. In
the other order it would have the note alone, which says that the row was overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.aio.parallel import for_each
from tarn.core.branch import Branch
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.kv.keys import STAGED_UPLOADS, RepositoryKeys, after_prefix, key_error
from tarn.kv.paging import rows_of
from tarn.kv.records import decode_branch
from tarn.snapshot.files.writing import KvWriter, Lines

__all__ = ["SavedBranch", "save_branches"]

_PAGE = 1000
_TRIES = 16
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class SavedBranch:
    """A branch of a backup.

    Attributes:
        value: the record's bytes.
        branch: the record.
        lines: the chunks of its tokens.
    """

    value: bytes
    branch: Branch
    lines: Lines


async def save_branches(writer: KvWriter, keys: RepositoryKeys) -> dict[BranchId, SavedBranch]:
    """Saves all branches of a repository but those that are being created.

    Raises:
        TarnError: UNAVAILABLE: a branch changes faster than it can be read. CORRUPT. Also the store's errors.
    """
    prefix = keys.branch("")
    names = []
    async for key, _ in rows_of(writer.kv, keys.refs, prefix, after_prefix(prefix), _PAGE):
        try:
            names.append(BranchId(key[len(prefix) :].decode()))
        except UnicodeDecodeError as error:
            raise key_error(key, "branch") from error
    saved: dict[BranchId, SavedBranch] = {}

    async def save(branch_id: BranchId) -> None:
        found = await _save(writer, keys, branch_id)
        if found is not None:
            saved[branch_id] = found

    await for_each(names, save, _AT_ONCE)
    return saved


async def _save(writer: KvWriter, keys: RepositoryKeys, branch_id: BranchId) -> SavedBranch | None:
    """Saves one branch; None if there is none (any more)."""
    for _ in range(_TRIES):
        value = await _record(writer, keys, branch_id)
        if value is None:
            return None
        branch = decode_branch(value)
        if branch.is_deleted:  # also while it is being created
            return None
        lines: Lines = []
        for token in branch.tokens:
            partition = keys.token(branch_id, token)
            lines += await writer.copy(partition, STAGED_UPLOADS, None)
            lines += await writer.copy(partition, b"", STAGED_UPLOADS)
        again = await _record(writer, keys, branch_id)
        if again is not None and _is_whole(branch, decode_branch(again)):
            return SavedBranch(value, branch, lines)
    text = (
        f"branch {branch_id} of {keys.root} was committed or reset {_TRIES} times while its uncommitted changes were "
        "read; make the backup again"
    )
    raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)


def _is_whole(read: Branch, now: Branch) -> bool:
    """Whether no token of the record that was read can have been dropped until now."""
    return (
        not now.is_deleted
        and now.incarnation == read.incarnation
        and all(now.names(token.token_id) for token in read.tokens)
    )


async def _record(writer: KvWriter, keys: RepositoryKeys, branch_id: BranchId) -> bytes | None:
    (found,) = await writer.kv.get_many(keys.refs, [keys.branch(branch_id)])
    return None if found is None else found.value

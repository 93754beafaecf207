"""Saves reflogs and commits, to which refs lead. Both are read after the records of all refs.

*Reflogs.* A record holds the entries whose rows may not be written yet, so no entry is missed. Entries that came after
the record was read are left out: the restored branch gives their numbers to other changes.

*Commits.* A commit is durable before anything names it, so all ancestors of the refs are there. The scan may find a
newer commit and miss its parent, because ids are in no order of time. Then the parents are added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tarn.core.branch import Branch
from tarn.core.head_change import HeadChange
from tarn.core.ids import BranchId
from tarn.kv.keys import RepositoryKeys
from tarn.kv.records import decode_head_change, parse_record
from tarn.snapshot.files.content import corrupt_error
from tarn.snapshot.files.ranges import all_rows
from tarn.snapshot.files.writing import KvWriter, Lines
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = ["save_commits", "save_reflog"]

_LOG: Final = RepositoryKeys.REFLOG
_COMMITS: Final = RepositoryKeys.commit("")
_BESIDE = (RepositoryKeys.EXPIRED, RepositoryKeys.ERASED)
"""Rows beside the commits in their partition: all of them are saved."""
_GET: Final = 500


async def save_reflog(
    writer: KvWriter, keys: RepositoryKeys, branches: Mapping[BranchId, Branch]
) -> tuple[Lines, set[BranchId]]:
    """Saves the reflogs of all branches, as they were when the records were read.

    Args:
        writer: writes the rows.
        keys: of the repository.
        branches: the records of the backup.

    Returns:
        The lines, and the names of the branches, also deleted ones, of which there are rows.

    Raises:
        TarnError: CORRUPT: a row cannot be read. Also the store's errors.
    """
    is_ended: dict[BranchId, bool] = {}
    names: set[BranchId] = set()

    def keep(key: bytes, value: bytes) -> bool:
        entry = decode_head_change(value)
        branch_id = _branch_of(key, entry)
        if is_kept := is_of_backup(key, entry, branch_id):
            names.add(branch_id)
        return is_kept

    def is_of_backup(key: bytes, entry: HeadChange, branch_id: BranchId) -> bool:
        branch = branches.get(branch_id)
        if branch is not None:
            return entry.sequence <= branch.head_sequence
        if not key.startswith(_LOG):
            return True
        # No branch of this name: an entry that is newer than the newest deletion belongs to a branch that was created
        # later.
        is_ended[branch_id] = is_ended.get(branch_id, False) or entry.is_deletion
        return is_ended[branch_id]

    return await writer.copy(keys.reflog, keep=keep), names


def _branch_of(key: bytes, entry: HeadChange) -> BranchId:
    prefix, row = (
        (_LOG, RepositoryKeys.reflog_row)
        if key.startswith(_LOG)
        else (RepositoryKeys.DELETED, RepositoryKeys.deleted_row)
    )
    suffix = row("", entry).removeprefix(prefix)
    name = key.removeprefix(prefix).removesuffix(suffix)
    if prefix + name + suffix != key:
        raise corrupt_error(
            f"row {key[:200]!r} of a reflog does not have the key of its entry: run `tarn fsck`"
        )
    return BranchId(name.decode())


async def save_commits(writer: KvWriter, keys: RepositoryKeys) -> tuple[Lines, int]:
    """Saves all commits that are stored now, each with all of its ancestors.

    Returns:
        The lines, and the number of commits.
    """
    known: set[bytes] = set()
    parents: set[bytes] = set()
    async for key, value in all_rows(writer.kv, keys.commits):
        if key.startswith(_BESIDE):
            continue
        _note(key, value, known, parents)
    while missing := [each for each in parents if each not in known]:
        parents.clear()
        for at in range(0, len(missing), _GET):
            wanted = [_COMMITS + each.hex().encode() for each in missing[at : at + _GET]]
            for key, found in zip(
                wanted, await writer.kv.get_many(keys.commits, wanted), strict=True
            ):
                # A parent without a row is damage that `tarn fsck` reports; it is no reason to save nothing.
                if found is not None:
                    _note(key, found.value, known, parents)
    is_known = _known_by(known)
    return await writer.copy(keys.commits, keep=is_known), len(known)


def _note(key: bytes, value: bytes, known: set[bytes], parents: set[bytes]) -> None:
    known.add(_id_of(key))
    parents.update(bytes.fromhex(each) for each in parse_record(pb.CommitRecord(), value).parents)


def _known_by(known: set[bytes]) -> Callable[[bytes, bytes], bool]:
    def is_known(key: bytes, _: bytes) -> bool:
        return key.startswith(_BESIDE) or _id_of(key) in known

    return is_known


def _id_of(key: bytes) -> bytes:
    """The 32 bytes of a commit's id, which take half the memory of its text."""
    try:
        return bytes.fromhex(key.removeprefix(_COMMITS).decode())
    except ValueError as error:
        raise corrupt_error(f"row {key[:200]!r} names no commit: run `tarn fsck`") from error

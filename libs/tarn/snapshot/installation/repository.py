"""Saves one repository. References move forward only: from an upload to a staged row, from there to a commit. So the
places are read in that order, and nothing that was acknowledged before is missed.

    1. uploads: an upload that is complete in the backup has its row in a token or a commit that is read later
    2. branches, each with its tokens
    3. tags, and all other rows of the refs; pull requests
    4. reflogs, changed paths and commits
    5. the record of the repository once more: one that is being deleted is left out

`tarn.snapshot.records` states what each kind of record needs. Rows that say who owns a name are made from the branches
and tags of the backup, because their owners may change while it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tarn.core.collection import NEVER, Collection, Phase
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.kv.collection_records import decode_collection, encode_collection
from tarn.kv.keys import InstallationKeys, RepositoryKeys, after_prefix, key_error
from tarn.kv.paging import rows_of
from tarn.kv.port import Row
from tarn.kv.records import (
    RefKind,
    RefName,
    Repository,
    decode_bucket,
    decode_ref_name,
    decode_tag,
    encode_ref_name,
    encode_repository,
)
from tarn.snapshot.files.manifest import SavedRepository
from tarn.snapshot.files.writing import KvWriter, Lines
from tarn.snapshot.installation.branches import SavedBranch, save_branches
from tarn.snapshot.installation.history import save_commits, save_reflog
from tarn.snapshot.installation.looks import Looks, looks_of
from tarn.snapshot.installation.pulls import save_pulls

__all__ = ["SavedRows", "collection_at_rest", "save_repository"]

_PAGE: Final = 1000
_TRIES: Final = 3
_BRANCHES: Final = RepositoryKeys.branch("")
_NAMES: Final = RepositoryKeys.name("")
_TAGS: Final = RepositoryKeys.tag("")


@dataclass(frozen=True, slots=True)
class SavedRows:
    """A repository in a backup.

    Attributes:
        row: its record, for the partition that all repositories share.
        lines: the chunks of its own partitions.
        looks: the looks that its records need.
        about: for the manifest.
    """

    row: Row
    lines: Lines
    looks: Looks
    about: SavedRepository


async def save_repository(
    writer: KvWriter, keys: InstallationKeys, repository_id: str
) -> SavedRows | None:
    """Saves a repository; None if it is not in use: being created, restored or deleted.

    Raises:
        TarnError: UNAVAILABLE: it changes faster than it can be read. CORRUPT. Also the store's errors.
    """
    for _ in range(_TRIES):
        before = await _record(writer, keys, repository_id)
        if before is None:
            return None
        saving = _Saving(writer, keys.of_repository(before.repository_id, before.instance_uid))
        await saving.run()
        after = await _record(writer, keys, repository_id)
        if after is None or after.instance_uid != before.instance_uid or await saving.is_closed():
            return None
        # The default branch may have changed meanwhile, and one of the two may be created or deleted too late.
        for record in (after, before):
            if record.default_branch in saving.branches:
                return saving.result(record)
        if await _is_headless(writer, saving.keys, after.default_branch):
            return saving.result(after)
    text = f"the default branch of repository {repository_id} kept changing while it was read; make the backup again"
    raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)


async def _is_headless(writer: KvWriter, keys: RepositoryKeys, branch_id: BranchId) -> bool:
    """Whether the default branch does not exist at all, which is damage but no reason to save nothing."""
    (found,) = await writer.kv.get_many(keys.refs, [keys.branch(branch_id)])
    return found is None


async def _record(
    writer: KvWriter, keys: InstallationKeys, repository_id: str
) -> Repository | None:
    """The record of a repository that is in use."""
    (found,) = await writer.kv.get_many(keys.graveler, [keys.repository(repository_id)])
    record = None if found is None else decode_bucket(found.value)
    return record if isinstance(record, Repository) and record.is_served else None


@dataclass(slots=True)
class _Saving:
    """One attempt to save a repository."""

    writer: KvWriter
    keys: RepositoryKeys
    branches: Mapping[BranchId, SavedBranch] = field(default_factory=dict)
    refs: dict[bytes, bytes] = field(default_factory=dict)
    lines: Lines = field(default_factory=list)
    with_reflog: set[BranchId] = field(default_factory=set)
    tags: int = 0
    commits: int = 0

    async def run(self) -> None:
        await self._save_uploads()
        self.branches = await save_branches(self.writer, self.keys)
        for branch_id, saved in self.branches.items():
            self.refs[self.keys.branch(branch_id)] = saved.value
            self._own(branch_id, RefName(RefKind.BRANCH, saved.branch.incarnation))
            self.lines += saved.lines
        await self._save_tags()
        await self._save_other_refs()
        self.lines += await save_pulls(self.writer, self.keys)
        records = {branch_id: saved.branch for branch_id, saved in self.branches.items()}
        reflogs, self.with_reflog = await save_reflog(self.writer, self.keys, records)
        self.lines += reflogs
        self.lines += await self.writer.copy(self.keys.changed)
        commits, self.commits = await save_commits(self.writer, self.keys)
        self.lines += commits
        await self._keep_times_of_names()
        self.lines += await self.writer.save(self.keys.refs, self.refs.items())

    def result(self, record: Repository) -> SavedRows:
        """The saved rows, with the record of the repository."""
        about = SavedRepository(
            record.repository_id,
            record.instance_uid,
            record.storage_namespace,
            record.default_branch,
            branches=len(self.branches),
            tags=self.tags,
            commits=self.commits,
            staged=sum(line.rows for saved in self.branches.values() for line in saved.lines),
        )
        row = InstallationKeys.repository(record.repository_id), encode_repository(record)
        records = {branch_id: saved.branch for branch_id, saved in self.branches.items()}
        looks = looks_of(self.keys, record.repository_id, records, self.with_reflog)
        return SavedRows(row, self.lines, looks, about)

    async def is_closed(self) -> bool:
        """Whether the deletion of the repository has begun."""
        (found,) = await self.writer.kv.get_many(self.keys.refs, [self.keys.CLOSED])
        return found is not None

    async def _save_uploads(self) -> None:
        prefix = self.keys.UPLOAD_DAYS
        async for key, value in rows_of(
            self.writer.kv, self.keys.refs, prefix, after_prefix(prefix), _PAGE
        ):
            day = self.keys.day_of(key)
            if day is None:
                raise key_error(key, "day")
            self.refs[key] = value
            self.lines += await self.writer.copy(self.keys.uploads(day))

    async def _save_tags(self) -> None:
        async for key, value in rows_of(
            self.writer.kv, self.keys.refs, _TAGS, after_prefix(_TAGS), _PAGE
        ):
            tag, name = decode_tag(value), key[len(_TAGS) :].decode()
            # A tag that took the name of a deleted branch meanwhile is later than the branch, which is kept.
            if not tag.is_pending and BranchId(name) not in self.branches:
                self.refs[key] = value
                self._own(name, RefName(RefKind.TAG, tag.nonce))
                self.tags += 1

    async def _save_other_refs(self) -> None:
        """Saves the settings, and rows that this version does not know."""
        starts = (b"", *map(after_prefix, _SAVED))
        for start, end in zip(starts, (*_SAVED, None), strict=True):
            async for key, value in rows_of(self.writer.kv, self.keys.refs, start, end, _PAGE):
                if key not in (self.keys.CLOSED, self.keys.COLLECTION):
                    self.refs[key] = value
        (found,) = await self.writer.kv.get_many(self.keys.refs, [self.keys.COLLECTION])
        collection = NEVER if found is None else decode_collection(found.value)
        self.refs[self.keys.COLLECTION] = encode_collection(collection_at_rest(collection))

    def _own(self, name: str, owner: RefName) -> None:
        self.refs[self.keys.name(name)] = encode_ref_name(owner)

    async def _keep_times_of_names(self) -> None:
        """Takes the stored row of a name if it has the same owner: it also says since when."""
        async for key, value in rows_of(
            self.writer.kv, self.keys.refs, _NAMES, after_prefix(_NAMES), _PAGE
        ):
            made = self.refs.get(key)
            if made is not None and decode_ref_name(made) == decode_ref_name(value):
                self.refs[key] = value


_SAVED: Final = (_BRANCHES, _NAMES, _TAGS, RepositoryKeys.UPLOAD_DAYS)
"""Prefixes of the rows that have a step of their own, in order."""


def collection_at_rest(collection: Collection) -> Collection:
    """The collection record without its run, mark and hold: none of them may go on after a restore. The counts that
    fence builds off stay."""
    return replace(
        collection,
        phase=Phase.IDLE,
        run_id="",
        erase_run_id="",
        begin_us=0,
        lease_until_us=0,
        cutoff_us=0,
        mark_run_id="",
        mark_end_us=0,
        mark_cutoff_us=0,
        hold_until_us=0,
    )

"""Adds one rebuilt repository to a store that may be in use.

Its name and its namespace are claimed first, by a record that is pending: nobody sees it, and no drain reads it. So its
rows are complete, and its journal has a new epoch in the bucket, before anything can change them. The repository is a
new instance, with partitions of its own, so nothing of a former life meets it. An attempt that dies leaves a claim,
which the next attempt takes over, and partitions that no record names (`tarn fsck` shows them).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tarn.collection.owners import note_owner
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, RepositoryId
from tarn.journal.source import find_source
from tarn.kv.drop_records import Drop
from tarn.kv.paging import rows_of
from tarn.kv.port import Kv, Partition, Row
from tarn.kv.records import Repository
from tarn.kv.register import require_written
from tarn_graveler.journal.epochs import Epochs, JournalPlace
from tarn_graveler.rebuild.listings import Show, require_listings, show_nothing
from tarn_graveler.rebuild.report import RepositoryReport
from tarn_graveler.rebuild.repository import Rebuilder, RebuiltRepository
from tarn_graveler.rebuild.rows import write_rows
from tarn_graveler.records.drop_list import DropList
from tarn_graveler.records.repositories import Repositories

__all__ = ["add_repository"]

_RESTORE_ID: Final = "rebuild"
_PAGE: Final = 1_000


async def add_repository(
    tools: Rebuilder,
    repositories: Repositories,
    store: Kv,
    name: RepositoryId,
    storage_namespace: str,
    default_branch: BranchId,
    show: Show = show_nothing,
) -> RepositoryReport:
    """Rebuilds a repository from the journal in its namespace, and adds it to a store.

    Args:
        tools: writes to an empty temporary store.
        repositories: claims the name, with an event of the store's own journal if it has one.
        store: gets the rows, without events: the new epoch of the journal begins with them.
        name: of the repository; free.
        storage_namespace: of the lost repository.
        default_branch: a branch that it had.
        show: called while it waits for deletions of the lost store.

    Raises:
        TarnError: REPOSITORY_EXISTS: the name or the namespace is taken. BRANCH_NOT_FOUND: the journal has no such
            branch. NOT_FOUND: there is no journal. CORRUPT: its base is damaged. Errors of the stores. Nobody sees the
            repository after any of these.
    """
    await find_source(tools.blocks, storage_namespace)  # before anything is claimed
    if (bare := await _bare(repositories, name, storage_namespace)) is not None:
        await _show(repositories, bare)
        told = "it was complete already: its report was that of an earlier attempt"
        return RepositoryReport(name, storage_namespace, problems=[told])
    reservation = await repositories.reserve(name, storage_namespace, default_branch, _RESTORE_ID)
    try:
        rebuilt = await _filled(tools, store, reservation.repository, show)
        await repositories.publish(reservation)
    except TarnError as error:
        if error.kind is not Kind.UNKNOWN_OUTCOME:
            await repositories.abandon(reservation)
        raise
    await _show(repositories, reservation.repository)
    return rebuilt.report


async def _filled(
    tools: Rebuilder, store: Kv, repository: Repository, show: Show
) -> RebuiltRepository:
    """Writes all rows of a repository, and begins the epoch of its journal."""
    rebuilt = await tools.repository(repository)
    keys = tools.keys.of_repository(repository.repository_id, repository.instance_uid)
    (head,) = await tools.kv.get_many(keys.refs, [keys.branch(repository.default_branch)])
    if head is None:
        text = (
            f"the journal in {repository.storage_namespace} has no branch {repository.default_branch}; give the "
            "default branch of the lost repository with --default-branch"
        )
        raise TarnError(Kind.NOT_FOUND, Reason.BRANCH_NOT_FOUND, text)
    looks = [_from(look, tools.clock.now_us()) for look in rebuilt.looks.values()]
    require_written(await DropList(store, tools.keys, tools.clock).add(looks))
    for partition in (keys.commits, keys.pulls, keys.reflog, keys.refs):
        await _copy(tools.kv, store, partition)
    name, uid = repository.repository_id, repository.instance_uid
    await note_owner(tools.blocks, repository.storage_namespace, name, uid)
    epochs = Epochs(store, tools.keys, tools.blocks, tools.clock, tools.ids)
    place = JournalPlace(keys.root, repository.storage_namespace)
    await epochs.begin(place, rebuilt.source)
    await require_listings(tools.blocks, {place.namespace: rebuilt.blocks}, tools.clock, show)
    return rebuilt


async def _copy(made: Kv, store: Kv, partition: Partition) -> None:
    rows: list[Row] = []
    async for row in rows_of(made, partition, b"", None, _PAGE):
        rows.append(row)
        if len(rows) == _PAGE:
            await write_rows(store, partition, rows)
            rows.clear()
    await write_rows(store, partition, rows)


def _from(look: Drop, now_us: int) -> Drop:
    """A look that is not before the place of the running cleaner."""
    return replace(look, drop_time_us=max(look.drop_time_us, now_us))


async def _bare(
    repositories: Repositories, name: RepositoryId, storage_namespace: str
) -> Repository | None:
    """Returns the repository of an attempt that died as its last step was left; None: there is none."""
    try:
        found = await repositories.read(name, settle=True)
    except TarnError as error:
        if error.reason is Reason.REPOSITORY_NOT_FOUND:
            return None
        raise
    is_ours = found.restore_id == _RESTORE_ID and found.storage_namespace == storage_namespace
    return found if is_ours and not (found.is_pending or found.is_deleted) else None


async def _show(repositories: Repositories, repository: Repository) -> None:
    """Makes the repository visible."""

    def shown(found: Repository) -> Repository:
        if found.instance_uid != repository.instance_uid or found.is_deleted:
            text = f"repository {found.repository_id} was replaced by another one meanwhile"
            raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)
        return replace(found, restore_id="")

    await repositories.change(repository.repository_id, shown)

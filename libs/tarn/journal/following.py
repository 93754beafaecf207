"""Which epochs a store may follow that is filled with rows of another one: those that are the newest at that moment.

By its first pass the store may be lost already, and a rebuild may have opened another one in its place; or it is the
older one of two that were filled. Its epoch would hide the one that counts. So a fill notes for each journal the newest
epoch, number and folder, and the store begins its own after that one or none (`tarn_graveler.journal.epochs`). What
could not be read is noted as unknown: then a person has to say so (`follow`), as of two stores only a person knows
which one is to be kept.

The namespaces are known from the records that the fill has written. A fill without a block store notes nothing; its
store begins no epoch where the bucket has one, as a new store.
"""

from __future__ import annotations

from typing import Final

import structlog

from tarn.aio.parallel import for_each
from tarn.block.port import ReadBlocks
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.epochs import Epoch, newest_epoch
from tarn.kv.journal_records import EpochRecord, epoch_row, note_epochs
from tarn.kv.keys import InstallationKeys, after_prefix
from tarn.kv.paging import rows_of
from tarn.kv.port import Kv
from tarn.kv.records import Repository, decode_bucket

__all__ = ["follow", "journal_of", "note_newest"]

_AT_ONCE: Final = 16
_PAGE: Final = 500
_REPOSITORIES: Final = InstallationKeys.repository("")

_log = structlog.get_logger()


async def note_newest(
    kv: Kv, keys: InstallationKeys, blocks: ReadBlocks, journal_namespace: str
) -> tuple[str, ...]:
    """Notes in a store that was filled which epoch is now the newest one of each journal. May be repeated.

    Args:
        kv: the store; it has all of its records, and is not open yet.
        keys: of the installation.
        blocks: the block store of its services.
        journal_namespace: of the journal of what belongs to no repository.

    Returns:
        The namespaces of repositories whose bucket could not be read; nothing is drained there before `follow`.

    Raises:
        TarnError: the journal of what belongs to no repository cannot be read. Errors of the store.
    """
    shared = _note(await newest_epoch(blocks, journal_namespace))
    end = after_prefix(_REPOSITORIES)
    places: list[tuple[str, str]] = []
    async for _, value in rows_of(kv, keys.graveler, _REPOSITORIES, end, _PAGE):
        found = decode_bucket(value)
        if isinstance(found, Repository) and not found.is_deleted:
            places.append(journal_of(keys, found))
    notes: dict[str, EpochRecord] = {}
    unknown: list[str] = []

    async def note(place: tuple[str, str]) -> None:
        root, namespace = place
        try:
            notes[root] = _note(await newest_epoch(blocks, namespace))
        except TarnError as error:
            notes[root] = EpochRecord(0, "", is_unknown=True)
            unknown.append(namespace)
            _log.warning(
                "the newest epoch of a journal could not be read", namespace=namespace, error=error
            )

    await for_each(places, note, _AT_ONCE)
    # That of the installation is the last: until it is there, this is a new store.
    await note_epochs(kv, keys, {**notes, keys.installation_id: shared})
    return tuple(sorted(unknown))


async def follow(
    kv: Kv, keys: InstallationKeys, blocks: ReadBlocks, journal: tuple[str, str], number: int
) -> Epoch | None:
    """Lets a journal of a store follow the newest epoch of its bucket, whatever store has begun that one.

    A person has decided that this store is to be kept. No process of it may run.

    Args:
        kv: the store.
        keys: of the installation.
        blocks: the block store of its services.
        journal: root and namespace, as of `journal_of`.
        number: of the epoch which that person has seen to be the newest; 0: there is none.

    Returns:
        That epoch.

    Raises:
        TarnError: FAILED_PRECONDITION: another epoch is the newest one. CORRUPT: it cannot be read. Errors of the
            stores.
    """
    root, namespace = journal
    newest = await newest_epoch(blocks, namespace)
    if number != (0 if newest is None else newest.number):
        found = "no epoch" if newest is None else f"the newest epoch {newest.number}, not {number}"
        text = f"the journal of {namespace} has {found}: look again which store is to be kept"
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)
    record = await epoch_row(kv, keys, root).read(settle=True)
    if newest is None or record != EpochRecord(newest.number, newest.folder, has_begun=True):
        await note_epochs(kv, keys, {root: _note(newest)})
    return newest


def journal_of(keys: InstallationKeys, repository: Repository) -> tuple[str, str]:
    """The root and the namespace of a repository's journal."""
    of_repository = keys.of_repository(repository.repository_id, repository.instance_uid)
    return of_repository.root, repository.storage_namespace


def _note(newest: Epoch | None) -> EpochRecord:
    if newest is None:
        return EpochRecord(0, "", may_follow=True)
    return EpochRecord(newest.number, newest.folder, may_follow=True)

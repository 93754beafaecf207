"""The epoch that the journal of a repository continues in this store.

An epoch begins with its base: all that the store holds of the repository. Nothing is drained, dropped or removed before
the epoch has begun, so all later changes are events that are still in the store, and the base needs no moment of its
own. Its rows have order 0, less than that of every event.

The row of the store is written first, and names the folder of the attempt. Half of the digits of that folder are of
the store, as long as it has the row. An attempt that is taken over keeps them, and its number. Only one file of a
number can be, so two replicas never begin two epochs, and whichever attempt is first counts: its base is whole,
because the row was there from before it was read until now. A file of this number with other digits is of another
store. A number is one more than that of the epoch which this store may follow, and is never raised: so it follows none
that came meanwhile.

A store that is filled with the rows of another one gets a row that says which epoch was the newest then
(`tarn.journal.following`). It begins one of its own after that, and after no other: by its first pass the store may be
lost already, and another one in its place. A new store has no row: where the bucket has an epoch already, it may stand
in the place of a store that was lost, and its epoch would hide all that a rebuild needs. So it begins none. A
repository that is made anew over a namespace with a journal gets such a row as it is created (`note_newest`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
import structlog

from tarn.block.port import BlockStore
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.journal.epochs import Epoch, EpochCause, begin_epoch, newest_epoch, next_epoch
from tarn.journal.events import BASE_ID, BASE_OPERATION, BRANCHES, EventRow, table_of
from tarn.journal.names import epoch_store
from tarn.journal.source import JournalSource, require_unchanged
from tarn.journal.writing import write_base
from tarn.kv.journal_records import EpochRecord, epoch_row, epoch_rows, note_epochs
from tarn.kv.keys import (
    PATHS_END,
    PATHS_START,
    AuthKeys,
    InstallationKeys,
    RepositoryKeys,
    after_prefix,
    path_of,
)
from tarn.kv.paging import rows_of
from tarn.kv.port import Kv
from tarn.kv.record_kinds import KINDS, Place
from tarn.kv.records import decode_branch
from tarn.kv.register import Register
from tarn_graveler.journal.scanning import LOOKS, branch_ids

__all__ = ["Epochs", "JournalPlace", "end_epochs"]

_BASE_ROWS: Final = 50_000
"""Rows of a file of the base, and in memory."""
_BASE_BYTES: Final = 16 << 20
_PAGE: Final = 1_000
_STOP_ONE: Final = (
    "Stop one of the two stores; if this is the one to keep, stop its replicas too, and run `tarn journal follow` "
    "(docs/operate/journal.md)"
)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """A repository with a journal, or what belongs to no repository.

    Attributes:
        root: `RepositoryKeys.root` of its present life; of what belongs to none, the id of the installation.
        namespace: where the files are.
    """

    root: str
    namespace: str


class Epochs:
    """Finds and begins epochs."""

    def __init__(
        self, kv: Kv, keys: InstallationKeys, blocks: BlockStore, clock: Clock, ids: IdSource
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._blocks = blocks
        self._clock = clock
        self._ids = ids

    async def current(self, place: JournalPlace) -> Epoch:
        """Returns the epoch of a repository; begins one if it has none.

        Raises:
            TarnError: FAILED_PRECONDITION: another store has begun a newer epoch of this namespace, or this one may not
                follow the epoch that is there, since it is new or another one was the newest when it was filled: it
                must not drain. CONFLICT: another replica begins one. CORRUPT; errors of the stores.
        """
        row = self._row(place.root)
        record = await row.read(settle=True)
        newest = await newest_epoch(self._blocks, place.namespace)
        number = newest.number if newest is not None else 0
        if record is None:
            if newest is not None:
                raise _unknown_store(place, newest)
            return await self._begin(place, row, record, number)
        if record.is_note:
            if not record.may_follow_epoch(number, newest.folder if newest is not None else ""):
                raise _other_was_newest(place, record, number)
            return await self._begin(place, row, record, number)
        if newest is not None and _is_ours(record, newest):
            if not record.has_begun:
                # Its attempt lost the answer, or was taken over meanwhile.
                await self._note_begun(row, newest)
            return newest
        if record.has_begun or record.number != number + 1:
            found = "none" if newest is None else f"{newest.number} in folder {newest.folder}"
            text = (
                f"the journal of {place.namespace} is of another store: its newest epoch is {found}, and this store "
                f"continues {record.number} in folder {record.folder}. {_STOP_ONE}"
            )
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)
        return await self._begin(place, row, record, number)

    async def begin(self, place: JournalPlace, source: JournalSource) -> Epoch:
        """Begins the epoch of a store that was rebuilt: the next one after that which was the newest for the rebuild.

        Then it looks at the files of that one again. A process of the lost store deletes a block only if its epoch is
        the newest one after its file was written: so that file is found here, or nothing is deleted.

        Args:
            place: the repository.
            source: of which the store was made.

        Raises:
            TarnError: FAILED_PRECONDITION: another store has begun an epoch, or has written files, since the rebuild
                began: it must not be used. Errors of the stores.
        """
        row = self._row(place.root)
        record = await row.read(settle=True)
        epoch = await self._begin(place, row, record, source.newest.number, source.epoch)
        await require_unchanged(self._blocks, place.namespace, source)
        return epoch

    async def note_newest(self, place: JournalPlace, shared: JournalPlace) -> None:
        """Notes which epoch is the newest one of a repository that is being created: its own may follow that alone.

        Its namespace was that of a deleted repository, or of another store. Nothing is noted if there is no epoch, or
        if another store may count by now: then the repository begins none where the bucket has one. A rebuild begins
        the epoch of what belongs to no repository first. So if that one still is this store's after the look, the noted
        epoch is not of a rebuild in its place.

        Args:
            place: the repository; nobody sees it yet.
            shared: what belongs to no repository.

        Raises:
            TarnError: CONFLICT: another replica begins the epoch of `shared`. Errors of the stores.
        """
        try:
            newest = await newest_epoch(self._blocks, place.namespace)
            if newest is None:
                return
            await self.current(shared)
        except TarnError as error:
            if error.kind not in {Kind.CORRUPT, Kind.FAILED_PRECONDITION}:
                raise
            _log.warning(
                "a repository begins no epoch of its journal: another store may continue the one of its namespace",
                namespace=place.namespace,
                error=error.message,
            )
            return
        note = EpochRecord(newest.number, newest.folder, may_follow=True)
        await note_epochs(self._kv, self._keys, {place.root: note})

    async def require_continued(self, place: JournalPlace, epoch: Epoch) -> None:
        """Does nothing if this store still continues an epoch. A pass asks after its file, before anything goes.

        The journal may have been off and on since the pass began. Then the base of the next epoch may be older than
        what the pass has read, and its file is in an epoch that no rebuild reads. If the row is still there, the next
        base is read after this look, and so has all that came before it.

        Raises:
            TarnError: CONFLICT: it does not. Errors of the store.
        """
        record = await self._row(place.root).read(settle=True)
        if record != EpochRecord(epoch.number, epoch.folder, has_begun=True):
            text = (
                f"the journal of {place.namespace} was switched off, or follows another epoch, since a pass over epoch "
                f"{epoch.number} began: what it has read stays in the store, for the next pass"
            )
            raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)

    def _row(self, root: str) -> Register[EpochRecord | None]:
        return epoch_row(self._kv, self._keys, root)

    async def _begin(
        self,
        place: JournalPlace,
        row: Register[EpochRecord | None],
        before: EpochRecord | None,
        number: int,
        source: Epoch | None = None,
    ) -> Epoch:
        """Begins the epoch after `number`; `source`: the one of which the store was rebuilt.

        An attempt of a rebuild has digits of its own: the tokens of another one have other names, and so has its base.
        """
        chance = self._ids.nonce().hex()
        if source is None and before is not None and not before.is_note:
            chance = epoch_store(before.folder) + chance[16:]
        cause = EpochCause.ENABLED if source is None else EpochCause.REBUILD
        epoch = next_epoch(source, chance, cause, self._clock.now_us(), newest=number)
        record = EpochRecord(epoch.number, epoch.folder)
        await self._move(row, before, record)
        base = await write_base(self._blocks, place.namespace, epoch.folder, self._base(place.root))
        if number and source is None and not base:
            raise _unknown_store(place, epoch)
        # If the row went meanwhile, the base may lack what the store held before.
        _require_attempt(await row.read(settle=True), epoch)
        epoch = msgspec.structs.replace(epoch, base=base)
        epoch = await begin_epoch(self._blocks, place.namespace, epoch)
        await self._note_begun(row, epoch)
        _log.info("epoch of the journal begun", namespace=place.namespace, epoch=epoch.number)
        return epoch

    async def _note_begun(self, row: Register[EpochRecord | None], epoch: Epoch) -> None:
        """Notes which attempt of this store has begun; nothing is drained before."""
        begun = EpochRecord(epoch.number, epoch.folder, has_begun=True)

        def decide(found: EpochRecord | None) -> EpochRecord:
            if found != begun:
                _require_attempt(found, epoch)
            return begun

        await row.change(decide)

    async def _move(
        self, row: Register[EpochRecord | None], before: EpochRecord | None, after: EpochRecord
    ) -> None:
        def decide(found: EpochRecord | None) -> EpochRecord:
            if found not in (before, after):
                raise _other_replica()
            return after

        await row.change(decide)

    # ---- the base

    async def _base(self, root: str) -> AsyncIterator[pa.Table]:
        """Yields everything that the store holds of a repository, or of no repository, and a rebuild needs."""
        rows: list[EventRow] = []
        size = 0
        async for row in self._base_rows(root):
            rows.append(row)
            size += len(row.key) + len(row.payload)
            if len(rows) >= _BASE_ROWS or size >= _BASE_BYTES:
                yield table_of(rows)
                rows, size = [], 0
        if rows:
            yield table_of(rows)

    async def _base_rows(self, root: str) -> AsyncIterator[EventRow]:
        if root == self._keys.installation_id:
            partitions = {
                Place.GRAVELER: self._keys.graveler,
                Place.AUTH: AuthKeys(root).partition,
            }
        else:
            keys = RepositoryKeys(root)
            partitions = {
                Place.REFS: keys.refs,
                Place.COMMITS: keys.commits,
                Place.PULLS: keys.pulls,
                Place.REFLOG: keys.reflog,
            }
            async for row in self._all_branches(keys):
                yield row
        prefix = BRANCHES.encode()
        for kind in KINDS:
            if not kind.is_journaled or kind.place not in partitions or kind.begins == prefix:
                continue
            is_prefix = kind.begins.endswith(b"/")
            end = after_prefix(kind.begins) if is_prefix else kind.begins + b"\0"
            partition = partitions[kind.place]
            async for key, value in rows_of(self._kv, partition, kind.begins, end, _PAGE):
                yield _base_row("", "", key.decode(), kind.told(value))
        if (reflog := partitions.get(Place.REFLOG)) is not None:
            # After the records of branches, whose outboxes have what is not among the rows yet.
            begin = RepositoryKeys.REFLOG
            async for key, value in rows_of(self._kv, reflog, begin, after_prefix(begin), _PAGE):
                yield _base_row("", "", key.decode(), value)

    async def _all_branches(self, keys: RepositoryKeys) -> AsyncIterator[EventRow]:
        async for branch_id in branch_ids(self._kv, keys):
            async for row in self._branch_rows(keys, branch_id):
                yield row

    async def _branch_rows(
        self, keys: RepositoryKeys, branch_id: BranchId
    ) -> AsyncIterator[EventRow]:
        """Yields the record of a branch, and before it the rows of its tokens, as `BranchScan` reads events."""
        key = keys.branch(branch_id)
        (found,) = await self._kv.get_many(keys.refs, [key], settle=True)
        for _ in range(LOOKS):
            if found is None:
                return
            for token in reversed(decode_branch(found.value).tokens):
                partition = keys.token(branch_id, token)
                rows = rows_of(self._kv, partition, PATHS_START, PATHS_END, _PAGE)
                async for row, packed in rows:
                    yield _base_row(branch_id, token.token_id, path_of(row), packed)
            (again,) = await self._kv.get_many(keys.refs, [key], settle=True)
            if again == found:
                break
            found = again
        if found is not None:
            yield _base_row(branch_id, "", key.decode(), found.value)


def _base_row(branch: str, token: str, key: str, payload: bytes) -> EventRow:
    return EventRow(BASE_ID, branch, token, 0, 0, b"", b"", BASE_OPERATION, key, payload, b"")


def _is_ours(record: EpochRecord, epoch: Epoch) -> bool:
    """Whether an epoch is the one that the store continues, or an attempt of this store has begun it."""
    if record.has_begun:
        return (record.number, record.folder) == (epoch.number, epoch.folder)
    return _is_attempt(record, epoch)


def _is_attempt(record: EpochRecord, epoch: Epoch) -> bool:
    is_same_store = epoch_store(record.folder) == epoch_store(epoch.folder)
    return record.number == epoch.number and is_same_store


def _require_attempt(record: EpochRecord | None, epoch: Epoch) -> None:
    """Does nothing if the row still is that of this store's attempts to begin an epoch, and none has begun it."""
    if record is None or record.has_begun or not _is_attempt(record, epoch):
        raise _other_replica()


def _other_replica() -> TarnError:
    text = "another replica begins the epoch of this journal"
    return TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)


def _unknown_store(place: JournalPlace, newest: Epoch) -> TarnError:
    text = (
        f"the journal of {place.namespace} has epoch {newest.number} already, and this store has not continued it: "
        "nothing is drained. If the store was lost, stop Tarn and run `tarn rebuild` into an empty one "
        "(docs/operate/disaster.md). If this store is to be kept, e.g. as it was filled while the journal was off, "
        "stop Tarn and run `tarn journal follow` (docs/operate/journal.md). If this is another installation, give it "
        "another journal.namespace"
    )
    return TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)


def _other_was_newest(place: JournalPlace, record: EpochRecord, number: int) -> TarnError:
    noted = f"the newest one was {record.number}"
    if record.is_unknown:
        noted = "the bucket could not be read"
    elif not record.number:
        noted = "there was none"
    elif record.number == number:
        noted = f"epoch {number} was in folder {record.folder}"
    text = (
        f"the journal of {place.namespace} has the newest epoch {number or '0 (none)'}, but when this store was "
        f"filled, or its journal was switched off, {noted}: another store may count now, so nothing is drained. "
        f"{_STOP_ONE}"
    )
    return TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)


async def end_epochs(kv: Kv, keys: InstallationKeys) -> None:
    """Ends the epochs of all repositories, because the journal is off: when it is on again, new ones begin after them.

    Raises:
        TarnError: errors of the store.
    """
    await note_epochs(kv, keys, await epoch_rows(kv, keys))

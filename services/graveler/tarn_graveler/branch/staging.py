"""Writes to a branch: rules 1 and 11 (stage) and the delete half of rule 3 (unstage) of docs/design/protocol.md.

A write is acknowledged only if the branch record, read *after* the row was durable, still names the token
that the row was written to. Then every commit that begins later seals a token that holds the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tarn.aio.batcher import Batcher
from tarn.aio.task_set import TaskSet
from tarn.core.branch import Branch
from tarn.core.entry import TOMBSTONE, address_of, is_tombstone
from tarn.core.errors import TarnError
from tarn.kv.keys import path_key
from tarn.kv.port import Group, Kv, OutcomeUnknownError, Partition, SetsBeside
from tarn.kv.register import unknown_if
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.branch.layers import LayerRow, Layers
from tarn_graveler.branch.object_events import TARN_ITSELF, Mutation, ObjectEvents, Origin
from tarn_graveler.branch.private_rows import PrivateRows
from tarn_graveler.guards.address_age import AddressAge
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.records.settling import TRIES

__all__ = ["Staging"]


class Staging:
    """Writes entries and tombstones to staging tokens.

    `private` learns of private rows and their ends; None: no block is deleted online.
    """

    def __init__(
        self,
        kv: Kv,
        branches: Branches,
        layers: Layers,
        tasks: TaskSet,
        age: AddressAge,
        private: PrivateRows | None = None,
        *,
        events: ObjectEvents,
    ) -> None:
        self._age = age
        self._events = events
        self._private = private
        self._kv = kv
        self._branches = branches
        self._layers = layers
        # By the name of a partition: hashing and comparing the partition itself cost a call each.
        self._writes = Batcher[str, tuple[Partition, Group], None](self._write_together, tasks)
        self._set_beside = kv.set_beside if isinstance(kv, SetsBeside) else None

    async def _write_together(
        self, _: str, rows: Sequence[tuple[Partition, Group]]
    ) -> Sequence[Exception | None]:
        return await self._kv.set_many(rows[0][0], [group for _, group in rows])

    async def stage(
        self,
        name: BranchName,
        path: str,
        packed: bytes,
        *,
        is_new: bool = False,
        origin: Origin = TARN_ITSELF,
    ) -> None:
        """Stages an entry at a path (rule 1).

        Args:
            name: branch to write to.
            path: path of the object.
            packed: the entry.
            is_new: whether its address was made for this call, and is staged nowhere else.
            origin: for the journal.

        Raises:
            TarnError: BRANCH_NOT_FOUND; ADDRESS_TOO_OLD (rule 11); OUTCOME_UNKNOWN when the row may be visible but
                is not acknowledged, because all attempts were used, the store's answer was lost, or the address became
                too old meanwhile.
        """
        self._age.check(packed, written=False)
        handle = BranchHandle(self._branches, name)
        kept = self._branches.kept(name)
        if kept is None:
            branch = await handle.fresh(written=False)
            kept = self._branches.kept(name)
        else:
            branch = kept[0]
        key, private, event = path_key(path), self._private, self._events.put(origin)
        for attempt in range(TRIES):
            before = None if private is None else private.address_at(branch.staging, path)
            group = Group(key, ((key, packed),), event.companions(path, packed))
            is_current = False
            try:
                if self._set_beside is not None and kept is not None and kept[0] is branch:
                    _, token, record, version = kept
                    is_current = await self._set_beside(token, group, record) == version
                else:
                    token = self._branches.staging_partition(name, branch)
                    await self._writes.submit(token.name, (token, group))
            except TarnError:
                with unknown_if(attempt > 0):
                    raise
            fresh = branch if is_current else await handle.fresh(written=True)
            if fresh.takes_writes_as(branch):
                self._age.check(packed, written=True)
                event.check_age()
                self._count(name, branch, len(key) + len(packed))
                if private is not None:
                    born = _born(packed, attempt, is_new=is_new)
                    private.acknowledged(name, branch.staging, path, before, born)
                return
            branch, kept = fresh, self._branches.kept(name)
        raise OutcomeUnknownError(
            f"{path}: branch {name.branch_id} was sealed {TRIES} times during the write; "
            "repeat the write"
        )

    async def unstage(
        self, name: BranchName, paths: Sequence[str], *, origin: Origin = TARN_ITSELF
    ) -> list[TarnError | None]:
        """Deletes paths (rule 3); returns one outcome for each, in order. `origin`: for the journal.

        The decision depends on rows that were read. So the whole record is verified after the last layer
        read, before any tombstone is written or left out.

        Raises:
            TarnError: BRANCH_NOT_FOUND; OUTCOME_UNKNOWN as `stage`.
        """
        handle = BranchHandle(self._branches, name)
        outcomes: dict[str, TarnError | None] = {}
        events = {path: self._events.delete(origin) for path in paths}
        pending = list(events)
        written = False
        record = await handle.fresh(written=False)
        for _ in range(TRIES):
            with unknown_if(written):
                found = await self._layers.find(name, record, pending)
                hidden = _committed(pending, found)
                base = await self._layers.base_of(name.repository, record) if hidden else None
            verified = await self._verify(handle, written=written)
            if not verified.same_layers(record):
                record = verified
                continue
            for path, row in zip(pending, found, strict=True):
                if not _needs_tombstone(row):
                    outcomes[path] = None
            pending = [path for path in pending if path not in outcomes]
            if not pending:
                return [outcomes[path] for path in paths]
            before = self._private_addresses(record, pending)
            with unknown_if(written):
                failed = await self._write_tombstones(name, record, pending, events)
            for path, error in failed.items():
                outcomes[path] = OutcomeUnknownError(error.message) if written else error
            written = True
            if base is not None:
                durable = [path for path in hidden if path not in failed]
                self._layers.note_hidden(name, record.staging, base, durable)
            fresh = await handle.fresh(written=True)
            if fresh.takes_writes_as(record):
                count = len(pending) - len(failed)
                size = sum(map(len, pending))  # failed ones are rare: counts are hints
                self._count(name, record, size, rows=count, tombstones=count)
                self._deleted(name, record, {p: a for p, a in before.items() if p not in failed})
                outcomes.update(_late(path, events[path]) for path in pending if path not in failed)
                return [outcomes[path] for path in paths]
            pending = [path for path in pending if path not in outcomes]
            record = fresh
        unknown = OutcomeUnknownError(
            f"branch {name.branch_id} changed {TRIES} times during the deletion; "
            "repeat the deletion"
        )
        return [outcomes.get(path, unknown) for path in paths]

    def _private_addresses(self, record: Branch, paths: Sequence[str]) -> dict[str, bytes]:
        """Returns the addresses of the private rows of paths in the staging token."""
        if self._private is None:
            return {}
        found = ((path, self._private.address_at(record.staging, path)) for path in paths)
        return {path: address for path, address in found if address is not None}

    def _deleted(self, name: BranchName, record: Branch, before: Mapping[str, bytes]) -> None:
        """Tells of the private rows whose deletion is acknowledged."""
        for path, address in before.items():
            assert self._private is not None, "it knew their addresses"
            self._private.acknowledged(name, record.staging, path, address, None)

    def _count(
        self, name: BranchName, record: Branch, size: int, *, rows: int = 1, tombstones: int = 0
    ) -> None:
        """Counts acknowledged rows for compactors."""
        self._branches.events.wrote(
            name.repository.repository_id,
            name.branch_id,
            record.staging.token_id,
            size,
            rows,
            tombstones,
        )

    async def _verify(self, handle: BranchHandle, *, written: bool) -> Branch:
        """Returns the record after the last layer read; `written`: an earlier attempt may have written
        tombstones.
        """
        return await handle.fresh(written=written)

    async def _write_tombstones(
        self,
        name: BranchName,
        record: Branch,
        paths: Sequence[str],
        events: Mapping[str, Mutation],
    ) -> dict[str, TarnError]:
        partition = self._layers.partition(name, record.staging)
        groups = [
            Group(key, ((key, TOMBSTONE),), events[path].companions(path, TOMBSTONE))
            for path, key in zip(paths, map(path_key, paths), strict=True)
        ]
        errors = await self._kv.set_many(partition, groups)
        return {path: error for path, error in zip(paths, errors, strict=True) if error is not None}


def _late(path: str, event: Mutation) -> tuple[str, TarnError | None]:
    """The outcome of a deletion whose tombstone is durable, by its path."""
    try:
        event.check_age()
    except TarnError as error:
        return path, error
    return path, None


def _born(packed: bytes, attempt: int, *, is_new: bool) -> bytes | None:
    """Returns the address of an acknowledged row that is private; None if it is not.

    After the first attempt, an earlier one may have left a row with the address in another token.
    """
    return address_of(packed) if is_new and not attempt else None


def _committed(paths: Sequence[str], found: Sequence[LayerRow]) -> list[str]:
    """Returns the paths whose newest row is in the listing beneath the tokens."""
    return [
        path
        for path, row in zip(paths, found, strict=True)
        if row.depth < 0 and row.packed is not None
    ]


def _needs_tombstone(row: LayerRow) -> bool:
    """Whether a delete must write a tombstone, given the newest row of its path.

    A tombstone in the *staging* token is equivalent to a new one. One in a sealed token is not: a write
    that was too late for the commit that scans that token may be in it (guard `sealed tombstone` of
    tests/models/branch_model.py).
    """
    if row.packed is None:
        return False
    return not (row.depth == 0 and is_tombstone(row.packed))

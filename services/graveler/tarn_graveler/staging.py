"""Writes to a branch: rule 1 (stage) and the delete half of rule 3 (unstage) of design §4.

A write is acknowledged only after the branch record, read *after* the row was durable, still names
the token that the row went to: then any commit that begins later seals a token that holds the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tarn.core.branch import Branch
from tarn.core.entry import MARKER, is_marker
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.kv.keys import path_key
from tarn.kv.port import Group, Kv, OutcomeUnknownError, Partition, PartitionKind, Row
from tarn.kv.records import Repository
from tarn.rpc.tasks import TaskSet
from tarn_graveler.branches import Branches, branch_not_found
from tarn_graveler.layers import Found, Layers
from tarn_graveler.repositories import Repositories
from tarn_graveler.turn import TurnBatches

__all__ = ["Staging"]

_TRIES = 8
"""Attempts of one write; each lost one means that a commit or compaction sealed the token."""


@contextmanager
def _unknown_if(written: bool) -> Iterator[None]:
    """Tells no caller that nothing was done once a row is there.

    A commit may have taken the row along before the branch was deleted, for instance; and if the *next*
    attempt is refused, that is no word about this one.
    """
    try:
        yield
    except TarnError as error:
        if not written or isinstance(error, OutcomeUnknownError):
            raise
        raise OutcomeUnknownError(f"written, then: {error.message}") from error


class _Incarnation:
    """Which life of the branch an operation belongs to: the first one that it saw afresh.

    A branch that was deleted and made again under the same name is another branch: a write that began
    on the old one ends as "not found", it does not leak into the new one.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: bytes | None = None

    def check(self, branch: Branch, repository: Repository, branch_id: BranchId) -> None:
        if self._seen is None:
            self._seen = branch.incarnation
        elif self._seen != branch.incarnation:
            raise branch_not_found(repository, branch_id)


class Staging:
    """Puts entries and markers into staging tokens."""

    def __init__(
        self,
        kv: Kv,
        repositories: Repositories,
        branches: Branches,
        layers: Layers,
        tasks: TaskSet,
    ) -> None:
        self._kv = kv
        self._repositories = repositories
        self._branches = branches
        self._layers = layers
        self._writes = TurnBatches[Partition, Row, None](self._write_turn, tasks)

    async def _write_turn(
        self, partition: Partition, rows: Sequence[Row]
    ) -> Sequence[Exception | None]:
        assert partition.kind is PartitionKind.PLAIN, "conditional tokens are written one by one"
        groups = [Group(key, ((key, value),)) for key, value in rows]
        return await self._kv.set_many(partition, groups)

    async def stage(
        self, repository: Repository, branch_id: BranchId, path: str, packed: bytes
    ) -> None:
        """Makes a path hold an entry (rule 1).

        Raises:
            TarnError: BRANCH_NOT_FOUND; OUTCOME_UNKNOWN when the row may be visible but is not
                acknowledged: out of attempts, or the store did not say.
        """
        incarnation = _Incarnation()
        branch = self._branches.cached(repository, branch_id)
        if branch is None:
            branch = (await self._branches.fresh(repository, branch_id)).branch
            incarnation.check(branch, repository, branch_id)
        key = path_key(path)
        for attempt in range(_TRIES):
            with _unknown_if(attempt > 0):
                await self._writes.submit(self._token(repository, branch_id, branch), (key, packed))
            fresh = await self._recheck(repository, branch_id, incarnation)
            if fresh.takes_writes_as(branch):
                return
            branch = fresh
        raise OutcomeUnknownError(f"{path}: branch {branch_id} was sealed {_TRIES} times meanwhile")

    async def _recheck(
        self, repository: Repository, branch_id: BranchId, incarnation: _Incarnation
    ) -> Branch:
        """The record, read after a row was written; whatever goes wrong here, the row is there."""
        with _unknown_if(True):
            fresh = (await self._branches.fresh(repository, branch_id)).branch
            incarnation.check(fresh, repository, branch_id)
        return fresh

    async def unstage(
        self, repository: Repository, branch_id: BranchId, paths: Sequence[str]
    ) -> list[TarnError | None]:
        """Makes paths hold nothing (rule 3); one outcome for each, in order.

        What to do rests on what was read, so the whole record is verified after the last layer read
        and before anything is done or left undone.

        Raises:
            TarnError: BRANCH_NOT_FOUND; OUTCOME_UNKNOWN as `stage`.
        """
        incarnation = _Incarnation()
        outcomes: dict[str, TarnError | None] = {}
        pending = list(dict.fromkeys(paths))
        written = False
        record = (await self._branches.fresh(repository, branch_id)).branch
        incarnation.check(record, repository, branch_id)
        for _ in range(_TRIES):
            with _unknown_if(written):
                found = await self._layers.find(repository, branch_id, record, pending)
            verified = await self._verify(repository, branch_id, incarnation, written=written)
            if not verified.same_layers(record):
                record = verified
                continue
            for path, row in zip(pending, found, strict=True):
                if not _needs_marker(row):
                    outcomes[path] = None
            pending = [path for path in pending if path not in outcomes]
            if not pending:
                return [outcomes[path] for path in paths]
            with _unknown_if(written):
                failed = await self._write_markers(repository, branch_id, record, pending)
            for path, error in failed.items():
                outcomes[path] = OutcomeUnknownError(error.message) if written else error
            written = True
            fresh = await self._recheck(repository, branch_id, incarnation)
            if fresh.takes_writes_as(record):
                return [outcomes.get(path) for path in paths]
            pending = [path for path in pending if path not in outcomes]
            record = fresh
        unknown = OutcomeUnknownError(f"branch {branch_id} changed {_TRIES} times meanwhile")
        return [outcomes.get(path, unknown) for path in paths]

    async def _verify(
        self,
        repository: Repository,
        branch_id: BranchId,
        incarnation: _Incarnation,
        *,
        written: bool,
    ) -> Branch:
        """The record after the last layer read; an earlier attempt may have `written` markers."""
        if written:
            return await self._recheck(repository, branch_id, incarnation)
        verified = (await self._branches.fresh(repository, branch_id)).branch
        incarnation.check(verified, repository, branch_id)
        return verified

    async def _write_markers(
        self,
        repository: Repository,
        branch_id: BranchId,
        record: Branch,
        paths: Sequence[str],
    ) -> dict[str, TarnError]:
        partition = self._token(repository, branch_id, record)
        groups = [Group(key, ((key, MARKER),)) for key in map(path_key, paths)]
        errors = await self._kv.set_many(partition, groups)
        return {path: error for path, error in zip(paths, errors, strict=True) if error is not None}

    def _token(self, repository: Repository, branch_id: BranchId, branch: Branch) -> Partition:
        partition = self._repositories.keys_of(repository).token(branch_id, branch.staging)
        if partition.kind is not PartitionKind.PLAIN:
            text = f"branch {branch_id} takes conditional writes, which this version cannot make"
            raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)
        return partition


def _needs_marker(row: Found) -> bool:
    """Whether a delete must write, given the newest row of its path.

    A marker in the *staging* token is as good as ours. One in a sealed token is not: a write that
    came too late for the commit that scans that token may lie there (model: delete-trust-sealed).
    """
    if row.packed is None:
        return False
    return not (row.depth == 0 and is_marker(row.packed))

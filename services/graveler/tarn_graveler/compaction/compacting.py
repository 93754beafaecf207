"""Compaction of a branch: rule 6 of docs/design/protocol.md, executable in tests/models/branch_commits.py.

A compaction is a commit that moves no head. It seals; confirms the seal; builds the listing of the sealed tokens over
their base; then one compare-and-set of the whole record puts that listing beneath the staging token as the compacted
one, and removes the sealed tokens. If only newer seals came meanwhile, they stay and the listing is published beneath
them. After any other change the compaction gives up: a commit has done its work already, and every other operation is
more urgent than it is.

The staging token stays (rule 9): the listing has the content that the sealed tokens had. A row that landed in one of
them after the scan was never acknowledged on the strength of that token, as with a commit.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

import structlog

from tarn.aio.task_set import TaskSet
from tarn.core.branch import (
    AfterLostRace,
    Branch,
    Pin,
    Token,
    after_lost_race,
    begin_compaction,
    end_compaction,
    finish_compaction,
)
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.core.ids import MetarangeId
from tarn.telemetry.operations import Operations, phase
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.branch.layers import Layers
from tarn_graveler.compaction.compacted_listings import CompactedListing, CompactedListings
from tarn_graveler.guards.drops import Drops
from tarn_graveler.records.branches import BranchChange, Branches, BranchName, BranchVersion

__all__ = ["Compacting", "CompactionOutcome", "CompactionResult", "running_since_us"]

_EXPIRES_US = 600_000_000
"""Age at which the start of a compaction no longer keeps others away: its process may have died."""
_SEALED_FROM = 8
"""Number of sealed tokens from which a compaction seals another one only after it has folded these, so that
compactions that fail add no layers."""

_log = structlog.get_logger()


class CompactionOutcome(enum.Enum):
    """The outcome of a compaction."""

    COMPACTED = "compacted"
    NOTHING_TO_DO = "nothing to do"
    SUPERSEDED = "superseded"
    """Another operation changed the branch meanwhile; nothing was folded."""
    RUNNING = "running"
    """Another compaction of the branch runs; nothing was done."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The outcome of a compaction, and its work.

    Attributes:
        outcome: see `CompactionOutcome`.
        rows_read: staged rows that were read, tombstones included.
        rows_written: rows of the ranges that were written.
        tombstones_removed: staged tombstones that no reader passes any more; 0 unless compacted.
        tokens_taken: sealed tokens that were folded.
        compacted: the listing on which reads and commits build now, if compacted; None if the branch has no
            uncommitted change left.
        running_since_us: when the other compaction began; 0 unless one runs.
        seconds: duration.
    """

    outcome: CompactionOutcome
    rows_read: int = 0
    rows_written: int = 0
    tombstones_removed: int = 0
    tokens_taken: int = 0
    compacted: MetarangeId | None = None
    running_since_us: int = 0
    seconds: float = 0.0


def running_since_us(branch: Branch, now_us: int) -> int:
    """Returns when the compaction began that runs on a branch; 0 if none does.

    A start that lies too far from now, also in the future, counts as none: a clock was wrong, or a process died.
    """
    since_us = branch.compaction_start_time_us
    return since_us if abs(now_us - since_us) < _EXPIRES_US else 0


class Compacting:
    """Folds the uncommitted changes of branches into compacted listings."""

    def __init__(
        self,
        branches: Branches,
        layers: Layers,
        listings: CompactedListings,
        drops: Drops,
        clock: Clock,
        tasks: TaskSet,
        operations: Operations,
    ) -> None:
        self._branches = branches
        self._layers = layers
        self._listings = listings
        self._drops = drops
        self._clock = clock
        self._tasks = tasks
        self._operations = operations

    async def compact(
        self, name: BranchName, *, force: bool = False, is_background: bool = False
    ) -> CompactionResult:
        """Folds the uncommitted changes of a branch that were acknowledged before this call, and perhaps later ones.

        Args:
            name: the branch.
            force: also if another compaction of the branch runs, as far as the record tells.
            is_background: no caller waits for the result, so a large build leaves the machine to everything else.

        Raises:
            TarnError: BRANCH_NOT_FOUND; TOO_MANY_RETRIES; OUTCOME_UNKNOWN; errors of the build.
        """
        began = self._clock.monotonic()
        handle = BranchHandle(self._branches, name)
        repository_id = name.repository.repository_id
        with self._operations.begin("compaction", repository=repository_id, branch=name.branch_id):
            result = await self._compact_twice(handle, force=force, is_background=is_background)
        return replace(result, seconds=self._clock.monotonic() - began)

    async def _compact_twice(
        self, handle: BranchHandle, *, force: bool, is_background: bool
    ) -> CompactionResult:
        """Folds the sealed tokens; then the staging token too, if it was left out."""
        result = await self._compact(handle, force=force, is_background=is_background)
        is_done = result.outcome is CompactionOutcome.COMPACTED
        if is_done and result.tokens_taken >= _SEALED_FROM:
            # The staging token was left out. It may be sealed now, because a build has succeeded.
            again = await self._compact(handle, force=force, is_background=is_background)
            result = _sum(result, again)
        return result

    async def _compact(
        self, handle: BranchHandle, *, force: bool, is_background: bool
    ) -> CompactionResult:
        """Folds the sealed tokens, and the staging token with them unless there are many sealed ones."""
        branch = (await handle.version()).branch
        is_empty = await self._layers.is_empty(handle.name, branch.staging)
        if is_empty and not branch.sealed:
            return CompactionResult(CompactionOutcome.NOTHING_TO_DO)
        with phase("seal"):
            record = await self._begin(handle, None if is_empty else branch.staging, force=force)
        if isinstance(record, CompactionResult):
            return record
        try:
            with phase("build"):
                built = await self._build(handle, record, is_background=is_background)
            with phase("publish"):
                outcome = await self._publish(handle, built.record, record.branch, built.pin)
        except TarnError:
            await self._end(handle, record)
            raise
        except BaseException:
            # Cancelled, because its caller's time is up or the replica stops; or a defect. The mark must not keep the
            # next compaction away.
            self._tasks.spawn(self._end(handle, record))
            raise
        work = CompactionResult(
            CompactionOutcome.SUPERSEDED,
            rows_read=built.result.rows_read,
            rows_written=built.result.rows_written,
        )
        if isinstance(outcome, BranchVersion):
            return work
        return replace(
            work,
            outcome=CompactionOutcome.COMPACTED,
            tombstones_removed=built.result.tombstones_read,
            tokens_taken=len(record.branch.sealed),
            compacted=None if built.pin is None else built.pin.metarange_id,
        )

    async def _begin(
        self, handle: BranchHandle, filled: Token | None, *, force: bool
    ) -> BranchVersion | CompactionResult:
        """Marks the branch as being compacted, and seals it in the same step.

        Args:
            handle: the branch.
            filled: the staging token, if it holds rows. It is not sealed if another operation has sealed it already:
                compactions that begin together add one layer.
            force: as `compact`.

        Returns:
            The confirmed record with the mark, the only one whose sealed tokens may be scanned (rule 4); a result
            instead if there is nothing to do.
        """
        now_us = self._clock.now_us()

        def decide(now: Branch, op_id: bytes) -> Branch:
            is_kept = running_since_us(now, now_us) and not force
            seals = now.staging == filled and len(now.sealed) < _SEALED_FROM
            if is_kept or not (seals or now.sealed):
                return now
            token = self._branches.new_token() if seals else None
            return begin_compaction(now, token, op_id, now_us=now_us)

        def holds(now: Branch) -> bool:
            # Else another operation has taken the tokens, or another compaction runs: its mark is not ours to remove.
            return now.compaction_start_time_us == now_us and bool(now.sealed)

        change = await handle.change(decide, holds)
        record = change.newest
        if change.written is not change.before:
            return record
        if since_us := running_since_us(record.branch, now_us):
            return CompactionResult(CompactionOutcome.RUNNING, running_since_us=since_us)
        return CompactionResult(CompactionOutcome.SUPERSEDED)

    async def _build(
        self, handle: BranchHandle, version: BranchVersion, *, is_background: bool
    ) -> CompactedListing:
        """Builds the listing of a record's sealed tokens over its base, and pins it."""
        record = version.branch
        order = await self._layers.order(handle.name, record)
        order = replace(order, counts_changes=False, finely=True, is_background=is_background)
        return await self._listings.build(handle, version, record, order)

    async def _publish(
        self, handle: BranchHandle, record: BranchVersion, built_from: Branch, pin: Pin | None
    ) -> BranchChange | BranchVersion:
        """Makes the change; returns the newer record instead if the compaction gives up."""

        def decide(current: Branch, op_id: bytes) -> Branch:
            now_us = self._clock.now_us()
            return finish_compaction(built_from, current, pin, op_id, now_us=now_us)

        def still_holds(current: Branch) -> bool:
            return after_lost_race(built_from, current, pin) is AfterLostRace.REUSE

        return await handle.publish(
            record, decide, still_holds=still_holds, announce=self._drops.announce
        )

    async def _end(self, handle: BranchHandle, record: BranchVersion) -> None:
        """Takes the mark of a failed compaction off the branch, if that is possible. Otherwise it expires."""

        def decide(now: Branch, op_id: bytes) -> Branch:
            return end_compaction(record.branch, now, op_id)

        def holds(now: Branch) -> bool:
            return now.compaction_start_time_us != record.branch.compaction_start_time_us

        try:
            await handle.change(decide, holds)
        except TarnError as error:
            _log.info("mark of a failed compaction stays", error=error.message)


def _sum(first: CompactionResult, second: CompactionResult) -> CompactionResult:
    """Returns the result of two compactions of a branch, of which the first one has succeeded."""
    return replace(
        first,
        rows_read=first.rows_read + second.rows_read,
        rows_written=first.rows_written + second.rows_written,
        tombstones_removed=first.tombstones_removed + second.tombstones_removed,
        tokens_taken=first.tokens_taken + second.tokens_taken,
        compacted=second.compacted
        if second.outcome is CompactionOutcome.COMPACTED
        else first.compacted,
    )

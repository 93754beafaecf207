"""Drops tokens that no branch record names any more, and expires reflogs: rules 5 and 12 of docs/design/protocol.md.

The same list says when to look at tasks (docs/design/tasks.md) and at branches that expire
(`tarn_graveler.repository.expiring_branches`).

The guards `looks` and `waits D` of tests/models/branch_model.py show what breaks without it.

An announcement (`tarn_graveler.guards.drops`) only says where to look. A token is dropped when a settling read of the
record does not name it, and not before the drop delay after that read: by then, readers that began with an older record
have ended or start again. A token never returns to a record, so the result of that read stays true. While
the record still names the token (the change was not made, or not yet), the cleaner looks again, less and
less often.

With a journal, a token is dropped only when its events are in the bucket (`tarn_graveler.journal.draining`). If the
bucket refuses them, it stays, and the cleaner tries again, less and less often.

A partition is dropped a second time an hour later, because a write that was never acknowledged may have
been applied between the two drops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import structlog

from tarn.core.clock import Clock
from tarn.core.errors import Kind, TarnError
from tarn.kv.drop_records import BranchOwner, Drop, ReflogOwner, TaskOwner, TokenOwner
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.port import Kv, Versioned
from tarn.kv.records import decode_branch
from tarn_graveler.guards.drops import DropDelay
from tarn_graveler.journal.draining import Drain
from tarn_graveler.records.drop_list import DropList
from tarn_graveler.records.reflog_rows import ReflogRows

__all__ = ["Cleaner", "CleanupProgress"]

_SECOND_DROP_US = 3_600_000_000
_LOOK_US_MAX = 86_400_000_000
"""Longest pause between two looks at a token that its record still names: one day."""

_DRAIN_US_MAX = 600_000_000
"""Longest pause between two attempts to drain a token."""
_LAST_SCANS = 256
"""Tokens of one pass of the drain."""

_log = structlog.get_logger()


@dataclass(slots=True)
class CleanupProgress:
    """Counts of the cleaner of one replica since its start.

    Attributes:
        done_before_us: the checkpoint of the drop list when the last pass began: all earlier drops are done; Unix
            microseconds, 0 before the first pass.
        drops: partitions dropped.
        failed_passes: passes that ended with an error.
    """

    done_before_us: int = 0
    drops: int = 0
    failed_passes: int = 0


class Cleaner:
    """Drops partitions when they are due. Several replicas may do so concurrently.

    Args:
        look_at_branch: called with each branch whose end is due, and its time.
        look_at_task: called with each task that is due to be looked at, and its time (docs/design/tasks.md).
        drain: of the journal; None: there is none.

    Attributes:
        progress: the counts of the cleaner, for metrics.
    """

    def __init__(
        self,
        kv: Kv,
        keys: InstallationKeys,
        drop_list: DropList,
        reflog: ReflogRows,
        clock: Clock,
        delay: DropDelay,
        poll_seconds: float,
        look_at_branch: Callable[[BranchOwner, int], Awaitable[None]],
        look_at_task: Callable[[TaskOwner, int], Awaitable[None]],
        drain: Drain | None = None,
    ) -> None:
        self._drain = drain
        self._kv = kv
        self._keys = keys
        self._list = drop_list
        self._reflog = reflog
        self._clock = clock
        self._delay = delay
        self._poll_seconds = poll_seconds
        self._look_at_branch = look_at_branch
        self._look_at_task = look_at_task
        # Rows of the list that this replica has processed and will read again: those of a few minutes.
        self._done: set[bytes] = set()
        self.progress = CleanupProgress()

    async def run(self) -> None:
        """Drops due partitions until cancelled; logs errors and retries."""
        while True:
            try:
                await self.drop_due()
            except TarnError as error:
                self.progress.failed_passes += 1
                _log.warning("cleaning failed", reason=error.reason, error=error.message)
            await self._clock.sleep(self._poll_seconds)

    async def drop_due(self) -> int:
        """Drops every partition that is due; returns how many.

        Each replica also drops the partitions that other replicas have dropped; this changes nothing.
        """
        one_pass = await self._list.begin()
        self.progress.done_before_us = one_pass.done_before_us
        before = self._keys.drop(one_pass.done_before_us, "")
        self._done = {key for key in self._done if key >= before}
        count = 0
        to_drain: dict[bytes, Drop] = {}
        async for key, drop in one_pass.due(self._done):
            if drop.reflog is not None:
                await self._expire(drop.reflog)
            elif drop.task is not None:
                await self._look_at(drop.task, drop.drop_time_us)
            elif drop.branch is not None:
                await self._look_at_branch(drop.branch, drop.drop_time_us)
            elif drop.journal is not None and self._drain is not None:
                to_drain[key] = drop
                if len(to_drain) == _LAST_SCANS:
                    count += await self._drain_and_drop(self._drain, to_drain)
                continue
            elif drop.owner is None:
                await self._drop(drop)
                self.progress.drops += 1
                count += 1
            else:
                await self._look(drop, drop.owner)
            self._done.add(key)
        if to_drain and self._drain is not None:
            count += await self._drain_and_drop(self._drain, to_drain)
        await one_pass.finish()
        return count

    async def _drain_and_drop(self, drain: Drain, due: dict[bytes, Drop]) -> int:
        """Drops tokens that are over once their events are in the bucket; empties `due`, and returns how many."""
        drained = await drain.last_scans(list(due.values()))
        for drop in drained:
            await self._drop(replace(drop, journal=None))
        self.progress.drops += len(drained)
        for drop in due.values():
            if drop not in drained:
                await self._again(drop)
        self._done |= due.keys()
        due.clear()
        return len(drained)

    async def _again(self, drop: Drop) -> None:
        """Registers a token again whose events could not be drained."""
        assert drop.journal is not None
        looks = drop.journal.look_count + 1
        pause_us = min(self._delay.look_us << min(looks, 32), _DRAIN_US_MAX)
        again = replace(drop, drop_time_us=self._after(drop, pause_us))
        await self._add_or_raise(replace(again, journal=replace(drop.journal, look_count=looks)))

    async def _expire(self, reflog: ReflogOwner) -> None:
        """Removes expired entries. A damaged row, which `tarn fsck` reports, must not stop all other drops."""
        try:
            await self._reflog.expire(reflog)
        except TarnError as error:
            if error.kind is not Kind.CORRUPT:
                raise
            _log.error("cannot expire a reflog", branch=reflog.branch_id, error=error.message)

    async def _look_at(self, task: TaskOwner, time_us: int) -> None:
        """Looks at a task. A damaged record must not stop all drops; it is not looked at again."""
        try:
            await self._look_at_task(task, time_us)
        except TarnError as error:
            if error.kind is not Kind.CORRUPT:
                raise
            _log.error("cannot read a task", task=task.task_id, error=error.message)

    async def _look(self, drop: Drop, owner: TokenOwner) -> None:
        """Registers an announced token for its drop if its record no longer names it."""
        keys = RepositoryKeys(owner.root)
        key = keys.branch(owner.branch_id)
        (found,) = await self._kv.get_many(keys.refs, [key], settle=True)
        if not _names(found, owner):
            late_us = max(self._clock.now_us() - drop.drop_time_us, 0)
            # At least the drop delay from now; most replicas compute the same row.
            steps = -(-(late_us + self._delay.delay_us) // self._delay.look_us)
            journal = replace(owner, look_count=0) if owner.storage_namespace else None
            drop_time_us = drop.drop_time_us + steps * self._delay.look_us
            await self._add_or_raise(Drop(drop.partition, drop_time_us, journal=journal))
            return
        looks = owner.look_count + 1
        pause_us = min(self._delay.look_us << min(looks, 32), _LOOK_US_MAX)
        again = replace(drop, drop_time_us=self._after(drop, pause_us))
        again = replace(again, owner=replace(owner, look_count=looks))
        await self._add_or_raise(again)

    def _after(self, drop: Drop, pause_us: int) -> int:
        """Returns the first time later than now that is a whole number of pauses after the time of a row.

        Computed from the row, so that every replica adds the same row. Later than now, also if no replica ran for days:
        a pass moves the checkpoint to the time of its begin, and reads no earlier rows again.
        """
        late_us = max(self._clock.now_us() - drop.drop_time_us, 0)
        return drop.drop_time_us + (late_us // max(pause_us, 1) + 1) * max(pause_us, 1)

    async def _drop(self, drop: Drop) -> None:
        await self._kv.drop_partition(drop.partition)
        if drop.count:
            return
        time_us = self._after(drop, _SECOND_DROP_US)
        await self._add_or_raise(replace(drop, drop_time_us=time_us, count=1))

    async def _add_or_raise(self, drop: Drop) -> None:
        (error,) = await self._list.add([drop])
        if error is not None:
            raise error


def _names(found: Versioned | None, owner: TokenOwner) -> bool:
    """Whether a record may name a token. A damaged one, which `tarn fsck` reports, must not stop all other drops."""
    try:
        return found is not None and decode_branch(found.value).names(owner.token_id)
    except TarnError as error:
        _log.error("cannot read a branch", branch=owner.branch_id, error=error.message)
        return True

"""Drops tokens that no branch record names any more, and expires reflogs: rules 5 and 12 of docs/design/protocol.md.

The same list says when to look at tasks (docs/design/tasks.md) and at branches that expire (`expiring`).

The guards `looks` and `waits D` of tests/models/branch_model.py show what breaks without it.

A change that removes tokens from a branch record announces them *before* its compare-and-set; if the
announcement fails, the change is not made. So no later failure, lost answer or crash can hide a token
from the cleaner, and no such failure has to be reported to a caller whose change was made.

The announcement only says where to look. A token is dropped when a settling read of the record does not
name it, and not before the drop delay after that read: by then, readers that began with an older record
have ended or start again. A token never returns to a record, so the result of that read stays true. While
the record still names the token (the change was not made, or not yet), the cleaner looks again, less and
less often.

The first look comes two seconds after the announcement: the change that follows it takes milliseconds. So most
tokens take space for little more than the drop delay after they left their record.

A partition is dropped a second time an hour later, because a write that was never acknowledged may have
been applied between the two drops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import structlog

from tarn.core.branch import Token
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.drop_records import BranchOwner, Drop, ReflogOwner, TaskOwner, TokenOwner
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.port import Kv, Partition
from tarn.kv.records import decode_branch
from tarn_graveler.branch.drop_list import DropList
from tarn_graveler.branch.records import BranchName
from tarn_graveler.branch.reflog_rows import ReflogRows
from tarn_graveler.repository.records import Repositories

__all__ = ["CleanupProgress", "TokenCleanup"]

_SECOND_DROP_US = 3_600_000_000
_LOOK_US = 2_000_000
_LOOKS_PER_DELAY_MIN = 8
"""The times of looks and drops are multiples of the first pause apart, so that most replicas compute the same ones."""
_LOOK_US_MAX = 86_400_000_000
"""Longest pause between two looks at a token that its record still names: one day."""
_ANNOUNCEMENTS = 4
"""How often a token is announced while the outcome is unknown. If one lost answer made a commit fail, a branch
with many sealed tokens could hardly be committed on a store that loses answers."""

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


class TokenCleanup:
    """Announces partitions and drops them when they are due. Several replicas may do so concurrently.

    Args:
        drop_delay_seconds: the delay of rules 2 and 5; must be equal in all replicas.

    Attributes:
        look_at_task: called with each task that is due to be looked at, and its time (docs/design/tasks.md).
        look_at_branch: called with each branch whose end is due, and its time.
        progress: the counts of the cleaner, for metrics.
    """

    def __init__(
        self,
        kv: Kv,
        keys: InstallationKeys,
        repositories: Repositories,
        clock: Clock,
        drop_delay_seconds: float,
        poll_seconds: float,
        reflog: ReflogRows,
    ) -> None:
        self._kv = kv
        self._reflog = reflog
        self._keys = keys
        self._list = DropList(kv, keys, clock)
        self._repositories = repositories
        self._clock = clock
        self._drop_delay_us = int(drop_delay_seconds * 1_000_000)
        self._look_us = max(min(self._drop_delay_us // _LOOKS_PER_DELAY_MIN, _LOOK_US), 1)
        self._poll_seconds = poll_seconds
        # Rows of the list that this replica has processed and will read again: those of a few minutes.
        self._done: set[bytes] = set()
        self.progress = CleanupProgress()
        self.look_at_task: Callable[[TaskOwner, int], Awaitable[None]] | None = None
        self.look_at_branch: Callable[[BranchOwner, int], Awaitable[None]] | None = None

    async def announce(self, name: BranchName, tokens: Iterable[Token]) -> None:
        """Announces that tokens are about to leave a branch record. Announcing one again costs one row and
        does no harm, so rows whose outcome is unknown are written again, a few times.

        Raises:
            TarnError: UNAVAILABLE: the change must not be made.
        """
        unsure = list(tokens)
        for tries_left in reversed(range(_ANNOUNCEMENTS)):
            errors = await self._add(self._announcements(name, unsure))
            for error in filter(None, errors):
                if not tries_left or error.kind is not Kind.UNKNOWN_OUTCOME:
                    text = f"cannot list the tokens that branch {name.branch_id} gives up: {error.message}"
                    raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error
            unsure = [token for token, error in zip(unsure, errors, strict=True) if error]

    def _announcements(self, name: BranchName, tokens: Sequence[Token]) -> list[Drop]:
        keys, branch_id = self._repositories.keys_of(name.repository), name.branch_id
        drop_time_us = self._clock.now_us() + self._look_us
        return [
            Drop(
                keys.token(branch_id, token),
                drop_time_us,
                owner=TokenOwner(keys.root, branch_id, token.token_id),
            )
            for token in tokens
        ]

    async def register(self, partitions: Sequence[Partition]) -> bool:
        """Registers partitions that nothing refers to any more.

        Returns:
            Whether all are on the list; if not, the caller must keep the record that names them and
                retry.
        """
        drop_time_us = self._clock.now_us() + self._drop_delay_us
        errors = await self._add([Drop(partition, drop_time_us) for partition in partitions])
        for error in filter(None, errors):
            _log.warning("cannot register a drop", reason=error.reason, error=error.message)
        return not any(errors)

    async def _add(self, drops: Sequence[Drop]) -> Sequence[TarnError | None]:
        """Adds drops to the list; returns one outcome for each, also when the store raises."""
        if not drops:
            return []
        try:
            return await self._list.add(drops)
        except TarnError as error:
            return [error] * len(drops)

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
        async for key, drop in one_pass.due(self._done):
            if drop.reflog is not None:
                await self._expire(drop.reflog)
            elif drop.task is not None:
                await self._look_at_task(drop.task, drop.drop_time_us)
            elif drop.branch is not None:
                if self.look_at_branch is not None:
                    await self.look_at_branch(drop.branch, drop.drop_time_us)
            elif drop.owner is None:
                await self._drop(drop)
                self.progress.drops += 1
                count += 1
            else:
                await self._look(drop, drop.owner)
            self._done.add(key)
        await one_pass.finish()
        return count

    async def _expire(self, reflog: ReflogOwner) -> None:
        """Removes expired entries. A damaged row, which `tarn fsck` reports, must not stop all other drops."""
        try:
            await self._reflog.expire(reflog)
        except TarnError as error:
            if error.kind is not Kind.CORRUPT:
                raise
            _log.error("cannot expire a reflog", branch=reflog.branch_id, error=error.message)

    async def _look_at_task(self, task: TaskOwner, time_us: int) -> None:
        """Looks at a task. A damaged record must not stop all drops; it is not looked at again."""
        if self.look_at_task is None:
            return
        try:
            await self.look_at_task(task, time_us)
        except TarnError as error:
            if error.kind is not Kind.CORRUPT:
                raise
            _log.error("cannot read a task", task=task.task_id, error=error.message)

    async def _look(self, drop: Drop, owner: TokenOwner) -> None:
        """Registers an announced token for its drop if its record no longer names it."""
        keys = RepositoryKeys(owner.root)
        key = keys.branch(owner.branch_id)
        (found,) = await self._kv.get_many(keys.refs, [key], settle=True)
        branch = None if found is None else decode_branch(found.value)
        if branch is None or not branch.names(owner.token_id):
            late_us = max(self._clock.now_us() - drop.drop_time_us, 0)
            # At least the drop delay from now; most replicas compute the same row.
            steps = -(-(late_us + self._drop_delay_us) // self._look_us)
            await self._add_or_raise(
                Drop(drop.partition, drop.drop_time_us + steps * self._look_us)
            )
            return
        looks = owner.look_count + 1
        pause_us = min(self._look_us << min(looks, 32), _LOOK_US_MAX)
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

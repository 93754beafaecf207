"""Limits on the tasks of one user in one repository, at a cost that follows the tasks that the user has open.

Each user has one register for each day, in the partition of that day's tasks. It counts the starts and names the tasks
that had not ended at the last one. A start reads the records of these tasks only, and replaces the register by
compare-and-set before it stores its own record. Nothing has to be changed when a task ends: the next start sees it. A
start that dies before its record exists is counted until the look at it occupies its key (docs/design/tasks.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import TaskId
from tarn.core.task import Quota, Task, day_of_task, days_of_open_tasks
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Kv, OutcomeUnknownError, Predicate, PredicateFailedError, Versioned
from tarn.kv.task_records import decode_quota, decode_task, encode_quota

__all__ = ["QuotaChange", "TaskQuotas"]

_TRIES = 32

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A change of a register that counts a start: none if `after` is `before`."""

    predicate: Predicate | None
    before: Quota
    after: Quota


class TaskQuotas:
    """Counts the starts of users, and their open tasks."""

    def __init__(self, kv: Kv, clock: Clock) -> None:
        self._kv = kv
        self._clock = clock

    async def check(self, keys: RepositoryKeys, task: Task) -> QuotaChange:
        """Refuses a start beyond the limits; changes nothing, and returns the change for `take`.

        Raises:
            TarnError: EXHAUSTED, OVERLOADED; UNAVAILABLE.
        """
        return await self._change(keys, task, settle=False)

    async def take(self, keys: RepositoryKeys, task: Task, change: QuotaChange) -> None:
        """Counts a start; one that is counted already is not counted again.

        Args:
            keys: those of the repository, with the day's partition registered to be dropped.
            task: the new task; its record does not exist yet.
            change: the answer of `check`.

        Raises:
            TarnError: EXHAUSTED, OVERLOADED; UNAVAILABLE. The task must then not be started.
        """
        key = keys.task_quota(task.user_uid)
        for _ in range(_TRIES):
            if change.after is change.before:
                return
            value = encode_quota(change.after)
            try:
                await self._kv.set_if(keys.tasks(_day_of(task)), key, value, change.predicate)
            except (PredicateFailedError, OutcomeUnknownError):
                # If the lost one was made, the register names the task.
                change = await self._change(keys, task, settle=True)
                continue
            return
        text = f"task {task.task_id} was not started: {_TRIES} other starts of yours came first; try again"
        raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)

    async def _change(self, keys: RepositoryKeys, task: Task, *, settle: bool) -> QuotaChange:
        """Returns the change of the register that counts a start. Raises as `check`."""
        day, key = _day_of(task), keys.task_quota(task.user_uid)
        (found,) = await self._kv.get_many(keys.tasks(day), [key], settle=settle)
        before = _quota_of(found)
        predicate = None if found is None else found.predicate
        open_elsewhere = 0
        for other in days_of_open_tasks(self._clock.now_us()):
            if other != day:
                (row,) = await self._kv.get_many(keys.tasks(other), [key])
                ids = _quota_of(row).open_ids
                open_elsewhere += len(ids) - len(await self._ended(keys, other, ids))
        ended = await self._ended(keys, day, before.open_ids)
        return QuotaChange(
            predicate, before, before.with_start(task.task_id, ended, open_elsewhere)
        )

    async def _ended(
        self, keys: RepositoryKeys, day: int, task_ids: Sequence[TaskId]
    ) -> set[TaskId]:
        """Returns those of some tasks that have ended. One without a record is being started, or will be void."""
        if not task_ids:
            return set()
        rows = [keys.task(each) for each in task_ids]
        found = await self._kv.get_many(keys.tasks(day), rows)
        return {
            task_id
            for task_id, row in zip(task_ids, found, strict=True)
            if row is not None and _has_ended(row.value)
        }


def _day_of(task: Task) -> int:
    day = day_of_task(task.task_id)
    assert day is not None, "the id was checked"
    return day


def _quota_of(found: Versioned | None) -> Quota:
    if found is None:
        return Quota()
    try:
        return decode_quota(found.value)
    except TarnError as error:
        # It must not stop all starts of its user; the next one replaces it.
        _log.error("cannot read the starts of a user", error=error.message)
        return Quota()


def _has_ended(value: bytes) -> bool:
    try:
        return decode_task(value).state.is_ended
    except TarnError as error:
        _log.error("cannot read a task", error=error.message)
        return True  # no replica can run it

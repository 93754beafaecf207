"""Limits on the tasks of one user in one repository, at a cost that follows the tasks that the user has open.

Each user has one register for each day, in the partition of that day's tasks. It counts the starts and names the tasks
that had not ended at the last one. A start reads the records of these tasks only, and replaces the register by
compare-and-set before it stores its own record. Nothing has to be changed when a task ends: the next start sees it. A
start that dies before its record exists is counted until the look at it occupies its key (docs/design/tasks.md).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog

from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.core.ids import TaskId
from tarn.core.task import Quota, Task, day_of_task, days_of_open_tasks
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Kv
from tarn.kv.register import Register
from tarn.kv.task_records import decode_quota, decode_task, encode_quota

__all__ = ["OpenTasks", "TaskQuotas"]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OpenTasks:
    """What the records of a user's tasks say before a start.

    Attributes:
        ended: ids in the register of the day whose tasks have ended.
        elsewhere: how many tasks of other days are open.
    """

    ended: Collection[TaskId]
    elsewhere: int


class TaskQuotas:
    """Counts the starts of users, and their open tasks."""

    def __init__(self, kv: Kv, clock: Clock) -> None:
        self._kv = kv
        self._clock = clock

    async def check(self, keys: RepositoryKeys, task: Task) -> OpenTasks:
        """Refuses a start beyond the limits; changes nothing, and returns what `take` needs.

        Raises:
            TarnError: EXHAUSTED, OVERLOADED; UNAVAILABLE.
        """
        day = _day_of(task)
        before = await self._register(keys, task, day).read()
        elsewhere = 0
        for other in days_of_open_tasks(self._clock.now_us()):
            if other != day:
                ids = (await self._register(keys, task, other).read()).open_ids
                elsewhere += len(ids) - len(await self._ended(keys, other, ids))
        found = OpenTasks(await self._ended(keys, day, before.open_ids), elsewhere)
        before.with_start(task.task_id, found.ended, found.elsewhere)
        return found

    async def take(self, keys: RepositoryKeys, task: Task, found: OpenTasks) -> None:
        """Counts a start; one that is counted already is not counted again.

        Args:
            keys: those of the repository, with the day's partition registered to be dropped.
            task: the new task; its record does not exist yet.
            found: the answer of `check`. A task that has ended since is counted as open.

        Raises:
            TarnError: EXHAUSTED, OVERLOADED; UNAVAILABLE. The task must then not be started.
        """
        await self._register(keys, task, _day_of(task)).change(
            lambda before: before.with_start(task.task_id, found.ended, found.elsewhere)
        )

    def _register(self, keys: RepositoryKeys, task: Task, day: int) -> Register[Quota]:
        return Register(
            self._kv,
            keys.tasks(day),
            keys.task_quota(task.user_uid),
            _decoded,
            encode_quota,
            f"the quota of tasks of user {task.user_uid!r}",
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


def _decoded(value: bytes | None) -> Quota:
    if value is None:
        return Quota()
    try:
        return decode_quota(value)
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

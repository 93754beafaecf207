"""The records of tasks in the KV: one register for each task, in one partition for each day (docs/design/tasks.md).

A long request or response has a row of its own in the same partition, written before the record names it.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import structlog

from tarn.core.clock import DAY_US, Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import TaskId, UserId
from tarn.core.task import Task, day_of_task, is_shown
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.paging import rows_of
from tarn.kv.port import Kv, Partition
from tarn.kv.register import Register, write_once
from tarn.kv.task_records import decode_task, encode_task

__all__ = ["TaskPage", "TaskRecords", "task_not_found"]

_DAYS_SHOWN = 3
"""Days before today that may have tasks to show: a day's run and a day's retention, begun late on a day."""
_SCAN = 500
"""Rows of one read; most have less than a kilobyte."""
_INLINE_BYTES_MAX = 2048
"""Longer requests and responses have rows of their own, so that a scan of the tasks does not read them."""

_log = structlog.get_logger()


def task_not_found(task_id: str) -> TarnError:
    """Returns the error for a task that does not exist, has expired, or belongs to another user: all with one text."""
    text = (
        f"task {task_id[:64]!r} does not exist, or you may not see it; tasks are kept for one day after their end, "
        "for the user who started them and for those who may change the rules of the repository"
    )
    return TarnError(Kind.NOT_FOUND, Reason.TASK_NOT_FOUND, text, task=task_id[:64])


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some tasks, oldest first.

    Attributes:
        after: where the next page begins; empty if there is none.
    """

    tasks: list[Task]
    after: str


class TaskRecords:
    """Reads and changes the tasks of repositories."""

    def __init__(self, kv: Kv, clock: Clock) -> None:
        self._kv = kv
        self._clock = clock

    @staticmethod
    def partition(keys: RepositoryKeys, task_id: str) -> Partition:
        """Returns the partition of a task, whether or not it exists.

        Raises:
            TarnError: TASK_NOT_FOUND: no task can have this id.
        """
        day = day_of_task(task_id)
        if day is None:
            raise task_not_found(task_id)
        return keys.tasks(day)

    async def get(self, keys: RepositoryKeys, task_id: str, *, settle: bool = False) -> Task | None:
        """Returns a task, by a read that is sent now; None if it does not exist."""
        return await self._register(keys, task_id).read(settle=settle)

    async def create(self, keys: RepositoryKeys, task: Task) -> Task:
        """Stores a new task; returns it, or the one that has its id already.

        Raises:
            TarnError: UNAVAILABLE; UNKNOWN_OUTCOME: it may be stored; may be repeated.
        """
        stored = await self._register(keys, task.task_id).change(lambda found: found or task)
        assert stored is not None, "it was there, or was stored"
        return stored

    async def keep(self, keys: RepositoryKeys, task_id: TaskId, body: bytes) -> tuple[bytes, bytes]:
        """Stores a long request or response; returns the body and the digest for the record of the task.

        One of the two is empty: a short body stays in the record, a long one gets its own row, which the digest names.
        The partition must be registered to be dropped. The row is named by its content, so it may be written twice.

        Raises:
            TarnError: UNAVAILABLE; UNKNOWN_OUTCOME. Nothing refers to the row yet.
        """
        if len(body) <= _INLINE_BYTES_MAX:
            return body, b""
        digest = hashlib.sha256(body).digest()
        partition, key = self.partition(keys, task_id), keys.task_body(task_id, digest)
        what = f"a long request or response of task {task_id}"
        await write_once(self._kv, partition, key, lambda: body, what)
        return b"", digest

    async def filled(self, keys: RepositoryKeys, task: Task) -> Task:
        """Returns a task with its request and its response, also those with rows of their own.

        Raises:
            TarnError: CORRUPT: such a row is missing, or has another content; UNAVAILABLE.
        """
        digests = [each for each in (task.request_row, task.result_row) if each]
        if not digests:
            return task
        rows = [keys.task_body(task.task_id, each) for each in digests]
        bodies = {b"": b""}
        found = await self._kv.get_many(self.partition(keys, task.task_id), rows)
        for digest, row in zip(digests, found, strict=True):
            if row is None or hashlib.sha256(row.value).digest() != digest:
                text = f"task {task.task_id} has lost its row {digest.hex()}, or the row is damaged"
                raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
            bodies[digest] = row.value
        return replace(
            task,
            request=task.request or bodies[task.request_row],
            result=task.result or bodies[task.result_row],
        )

    async def change(
        self, keys: RepositoryKeys, task_id: TaskId, decide: Callable[[Task], Task | None]
    ) -> Task:
        """Applies a decision to the newest record; returns the record as it is then.

        Args:
            keys: those of the repository.
            task_id: the task.
            decide: returns the record after the change, or None to leave it. Called for each attempt, also after one
                whose answer was lost: it must then recognise its own change, or be harmless.

        Raises:
            TarnError: TASK_NOT_FOUND; UNAVAILABLE; UNKNOWN_OUTCOME.
        """

        def decided(before: Task | None) -> Task:
            if before is None:
                raise task_not_found(task_id)
            return decide(before) or before

        changed = await self._register(keys, task_id).change(decided)
        assert changed is not None, "`decided` refuses a missing task"
        return changed

    def _register(self, keys: RepositoryKeys, task_id: str) -> Register[Task | None]:
        return Register(
            self._kv,
            self.partition(keys, task_id),
            keys.task(task_id),
            lambda value: None if value is None else decode_task(value),
            lambda task: None if task is None else encode_task(task),
            f"task {task_id}",
        )

    async def scan(self, keys: RepositoryKeys, after: str = "") -> AsyncIterator[Task]:
        """Yields all records, oldest first, without their requests and results; also void and expired ones.

        A damaged record is left out: it must not stop all lists.

        Args:
            keys: those of the repository.
            after: only tasks with greater ids; empty for all.
        """
        today = self._clock.now_us() // DAY_US
        first = day_of_task(after) or today - _DAYS_SHOWN
        for day in range(max(first, today - _DAYS_SHOWN), today + 2):
            start = keys.task(after) + b"\0" if after else keys.task("")
            end = after_prefix(keys.task(""))
            async for _, value in rows_of(self._kv, keys.tasks(day), start, end, _SCAN):
                try:
                    task = decode_task(value)
                except TarnError as error:
                    _log.error(
                        "cannot read a task", partition=keys.tasks(day).name, error=error.message
                    )
                    continue
                yield replace(task, request=b"", result=b"")

    async def page(
        self, keys: RepositoryKeys, user: tuple[UserId, bytes] | None, after: str, limit: int
    ) -> TaskPage:
        """Returns a page of the tasks that are shown.

        Args:
            keys: those of the repository.
            user: only those of one user, by id and uid; None for all.
            after: `after` of the page before; empty for the first page.
            limit: most records that are read, so a page may be short.
        """
        now_us = self._clock.now_us()
        found: list[Task] = []
        count = 0
        async for task in self.scan(keys, after):
            count += 1
            if is_shown(task, now_us) and user in (None, (task.user_id, task.user_uid)):
                found.append(task)
            if count == limit:
                return TaskPage(found, task.task_id)
        return TaskPage(found, "")

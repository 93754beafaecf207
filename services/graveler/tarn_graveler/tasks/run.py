"""One run of a task, and the port of the work of a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.task import Task, TaskFailure, TaskProgress, TaskState
from tarn.kv.records import Repository

__all__ = ["TaskRun", "Work"]


class TaskRun:
    """One run of a task by this process.

    Attributes:
        task: the record as this run claimed it.
        progress: as the work reported it last.
        may_stop: whether the work may be cancelled now. False while a change of a branch may be under way, and until an
            earlier attempt is settled: the task would be reported as cancelled, and the change made.
        is_doubtful: an earlier attempt may still have its effect, or had it unnoticed.
        is_stop_wanted: a user cancelled the task, or it is too old.
        is_lost: another run has the task. This one reports no outcome.
        state, result, failure: the outcome; `state` is None until there is one.
    """

    def __init__(
        self, task: Task, require: Callable[[], Awaitable[None]], *, may_stop: bool
    ) -> None:
        self.task = task
        self.may_stop = may_stop
        self.is_doubtful = False
        self.is_stop_wanted = False
        self.is_lost = False
        self.progress = TaskProgress()
        self.state: TaskState | None = None
        self.result = b""
        self.failure: TaskFailure | None = None
        self._require = require

    async def before_publish(self) -> None:
        """Called before each attempt to publish, after the record to replace was read.

        Raises:
            TarnError: REF_MOVED: another run has claimed the task, and may have settled it without this attempt.
        """
        self.may_stop = False
        try:
            await self._require()
        except TarnError as error:
            self.is_lost = error.reason is Reason.REF_MOVED
            raise

    def listen(self, done: int, total: int) -> None:
        """Takes a report of progress."""
        self.progress = TaskProgress(done, total)

    def succeed(self, result: bytes) -> None:
        """Takes the response."""
        self.state, self.result, self.failure = TaskState.SUCCEEDED, result, None
        self.progress = TaskProgress(self.progress.total, self.progress.total)

    def fail(self, error: TarnError) -> None:
        """Takes the error of the last attempt. While an earlier attempt is in doubt, no error is a refusal."""
        self.state, self.failure = TaskState.FAILED, TaskFailure.of(error)
        if self.is_doubtful:
            text = f"the work may have been done by an earlier run: {error.message}"
            self.failure = TaskFailure(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, text)


class Work(Protocol):
    """The work of one kind of task."""

    async def settle(self, repository: Repository, run: TaskRun) -> bytes | None:
        """Makes sure that no attempt of an earlier run, or of this one, has an effect from now on.

        Returns the response if one of them had its effect before; else None.
        """
        ...

    async def run(self, repository: Repository, run: TaskRun) -> bytes:
        """Does the work; returns the response on the wire. Called again after errors that a repetition may cure.

        Raises:
            TarnError: why it cannot be done.
        """
        ...

"""Runs tasks: starts them, takes over those of replicas that died, and ends them (docs/design/tasks.md).

Each start registers a look at the task in the drop list, before the record exists. The look finds a task whose
replica died, and a record that is missing; it registers the next look until the task has ended. So a crash at any
point leaves either nothing or a task that some replica ends.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import structlog

from tarn.aio.progress import listening
from tarn.aio.task_set import TaskSet
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import TaskId, UserId
from tarn.core.task import (
    LEASE_US,
    RUN_US_MAX,
    Start,
    Task,
    TaskFailure,
    TaskKind,
    TaskState,
    cancel,
    check_form,
    check_task_id,
    claim,
    day_of_task,
    drop_time_of_day,
    end,
    is_claimable,
    is_shown,
    next_look,
    owns,
    renew,
    void_task,
)
from tarn.kv.drop_records import Drop, TaskOwner
from tarn.kv.keys import RepositoryKeys
from tarn.kv.record_events import PRINCIPAL, Principal
from tarn.kv.records import Repository
from tarn_graveler.records.drop_list import DropList
from tarn_graveler.records.repositories import Repositories, repository_not_found
from tarn_graveler.records.tasks import TaskPage, TaskRecords, task_not_found
from tarn_graveler.tasks.quotas import TaskQuotas
from tarn_graveler.tasks.run import TaskRun, Work

__all__ = ["TaskRunner"]

_RUNNING_MAX = 4
"""Tasks that one replica runs at the same time."""
_OFFERED_MAX = 256
"""Tasks that wait in one replica for one of these places; looks bring back those that found none."""
_BEAT_SECONDS = 5.0
"""Pause between renewals of a lease; also how soon a request to cancel is noticed."""
_ATTEMPTS = 4
"""Attempts of one run at work that failed because the store was unavailable or lost an answer."""
_PAUSE_SECONDS = 1.0
_WAIT_SECONDS_MIN = 0.1
_WAIT_SECONDS_MAX = 1.0
_VOID_AGE_US_MAX = 86_400_000_000

_REPEATED = frozenset({Kind.UNAVAILABLE, Kind.UNKNOWN_OUTCOME, Kind.DEADLINE})

_log = structlog.get_logger()


class TaskRunner:
    """The tasks of an installation, as one replica runs them.

    Attributes:
        works: the kinds of work that this replica can run. It leaves tasks of other kinds to newer replicas.
    """

    def __init__(
        self,
        records: TaskRecords,
        quotas: TaskQuotas,
        drops: DropList,
        repositories: Repositories,
        clock: Clock,
        ids: IdSource,
        tasks: TaskSet,
    ) -> None:
        self._records = records
        self._quotas = quotas
        self._drops = drops
        self._repositories = repositories
        self._clock = clock
        self._ids = ids
        self._tasks = tasks
        self._places = asyncio.Semaphore(_RUNNING_MAX)
        # By the task: set when this replica has no more to do with it.
        self._offered: dict[TaskId, asyncio.Event] = {}
        self.works: dict[str, Work] = {}

    def serve(self, kind: TaskKind, work: Work) -> None:
        """Lets this replica run tasks of a kind."""
        self.works[kind.value] = work

    # ---- for callers

    def new_id(self) -> TaskId:
        """Returns an id for a new task."""
        return TaskId(self._ids.uuid7().hex())

    async def start(self, repository: Repository, task: Task) -> Task:
        """Stores a new task and runs it; returns it, or the one that an earlier start with its id has stored.

        Raises:
            TarnError: TASK_EXISTS: another start has the id. OVERLOADED: too many tasks. INVALID_ARGUMENT: the id is
                not of now. REPOSITORY_NOT_FOUND. UNAVAILABLE: not started. UNKNOWN_OUTCOME: send it again with its id.
        """
        keys = self._repositories.keys_of(repository)
        check_task_id(task.task_id, self._clock.now_us())
        await self._repositories.require(repository)
        # First without a change: a refused start leaves nothing behind.
        counted = await self._quotas.check(keys, task)
        await self._register(keys, task.task_id)
        await self._quotas.take(keys, task, counted)
        request, row = await self._records.keep(keys, task.task_id, task.request)
        made = await self._records.create(keys, replace(task, request=request, request_row=row))
        self._check_start(made, task.start)
        self._offer(keys, made.task_id)
        return await self._records.filled(keys, made)

    async def started(self, repository: Repository, task_id: str, start: Start) -> Task | None:
        """Returns the task that an earlier attempt at a start has stored; None if there is none.

        Raises:
            TarnError: TASK_EXISTS: another start has the id. UNAVAILABLE: the start was given up.
        """
        check_form(task_id)
        keys = self._repositories.keys_of(repository)
        found = await self._records.get(keys, task_id, settle=True)
        if found is None:
            return None
        self._check_start(found, start)
        return await self._records.filled(keys, found)

    @staticmethod
    def _check_start(found: Task, start: Start) -> None:
        task_id = found.task_id
        if found.state is TaskState.VOID:
            text = f"the start of task {task_id} took too long and was given up; start it under another id"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
        if found.start != start:
            text = f"the id {task_id} belongs to another task; choose another id"
            raise TarnError(Kind.ALREADY_EXISTS, Reason.TASK_EXISTS, text, task=task_id)

    async def _register(self, keys: RepositoryKeys, task_id: TaskId) -> None:
        """Registers the first look at a task, and the drop of its partition, before any row exists."""
        day = day_of_task(task_id)
        assert day is not None, "the id was checked"
        drops = [
            Drop(keys.tasks(day), drop_time_of_day(day)),
            self._look_of(keys, task_id, self._clock.now_us() + LEASE_US),
        ]
        for error in filter(None, await self._drops.add(drops)):
            text = f"task {task_id} was not started: {error.message}; try again"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error

    @staticmethod
    def _look_of(keys: RepositoryKeys, task_id: TaskId, time_us: int) -> Drop:
        return Drop(keys.task_look(task_id), time_us, task=TaskOwner(keys.root, task_id))

    async def get(
        self, repository: Repository, task_id: str, user: tuple[UserId, bytes] | None = None
    ) -> Task:
        """Returns a task that users see.

        Args:
            repository: its repository.
            task_id: the task.
            user: only a task of this user, by id and uid; None for those of all users.

        Raises:
            TarnError: TASK_NOT_FOUND, also for a task of another user.
        """
        keys = self._repositories.keys_of(repository)
        task = await self._records.get(keys, task_id)
        if task is None or not is_shown(task, self._clock.now_us()):
            raise task_not_found(task_id)
        if user not in (None, (task.user_id, task.user_uid)):
            raise task_not_found(task_id)
        return await self._records.filled(keys, task)

    async def page(
        self, repository: Repository, user: tuple[UserId, bytes] | None, after: str, limit: int
    ) -> TaskPage:
        """Returns a page of tasks, as `TaskRecords.page`."""
        return await self._records.page(self._repositories.keys_of(repository), user, after, limit)

    async def cancel(self, repository: Repository, task_id: TaskId) -> Task:
        """Asks for the end of a task; returns it as it is then."""
        keys = self._repositories.keys_of(repository)
        task = await self._records.change(
            keys, task_id, lambda task: cancel(task, self._clock.now_us())
        )
        return await self._records.filled(keys, task)

    async def wait(self, repository: Repository, task_id: str, seconds: float) -> Task:
        """Returns a task once it has ended, or after some seconds as it is then.

        Raises:
            TarnError: TASK_NOT_FOUND.
        """
        until = self._clock.monotonic() + seconds
        pause = _WAIT_SECONDS_MIN
        while True:
            here = self._offered.get(TaskId(task_id))
            task = await self.get(repository, task_id)
            left = until - self._clock.monotonic()
            if task.state.is_ended or left <= 0:
                return task
            await self._pause(min(pause, left), here)
            pause = min(pause * 2, _WAIT_SECONDS_MAX)

    async def _pause(self, seconds: float, end: asyncio.Event | None) -> None:
        """Waits for some seconds, or until `end`: most merges of this replica take less time than a pause."""
        if end is None:
            await self._clock.sleep(seconds)
            return
        async with asyncio.TaskGroup() as group:
            sleep = group.create_task(self._clock.sleep(seconds))
            wait = group.create_task(end.wait())
            sleep.add_done_callback(lambda _: wait.cancel())
            wait.add_done_callback(lambda _: sleep.cancel())

    # ---- for the cleaner

    async def look(self, owner: TaskOwner, look_time_us: int) -> None:
        """Looks at a task that was registered: takes it over if no replica has it, and registers the next look.

        A missing record may still land. So its key is occupied, because no look would find a task that lands later.
        """
        keys, now_us = RepositoryKeys(owner.root), self._clock.now_us()
        task = await self._records.get(keys, owner.task_id, settle=True)
        if task is None:
            if now_us - look_time_us >= _VOID_AGE_US_MAX:
                return  # its day may have been dropped
            task = await self._records.create(keys, void_task(owner.task_id, now_us))
        if task.state.is_ended:
            return
        # First the next look: a task that is run must not be lost from the list.
        again = self._look_of(keys, owner.task_id, next_look(look_time_us, now_us))
        for error in filter(None, await self._drops.add([again])):
            raise error
        if is_claimable(task, now_us):
            self._offer(keys, owner.task_id)

    # ---- runs

    def _offer(self, keys: RepositoryKeys, task_id: TaskId) -> None:
        """Runs a task as soon as there is a place, unless it waits for one already."""
        if task_id in self._offered or len(self._offered) >= _OFFERED_MAX:
            return
        self._offered[task_id] = asyncio.Event()
        self._tasks.spawn(
            self._run_in_place(keys, task_id), lambda _: self._offered.pop(task_id).set()
        )

    async def _run_in_place(self, keys: RepositoryKeys, task_id: TaskId) -> None:
        async with self._places:
            try:
                await self._run(keys, task_id)
            except TarnError as error:
                # Its lease ends; a look finds it again.
                _log.warning("a task stopped", task=task_id, error=error.message)

    async def _run(self, keys: RepositoryKeys, task_id: TaskId) -> None:
        found = await self._records.get(keys, task_id)
        if found is None or found.kind not in self.works:
            return
        runner = self._ids.nonce()
        task = await self._records.change(
            keys, task_id, lambda task: claim(task, runner, self._clock.now_us())
        )
        if task.state is not TaskState.RUNNING or task.runner != runner:
            return  # it has ended, or another replica was faster
        task = await self._records.filled(keys, task)
        run = TaskRun(task, partial(self._require, keys, task), may_stop=task.epoch == 1)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._work(run))
            beat = group.create_task(self._beat(keys, run, work))
            work.add_done_callback(lambda _: beat.cancel())
        if run.is_lost:
            return
        state, failure = run.state, run.failure
        if state is None:
            state, failure = self._stopped(task)
        result, row = await self._records.keep(keys, task_id, run.result)
        ended = partial(end, run=task, state=state, progress=run.progress)
        ended = partial(ended, result=result, result_row=row)
        await self._records.change(
            keys, task_id, lambda now: ended(now, now_us=self._clock.now_us(), failure=failure)
        )

    def _is_too_old(self, task: Task) -> bool:
        return self._clock.now_us() - task.create_time_us >= RUN_US_MAX

    def _stopped(self, task: Task) -> tuple[TaskState, TaskFailure | None]:
        if not self._is_too_old(task):
            return TaskState.CANCELLED, None
        text = f"task {task.task_id} was stopped after one day; it changed nothing"
        return TaskState.FAILED, TaskFailure(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED, text)

    async def _require(self, keys: RepositoryKeys, task: Task) -> None:
        """Raises unless the record still belongs to a run."""
        now = await self._records.get(keys, task.task_id, settle=True)
        if now is None or not owns(now, task):
            text = f"run {task.epoch} of task {task.task_id} has lost it to another replica"
            raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)

    async def _beat(self, keys: RepositoryKeys, run: TaskRun, work: asyncio.Task[None]) -> None:
        """Renews the lease of a run, and stops the run when it has lost its task or is to be cancelled."""
        while True:
            await self._clock.sleep(_BEAT_SECONDS)
            try:
                task = await self._records.change(
                    keys,
                    run.task.task_id,
                    lambda task: renew(task, run.task, run.progress, self._clock.now_us()),
                )
            except TarnError as error:
                _log.warning("cannot renew a lease", task=run.task.task_id, error=error.message)
                continue
            run.is_lost = not owns(task, run.task)
            run.is_stop_wanted = task.is_cancel_requested or self._is_too_old(task)
            if run.is_lost or (run.is_stop_wanted and run.may_stop):
                work.cancel()
                return

    async def _work(self, run: TaskRun) -> None:
        """Does the work of a run; its outcome is in `run`, unless it was stopped."""
        task, work = run.task, self.works[run.task.kind]
        # Also if another replica, or a look, goes on with it.
        PRINCIPAL.set(Principal(task.user_uid, task.session_key_id))
        run.is_stop_wanted = task.is_cancel_requested or self._is_too_old(task)
        run.is_doubtful = task.epoch > 1
        for attempt in range(_ATTEMPTS):
            try:
                with listening(run.listen):
                    await self._attempt(run, work)
                return
            except TarnError as error:
                if run.is_lost:
                    return
                run.is_doubtful = run.is_doubtful or error.kind is Kind.UNKNOWN_OUTCOME
                if attempt == _ATTEMPTS - 1 or error.kind not in _REPEATED:
                    run.fail(error)
                    return
            await self._clock.sleep(_PAUSE_SECONDS * 2**attempt)

    async def _attempt(self, run: TaskRun, work: Work) -> None:
        repository = await self._repository(run.task)
        if run.is_doubtful:
            made = await work.settle(repository, run)
            if made is not None:
                run.succeed(made)
                return
            run.is_doubtful, run.may_stop = False, True
        if not run.is_stop_wanted:
            run.succeed(await work.run(repository, run))

    async def _repository(self, task: Task) -> Repository:
        repository = await self._repositories.get(task.repository_id)
        if repository.instance_uid != task.instance_uid:
            raise repository_not_found(task.repository_id)
        return repository

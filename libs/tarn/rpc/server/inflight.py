"""Running calls of this process: how handlers run, for how long, and which calls a caller may stop.

Both transports use this module, so a service behaves the same over gRPC and in process:

- A read-only call runs in its caller's task and ends with it, or at its deadline.
- A call that may change something runs in a task of its own. A caller that disconnects, or whose deadline
  passes, stops waiting (UNKNOWN_OUTCOME), while the handler continues to a consistent state. Handlers
  check `call.remaining()`. A handler that overruns its deadline by `OVERRUN_SECONDS` is cancelled, so that
  no handler runs for ever.
- A `TarnError` is passed on. Any other exception is a bug: it is logged here and becomes INTERNAL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from types import CoroutineType

import structlog
from google.protobuf.message import Message

from tarn.aio.deadlines import DeadlineSweep
from tarn.aio.first_step import next_step, rest_of
from tarn.aio.task_set import TaskSet
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.rpc.process.log import REQUEST_ID
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import (
    deadline_error,
    internal_error,
    unavailable_error,
    unknown_outcome_error,
)
from tarn.rpc.wire.methods import Handle

__all__ = ["OVERRUN_SECONDS", "Done", "InFlight"]

OVERRUN_SECONDS = 10.0

_TIME_IS_UP = "ran out of time; it may or may not take effect"

Done = Callable[[Message | TarnError], None]
"""Receives the answer of a call, exactly once."""

_log = structlog.get_logger()


class InFlight:
    """Runs handlers and tracks the running calls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = clock.monotonic
        self._tasks = TaskSet()
        self._sweep = DeadlineSweep(clock)
        self._closed = False
        # Taken from the first call; all calls share it. Asking for the running loop is a system call.
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._tasks)

    async def read(self, handle: Handle, request: Message, call: Call) -> Message:
        """Runs a call that changes nothing and returns its answer.

        A future with an attribute `ends_with_tick` is done by the end of this tick of the loop. A handler that waits
        for nothing else needs no watch.

        Raises:
            TarnError: the handler's error; DEADLINE if time ran out; INTERNAL for a bug; UNAVAILABLE
                after `close`.
        """
        self._check(call)
        outside = REQUEST_ID.set(call.request_id)
        try:
            begun = handle(request, call)
            if not isinstance(begun, CoroutineType):
                return await begun
            work: Coroutine[object, object, Message] = begun
            waited: object
            try:
                waited = work.send(None)
            except StopIteration as done:
                found: Message = done.value
                return found
            while hasattr(waited, "ends_with_tick"):  # no deadline passes before its end
                answer, waited = await next_step(work, waited)
                if answer is not None:
                    return answer
            return await self._watched(work, waited, call)
        except TarnError:
            raise
        except Exception as error:
            raise _reported(error, call) from error
        finally:
            REQUEST_ID.reset(outside)

    async def _watched(
        self, work: Coroutine[object, object, Message], waited: object, call: Call
    ) -> Message:
        """Awaits the rest of a handler that waits; only then a deadline can pass."""
        expiry = _Expiry(self._running_loop())
        key = self._sweep.enter(call.deadline, expiry)
        try:
            return await rest_of(work, waited)
        except asyncio.CancelledError:
            if expiry.caught():
                raise deadline_error(call.request_id) from None
            raise
        finally:
            self._sweep.leave(key)

    async def change(self, handle: Handle, request: Message, call: Call) -> Message:
        """Runs a call that may change something; cancelling this does not cancel the handler.

        Raises:
            TarnError: the handler's error; DEADLINE if the deadline had passed at the start;
                UNKNOWN_OUTCOME if it passes later; INTERNAL for a bug; UNAVAILABLE after `close`.
        """
        if self._closed or call.deadline <= self._now():
            self._check(call)  # raises
        answer: asyncio.Future[Message] = (self._loop or self._running_loop()).create_future()
        work = _Work(self._sweep, call, partial(_settle, answer))
        work.start(self._tasks, handle, request, is_awaited=True)
        return await answer

    def begin(self, handle: Handle, request: Message, call: Call, done: Done) -> None:
        """Starts a call in a task of its own; `done` receives the answer.

        The answer may arrive after the deadline: the caller must watch the time.

        Raises:
            TarnError: DEADLINE if the deadline has passed, UNAVAILABLE after `close`. The call was not begun.
        """
        self._check(call)
        _Work(self._sweep, call, done).start(self._tasks, handle, request)

    async def drain(self, timeout_s: float) -> bool:
        """Waits for all begun calls; returns False if that exceeds `timeout_s`."""
        return await self._tasks.drain(timeout_s)

    async def close(self) -> None:
        """Cancels running calls. Idempotent."""
        self._closed = True
        await self._tasks.close()
        self._sweep.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _check(self, call: Call) -> None:
        if call.deadline <= self._now():
            call.remaining(self._clock)  # raises
        if self._closed:
            raise unavailable_error("the service has been closed")


class _Work:
    """One call in a task of its own. It is stopped when it overruns its deadline."""

    __slots__ = ("_call", "_done", "_key", "_sweep", "_task")

    def __init__(self, sweep: DeadlineSweep, call: Call, done: Done) -> None:
        self._sweep = sweep
        self._call = call
        self._done = done

    def start(
        self, tasks: TaskSet, handle: Handle, request: Message, *, is_awaited: bool = False
    ) -> None:
        """Starts the task.

        Args:
            tasks: has the task.
            handle: the handler.
            request: for it.
            is_awaited: whether `done` is told, too, when the deadline passes. It then ignores the answer.
        """
        self._task = tasks.spawn(self._run(handle, request))
        if is_awaited:
            self._key = self._sweep.enter(self._call.deadline, self._expire)
        else:
            self._watch()

    def _watch(self) -> None:
        end = self._call.deadline + OVERRUN_SECONDS
        self._key = self._sweep.enter(end, self._task.cancel)

    def _expire(self) -> None:
        self._watch()  # the handler continues
        self._done(unknown_outcome_error(f"request {self._call.request_id} {_TIME_IS_UP}"))

    async def _run(self, handle: Handle, request: Message) -> None:
        REQUEST_ID.set(self._call.request_id)  # a task has its own context: nothing to reset
        outcome: Message | TarnError
        try:
            outcome = await handle(request, self._call)
        except TarnError as error:
            # Without its traceback, whose frames hold the request: in a cycle they would stay until a collection.
            outcome = error.with_traceback(None)
        except asyncio.CancelledError:
            text = f"request {self._call.request_id} was stopped; it may or may not take effect"
            outcome = unknown_outcome_error(text)
        except Exception as error:  # noqa: BLE001 - the border between a handler and its callers
            outcome = _reported(error, self._call)
        self._sweep.leave(self._key)
        self._done(outcome)


def _settle(answer: asyncio.Future[Message], outcome: Message | TarnError) -> None:
    if answer.done():
        return  # its caller was cancelled, or the time was up
    if isinstance(outcome, TarnError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


class _Expiry:
    """Cancels the task that made it, and distinguishes this cancellation from any other."""

    __slots__ = ("_cancelling", "_fired", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._fired = False

    def __call__(self) -> None:
        self._fired = True
        self._task.cancel()

    def caught(self) -> bool:
        """Returns whether a CancelledError had only this cause; if so, takes the cancellation back."""
        return self._fired and self._task.uncancel() <= self._cancelling


def _reported(error: Exception, call: Call) -> TarnError:
    """Logs a bug with its traceback; the caller learns only the request id under which it is logged."""
    _log.error("handler failed", request_id=call.request_id, exc_info=error)
    return internal_error(call.request_id)

"""An event loop that takes all its decisions from a seed.

Time is virtual: when nothing is ready, it jumps to the next timer. The seed shuffles the callbacks that are
ready in one tick, and the timers that are due at one moment. So each seed is one schedule. There is no input,
no output and no thread: executor calls run immediately, in the loop. Tasks hash by their number, not by their
address, so that sets of tasks (`TaskSet`, `TaskGroup`) iterate in the same order in every run.

Prior art: FoundationDB's simulation and TigerBeetle's VOPR. The existing Python loops of this kind need a
newer Python and are younger than the code that they would test (docs/design/simulation.md).
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, TypeVarTuple

from tests.support.sim.pauses import STRAND, Process, Strand

__all__ = ["SimLoop", "SimStuckError", "simulate"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEPS_MAX = 1_000_000
"""Greatest number of ticks of one run; a run with more spins without waiting."""


class SimStuckError(Exception):
    """No task can run any more, or the run does not end."""


class _SimTask(asyncio.Task[T]):
    """A task that compares and hashes by its number."""

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        loop: SimLoop,
        number: int,
        context: contextvars.Context | None = None,
    ) -> None:
        self._number = number
        super().__init__(coro, loop=loop, name=f"t{number}", context=context)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _Step(asyncio.Handle):
    """A callback that is ready. A run makes a hundred thousand; so nothing is kept for debugging."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:
        _fill(self, callback, args, loop, context)


class _Timer(asyncio.TimerHandle):
    """A callback that waits for its time."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:
        _fill(self, callback, args, loop, context)
        self._when = when
        self._scheduled = False

    def cancel(self) -> None:
        """See `asyncio.Handle.cancel`."""
        self._cancelled = True
        self._callback = None  # as the base class: what they hold can go
        self._args = ()


def _fill(
    handle: Any,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    loop: SimLoop,
    context: contextvars.Context | None,
) -> None:
    """Does what the constructor of `asyncio.Handle` does in a loop that does not debug."""
    handle._context = contextvars.copy_context() if context is None else context
    handle._loop = loop
    handle._callback = callback
    handle._args = args
    handle._cancelled = False
    handle._repr = handle._source_traceback = None


class SimLoop(asyncio.BaseEventLoop):
    """The loop; see the module.

    Attributes:
        errors: calls of the loop's exception handler, except for answers whose caller has gone.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.errors: list[str] = []
        self._now = 0.0
        self._random = random.Random(seed)
        self._timers: list[tuple[float, float, int, asyncio.Handle]] = []
        self._count = 0
        self.steps_max = STEPS_MAX
        self._ticks = 0
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_error)

    def time(self) -> float:
        """Returns the virtual seconds since the run began."""
        return self._now

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """See `asyncio.loop.call_soon`."""
        self._check_closed()  # type: ignore[attr-defined]
        handle = _Step(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio.loop.call_at`; the seed decides the order of timers of one moment."""
        handle = _Timer(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._random.random(), self._count, handle))
        return handle

    def run_in_executor(
        self, executor: object, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Runs the call immediately; its answer arrives in a later tick, as a thread's would."""
        del executor
        answer: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - the waiting caller gets it
            self.call_soon(_settle, answer, None, error)
        else:
            self.call_soon(_settle, answer, result, None)
        return answer

    def _run_once(self) -> None:
        """Runs one tick; `run_forever` calls it until the loop is stopped."""
        self._ticks += 1
        if self._ticks > self.steps_max:
            raise SimStuckError(f"{self.steps_max} turns and no end at {self._now:.3f} s")
        ready: Any = self._ready  # type: ignore[attr-defined]
        if not ready:
            self._advance()
        tick = list(ready)
        ready.clear()
        if len(tick) > 1:
            self._random.shuffle(tick)
        for handle in tick:
            if handle._cancelled:
                continue
            strand: Strand | None = handle._context.get(STRAND)
            if strand is None or not self._is_paused(handle, strand):
                handle._run()

    def _is_paused(self, handle: asyncio.Handle, strand: Strand) -> bool:
        """Postpones a step whose process pauses."""
        owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
        task = owner if isinstance(owner, asyncio.Task) else None
        until = strand.process.until(task, self._now, may_stop=strand.may_stop)
        if until <= self._now:
            return False
        self._count += 1
        heapq.heappush(self._timers, (until, self._random.random(), self._count, handle))
        strand.process.put_off.add(self._count)
        return True

    def kill(self, process: Process) -> None:
        """Ends the pauses of a process whose tasks are about to be cancelled.

        The steps that it put off run once the tasks are cancelled. If they waited, a task that has ended would
        stay in its `TaskSet`, and `TaskSet.close` would wait for it without letting time pass.
        """
        process.kill()
        if any(count in process.put_off for _, _, count, _ in self._timers):
            self.call_soon(self._release, process)

    def _release(self, process: Process) -> None:
        due = sorted(each for each in self._timers if each[2] in process.put_off)
        self._timers = [each for each in self._timers if each[2] not in process.put_off]
        heapq.heapify(self._timers)
        self._ready.extend(each[3] for each in due)  # type: ignore[attr-defined]

    def _advance(self) -> None:
        """Advances the time to the next timer and makes all timers of that moment ready."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        while self._timers and not ready:
            when, _, _, handle = heapq.heappop(self._timers)
            if handle.cancelled():
                continue
            self._now = max(self._now, when)
            ready.append(handle)
            while self._timers and self._timers[0][0] <= self._now:
                ready.append(heapq.heappop(self._timers)[3])
        if not ready:
            raise SimStuckError(f"every task waits for another one at {self._now:.3f} s")

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        assert loop is self
        self._count += 1
        return _SimTask(coro, loop=self, number=self._count, context=context)

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        del loop
        message = str(context.get("message", ""))
        if "never retrieved" not in message:  # the caller has gone, for example with its replica
            self.errors.append(f"{message}: {context.get('exception')!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Does nothing: the base loop counts cancelled timers, and this one skips them when they are due."""

    def _process_events(self, event_list: object) -> None:
        """Does nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Does nothing: the loop never sleeps in a selector."""


def _settle(answer: asyncio.Future[T], result: T | None, error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)  # type: ignore[arg-type]


def simulate(main: Callable[[SimLoop], Coroutine[Any, Any, T]], seed: int) -> T:
    """Runs a coroutine to its end on a loop with this seed, and cancels the tasks that remain.

    Raises:
        SimStuckError: no task could run any more, or the run did not end.
    """
    loop = SimLoop(seed)
    try:
        asyncio.set_event_loop(loop)
        result = loop.run_until_complete(main(loop))
        for _ in range(3):  # a cancelled task may start another one
            left = sorted(asyncio.all_tasks(loop), key=hash)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
        return result
    finally:
        asyncio.set_event_loop(None)
        loop.close()

"""Keeps the worker processes of one machine running: starts them, restarts the dead, stops them all.

A worker is any command that writes to the file descriptor named by `TARN_READY_FD` when it
serves, and drains on SIGTERM. The kernel sends it SIGTERM when the supervisor dies, whatever the cause
(`tarn_cli.node.lifeline`), so no worker outlives its supervisor.

If a worker dies before it was ever ready, the installation is faulty: all workers stop, and the
log gives the reason. A worker that dies later is restarted: immediately the first time, then after pauses
that double until the worker has lived for `Limits.settled_s`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tarn.aio.backoff import doubled_seconds
from tarn.aio.first_error import collapse_error_groups
from tarn.core.clock import Clock
from tarn.rpc.process.standalone import READY_FD
from tarn_cli.exits import CliError, Exit

__all__ = ["Limits", "WorkerSpec", "Supervisor"]


_LAST_WORDS_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A kind of worker.

    Attributes:
        name: name of its processes, followed by a number if there are several.
        command: the program and its arguments.
        environment: environment variables of its processes.
        count: number of processes.
        own: further variables of each process, in order; empty: none.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    count: int = 1
    own: tuple[Mapping[str, str], ...] = ()

    def names(self) -> list[str]:
        """Names of its processes."""
        return [self.name] if self.count == 1 else [f"{self.name}-{n}" for n in range(self.count)]


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of the supervisor, in seconds.

    Attributes:
        ready_s: time for a worker to become ready.
        stop_s: time for a worker to drain; then it is killed.
        pause_min_s: pause before the second restart in a row; doubles with each further one.
        pause_max_s: longest pause before a restart.
        settled_s: a worker that lived this long counts as settled; its next restart has no pause.
    """

    ready_s: float = 60.0
    stop_s: float = 30.0
    pause_min_s: float = 0.2
    pause_max_s: float = 10.0
    settled_s: float = 30.0


@dataclass(slots=True)
class _Slot:
    """One worker that must run.

    Attributes:
        number: number of the process among those of its spec.
        pid: process id; 0 while no process runs.
        failures: deaths since the worker was last settled.
        ready: set when it was ready at least once.
        quit: set when it must stop.
    """

    name: str
    spec: WorkerSpec
    number: int = 0
    pid: int = 0
    failures: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    quit: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Supervisor:
    """Runs specs until `stop`.

    Attributes:
        specs: each spec starts when the specs before it are ready, and drains when the specs after it
            have ended.
        clock: measures pauses and ages.
        on_change: called with the process ids by name and the number of restarts, when all workers are
            ready for the first time and after each later change.
        say: writes one line to the log.
        limits: time limits.
    """

    specs: Sequence[WorkerSpec]
    clock: Clock
    on_change: Callable[[dict[str, int], int], None]
    say: Callable[[str], None]
    limits: Limits = field(default_factory=Limits)
    _stop: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _slots: list[_Slot] = field(default_factory=list, init=False)
    _restarts: int = field(default=0, init=False)
    _is_up: bool = field(default=False, init=False)

    def stop(self) -> None:
        """Ends `run`; may be called repeatedly."""
        self._stop.set()

    async def run(self) -> None:
        """Starts all workers, keeps them running until `stop`, then drains them.

        Raises:
            CliError: a worker was never ready.
        """
        with collapse_error_groups(prefer=CliError):
            await self._run_specs(self.specs)

    async def _run_specs(self, specs: Sequence[WorkerSpec]) -> None:
        """Runs the first spec around the others: it starts before them and drains after them."""
        if not specs:
            self._is_up = True
            self._changed()
            await self._stop.wait()
            return
        names = specs[0].names()
        slots = [_Slot(name, specs[0], number) for number, name in enumerate(names)]
        self._slots += slots
        async with asyncio.TaskGroup() as group:
            for slot in slots:
                group.create_task(self._keep(slot), name=slot.name)
            for slot in slots:
                await _any_of(slot.ready, self._stop)
            if not self._stop.is_set():
                await self._run_specs(specs[1:])
            for slot in slots:
                slot.quit.set()

    def _changed(self) -> None:
        if self._is_up:
            self.on_change({slot.name: slot.pid for slot in self._slots}, self._restarts)

    async def _keep(self, slot: _Slot) -> None:
        """Restarts the worker of a slot until `slot.quit` is set."""
        while not slot.quit.is_set():
            began = self.clock.monotonic()
            await self._live(slot)
            if slot.quit.is_set():
                return
            if not slot.ready.is_set():
                raise CliError(Exit.FAILURE, f"{slot.name} did not start; its own message is above")
            settled = self.clock.monotonic() - began >= self.limits.settled_s
            slot.failures = 1 if settled else slot.failures + 1
            self._restarts += 1
            await self._pause(slot)

    async def _pause(self, slot: _Slot) -> None:
        """Pauses before a restart; not after the first of several deaths."""
        if slot.failures <= 1:
            return
        limits = self.limits
        pause = doubled_seconds(
            slot.failures - 2, first_s=limits.pause_min_s, most_s=limits.pause_max_s
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await slot.quit.wait()

    async def _live(self, slot: _Slot) -> None:
        """Runs a worker once; returns after its end."""
        read_fd, write_fd = os.pipe()
        try:
            process = await self._spawn(slot, write_fd)
        except OSError as error:
            os.close(read_fd)
            self.say(f"cannot start {slot.name}: {error.strerror}")
            return
        except BaseException:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        slot.pid = process.pid
        try:
            if await self._until_ready(slot, process, read_fd):
                self.say(f"{slot.name} serves (process {process.pid})")
                slot.ready.set()
                self._changed()
                await _until_end(slot, process)
        finally:
            await self._end(slot, process)

    async def _spawn(self, slot: _Slot, ready_fd: int) -> asyncio.subprocess.Process:
        spec = slot.spec
        own = spec.own[slot.number] if spec.own else {}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tarn_cli.node.lifeline",
            str(os.getpid()),
            *spec.command,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(ready_fd,),
            env={**spec.environment, **own, READY_FD: str(ready_fd)},
            process_group=0,  # Ctrl-C is for the supervisor, which stops the workers in order
        )

    async def _until_ready(
        self, slot: _Slot, process: asyncio.subprocess.Process, read_fd: int
    ) -> bool:
        """True when the worker is ready; False when it died, must stop, or exceeded the time limit."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(read_fd, readable.set)
        try:
            async with asyncio.timeout(self.limits.ready_s):
                await _any_of(readable, slot.quit)
            if not readable.is_set():
                return False
            if os.read(read_fd, 1):
                return True
            # The worker closed its end of the pipe: it is ending. Wait, to log its exit code.
            await _ended_within(process, _LAST_WORDS_SECONDS)
            return False
        except TimeoutError:
            self.say(f"process {process.pid} is not ready after {self.limits.ready_s:.0f} s")
            return False
        finally:
            loop.remove_reader(read_fd)
            os.close(read_fd)

    async def _end(self, slot: _Slot, process: asyncio.subprocess.Process) -> None:
        """Drains a worker that still runs; logs an unexpected end."""
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            if not await _ended_within(process, self.limits.stop_s):
                self.say(f"{slot.name} did not stop within {self.limits.stop_s:g} s: killed")
                _signal(process, signal.SIGKILL)
                await process.wait()
        slot.pid = 0
        if not slot.quit.is_set():
            self.say(f"{slot.name} ended unexpectedly ({_ending(process.returncode)})")
            self._changed()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signals a process that may have just ended.

    `process.send_signal` would collect the exit code before asyncio can, which then loses it.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


async def _ended_within(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Waits for the end of a process; returns whether it ended in time."""
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    return True


async def _any_of(*events: asyncio.Event) -> None:
    """Returns when one of the events is set."""
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(event.wait()) for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()


async def _until_end(slot: _Slot, process: asyncio.subprocess.Process) -> None:
    """Returns when the worker is dead or must stop."""
    ended = asyncio.Event()

    async def watch() -> None:
        await process.wait()
        ended.set()

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        await _any_of(ended, slot.quit)
        watching.cancel()


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"

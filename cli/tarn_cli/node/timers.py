"""The timers of a node: commands that `tarn up` runs regularly, such as a garbage collection or a backup.

Each run is a child process of its own, so its failure is not that of the node. One runs at a time: a backup would end a
collection. The time of the last run is in the data folder (`timers.json`), so that a machine that restarts often still
does the runs that are due. The output of the last run of a timer is in `logs/<timer>.log`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Final

from tarn.core.clock import Clock
from tarn.core.moments import iso_seconds
from tarn_cli.node.data_dir import DataDir
from tarn_cli.output import Record

__all__ = ["STOP_SECONDS", "TimerSpec", "TimerTimes", "Timers", "due_us", "timers_record"]

STOP_SECONDS: Final = 10.0
"""Time for a run to end when the node stops; then it is killed. The next run continues the work."""
_LOOK_S: Final = 30.0
"""A wait is at most this long: the wall clock may jump, and a machine may sleep."""
_RUN_MAX_S: Final = 86_400.0
"""A run that takes longer is ended: one that hangs must not keep the others for ever."""
_JITTER_SHARE: Final = 0.1
_JITTER_MAX_US: Final = 600_000_000
_BROKEN_OFF_US: Final = 3_600_000_000
"""A run that was broken off is repeated this long after its begin, if that is before its next time."""
_TAIL_BYTES: Final = 4096
_WORDS_MAX: Final = 300
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class TimerSpec:
    """A timer.

    Attributes:
        name: `gc`, `journal` or `backup`.
        commands: programs and their arguments, which a run starts one after the other until one fails.
        environment: environment variables of its processes.
        interval_us: from the begin of a run to that of the next, microseconds.
        needs: a file without which no run begins; None: none.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    environment: Mapping[str, str] = field(repr=False)
    interval_us: int
    needs: Path | None = None


@dataclass(frozen=True, slots=True)
class TimerTimes:
    """The last and the next run of a timer, as the data folder records them. Times are microseconds since the epoch; 0:
    never.

    Attributes:
        begin_us: when the last run began.
        end_us: when it ended; 0: it runs, or was broken off.
        exit_code: of the last command of the run; negative: the signal that killed it.
        next_us: when the next run is due; 0: the timer is off, or a run is under way.
    """

    begin_us: int = 0
    end_us: int = 0
    exit_code: int = 0
    next_us: int = 0


def due_us(times: TimerTimes, interval_us: int, now_us: int, jitter_us: int) -> int:
    """Returns when the next run is due, microseconds since the epoch.

    Args:
        times: of the last run.
        interval_us: from begin to begin.
        now_us: the time. A begin in the future, of a clock that was set back, counts as now.
        jitter_us: is added, so that many machines with one clock do not begin together.
    """
    if not times.begin_us:
        return now_us + jitter_us
    wait_us = interval_us if times.end_us else min(interval_us, _BROKEN_OFF_US)
    return min(times.begin_us, now_us) + wait_us + jitter_us


class Timers:
    """Runs the timers of a node until `stop`.

    Args:
        specs: what to run; none: nothing is done.
        where: the data folder, with the times and the logs of runs.
        clock: for times and waits.
        rng: adds jitter.
        say: writes one line to the log of the node.
    """

    def __init__(
        self,
        specs: Sequence[TimerSpec],
        where: DataDir,
        clock: Clock,
        rng: random.Random,
        say: Callable[[str], None],
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._where = where
        self._clock = clock
        self._rng = rng
        self._say = say
        self._times: dict[str, TimerTimes] = {}
        self._missing: set[str] = set()
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ends `run`, and the run of a timer that is under way; may be called repeatedly."""
        self._stop.set()

    async def run(self) -> None:
        """Runs the timers that are due until `stop`; returns when no process of a timer runs any more."""
        if not self._specs:
            self._where.forget_timers()
            return
        now_us = self._clock.now_us()
        before = _read(self._where, self._say)
        for name, spec in self._specs.items():
            times = before.get(name, TimerTimes())
            self._set(name, self._planned(spec, times, now_us))
        while not self._stop.is_set():
            now_us = self._clock.now_us()
            for name in sorted(self._specs, key=lambda each: self._times[each].next_us):
                spec, times = self._specs[name], self._times[name]
                # A clock that was set back must not put a run off.
                if times.next_us > now_us + spec.interval_us + _JITTER_MAX_US:
                    self._set(name, self._planned(spec, times, now_us))
                elif times.next_us <= now_us and not self._stop.is_set() and self._can_run(spec):
                    await self._run_one(spec)
            await self._wait()

    def _planned(self, spec: TimerSpec, times: TimerTimes, now_us: int) -> TimerTimes:
        most_us = min(_JITTER_MAX_US, int(spec.interval_us * _JITTER_SHARE))
        next_us = due_us(times, spec.interval_us, now_us, self._rng.randrange(most_us + 1))
        return TimerTimes(times.begin_us, times.end_us, times.exit_code, next_us)

    def _can_run(self, spec: TimerSpec) -> bool:
        if spec.needs is None or spec.needs.is_file():
            self._missing.discard(spec.name)
            return True
        if spec.name not in self._missing:
            self._missing.add(spec.name)
            self._say(
                f"timer {spec.name}: waits for {spec.needs}, which `tarn auth setup --save` writes"
            )
        return False

    async def _wait(self) -> None:
        """Waits until the next run may be due, a while at most, or until `stop`."""
        now_us = self._clock.now_us()
        due = [
            (self._times[name].next_us - now_us) / _SECOND_US
            for name in self._specs
            if name not in self._missing
        ]
        seconds = max(0.01, min([*due, _LOOK_S]))
        async with asyncio.TaskGroup() as group:
            waits = [
                group.create_task(self._clock.sleep(seconds)),
                group.create_task(self._stop.wait()),
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()

    async def _run_one(self, spec: TimerSpec) -> None:
        begin_us = self._clock.now_us()
        # Written first: a run that takes the machine down must not be repeated at each start.
        self._set(spec.name, TimerTimes(begin_us))
        code, is_stopped = await self._commands(spec)
        end_us = self._clock.now_us()
        if is_stopped:
            self._say(f"timer {spec.name}: was broken off; it is repeated later")
            end_us = 0
        elif code:
            told = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
            self._say(f"timer {spec.name}: failed ({told}): {_last_line(self._log(spec.name))}")
        else:
            self._say(f"timer {spec.name}: done in {(end_us - begin_us) / _SECOND_US:.0f} s")
        self._set(spec.name, self._planned(spec, TimerTimes(begin_us, end_us, code), end_us))

    async def _commands(self, spec: TimerSpec) -> tuple[int, bool]:
        """Runs the commands until one fails; returns the last exit code, and whether `stop` broke them off."""
        try:
            with self._log(spec.name).open("wb") as log:
                for command in spec.commands:
                    code = await self._process(spec, command, log)
                    if self._stop.is_set() or code:
                        return code, self._stop.is_set()
        except OSError as error:
            self._say(f"timer {spec.name}: cannot start: {error}")
            return 1, False
        return 0, False

    async def _process(self, spec: TimerSpec, command: Sequence[str], log: IO[bytes]) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tarn_cli.node.lifeline",
            str(os.getpid()),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(spec.environment),
            process_group=0,  # Ctrl-C is for the node, which stops its children in order
        )
        try:
            await self._until_end(spec, process)
        finally:
            await _end(process)
        assert process.returncode is not None, "it has ended"
        return process.returncode

    async def _until_end(self, spec: TimerSpec, process: asyncio.subprocess.Process) -> None:
        """Returns when the process has ended or must end."""
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(process.wait()), group.create_task(_true(self._stop))]
            done, _ = await asyncio.wait(
                waits, timeout=_RUN_MAX_S, return_when=asyncio.FIRST_COMPLETED
            )
            for each in waits:
                each.cancel()
        if not done:
            self._say(f"timer {spec.name}: runs for {_RUN_MAX_S / 3600:.0f} h; it is ended")

    def _log(self, name: str) -> Path:
        return self._where.log_file.parent / f"{name}.log"

    def _set(self, name: str, times: TimerTimes) -> None:
        self._times[name] = times
        try:
            self._where.write_timers({each: asdict(one) for each, one in self._times.items()})
        except OSError as error:
            self._say(f"cannot write the times of timers: {error.strerror}")


def timers_record(where: DataDir) -> Record:
    """Returns the last and next runs of timers, for people; empty without timers."""
    shown: dict[str, object] = {}
    for name, times in _read(where, lambda _: None).items():
        fields: dict[str, object] = {}
        if times.begin_us:
            fields["last_begin"] = iso_seconds(times.begin_us)
        if times.end_us:
            fields |= {"last_end": iso_seconds(times.end_us), "exit_code": times.exit_code}
        fields["next"] = iso_seconds(times.next_us) if times.next_us else "runs"
        shown[name] = fields
    return shown


def _read(where: DataDir, say: Callable[[str], None]) -> dict[str, TimerTimes]:
    """Returns the times in the data folder. Damaged ones count as never: a run too many does no harm."""
    try:
        return {name: TimerTimes(**each) for name, each in json.loads(where.timers()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        say(f"the times of timers cannot be read, so all are due now: {error}")
        return {}


async def _true(event: asyncio.Event) -> int:
    await event.wait()
    return 1


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends a process that still runs: SIGTERM, and after a while SIGKILL to all of its group."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _last_line(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = stream.read().decode(errors="replace").split("\n")
    except OSError as error:
        return str(error)
    told = [line.strip() for line in lines if line.strip()]
    return told[-1][:_WORDS_MAX] if told else f"{file} is empty"

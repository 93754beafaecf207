"""The supervisor, with plain processes as workers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tarn.rpc.process.system import SystemClock
from tarn_cli.exits import CliError
from tarn_cli.node.supervisor import Limits, Supervisor, WorkerSpec

READY = "import os; os.write(int(os.environ['TARN_READY_FD']), b'ready'); "
SERVE = READY + "import signal; signal.pause()"
QUICK = Limits(ready_s=20, stop_s=1, pause_min_s=0.01, pause_max_s=0.05, settled_s=60)


def spec(name: str, code: str, count: int = 1) -> WorkerSpec:
    return WorkerSpec(name, (sys.executable, "-c", code), dict(os.environ), count)


@dataclass(slots=True)
class Watched:
    """A supervisor and its messages."""

    specs: list[WorkerSpec]
    limits: Limits = QUICK
    lines: list[str] = field(default_factory=list)
    states: list[tuple[dict[str, int], int]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def supervisor(self) -> Supervisor:
        return Supervisor(self.specs, SystemClock(), self.note, self.lines.append, self.limits)

    def note(self, processes: dict[str, int], restart_count: int) -> None:
        self.states.append((processes, restart_count))
        self.changed.set()

    async def until(self, seen: Callable[[dict[str, int], int], bool]) -> dict[str, int]:
        while not (self.states and seen(*self.states[-1])):
            self.changed.clear()
            await self.changed.wait()
        return self.states[-1][0]


async def during(watched: Watched, story: Callable[[], Awaitable[None]]) -> None:
    """Runs the supervisor during the block, then stops it."""
    supervisor = watched.supervisor()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(supervisor.run())
        await story()
        supervisor.stop()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_all_workers_run_until_the_stop() -> None:
    watched = Watched([spec("worker", SERVE, 3)])
    pids: dict[str, int] = {}

    async def story() -> None:
        pids.update(await watched.until(lambda processes, _: all(processes.values())))
        assert sorted(pids) == ["worker-0", "worker-1", "worker-2"]
        assert all(map(is_alive, pids.values()))

    await during(watched, story)
    assert not any(map(is_alive, pids.values()))
    assert not [line for line in watched.lines if "unexpected" in line]


async def test_a_killed_worker_is_started_again() -> None:
    watched = Watched([spec("worker", SERVE, 2)])

    async def story() -> None:
        first = await watched.until(lambda processes, _: all(processes.values()))
        for count in range(1, 4):
            before = watched.states[-1][0]["worker-1"]
            os.kill(before, signal.SIGKILL)
            after = await watched.until(
                lambda processes, restarts, before=before, count=count: (  # type: ignore[misc]
                    restarts == count and processes["worker-1"] not in (0, before)
                )
            )
            assert after["worker-0"] == first["worker-0"]

    await during(watched, story)
    assert len([line for line in watched.lines if "killed by SIGKILL" in line]) == 3


async def test_a_worker_that_never_serves_stops_everything() -> None:
    watched = Watched([spec("good", SERVE), spec("bad", "raise SystemExit(3)")])
    async with asyncio.timeout(60):
        with pytest.raises(CliError, match="bad did not start"):
            await watched.supervisor().run()
    assert watched.states == []
    assert any("exit code 3" in line for line in watched.lines)


async def test_a_worker_that_starts_too_slowly_is_given_up() -> None:
    slow = Limits(ready_s=0.3, stop_s=1)
    watched = Watched([spec("slow", "import signal; signal.pause()")], slow)
    async with asyncio.timeout(60):
        with pytest.raises(CliError, match="slow did not start"):
            await watched.supervisor().run()
    assert any("not ready after" in line for line in watched.lines)


async def test_a_worker_that_does_not_drain_is_killed() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY
    watched = Watched([spec("deaf", deaf + "[signal.pause() for _ in iter(int, 1)]")])
    pids: dict[str, int] = {}

    async def story() -> None:
        pids.update(await watched.until(lambda processes, _: all(processes.values())))

    await during(watched, story)
    assert not is_alive(pids["deaf"])
    assert any("did not stop within" in line for line in watched.lines)


async def test_parts_start_in_order_and_stop_in_reverse_order(tmp_path: Path) -> None:
    log = tmp_path / "order"
    code = (
        "import os, signal\n"
        "def say(what):\n"
        f"    with open({str(log)!r}, 'a') as file: file.write(what + '\\n')\n"
        "def end(*_):\n"
        "    say('end NAME'); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "say('start NAME')\n" + READY + "\nwhile True: signal.pause()\n"
    )
    watched = Watched([spec(name, code.replace("NAME", name)) for name in ("a", "b", "c")])

    async def story() -> None:
        await watched.until(lambda processes, _: all(processes.values()))

    await during(watched, story)
    assert log.read_text().split("\n")[:-1] == [
        *("start a", "start b", "start c"),
        *("end c", "end b", "end a"),
    ]


async def test_a_stop_while_starting_is_heeded_at_once() -> None:
    watched = Watched([spec("slow", "import signal; signal.pause()"), spec("never", SERVE)])
    supervisor = watched.supervisor()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        running = group.create_task(supervisor.run())
        await asyncio.sleep(0.3)
        supervisor.stop()
        await running
    assert watched.states == []

"""Runs a planned node until a signal: its workers and timers; writes the state file, limits the log."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

from tarn.core.clock import Clock
from tarn.rpc.process.system import SystemClock
from tarn_cli.node.data_dir import DataDir
from tarn_cli.node.log_rotation import LogRotation
from tarn_cli.node.plan import NodePlan
from tarn_cli.node.supervisor import Limits, Supervisor
from tarn_cli.node.timers import Timers

__all__ = ["run_node"]

_LOG_CHECK_SECONDS = 10.0


def run_node(plan: NodePlan, where: DataDir, say: Callable[[str], None]) -> None:
    """Runs the node; returns after SIGTERM, SIGHUP or Ctrl-C, when all workers have drained.

    Raises:
        CliError: a worker was never ready.
    """
    clock = SystemClock()

    async def run() -> None:
        is_up, must_stop = asyncio.Event(), asyncio.Event()

        def changed(processes: dict[str, int], restart_count: int) -> None:
            is_up.set()
            try:
                where.write_state(plan.state(processes, restart_count))
            except OSError as error:
                # A full disk must not stop workers that can still answer reads.
                say(f"cannot write the state file: {error.strerror}")

        supervisor = Supervisor(plan.specs, clock, changed, say, Limits(stop_s=plan.stop_s))
        timers = Timers(plan.timers, where, clock, random.SystemRandom(), say)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, must_stop.set)

        async def stop_in_order() -> None:
            """The runs of timers end first: they tell the workers about their end."""
            ticking = group.create_task(_run_timers(timers, is_up))
            await must_stop.wait()
            timers.stop()
            if is_up.is_set():
                await ticking
            ticking.cancel()
            supervisor.stop()

        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(_rotate_log(where.log_file, plan.log_rotation, clock, say)),
                group.create_task(stop_in_order()),
            ]
            await supervisor.run()
            for each in beside:
                each.cancel()

    asyncio.run(run())


async def _run_timers(timers: Timers, is_up: asyncio.Event) -> None:
    """Runs timers from the moment at which all workers serve."""
    await is_up.wait()
    await timers.run()


async def _rotate_log(
    log: Path, rotation: LogRotation, clock: Clock, say: Callable[[str], None]
) -> None:
    """Rotates the log whenever it is due, if this process writes to it."""

    def rotate() -> None:
        is_ours = log.exists() and os.path.samestat(os.fstat(1), log.stat())
        if is_ours and rotation.is_due(clock.now_us() / 1_000_000):
            rotation.rotate()

    while True:
        await clock.sleep(_LOG_CHECK_SECONDS)
        try:
            await asyncio.to_thread(rotate)
        except OSError as error:  # such as a full disk, which must not stop the workers
            say(f"cannot rotate the log: {error.strerror}")

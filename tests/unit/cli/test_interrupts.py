"""An interrupt wakes a command that waits, at whatever moment it arrives."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

from tarn_cli.interrupts import run_interruptibly

_WAKES = """
import signal
from tarn_cli.interrupts import run_interruptibly

async def work():
    print(signal.set_wakeup_fd(-1) >= 0)

run_interruptibly(work())
"""


def test_signals_wake_the_loop() -> None:
    command = [sys.executable, "-c", _WAKES]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "True\n"


async def test_interruptible_work_runs_in_any_thread() -> None:
    async def work() -> str:
        return "done"

    assert await asyncio.to_thread(lambda: run_interruptibly(work())) == "done"


def test_an_interrupt_cancels_the_work() -> None:
    code = (
        "import asyncio\nfrom tarn_cli.interrupts import run_interruptibly\n"
        "async def work():\n    print('runs', flush=True)\n    await asyncio.sleep(50)\n"
        "run_interruptibly(work())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in err

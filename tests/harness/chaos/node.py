"""A node of `tarn up` for fault injection: its processes, and restarts on the same data."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from running_tarn import RunningTarn, launch, set_up, stop, wait_until_up
from slowness import scaled

__all__ = ["Node", "signal_process"]

_START_SECONDS = scaled(120.0)
_GONE_SECONDS = scaled(20.0)
_POLL_SECONDS = 0.02


@dataclass(slots=True)
class Node:
    """One `tarn up`, of this machine.

    Attributes:
        folder: its data, its log and the admin's key are in here.
        options: further arguments of `tarn up`, such as `--config`, `--workers` or `--separate`.
        environment: further variables.
    """

    folder: Path
    options: Sequence[str] = ("--workers", "4")
    environment: Mapping[str, str] = field(default_factory=dict)
    _tarn: RunningTarn | None = field(default=None, init=False)

    @property
    def tarn(self) -> RunningTarn:
        """The running installation, for the command line and for addresses."""
        assert self._tarn is not None, "start comes first"
        return self._tarn

    @property
    def port(self) -> int:
        """Port of the S3 endpoint."""
        port = urlsplit(self.tarn.endpoint).port
        assert port is not None, "an endpoint has a port"
        return port

    def start(self, *, is_first: bool = True) -> None:
        """Returns when the node serves.

        Args:
            is_first: whether this is the first node of its installation and must create the first admin.
        """
        data = self.folder / "data"
        supervisor = self._launch("--port", "0", "--rpc-port", "0")
        self._tarn = RunningTarn("single", data, self.folder / "credentials", supervisor)
        try:
            wait_until_up(self._tarn)
            if is_first:
                set_up(self._tarn)
        except BaseException:
            stop(self._tarn)
            raise

    def _launch(self, *ports: str) -> subprocess.Popen[bytes]:
        return launch(self.folder / "data", *ports, *self.options, environment=self.environment)

    def workers(self) -> dict[str, int]:
        """Process ids of the serving workers, by name."""
        try:
            state = self.tarn.state()
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        if state["pid"] != self.tarn.supervisor.pid:
            return {}  # left behind by an earlier run
        return {name: pid for name, pid in state["processes"].items() if pid}

    async def crash(self) -> None:
        """Kills the supervisor and every process below it; returns when all have ended."""
        supervisor = psutil.Process(self.tarn.supervisor.pid)
        supervisor.suspend()  # otherwise it might start a worker that is not in the list
        below = supervisor.children(recursive=True)
        for process in [supervisor, *below]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.tarn.supervisor.wait()
        end = time.monotonic() + _GONE_SECONDS
        while left := [process for process in below if _is_alive(process)]:
            assert time.monotonic() < end, f"killed, and alive: {left}"
            await asyncio.sleep(_POLL_SECONDS)

    async def restart(self) -> None:
        """Starts the node again after a crash, on the same data and ports; returns when it serves."""
        rpc_port = self.tarn.server.rpartition(":")[2]
        self.tarn.supervisor = self._launch("--port", str(self.port), "--rpc-port", rpc_port)
        end = time.monotonic() + _START_SECONDS
        while not self.workers():
            code = self.tarn.supervisor.poll()
            assert code is None, f"tarn up ended with {code}:\n{self.tarn.tail()}"
            assert time.monotonic() < end, f"tarn up took too long:\n{self.tarn.tail()}"
            await asyncio.sleep(_POLL_SECONDS)

    async def until_whole(self) -> None:
        """Returns when every worker serves.

        Raises:
            AssertionError: the workers do not all serve in time.
        """
        end = time.monotonic() + _START_SECONDS
        while True:
            state = self.tarn.state()
            if all(state["processes"].values()):
                return
            assert time.monotonic() < end, f"not every worker runs: {state}\n{self.tarn.tail()}"
            await asyncio.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Stops the node as an administrator does; every process must end by itself."""
        stop(self.tarn)


def _is_alive(process: psutil.Process) -> bool:
    """A zombie counts as dead: its new parent may reap it late."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def signal_process(pid: int, number: signal.Signals) -> bool:
    """Signals a process; whether it was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True

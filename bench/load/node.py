"""Tarn and the yardsticks as processes of a benchmark: started, measured, stopped.

Everything is tied to this process by `tarn_cli.node.lifeline`, so nothing outlives a benchmark that is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.load.client import address_of
from bench.load.processes import Processes, pinned
from bench.load.signing import Signer
from tests.support.unhandled import check_log

from tarn.rpc.process.system import SystemClock

__all__ = ["Form", "Node", "bulk_loop", "raw_loop", "running"]

_START_SECONDS = 600
"""A limit for a busy machine; some seconds are normal."""
_STOP_SECONDS = 60
_SERVER_CORE = {0}


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which Tarn runs.

    Attributes:
        durability: `os` or `fsync`.
        workers: processes of a single node; 0: one per core. In separate processes it is 1.
        separate: whether auth, graveler and gateway are separate processes.
        is_pinned: whether the server has core 0 to itself and everything else uses the other cores.
        cassandra: `host:port` of the nodes with the metadata; empty: the embedded store.
        compactor: whether a compactor runs, as it does by default. Without one, staged rows stay as a case made them.
        settings: further variables of its environment.
    """

    durability: str = "os"
    workers: int = 0
    separate: bool = False
    is_pinned: bool = False
    cassandra: tuple[str, ...] = ()
    compactor: bool = True
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        store = ", metadata in Cassandra" if self.cassandra else ""
        idle = "" if self.compactor else ", no compactor"
        if self.separate:
            return f"separate processes{idle}, {self.durability}{store}"
        count = self.workers or len(os.sched_getaffinity(0))
        where = ", own core" if self.is_pinned else ""
        return f"single node, {count} worker{'s' if count > 1 else ''}{where}{idle}, {self.durability}{store}"

    @property
    def server_cores(self) -> set[int] | None:
        """Cores that the server may use; None: all."""
        return _SERVER_CORE if self.is_pinned and len(os.sched_getaffinity(0)) > 1 else None

    @property
    def client_cores(self) -> set[int] | None:
        """Cores that all other processes may use."""
        return os.sched_getaffinity(0) - _SERVER_CORE if self.server_cores else None


@dataclass(slots=True)
class Node:
    """A running Tarn.

    Attributes:
        data: its data folder.
        endpoint: URL of the S3 endpoint.
        server: `host:port` of graveler's rpc.
        auth_server: `host:port` of auth's rpc.
        signer: signs requests of the admin.
        processes: its workers, and the processes that they started before the measurement.
        store: the processes of a metadata store outside of Tarn.
    """

    form: Form
    data: Path
    endpoint: str
    server: str
    auth_server: str
    access_key_id: str
    secret: str = field(repr=False)
    store: Processes = field(default_factory=lambda: Processes(()))
    signer: Signer = field(init=False)
    processes: Processes = field(init=False)

    def __post_init__(self) -> None:
        host = self.endpoint.removeprefix("http://")
        self.signer = Signer(host, self.access_key_id, self.secret, SystemClock())
        self.processes = self.workers()

    @property
    def address(self) -> tuple[str, int]:
        """Address of the S3 endpoint."""
        return address_of(self.endpoint)

    def workers(self) -> Processes:
        """The serving processes, as of now."""
        state = json.loads((self.data / "tarn.json").read_text())
        return Processes(state["processes"].values()).with_children()


@contextmanager
def running(folder: Path, form: Form) -> Iterator[Node]:
    """Starts a Tarn in its own folder and sets it up.

    Raises:
        RuntimeError: it does not start; the text quotes its log.
    """
    data, log = folder / "data", folder / "tarn.log"
    shape = ["--separate"] if form.separate else []
    if not form.separate:
        shape = ["--workers", str(form.workers or len(os.sched_getaffinity(0)))]
    command = [sys.executable, "-m", "tarn_cli", "up", "--data-dir", str(data), "--port", "0"]
    if form.cassandra:
        shape += ["--kv", f"cassandra://{','.join(form.cassandra)}"]
    environment = _environment() | {"TARN_DURABILITY": form.durability} | dict(form.settings)
    if not form.compactor:
        environment["TARN_COMPACTOR_ENABLED"] = "false"
    with log.open("ab") as output, pinned(form.server_cores):
        process = subprocess.Popen(
            _tied([*command, "--rpc-port", "0", *shape]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
        )
    try:
        _wait_until_up(process, data, log)
        yield _set_up(form, data, folder / "credentials")
    except BaseException:
        sys.stderr.write(f"end of Tarn's log:\n{_tail(log)}\n\n")
        raise
    finally:
        _stop(process, log)


def _environment() -> dict[str, str]:
    """Returns this environment without variables that configure a Tarn or its clients."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TARN_")}


def _tied(command: list[str]) -> list[str]:
    return [sys.executable, "-m", "tarn_cli.node.lifeline", str(os.getpid()), *command]


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])


def _wait_until_up(process: subprocess.Popen[bytes], data: Path, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not (data / "tarn.json").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Tarn does not start:\n{_tail(log)}")
        time.sleep(0.05)


def _set_up(form: Form, data: Path, settings: Path) -> Node:
    command = [sys.executable, "-m", "tarn_cli", "--json", "auth", "setup"]
    done = subprocess.run(
        [*command, "--data-dir", str(data), "--save", str(settings)],
        capture_output=True,
        check=False,
        timeout=60,
        env=_environment(),
    )
    if done.returncode:
        raise RuntimeError(f"tarn auth setup: {done.stderr.decode()}")
    made = json.loads(done.stdout)
    state = json.loads((data / "tarn.json").read_text())
    return Node(
        form=form,
        data=data,
        endpoint=state["endpoint"],
        server=state["server"],
        auth_server=state["auth_server"],
        access_key_id=made["access_key_id"],
        secret=made["secret_access_key"],
    )


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise RuntimeError(f"Tarn does not stop:\n{_tail(log)}") from None
    if code:
        raise RuntimeError(f"Tarn ended with {code}:\n{_tail(log)}")
    check_log(log)


@contextmanager
def raw_loop(form: Form) -> Iterator[tuple[tuple[str, int], Processes]]:
    """Runs the raw loop on the cores of Tarn's worker; yields its address and process."""
    with _yardstick(form, "small") as found:
        yield found


@contextmanager
def bulk_loop(form: Form, folder: Path, size: int) -> Iterator[tuple[tuple[str, int], Processes]]:
    """Runs the yardstick of large objects, with its files in a folder; it sends `size` bytes."""
    folder.mkdir(exist_ok=True)
    with _yardstick(form, "bulk", str(folder), str(size), form.durability) as found:
        yield found


@contextmanager
def _yardstick(form: Form, *arguments: str) -> Iterator[tuple[tuple[str, int], Processes]]:
    with pinned(form.server_cores):
        process = subprocess.Popen(
            _tied([sys.executable, "-m", "bench.load.rawloop", *arguments]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
    assert process.stdout is not None, "asked for above"
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the yardstick {arguments[0]} does not start")
        yield ("127.0.0.1", int(line)), Processes([process.pid])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

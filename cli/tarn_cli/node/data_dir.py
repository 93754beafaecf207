"""The data folder of a Tarn that runs on this machine, and the lock that admits one supervisor.

    tarn.lock        held by the supervisor while it runs
    tarn.json        state file: addresses and processes, rewritten at each change
    timers.json      last and next runs of timers (`tarn_cli.node.timers`)
    secret           the installation's secret, 64 hex digits, mode 0600, made once (`tarn.config`)
    logs/tarn.log    output of a detached Tarn; logs/<timer>.log: that of the last run of a timer
    kv/ blocks/      the embedded store and the local blocks (`tarn.kv.embedded`, `tarn.block.local`)

A state file without a held lock was left behind by a killed supervisor and is ignored.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from tarn_cli.exits import CliError, Exit
from tarn_cli.settings import Settings

__all__ = ["DataDir", "State"]

_LOCK_ATTEMPTS = 20
_LOCK_PAUSE_S = 0.025


@dataclass(frozen=True, slots=True)
class State:
    """The contents of the state file of a running Tarn.

    Attributes:
        pid: process id of the supervisor.
        endpoint: URL of the S3 endpoint.
        server: `host:port` of graveler's rpc.
        auth_server: `host:port` of auth's rpc; equal to `server` in a single-node Tarn.
        processes: process id of each worker by its name, 0 while it is being restarted.
        restart_count: workers that died and were started again.
        compactor_server: `host:port` of the compactor's rpc; empty if none runs.
        admin_addresses: `host:port` of the admin port of each process, by its name (`/metrics`).
        api: URL of the REST endpoint; empty: that of an earlier release, which has none.
    """

    pid: int
    endpoint: str
    server: str
    auth_server: str
    processes: dict[str, int]
    restart_count: int = 0
    compactor_server: str = ""
    admin_addresses: dict[str, str] = field(default_factory=dict)
    api: str = ""


def _lock(descriptor: int) -> bool:
    """Takes the lock. Retries for half a second: `is_locked` of another process holds it briefly."""
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
        else:
            return True
    return False


class DataDir:
    """One data folder.

    Args:
        path: the folder; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def log_file(self) -> Path:
        """Output of a detached Tarn."""
        return self.path / "logs" / "tarn.log"

    @property
    def secret_file(self) -> Path:
        """The installation's secret, unless the configuration gives one."""
        return self.path / "secret"

    @property
    def previous_secret_file(self) -> Path:
        """The other secret during a rotation; absent at all other times."""
        return self.path / "previous_secret"

    @property
    def _lock_file(self) -> Path:
        return self.path / "tarn.lock"

    @property
    def _state_file(self) -> Path:
        return self.path / "tarn.json"

    @property
    def _timers_file(self) -> Path:
        return self.path / "timers.json"

    def create(self) -> None:
        """Creates the folder, closed to other users of the machine.

        Raises:
            CliError: CONFLICT, the folder exists and other users may enter it.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = self.path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        if mode:
            text = f"other users of this machine may enter {self.path}, which holds secrets, keys and objects"
            raise CliError(Exit.CONFLICT, text, f"run `chmod 700 {self.path}`")
        self.log_file.parent.mkdir(mode=0o700, exist_ok=True)
        self.log_file.parent.chmod(0o700)  # earlier versions left it open

    def open_log(self) -> IO[bytes]:
        """Opens the log to append to, closed to other users."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.log_file, flags, 0o600)
        os.fchmod(descriptor, 0o600)
        return os.fdopen(descriptor, "ab")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock of the folder; the kernel releases it when the process ends.

        Raises:
            CliError: CONFLICT, another supervisor holds the lock.
        """
        self.create()
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _lock(descriptor):
                text = f"another Tarn already runs on {self.path}"
                raise CliError(Exit.CONFLICT, text, "`tarn status` shows it")
            self._state_file.unlink(missing_ok=True)
            try:
                yield
            finally:
                self._state_file.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def is_locked(self) -> bool:
        """Whether a supervisor runs on this folder."""
        try:
            descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def state(self) -> State | None:
        """The state of the running Tarn; None if none runs, or if it is still starting.

        Raises:
            CliError: FAILURE, the state file is damaged.
        """
        if not self.is_locked():
            return None
        try:
            return State(**json.loads(self._state_file.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            text = f"{self._state_file} is damaged: {error}"
            raise CliError(Exit.FAILURE, text, "stop Tarn and start it again") from error

    def write_state(self, state: State) -> None:
        """Replaces the state file atomically."""
        self._write(self._state_file, json.dumps(asdict(state), indent=2) + "\n")

    def timers(self) -> str:
        """The text of the file of timers.

        Raises:
            OSError: it cannot be read.
        """
        return self._timers_file.read_text()

    def write_timers(self, times: Mapping[str, object]) -> None:
        """Replaces the file of timers atomically."""
        self._write(self._timers_file, json.dumps(times, indent=2) + "\n")

    def forget_timers(self) -> None:
        """Removes the file of timers: no timer is on."""
        self._timers_file.unlink(missing_ok=True)

    def settings(self) -> Settings:
        """Addresses of the running Tarn, for commands; empty if none runs."""
        state = self.state()
        if state is None:
            return Settings()
        return Settings(
            server=state.server,
            auth_server=state.auth_server,
            endpoint=state.endpoint,
            compactor_server=state.compactor_server,
        )

    def _write(self, file: Path, text: str) -> None:
        # mkstemp makes the file with mode 0600.
        descriptor, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{file.name}.")
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(file)

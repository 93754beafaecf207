"""The command line for tests, without the second that Python takes to import it.

A server of forks (as in `multiprocessing`'s `forkserver`) imports the command line once. For each command it forks a
process, which takes over the arguments, the environment, the folder and the three streams of the caller and runs
`tarn_cli.__main__.main`: a process of its own, in which nothing ran before. Tests that are about the executable, about
signals or about start-up run the executable itself.
"""

from __future__ import annotations

import atexit
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["Done", "run"]

_HERE = Path(__file__).parent
_LENGTH = struct.Struct("!I")
_STATUS = struct.Struct("!i")
_STREAMS = 3
_IMPORTED = (
    "tarn_cli.__main__",
    "tarn_cli.collecting",
    "tarn_cli.connection",
    "tarn_cli.failures",
    "tarn_cli.objects",
    "tarn.collection.engine",
    "boto3.session",
)
"""What is imported before the forks, beside all commands."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdin: bytes | None = None,
    timeout_s: float = 60,
) -> Done:
    """Runs one `tarn` command in a process of its own, and returns when that has ended.

    Raises:
        subprocess.TimeoutExpired: it took longer, and was killed.
    """
    with (
        tempfile.TemporaryFile() as source,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        socket.socket(socket.AF_UNIX) as server,
    ):
        source.write(stdin or b"")
        source.seek(0)
        server.connect(str(_server()))
        server.settimeout(timeout_s)
        asked = [list(arguments), dict(environment), str(Path.cwd())]
        request = json.dumps(asked).encode(errors="surrogateescape")
        socket.send_fds(
            server, [_LENGTH.pack(len(request))], [source.fileno(), out.fileno(), err.fileno()]
        )
        server.sendall(request)
        (process,) = _STATUS.unpack(_received(server, _STATUS.size))
        try:
            (code,) = _STATUS.unpack(_received(server, _STATUS.size))
        except TimeoutError:
            os.kill(process, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["tarn", *arguments], timeout_s) from None
        out.seek(0)
        err.seek(0)
        return Done(code, out.read().decode(), err.read().decode())


@cache
def _server() -> Path:
    """Starts the server of this process; it ends with this process. Returns its socket."""
    folder = tempfile.TemporaryDirectory(prefix="tarn-cli-")
    path = Path(folder.name) / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(listener.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env={**os.environ, "PYTHONPATH": str(_HERE / "without_pandas")},
        )

    def end() -> None:
        process.kill()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return path


def _received(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        more = connection.recv(size - len(received))
        if not more:
            raise AssertionError("the process of a command of tarn ended without its exit code")
        received += more
    return received


def _import_everything() -> None:
    commands = import_module("tarn_cli.commands")
    for module in pkgutil.iter_modules(commands.__path__, "tarn_cli.commands."):
        import_module(module.name)
    for name in _IMPORTED:
        import_module(name)


def _serve(listener: socket.socket) -> list[str]:
    """Forks for each request; returns the arguments of a command in the process that is to run it.

    Ends with the process at the other end of its standard input.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
            sys.exit()
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                if (arguments := _forked(connection)) is not None:
                    return arguments
                os._exit(0)


def _forked(connection: socket.socket) -> list[str] | None:
    """Forks the process of one command, which returns the arguments. Tells the caller its id and exit code."""
    length, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, _STREAMS)
    request = _received(connection, *_LENGTH.unpack(length))
    arguments, environment, folder = json.loads(request.decode(errors="surrogateescape"))
    process = os.fork()
    if process == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        return list(arguments)
    connection.sendall(_STATUS.pack(process))
    _, status = os.waitpid(process, 0)
    connection.sendall(_STATUS.pack(os.waitstatus_to_exitcode(status)))
    return None


def _main() -> None:
    _import_everything()
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.argv = ["tarn", *arguments]
    import_module("tarn_cli.__main__").main(arguments)


if __name__ == "__main__":
    _main()

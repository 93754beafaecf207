"""Real Cassandra nodes for tests and developers, run from jars: no container, no installation.

    with CassandraNodes(folder) as nodes:           # one node answers CQL after some 4 s, in 1 GB
        store = await open_cassandra(CassandraSettings(nodes.contact_points, ...), ...)

Three nodes use 127.0.0.1 to 127.0.0.3 and share their port numbers; Linux needs no set-up for that. Every
node ends with the process that started it, however that process ends. The logs stay in `folder`. `python
-m tests.support.servers.cassandra_nodes` runs nodes until it gets a signal (`make cassandra`).
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import Template
from types import FrameType
from typing import IO, Self

from tests.support.servers.java_archives import cassandra_options

__all__ = ["CassandraNodes", "CassandraNodesError"]

_TOOLS = Path(__file__).parents[3] / "tools"
_RING = 1 << 64
_POLL_SECONDS = 0.1
_STOP_SECONDS = 20
_JARS_SECONDS = 900
_EXPORTS = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/java.lang.ref",
    "java.sql/java.sql",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.management/com.sun.jmx.remote.security",
    "jdk.unsupported/sun.misc",
    "jdk.attach/sun.tools.attach",
    "jdk.compiler/com.sun.tools.javac.file",
)
_OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/sun.nio.ch",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "jdk.management/com.sun.management.internal",
    "jdk.compiler/com.sun.tools.javac",
)
# Quick to start and small; none of these options weakens the durability of writes.
_JVM = (
    "-Xms512m",
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=256m",
    "-Xss384k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+CrashOnOutOfMemoryError",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dcassandra-foreground=yes",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=2000",
    "-Dcassandra.superuser_setup_delay_ms=0",
)


class CassandraNodesError(Exception):
    """A node does not start; the text names its log and quotes the end of it."""


class CassandraNodes:
    """One to three nodes of one cluster, in the data centre `datacenter1`.

    Args:
        folder: folder for data and logs; data of an earlier run is reused if the ports are the same.
        count: number of nodes.
        native_port: CQL port; None for a free one.
        storage_port: port between nodes, the same for the life of their data; None for a free one.
        start_seconds: limit for the start of one node; a busy machine takes long.
        behind_proxies: the nodes tell clients to connect to `advertised`, where a proxy must forward
            connections (`tests.support.faults.tcp_proxy`).
        settings: additional lines of cassandra.yaml.
        jvm: additional options of the JVM; they override those for tests. Without any, an archive of classes is used.
    """

    LOCAL_DATACENTER = "datacenter1"

    def __init__(
        self,
        folder: Path,
        count: int = 1,
        *,
        native_port: int | None = None,
        storage_port: int | None = None,
        start_seconds: float = 120,
        behind_proxies: bool = False,
        settings: str = "",
        jvm: Sequence[str] = (),
    ) -> None:
        if not 1 <= count <= 3:
            text = f"1 to 3 nodes, not {count}"
            raise ValueError(text)
        self._folder = folder
        self._addresses = [f"127.0.0.{n + 1}" for n in range(count)]
        self._advertised = (
            [f"127.0.1.{n + 1}" for n in range(count)] if behind_proxies else self._addresses
        )
        self._settings = settings
        self._jvm = tuple(jvm)
        self.native_port = native_port or _free_port({*self._addresses, *self._advertised})
        self._storage_port = storage_port or _free_port(self._addresses)
        self._start_seconds = start_seconds
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        # Nodes end with the thread that started them; the caller's thread may belong to a pool that ends.
        self._spawner = ThreadPoolExecutor(1, thread_name_prefix="cassandra")

    @property
    def contact_points(self) -> tuple[str, ...]:
        """`host:port` of every node, as the driver's settings take them."""
        return tuple(f"{address}:{self.native_port}" for address in self._advertised)

    @property
    def ways(self) -> tuple[tuple[str, str], ...]:
        """For each node: the address that clients use, and the address on which the node listens."""
        return tuple(zip(self._advertised, self._addresses, strict=True))

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the running nodes."""
        return tuple(process.pid for process in self._processes.values())

    def log(self, index: int) -> Path:
        """Returns the path of a node's log."""
        return self._folder / f"node{index + 1}" / "node.log"

    def __enter__(self) -> Self:
        try:
            for index in range(len(self._addresses)):
                self.start(index)
        except BaseException:
            self._stop_all()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop_all()
        self._spawner.shutdown()

    def start(self, index: int) -> None:
        """Starts a node, also one that was killed, and waits until it answers.

        Raises:
            CassandraNodesError: the node ends, or does not answer in time.
        """
        folder = self._folder / f"node{index + 1}"
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        self._write_yaml(index, folder)
        with self.log(index).open("ab") as log:
            self._processes[index] = self._spawner.submit(_spawn, folder, self._jvm, log).result()
        self._wait_for_cql(index, self.log(index))

    def kill(self, index: int) -> None:
        """Sends SIGKILL: acknowledged writes are on the node's disk, everything else is lost."""
        process = self._processes.pop(index)
        # SIGKILL also ends a stopped process.
        process.kill()
        process.wait(_STOP_SECONDS)

    def end(self, index: int, seconds: float) -> int:
        """Asks a node to end, and waits so long for it; returns its exit status."""
        process = self._processes.pop(index)
        process.terminate()
        return process.wait(seconds)

    def move(self, index: int, address: str) -> None:
        """Gives a killed node another address, as a pod of Kubernetes gets at each start."""
        self._addresses = [address if n == index else old for n, old in enumerate(self._addresses)]
        self._advertised = [
            address if n == index else old for n, old in enumerate(self._advertised)
        ]

    def pause(self, index: int) -> None:
        """Sends SIGSTOP: connections stay open without answers, as during a long garbage collection."""
        self._processes[index].send_signal(signal.SIGSTOP)

    def resume(self, index: int) -> None:
        """Ends a pause."""
        self._processes[index].send_signal(signal.SIGCONT)

    def _write_yaml(self, index: int, folder: Path) -> None:
        count = len(self._addresses)
        text = Template((_TOOLS / "cassandra/cassandra.yaml").read_text()).substitute(
            token=str(index * _RING // count - _RING // 2),
            address=self._addresses[index],
            advertised=self._advertised[index],
            seed=self._addresses[0],
            storage_port=self._storage_port,
            native_port=self.native_port,
            folder=folder,
        )
        (folder / "cassandra.yaml").write_text(f"{text}\n{self._settings}\n")

    def _wait_for_cql(self, index: int, log: Path) -> None:
        """Waits for the CQL port. It is opened last, so a node that accepts connections serves them."""
        process = self._processes[index]
        deadline = time.monotonic() + self._start_seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection((self._addresses[index], self.native_port), 1).close()
                return
            # Waits for the end of the process, so that a failed start is reported immediately.
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(_POLL_SECONDS)
                text = f"Cassandra ended with {code}; {log} ends with:\n{_tail(log)}"
                raise CassandraNodesError(text)
        text = f"Cassandra did not serve CQL after {self._start_seconds} s; {log} ends with:\n{_tail(log)}"
        raise CassandraNodesError(text)

    def _stop_all(self) -> None:
        """Kills all nodes; their data is no longer needed, so there is no flush or drain."""
        for index in list(self._processes):
            self.kill(index)

    def remove_data(self) -> None:
        """Deletes the data of stopped nodes; the logs stay."""
        for node in self._folder.glob("node*"):
            for part in ("data", "commitlog", "saved_caches", "hints", "cdc_raw", "tmp"):
                shutil.rmtree(node / part, ignore_errors=True)


def _spawn(folder: Path, jvm: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        _command(folder, jvm),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=folder,
    )


def _command(folder: Path, jvm: Sequence[str]) -> list[str]:
    jars = Path(_output(_TOOLS / "cassandra/jars"))
    java = Path(_output(_TOOLS / "java-home")) / "bin/java"
    (agent,) = jars.glob("jamm-*.jar")
    return [
        # The kernel kills the node when the thread that started it ends.
        *("setpriv", "--pdeathsig", "KILL", str(java)),
        *_JVM,
        *(jvm or cassandra_options()),
        *(f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS),
        *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS),
        f"-javaagent:{agent}",
        f"-Djava.io.tmpdir={folder / 'tmp'}",
        f"-Dcassandra.config=file://{folder / 'cassandra.yaml'}",
        f"-Dcassandra.storagedir={folder}",
        f"-Dcassandra.logdir={folder}",
        f"-Dlogback.configurationFile=file://{_TOOLS / 'cassandra/logback.xml'}",
        *("-cp", f"{jars}/*", "org.apache.cassandra.service.CassandraDaemon"),
    ]


def _output(tool: Path) -> str:
    try:
        done = subprocess.run(
            [str(tool)], capture_output=True, text=True, check=True, timeout=_JARS_SECONDS
        )
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", None) or ""
        text = f"{tool.name} failed; Cassandra needs Java 17 and Maven (make setup). {said}"
        raise CassandraNodesError(text) from error
    return done.stdout.strip()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])


def _free_port(addresses: Iterable[str]) -> int:
    """Returns a port that is free on all of the addresses.

    Another process may take it before the node does; the start then fails with an error.
    """
    while True:
        with contextlib.ExitStack() as stack:
            port = 0
            try:
                for address in addresses:
                    bound = stack.enter_context(socket.socket())
                    bound.bind((address, port))
                    port = int(bound.getsockname()[1])
            except OSError:
                continue
            return port


def main() -> None:
    """Runs nodes until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="Cassandra nodes until SIGTERM.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--port", type=int, default=9042)
    parser.add_argument("--storage-port", type=int, default=7000)
    parser.add_argument("--ready", type=Path, help="file to create when all nodes answer")
    options = parser.parse_args()

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    nodes = CassandraNodes(
        options.folder.absolute(),
        options.count,
        native_port=options.port,
        storage_port=options.storage_port,
    )
    with contextlib.suppress(KeyboardInterrupt), nodes:
        if options.ready:
            options.ready.touch()
        signal.pause()


if __name__ == "__main__":
    main()

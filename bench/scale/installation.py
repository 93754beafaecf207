"""An installation of N gateways and N replicas of graveler on Cassandra, by `tarn`'s own commands."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load.node import Form, Node, running
from bench.load.processes import Processes
from bench.load.signing import Signer
from bench.scale.counters import Counts, NodeViews, Place, counts_of

from tarn.rpc.process.system import SystemClock

__all__ = ["Installation", "installed"]

_START_SECONDS = 300
_STOP_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Installation:
    """A running installation.

    Attributes:
        node: what `tarn up --separate` started: auth, graveler, a gateway and the REST endpoint; no compactor.
        signers: one for each gateway, whose host is that of the gateway.
        places: where the counters of each process are, by its name.
        views: counters of Cassandra.
        store: processes of Cassandra; none if it runs elsewhere.
    """

    node: Node
    signers: tuple[Signer, ...]
    places: Mapping[str, Place]
    views: NodeViews
    store: Processes

    def counts(self) -> Counts:
        """Counts everything now."""
        return counts_of(self.places, self.views, self.store)


@contextmanager
def installed(
    folder: Path, replicas: int, contact_points: tuple[str, ...], store: Processes
) -> Iterator[Installation]:
    """Starts an installation with its metadata in a keyspace of its own.

    `tarn up --separate` starts the first process of each service. The gateway among them knows one replica of graveler
    only, so it gets no requests if there are several.

    Args:
        folder: for its data and logs; it is made.
        replicas: number of gateways with requests, and of replicas of graveler.
        contact_points: `host:port` of every node of Cassandra.
        store: processes of Cassandra.
    """
    folder.mkdir(parents=True)
    keyspace = f"scale_{os.getpid()}_{replicas}"
    points = (*contact_points[:-1], f"{contact_points[-1]}/{keyspace}")
    with ExitStack() as stack:
        form = Form("os", separate=True, cassandra=points, compactor=False)
        node = stack.enter_context(running(folder, form))
        state = json.loads((node.data / "tarn.json").read_text())
        places = {
            name: Place(address, state["processes"][name])
            for name, address in state["admin_addresses"].items()
        }
        views = NodeViews(contact_points, keyspace)
        stack.callback(views.close)
        more = _More(stack, folder, places)
        gravelers = [
            node.server,
            *(more.start("graveler", number) for number in range(1, replicas)),
        ]
        signers = [node.signer]
        if replicas > 1:
            known = {"TARN_SERVICES_GRAVELER_ADDRESSES": ",".join(gravelers)}
            hosts = [more.start("gateway", number, known) for number in range(replicas)]
            signers = [
                Signer(host, node.access_key_id, node.secret, SystemClock()) for host in hosts
            ]
        yield Installation(node, tuple(signers), more.places, views, store)


class _More:
    """Starts further processes of services, with the settings of the first one."""

    def __init__(self, stack: ExitStack, folder: Path, places: Mapping[str, Place]) -> None:
        self._stack = stack
        self._folder = folder
        self.places = dict(places)

    def start(self, service: str, number: int, settings: Mapping[str, str] | None = None) -> str:
        """Starts `tarn-gateway` or `tarn-graveler`; returns the address at which it serves."""
        name = f"{service}-{number + 1}x"
        port, admin_port = _free_ports(2)
        own = {
            "gateway": "TARN_GATEWAYS_S3_LISTEN_ADDRESS",
            "graveler": "TARN_RPC_LISTEN_ADDRESS",
        }[service]
        told = Path(f"/proc/{self.places[service].pid}/environ").read_text().split("\0")
        variables = dict(each.split("=", 1) for each in told if "=" in each)
        variables.pop("TARN_READY_FD", None)
        variables |= {
            own: f"127.0.0.1:{port}",
            "TARN_TELEMETRY_ADMIN_ADDRESS": f"127.0.0.1:{admin_port}",
            **(settings or {}),
        }
        log = self._folder / f"{name}.log"
        process = self._stack.enter_context(_process(f"tarn_{service}", variables, log))
        _wait_until_it_listens(port, process, log)
        self.places[name] = Place(f"127.0.0.1:{admin_port}", process.pid)
        return f"127.0.0.1:{port}"


@contextmanager
def _process(
    module: str, variables: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a module until the context ends; it ends with this process, however that ends."""
    lifeline = [sys.executable, "-m", "tarn_cli.node.lifeline", str(os.getpid())]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*lifeline, sys.executable, "-m", module],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=variables,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    """Returns ports that are free; another process may take one before it is used."""
    with ExitStack() as stack:
        bound = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(each.getsockname()[1]) for each in bound]


def _wait_until_it_listens(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"it does not start:\n{log.read_text()[-2000:]}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return

"""Gateways of one release before graveler and auth of another, as in the middle of a rollout, and their judge."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from chaos.clients import Habits
from chaos.fault_schedule import FaultProfile
from chaos.node import Node
from chaos.run import Plan, Run, play
from chaos.s3 import Target
from running_tarn import START_SECONDS, STOP_SECONDS, clean_environment
from tests.support.unhandled import check_log

__all__ = ["judged", "other_gateway", "separate_node"]

_DROP_SECONDS = 2
_SETTINGS = {
    "TARN_GRAVELER_DROP_DELAY": f"{_DROP_SECONDS}s",
    "TARN_GRAVELER_CLEANUP_POLL": "500ms",
}
_FAULTS = FaultProfile(pause_seconds=(2, 2), blind_rate=1.0, kinds=(("kill", 1),))
"""They kill any process of the services, busy or not."""


def separate_node(folder: Path, code: Mapping[str, str], *options: str, **settings: str) -> Node:
    """Returns a node with a process for each service, which has the same addresses after a restart.

    Args:
        folder: of the node; it is made.
        code: variables that choose the release of its processes.
        options: further options of `tarn up`.
        settings: further variables.
    """
    folder.mkdir(parents=True)
    every = ("--separate", "--rpc-port", str(_rpc_port()), *options)
    return Node(folder, every, {**_SETTINGS, **settings, **code})


async def judged(endpoints: Sequence[str], nodes: Sequence[Node], seed: int) -> Run:
    """Plays writers, readers and committers while services are killed; the checker judges their history.

    Args:
        endpoints: the gateways that clients use.
        nodes: their services; those of the first one create the repository and log clients in.
        seed: of clients and faults.
    """
    tarn = nodes[0].tarn
    tarn.ok("repo", "create", "chaos")
    tarn.ok("branch", "create", "chaos/dev")
    target = Target(
        tuple(endpoints),
        tuple(each.tarn.server for each in nodes),
        tarn.auth_server,
        tarn.access_key_id,
        tarn.secret_access_key,
    )
    plan = Plan(
        seed=seed,
        seconds=5,
        clients=4,
        drop_seconds=_DROP_SECONDS,
        habits=Habits(think_seconds=0.02),
        profile=_FAULTS,
    )
    run = await play(plan, target, nodes)
    assert [str(violation) for violation in run.violations] == []
    done = {each.kind.value for each in run.ledger.history.ops if each.is_ok}
    assert {"put", "get", "list", "delete", "commit"} <= done
    killed = {name for event in run.events for name in event.whom}
    assert killed & {"auth", "graveler"}, f"the seed {seed} kills only {killed}"
    return run


def _rpc_port() -> int:
    """Returns a port for graveler that is free, as the one below it is, which auth takes."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as graveler, socket.socket() as auth:
            port = int(graveler.getsockname()[1])
            try:
                auth.bind(("127.0.0.1", port - 1))
            except OSError:
                continue
            return port


@contextmanager
def other_gateway(
    folder: Path, services: Node, code: Mapping[str, str], **settings: str
) -> Iterator[str]:
    """Starts a gateway; yields its endpoint, and stops it as an administrator does.

    Args:
        folder: for its log and its data; it is made.
        services: the node whose auth and graveler it uses, a `separate_node`.
        code: variables that choose the release of the gateway.
        settings: further variables.
    """
    folder.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = int(held.getsockname()[1])
    variables = {
        "TARN_DATA_DIR": str(folder / "data"),
        "TARN_GATEWAYS_S3_LISTEN_ADDRESS": f"127.0.0.1:{port}",
        "TARN_INSTALLATION_SECRET_FILE": str(services.tarn.data / "secret"),
        "TARN_SERVICES_AUTH_ADDRESSES": services.tarn.auth_server,
        "TARN_SERVICES_GRAVELER_ADDRESSES": services.tarn.server,
        "TARN_BLOCKSTORE_LOCAL_PATH": str(services.tarn.data / "blocks"),
        **settings,
        **code,
    }
    lifeline = (sys.executable, "-m", "tarn_cli.node.lifeline", str(os.getpid()))
    log = folder / "gateway.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*lifeline, sys.executable, "-m", "tarn_gateway"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=clean_environment(PYTHONWARNINGS="always::ResourceWarning", **variables),
        )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _wait_until_it_listens(endpoint, process, log)
        yield endpoint
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            code_of_exit = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the gateway did not stop:\n{log.read_text()}") from None
    assert code_of_exit == 0, f"the gateway ended with {code_of_exit}:\n{log.read_text()}"
    check_log(log)


def _wait_until_it_listens(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    place = urlsplit(endpoint)
    end = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, f"the gateway ended:\n{log.read_text()}"
        assert time.monotonic() < end, f"the gateway takes too long:\n{log.read_text()}"
        try:
            socket.create_connection((place.hostname or "", place.port or 0), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return

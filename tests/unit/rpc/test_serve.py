"""Real processes under `serve`: they start, report that, answer, and stop in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.support.servers.toy_service import SERVICE, call_in, failure, lookup, transport_to
from tests.support.unhandled import check_log, defects_in

from tarn.core.errors import Kind
from tarn.rpc.server.health_server import LIVE, READY
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

pytestmark = pytest.mark.system

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
grpc_loop = pytest.mark.asyncio(loop_scope="session")

PROGRAM = """
import asyncio, sys
from tarn.rpc.process.serve import AdminPort, ServeConfig, serve
from tarn.rpc.server.grpc_server import ServerConfig
from tarn.rpc.process.log import LogConfig
from tarn.core.errors import Kind, Reason, TarnError
from tests.support.servers.toy_service import Toy

class App:
    def __init__(self, name, runtime):
        self.name, self.runtime, self.toy = name, runtime, Toy()
    @property
    def endpoints(self):
        return [self.toy.endpoint] if self.name == "inner" else []
    async def __aenter__(self):
        {enter}
        print("enter", self.name, flush=True)
        self.runtime.listens(self.name, "nowhere")
        return self
    async def __aexit__(self, *exc):
        print("exit", self.name, flush=True)
    async def drain(self, timeout_s):
        print("drain", self.name, flush=True)
        {drain}

async def build(runtime):
    return [App("inner", runtime), App("outer", runtime)]

sys.exit(serve(build, ServeConfig(
    "toy", ServerConfig("127.0.0.1:0"), health={health!r}, drain_seconds={seconds}, ready_fd={fd},
    log=LogConfig(output={log!r}), admin={admin},
)))
"""


def free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


class Process:
    """A program under `serve`."""

    def __init__(
        self, log: Path, enter: str, drain: str, seconds: float, health: str | None, admin: str
    ) -> None:
        read, write = os.pipe()
        text = textwrap.dedent(PROGRAM).format(
            enter=enter,
            drain=drain,
            seconds=seconds,
            fd=write,
            log=str(log),
            health=health,
            admin=admin,
        )
        self._log = log
        self._ready = os.fdopen(read, encoding="utf-8")
        self._popen = subprocess.Popen(
            [sys.executable, "-c", text],
            pass_fds=[write],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(write)

    def ready(self) -> dict[str, str]:
        """Waits until it serves; returns its addresses."""
        addresses: dict[str, str] = json.loads(self._ready.readline())["addresses"]
        return addresses

    def tell(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def until_it_logs(self, event: str) -> None:
        for _ in range(500):
            if self._log.exists() and f'"event":"{event}"' in self._log.read_text():
                return
            time.sleep(0.01)
        raise AssertionError(f"{event!r} is not in the log")

    def end(self) -> tuple[int, list[str]]:
        """Waits for its end; returns exit code and output."""
        out, err = self._popen.communicate(timeout=20)
        assert defects_in(err) == [], err
        return self._popen.returncode, out.splitlines()

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self._log.read_text().splitlines()]

    def close(self) -> None:
        self._ready.close()
        if self._popen.poll() is None:
            self._popen.kill()
            self._popen.communicate()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def begin(
        enter: str = "pass",
        drain: str = "pass",
        seconds: float = 5.0,
        health: str | None = None,
        admin: str = "None",
    ) -> Process:
        started.append(Process(tmp_path / "log", enter, drain, seconds, health, admin))
        return started[-1]

    yield begin
    for process in started:
        process.close()


def test_an_error_that_is_never_retrieved_is_logged(start: Start, tmp_path: Path) -> None:
    process = start(
        enter="asyncio.get_running_loop().create_future().set_exception(OSError(5, 'never retrieved'))"
    )
    process.ready()
    process.tell(signal.SIGTERM)
    assert process.end()[0] == 0
    found = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    line, _ = [each for each in found if each["event"] == "unhandled error"]  # of each application
    assert line["level"] == "error"
    assert line["what"] == "Future exception was never retrieved"
    assert "never retrieved" in line["exception"]
    with pytest.raises(AssertionError, match="reports 2 defects"):
        check_log(tmp_path / "log")


def test_a_coroutine_that_is_never_awaited_is_logged(start: Start, tmp_path: Path) -> None:
    process = start(enter="asyncio.sleep(0)")
    process.ready()
    process.tell(signal.SIGTERM)
    assert process.end()[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert sum("was never awaited" in line["event"] for line in lines) >= 1


def test_applications_start_in_order_and_stop_in_reverse_order(start: Start) -> None:
    process = start()
    addresses = process.ready()
    assert addresses.keys() == {"inner", "outer", "grpc"}
    assert addresses["grpc"].startswith("127.0.0.1:")
    assert not addresses["grpc"].endswith(":0")

    process.tell(signal.SIGTERM)

    code, printed = process.end()
    assert code == 0
    assert printed == [
        "enter inner",
        "enter outer",
        "drain outer",
        "drain inner",
        "exit outer",
        "exit inner",
    ]
    assert process.events() == ["ready", "stopping", "stopped"]


@grpc_loop
async def test_endpoints_of_applications_are_served(start: Start) -> None:
    process = start(seconds=0.2)  # one operation never ends
    transport = transport_to(process.ready()["grpc"])
    result = await transport.operate(SERVICE, *lookup("a"), call_in())
    slow = transport.operate(SERVICE, *lookup("wait"), call_in(1.0))
    assert (await failure(slow)).kind is Kind.DEADLINE
    await transport.close()
    assert isinstance(result, pb.LookupResult)
    assert result.entry == b"a"
    process.tell(signal.SIGINT)
    assert process.end()[0] == 0


def page_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        page: str = answer.read().decode()
        return page


@grpc_loop
async def test_the_admin_port_serves_the_metrics_of_the_process(start: Start) -> None:
    process = start(admin='AdminPort("127.0.0.1:0", is_required=True)')
    addresses = process.ready()
    transport = transport_to(addresses["grpc"])
    await transport.operate(SERVICE, *lookup("a"), call_in(5.0))
    await transport.close()
    page = await asyncio.to_thread(page_of, f"http://{addresses['admin']}/metrics")
    assert (
        'tarn_rpc_duration_seconds_count{method="/tarn.graveler.v1.EntryService/Operate"} 1' in page
    )
    assert 'tarn_build_info{service="toy",version="' in page
    assert "tarn_process_resident_memory_bytes " in page
    process.tell(signal.SIGTERM)
    assert process.end()[0] == 0


def test_the_admin_port_is_open_while_the_process_starts(start: Start) -> None:
    admin = free_address()
    process = start(enter="await asyncio.sleep(3600)", admin=f"AdminPort({admin!r}, True)")
    for _ in range(500):
        try:
            with urllib.request.urlopen(f"http://{admin}/metrics", timeout=10) as answer:
                assert b"tarn_build_info" in answer.read()
                break
        except OSError:
            time.sleep(0.01)
    else:
        raise AssertionError("the admin port never opened")
    process.tell(signal.SIGTERM)
    assert process.end()[0] == 0


@pytest.mark.parametrize("is_required", [True, False])
def test_a_taken_admin_port_stops_a_process_only_if_it_was_asked_for(
    start: Start, is_required: bool
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        process = start(admin=f"AdminPort({taken!r}, {is_required})")
        if is_required:
            assert process.end()[0] == 1
            assert process.events() == ["cannot run"]
            return
        assert "admin" not in process.ready()
        process.until_it_logs("ready")
        assert process.events() == ["no admin port", "ready"]
        process.tell(signal.SIGTERM)
        assert process.end()[0] == 0


def test_second_signal_does_not_wait_for_the_drain(start: Start) -> None:
    process = start(drain="await asyncio.sleep(60)", seconds=60)
    process.ready()
    process.tell(signal.SIGTERM)
    process.until_it_logs("stopping")
    process.tell(signal.SIGTERM)

    code, printed = process.end()
    assert code == 0
    assert printed[-2:] == ["exit outer", "exit inner"]


def test_drain_that_ignores_its_limit_is_cut(start: Start) -> None:
    process = start(drain="await asyncio.sleep(60)", seconds=0.1)
    process.ready()
    process.tell(signal.SIGTERM)

    assert process.end()[0] == 0
    assert "drain took too long" in process.events()


def test_failed_drain_does_not_keep_others_from_theirs(start: Start) -> None:
    process = start(drain="raise ZeroDivisionError")
    process.ready()
    process.tell(signal.SIGTERM)

    assert process.end()[1][2:4] == ["drain outer", "drain inner"]
    assert process.events().count("drain failed") == 2


def test_application_that_cannot_start_ends_the_process_with_a_reason(start: Start) -> None:
    failing = 'raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no store") '
    process = start(enter=f'if self.name == "outer": {failing}')

    code, printed = process.end()
    assert code == 1
    assert printed == ["enter inner", "exit inner"]
    assert process.events() == ["cannot run"]


def test_stop_while_starting_is_obeyed(start: Start) -> None:
    process = start(enter='print("starting", flush=True); await asyncio.sleep(60)')
    assert process._popen.stdout is not None
    assert process._popen.stdout.readline() == "starting\n"
    process.tell(signal.SIGTERM)

    assert process.end()[0] == 0
    assert "stopped while starting" in process.events()


def test_application_may_end_the_process_while_it_serves(start: Start) -> None:
    stop = 'add_signal_handler(signal.SIGUSR2, self.runtime.stop, "disk is full")'
    process = start(enter=f"import signal; asyncio.get_running_loop().{stop}")
    process.ready()
    process.tell(signal.SIGUSR2)

    assert process.end()[0] == 1
    assert "stopped by itself" in process.events()


def test_application_may_end_the_process_before_it_serves(start: Start) -> None:
    process = start(enter='asyncio.get_running_loop().call_soon(self.runtime.stop, "disk is full")')

    assert process.end()[0] == 1
    assert "stopped by itself" in process.events()


def health_of(address: str, service: str) -> int:
    """Returns the status that the health checks tell for a service."""
    with grpc.insecure_channel(address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            HealthCheckRequest.SerializeToString,
            HealthCheckResponse.FromString,
        )
        status: int = check(
            HealthCheckRequest(service=service), timeout=10, wait_for_ready=True
        ).status
        return status


def test_probes_see_start_service_and_drain(start: Start, tmp_path: Path) -> None:
    """A process that starts slowly, or drains for long, is alive and not ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    entered, drained = tmp_path / "may enter", tmp_path / "may end"
    wait = "\n        ".join(
        ("import pathlib", "while not pathlib.Path({!r}).exists(): await asyncio.sleep(0.01)")
    )
    process = start(
        enter=wait.format(str(entered)), drain=wait.format(str(drained)), health=address
    )

    def seen() -> list[bool]:
        return [health_of(address, name) == HealthCheckResponse.SERVING for name in (LIVE, READY)]

    starting = seen()
    entered.touch()
    assert process.ready()["health"] == address
    serving = seen()
    process.tell(signal.SIGTERM)
    process.until_it_logs("stopping")
    draining = seen()
    drained.touch()
    assert process.end()[0] == 0
    assert (starting, serving, draining) == ([True, False], [True, True], [True, False])

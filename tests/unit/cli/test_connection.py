import random
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from certificates import Authority
from running_tarn import clean_environment
from tests.support.servers.toy_service import Toy

from tarn.core.errors import Kind, TarnError
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.process.tls import server_credentials
from tarn.rpc.server.grpc_server import RpcServer, ServerConfig
from tarn.telemetry.meters import Meters
from tarn.telemetry.tracing import Tracing
from tarn_cli.connection import collect, connect, connect_to_compactor
from tarn_cli.settings import Settings


@dataclass(frozen=True, slots=True)
class NumberPage:
    numbers: list[int]
    next_page_token: str


class Numbers:
    """A listing of `count` numbers, in pages of the requested size."""

    def __init__(self, count: int, page_max: int = 1000) -> None:
        self.count = count
        self.page_max = page_max
        self.requests: list[tuple[int, str]] = []

    async def page(self, size: int, token: str) -> NumberPage:
        self.requests.append((size, token))
        start = int(token or 0)
        end = min(self.count, start + min(size, self.page_max))
        return NumberPage(list(range(start, end)), str(end) if end < self.count else "")


@pytest.mark.parametrize(("count", "limit"), [(0, 0), (5, 0), (2500, 0), (2500, 7), (2500, 1500)])
async def test_as_many_pages_are_read_as_the_limit_needs(count: int, limit: int) -> None:
    numbers = Numbers(count)
    found = await collect(numbers.page, lambda page: page.numbers, limit)
    assert found == list(range(min(count, limit) if limit else count))
    assert all(int(token or 0) + size <= limit for size, token in numbers.requests if limit)


async def test_short_and_empty_pages_are_no_end() -> None:
    numbers = Numbers(10, page_max=3)
    assert await collect(numbers.page, lambda page: page.numbers, 8) == list(range(8))
    assert len(numbers.requests) == 3


@pytest.mark.asyncio(loop_scope="session")  # grpc.aio shares one poller
async def test_commands_reach_services_that_require_certificates(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("service")
    clock = SystemClock()
    ids = SystemIds(clock)
    server = RpcServer(
        [Toy().endpoint],
        ServerConfig("127.0.0.1:0"),
        clock=clock,
        ids=ids,
        meters=Meters(),
        tracing=Tracing(None, 0, random.Random(1)),
        credentials=server_credentials(files),
    )
    address = await server.start()
    plain = Settings(server=address)
    known = Settings(
        server=address,
        rpc_tls_ca=str(files.authority),
        rpc_tls_cert=str(files.certificate),
        rpc_tls_key=str(files.key),
    )

    async def kind(settings: Settings) -> Kind:
        async with connect(settings, clock, ids, 2.0, log_in=False) as tarn:
            with pytest.raises(TarnError) as caught:
                await tarn.auth.get_setup_state(tarn.call())
        return caught.value.kind

    async def compactor_kind(settings: Settings) -> Kind:
        there = replace(settings, compactor_server=address)
        async with (
            connect(settings, clock, ids, 2.0, log_in=False) as tarn,
            connect_to_compactor(there, clock) as compactor,
        ):
            with pytest.raises(TarnError) as caught:
                await compactor.resume(tarn.call())
        return caught.value.kind

    try:
        for ask in (kind, compactor_kind):
            # The server was reached, and has no such service.
            assert await ask(known) is Kind.UNIMPLEMENTED
            assert await ask(plain) in {Kind.UNAVAILABLE, Kind.DEADLINE}
    finally:
        await server.close()


def without_a_server(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command with a key; in a process of its own, because grpc.aio shares one poller among loops."""
    key = {"TARN_ACCESS_KEY_ID": "TARNKEY", "TARN_SECRET_ACCESS_KEY": "s" * 40}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=clean_environment(HOME=str(folder), **key),
        cwd=folder,
        timeout=50,
        check=False,
    )


IMPATIENT = """
import sys
import tarn_cli.session
from tarn_cli.__main__ import main

tarn_cli.session._PATIENCE_S = 0.2
main(sys.argv[1:])
"""


@pytest.mark.parametrize("quiet", [False, True])
def test_a_command_tells_that_it_waits_for_the_server(tmp_path: Path, quiet: bool) -> None:
    flags = ["--server", "127.0.0.1:1", "--timeout", "1", *(["--quiet"] if quiet else [])]
    done = without_a_server([sys.executable, "-c", IMPATIENT, *flags, "repo", "list"], tmp_path)
    remark, error = "no answer from 127.0.0.1:1 yet; trying on", done.stderr.splitlines()[-1]
    assert done.stderr.splitlines() == ([error] if quiet else [remark, error])
    assert "cannot connect" in error
    assert done.returncode != 0


def test_the_output_of_a_command_has_no_log_lines(tmp_path: Path) -> None:
    """A server with a name is looked up, and the look-up is logged; a program parses the output."""
    flags = ["--server", "localhost:1", "--timeout", "3", "repo", "list", "--json"]
    done = without_a_server([sys.executable, "-m", "tarn_cli", *flags], tmp_path)
    assert done.returncode != 0
    assert done.stdout == ""

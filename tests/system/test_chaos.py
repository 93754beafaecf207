"""Real processes are killed, stopped and restarted while clients work: the promises hold."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.clients import Habits
from chaos.installation import installation
from chaos.run import Plan, play
from chaos.sockets import waiting_for
from chaos.wire import BrokenError, Wires

HITS = 6
FAULT_SECONDS = 400.0
"""Greatest length: each kill costs the start of a worker, which takes long on a busy machine."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_during_operations_break_no_promise(tmp_path: Path) -> None:
    with installation(tmp_path) as (target, nodes):
        run = asyncio.run(play(Plan(seed=1, seconds=FAULT_SECONDS, hits=HITS), target, nodes))
    print(*run.lines(), sep="\n")  # noqa: T201 - the counts belong into the log of a test run
    assert [str(violation) for violation in run.violations] == []
    assert run.hits >= HITS
    assert any(each.is_ok and each.kind == "commit" for each in run.ledger.history.ops)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_node_that_acknowledges_too_early_is_detected(tmp_path: Path) -> None:
    plan = Plan(seed=1, seconds=4, clients=4, drop_seconds=0, habits=Habits(think_seconds=0.02))
    options = ("--workers", "2")
    with installation(tmp_path, options, without="write-is-durable") as (target, nodes):
        run = asyncio.run(play(plan, target, nodes))
    assert {violation.invariant for violation in run.violations} & {"I1", "I3", "I4"}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def port_of(end: socket.socket) -> int:
    port: int = end.getsockname()[1]
    return port


def test_a_request_is_open_from_accepting_the_connection_to_the_answer(
    listener: socket.socket,
) -> None:
    port, here = port_of(listener), os.getpid()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert waiting_for(port, [here]) == {}
        server, _ = listener.accept()
        with server:
            assert waiting_for(port, [here]) == {port_of(client): here}
            assert waiting_for(port, [os.getppid()]) == {}
            server.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            assert waiting_for(port, [here]) == {}


ANSWERS = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "half a body": b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_a_connection_that_ends_before_its_answer_is_a_hit(
    listener: socket.socket, answer: bytes
) -> None:
    wires = Wires()
    wire = await wires.open("127.0.0.1", port_of(listener))
    server, _ = listener.accept()
    server.sendall(answer)
    server.shutdown(socket.SHUT_WR)
    with pytest.raises(BrokenError):
        await wire.ask("GET", b"GET / HTTP/1.1\r\n\r\n", b"")
    assert wire.exchange.is_broken
    server.close()
    wires.close(wire)


async def test_a_client_that_hangs_up_is_not_a_hit(listener: socket.socket) -> None:
    wires = Wires()
    wire = await wires.open("127.0.0.1", port_of(listener))
    server, _ = listener.accept()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await wire.ask("GET", b"GET / HTTP/1.1\r\n\r\n", b"")
    assert not wire.exchange.is_broken
    assert [*wires.outstanding()] == []
    server.close()
    wires.close(wire)

"""Threads that wait a moment for clients that take a file."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarn_gateway.http.patience import Patience
from tarn_gateway.http.sender import WAITS_MAX, _sendfile_piece

pytestmark = pytest.mark.timeout(20)

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client:
            server, _ = listener.accept()
            with server:
                server.setblocking(False)
                yield server, client


def fill(server: socket.socket) -> int:
    """Sends until the socket takes no more; returns the bytes."""
    sent = 0
    while True:
        try:
            sent += server.send(bytes(1 << 20))
        except BlockingIOError:
            return sent


def test_a_full_socket_is_given_up_and_one_with_room_is_not(pair: Pair) -> None:
    server, _ = pair
    patience = Patience(1, 1)
    assert patience.wait(server.fileno())
    fill(server)
    assert not patience.wait(server.fileno())


def test_the_wait_ends_when_the_client_has_read(pair: Pair) -> None:
    server, client = pair
    left = fill(server)

    def read() -> None:
        nonlocal left
        while left:
            left -= len(client.recv(1 << 20))

    with_time = Patience(1, 20_000)
    reader = threading.Thread(target=read)
    reader.start()
    assert with_time.wait(server.fileno())
    reader.join()


def test_the_wait_ends_when_the_client_leaves(pair: Pair) -> None:
    server, client = pair
    fill(server)
    client.close()
    assert Patience(1, 20_000).wait(server.fileno())


def test_with_all_permits_taken_a_thread_does_not_wait(pair: Pair) -> None:
    server, client = pair
    fill(server)
    patience = Patience(1, 20_000)
    first = threading.Thread(target=patience.wait, args=(server.fileno(),))
    first.start()
    while patience._permits._value:  # until the first one waits
        pass
    # Without the permit it returns at once, although the descriptor is ready.
    assert not patience.wait(client.fileno())
    client.close()
    first.join()
    assert patience.wait(server.fileno())  # the permit is back


def test_a_turn_ends_after_so_many_waits(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that reads little by little, or a kernel that says room and takes nothing, keeps no thread."""
    (tmp_path / "f").write_bytes(bytes(1000))
    calls = []

    def full(*_: int) -> int:
        calls.append(1)
        raise BlockingIOError

    monkeypatch.setattr(os, "sendfile", full)
    with (tmp_path / "f").open("rb") as file:
        got = _sendfile_piece(pair[0].fileno(), file.fileno(), 0, 1000, Patience(1, 1))
    assert got == (0, True)
    assert len(calls) == WAITS_MAX + 1

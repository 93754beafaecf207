"""Slow clients: uploads that send a little at a time during a measurement."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench.load.signing import Request

__all__ = ["SlowClients", "slow_clients"]


@dataclass(slots=True)
class SlowClients:
    """Progress of the slow clients.

    Attributes:
        sent: bytes of bodies sent.
        lost: connections that the server closed or answered too early.
        open: connections that are still open.
    """

    sent: int = 0
    lost: int = 0
    open: int = 0


@contextmanager
def slow_clients(
    address: tuple[str, int], heads: Sequence[Request], piece: bytes, every_s: float
) -> Iterator[SlowClients]:
    """Opens a connection for each head, and sends `piece` on each every `every_s` seconds.

    This runs in a thread that mostly sleeps. Bytes that the socket does not take immediately are not sent
    again, so the bodies must be too long to be completed.
    """
    slow = SlowClients()
    stop = threading.Event()
    connections: list[socket.socket] = []
    try:
        for request in heads:
            connections.append(socket.create_connection(address, timeout=30))
            connections[-1].sendall(request.head)
            connections[-1].setblocking(False)
        slow.open = len(connections)
        thread = threading.Thread(target=_run, args=(slow, connections, piece, every_s, stop))
        thread.start()
        try:
            yield slow
        finally:
            stop.set()
            thread.join()
    finally:
        for connection in connections:
            connection.close()


def _run(
    slow: SlowClients,
    connections: list[socket.socket],
    piece: bytes,
    every_s: float,
    stop: threading.Event,
) -> None:
    alive = list(connections)
    pause = every_s / max(1, len(alive))
    while alive and not stop.is_set():
        for connection in list(alive):
            try:
                slow.sent += connection.send(piece)
            except BlockingIOError:
                pass
            except OSError:
                alive.remove(connection)
                slow.lost += 1
                slow.open -= 1
            if stop.wait(pause):
                return

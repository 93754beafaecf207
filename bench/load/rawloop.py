"""The yardstick: servers that do only the work that any server must do. `python -m bench.load.rawloop KIND`.

`small` parses HTTP on a bare asyncio protocol (httptools, uvloop) and answers every request with 1 KiB,
without looking at it. Ratios of small requests refer to it.

`bulk` receives bodies, hashes them as a signed S3 PUT requires (MD5 for the ETag, SHA-256 for the
signature), and writes them to a file, with an fsync on request; it sends a file, or ranges of it, by
sendfile. Ratios of large objects refer to it.

It prints its port, and ends with its parent (`tarn_cli.node.lifeline`).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import cast

import httptools
import uvloop

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n" + bytes(1024)
_PIECE = 1 << 20


class Small(asyncio.Protocol):
    """Answers every request with 1 KiB."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast(
            "asyncio.WriteTransport", transport
        )  # uvloop's is not registered as one

    def data_received(self, data: bytes) -> None:
        """Parses."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Answers."""
        self._transport.write(_ANSWER)


async def _serve_small() -> None:
    server = await asyncio.get_running_loop().create_server(Small, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _serve_bulk(folder: Path, size: int, *, fsync: bool) -> None:
    source = folder / "source"
    source.write_bytes(os.urandom(size))
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(
            target=_talk, args=(connection, source, folder), kwargs={"fsync": fsync}, daemon=True
        ).start()


def _talk(connection: socket.socket, source: Path, folder: Path, *, fsync: bool) -> None:
    """Serves one connection until its client leaves."""
    piece = bytearray(_PIECE)
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while head := _head(connection):
            length = _length(head)
            if head.startswith(b"GET"):
                _send(connection, head, source)
                continue
            _take(connection, length, piece, folder, fsync=fsync)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def _send(connection: socket.socket, head: bytes, source: Path) -> None:
    """Sends the file, or as many bytes of it as a range requests, from any offset."""
    size = source.stat().st_size
    start, count = 0, size
    if found := re.search(rb"range: bytes=(\d+)-(\d+)", head):
        first, last = map(int, found.groups())
        count = min(size, last - first + 1)
        start = first % (size - count + 1)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % count)
    with source.open("rb") as file:
        connection.sendfile(file, start, count)


def _head(connection: socket.socket) -> bytes:
    """Reads up to and including the empty line, and no further; empty at the end of the connection."""
    while seen := connection.recv(1 << 16, socket.MSG_PEEK):
        end = seen.find(b"\r\n\r\n")
        if end >= 0:
            return connection.recv(end + 4)
    return b""


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


def _take(
    connection: socket.socket, length: int, piece: bytearray, folder: Path, *, fsync: bool
) -> None:
    """Receives, hashes and writes a body."""
    view = memoryview(piece)
    hashes = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with tempfile.TemporaryFile(dir=folder) as file:
        while length:
            count = connection.recv_into(view, min(length, _PIECE))
            if not count:
                return
            for each in hashes:
                each.update(view[:count])
            file.write(view[:count])
            length -= count
        file.flush()
        if fsync:
            os.fsync(file.fileno())


def main() -> None:
    """Serves until it is killed."""
    match sys.argv[1:]:
        case ["small"]:
            uvloop.run(_serve_small())
        case ["bulk", folder, size, durability]:
            _serve_bulk(Path(folder), int(size), fsync=durability == "fsync")
        case _:
            sys.exit("rawloop small | rawloop bulk FOLDER BYTES fsync|os")


if __name__ == "__main__":
    main()

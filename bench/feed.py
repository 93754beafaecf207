"""Processor time of a worker with many viewers of one branch: while nothing happens on it, and while it is busy.

    python -m bench.feed [--viewers 500] [--seconds 30] [--writes 20]

One worker of `tarn up` has them all. The viewers are of as many users as the bound of one user demands; a half of them
have a cookie each, as browsers do, the others a key pair. Busy: so many PUTs in a second, and a commit every five. The
cost of the viewers is the processor time with them less that without them, each over the same time; both are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Self

from bench.load.client import address_of
from bench.load.node import Form, Node, running
from bench.rest import REPOSITORY, Server, tarn_of

_OF_USER = 10
_COMMIT_S = 5.0
_GOAL = 5.0
"""Hundredths of a core."""


class Audience:
    """Viewers, which take what they get.

    Args:
        server: has the branch.
        headers: of each one's request.
    """

    def __init__(self, server: Server, headers: list[str]) -> None:
        self._server, self._headers = server, headers
        self._stop = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._watch()))
        self.ready = Event()
        self.bytes = self.lost = 0

    def __enter__(self) -> Self:
        self._thread.start()
        if not self.ready.wait(120):
            raise RuntimeError("not all viewers have an answer")
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    async def _watch(self) -> None:
        address = address_of(self._server.url)
        streams = []
        for line in self._headers:
            reader, writer = await asyncio.open_connection(*address)
            path = f"/api/tarn/v1/repositories/{REPOSITORY}/branches/main/events"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {address[0]}\r\n{line}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"{head!r}{await reader.read(1000)!r}")
            streams.append((reader, writer))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._take(reader)) for reader, _ in streams]
            self.ready.set()
            await asyncio.to_thread(self._stop.wait)
            for task in tasks:
                task.cancel()
        for _, writer in streams:
            writer.close()

    async def _take(self, reader: asyncio.StreamReader) -> None:
        while piece := await reader.read(65536):
            self.bytes += len(piece)
        self.lost += 1


def rpc(server: Server, path: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
    """Makes one of Tarn's own rpcs."""
    asked = urllib.request.Request(
        f"{server.url}/api/tarn/v1/{path}",
        data=json.dumps(body).encode(),
        headers={"Authorization": server.credentials, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        found: dict[str, dict[str, str]] = json.load(answer)
        return found


def headers_of(server: Server, count: int) -> list[str]:
    """Makes users and sessions; returns what proves the caller of each viewer."""
    found: list[str] = []
    while len(found) < count:
        user = f"viewer-{len(found)}"
        rpc(server, "tarn.auth.v1.UserService/CreateUser", {"userId": user, "roles": ["Analyst"]})
        made = rpc(server, "tarn.auth.v1.UserService/CreateCredential", {"userId": user})
        key, secret = made["credential"]["accessKeyId"], str(made["secretAccessKey"])
        basic = base64.b64encode(f"{key}:{secret}".encode()).decode()
        found += [f"Authorization: Basic {basic}"] * (_OF_USER // 2)
        found += [f"Cookie: {_cookie(server, key, secret)}" for _ in range(_OF_USER // 2)]
    return found[:count]


def _cookie(server: Server, key: str, secret: str) -> str:
    body = json.dumps({"access_key_id": key, "secret_access_key": secret}).encode()
    headers = {"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin"}
    asked = urllib.request.Request(f"{server.url}/api/v1/auth/login", data=body, headers=headers)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        cookie: str = answer.headers["Set-Cookie"]
        return cookie.partition(";")[0]


class Writes:
    """Counts the writes of all rounds."""

    count = 0


@contextmanager
def busy(server: Server, per_second: int, writes: Writes) -> Iterator[None]:
    """Writes and commits meanwhile."""
    stop = Event()

    def work() -> None:
        branch = f"/repositories/{REPOSITORY}/branches/main"
        began = committed = time.monotonic()
        number = 0
        while not stop.is_set():
            path = f"d{number % 7}%2F{writes.count}"
            server.ask("POST", f"{branch}/objects?path={path}", b"x")
            number += 1
            writes.count += 1
            if time.monotonic() > committed + _COMMIT_S:
                server.ask("POST", f"{branch}/commits", {"message": f"{number} objects"})
                committed = time.monotonic()
            stop.wait(max(0.0, began + number / per_second - time.monotonic()))

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def cost(node: Node, seconds: float) -> float:
    """Returns the processor time of the server in hundredths of a core."""
    processes = node.workers()
    before, began = processes.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return (processes.cpu_s() - before) / (time.monotonic() - began) * 100


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--viewers", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--writes", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, running(Path(name), Form(workers=1)) as node:
        server = tarn_of(node)
        made = {"name": REPOSITORY, "storage_namespace": f"local://{REPOSITORY}"}
        server.ask("POST", "/repositories", made)
        headers = headers_of(server, given.viewers)
        found: dict[str, list[float]] = {}
        writes, rates = Writes(), list[str]()
        for count in (0, 1, given.viewers):
            with Audience(server, headers[:count]) as audience:
                time.sleep(3)
                found.setdefault("idle", []).append(cost(node, given.seconds))
                with busy(server, given.writes, writes):
                    time.sleep(3)
                    before = writes.count
                    found.setdefault("busy", []).append(cost(node, given.seconds))
                    rates.append(f"{(writes.count - before) / given.seconds:.0f}")
            if audience.lost:
                raise RuntimeError(f"{audience.lost} streams ended")
        memory = node.workers().rss_mib()
        print(f"hundredths of a core, one worker ({memory:.0f} MiB)")
        print(
            f"{'':5} no viewer  one viewer  {given.viewers} viewers  cost of them (goal {_GOAL:g})"
        )
        for row, (none, one, many) in found.items():
            print(f"{row:5} {none:9.1f}  {one:10.1f}  {many:11.1f}  {many - none:.1f}")
        print(f"writes in a second: {', '.join(rates)}")


if __name__ == "__main__":
    main()

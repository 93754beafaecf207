"""REST: rates and latencies of Tarn's REST endpoint, beside lakeFS's in the same run, and a commit by REST and by gRPC.

    python -m bench.rest [--seconds 2] [--rounds 3] [--peer PATH]

`--peer` is a lakeFS binary; it runs with its local key-value store and local blocks, as `tarn up` does. Both servers
are up during the whole run, and take turns. The client shares the cores with them, so only ratios within one run
count. The request of each row is the same for both, byte for byte but for host and credentials.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.link import LOOPBACK, Host
from bench.load.client import Load, address_of
from bench.load.node import Form, Node, running
from bench.load.processes import Processes
from bench.load.signing import Request, Signer

from tarn.client import AsyncClient
from tarn.rpc.process.system import SystemClock

REPOSITORY = "rest"
OBJECTS = 1000
BODY = b"x" * 1024
_PEER_KEY, _PEER_SECRET = "AKIAJBENCHOFTHEPEERQ", "the-secret-of-the-peer-of-the-benchmark0"
_COMMITS = 40
_INLINE_MAX = 64 << 10
"""Larger bodies are shared by requests, and sent after their heads."""


@dataclass(frozen=True)
class Server:
    """A server that answers the interface.

    Attributes:
        url: `http://host:port`.
        access_key_id, secret: of a user who may do everything.
        namespace: begins the storage namespace of a new repository.
        s3_url: of its S3 endpoint; empty: the same.
        processes: that answer.
    """

    name: str
    url: str
    access_key_id: str
    secret: str = field(repr=False)
    namespace: str = "local://"
    s3_url: str = ""
    processes: Processes = field(default_factory=lambda: Processes(()))

    @property
    def credentials(self) -> str:
        """The header `Authorization`."""
        pair = f"{self.access_key_id}:{self.secret}".encode()
        return "Basic " + base64.b64encode(pair).decode()

    @property
    def signer(self) -> Signer:
        """Signs S3 requests."""
        host = (self.s3_url or self.url).removeprefix("http://")
        return Signer(host, self.access_key_id, self.secret, SystemClock())

    def ask(self, method: str, path: str, body: object = None) -> bytes:
        """Sends one request and returns the body of its answer."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        asked = urllib.request.Request(
            f"{self.url}/api/v1{path}",
            data=None if body is None else raw,
            method=method,
            headers={"Authorization": self.credentials, "Content-Type": kind},
        )
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as error:
            text = f"{self.name}, {method} {path}: {error.code} {error.read().decode()}"
            raise RuntimeError(text) from error

    def request(self, method: str, path: str, body: bytes = b"") -> Request:
        """Returns an encoded request."""
        lines = [
            f"{method} /api/v1{path} HTTP/1.1",
            f"Host: {self.url.removeprefix('http://')}",
            f"Authorization: {self.credentials}",
            "Content-Type: application/octet-stream",
        ]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join([*lines, "", ""]).encode()
        return Request(head + body) if len(body) <= _INLINE_MAX else Request(head, body)


def tarn_of(node: Node, name: str = "Tarn") -> Server:
    """Returns the REST endpoint of a node."""
    url = json.loads((node.data / "tarn.json").read_text())["api"]
    return Server(
        name,
        url,
        node.access_key_id,
        node.secret,
        s3_url=node.endpoint,
        processes=node.processes,
    )


@contextmanager
def peer(
    binary: Path, folder: Path, *, is_tuned: bool = True, host: Host = LOOPBACK
) -> Iterator[Server]:
    """Runs lakeFS in a folder.

    Args:
        binary: `lakefs`.
        folder: of its data.
        is_tuned: whether it reads records at once. As it is shipped, it waits 3 ms to read those of concurrent requests
            together: alone, it is ten times slower then.
        host: where it runs.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "LISTEN_ADDRESS": f"{host.address}:{port}",
        "DATABASE_TYPE": "local",
        "DATABASE_LOCAL_PATH": str(folder / "kv"),
        "BLOCKSTORE_TYPE": "local",
        "BLOCKSTORE_LOCAL_PATH": str(folder / "blocks"),
        "AUTH_ENCRYPT_SECRET_KEY": "a secret of the benchmark",
        "COMMITTED_LOCAL_CACHE_DIR": str(folder / "cache"),
        "STATS_ENABLED": "false",
        "SECURITY_CHECK_LATEST_VERSION": "false",
        "USAGE_REPORT_ENABLED": "false",
    }
    if is_tuned:
        settings["GRAVELER_MAX_BATCH_DELAY"] = "1ns"
    environment = os.environ | {f"LAKEFS_{name}": value for name, value in settings.items()}
    environment["HOME"] = str(folder)
    setup = [str(binary), "setup", "--user-name=admin", "--no-check"]
    setup += [f"--access-key-id={_PEER_KEY}", f"--secret-access-key={_PEER_SECRET}"]
    subprocess.run(setup, env=environment, check=True, capture_output=True, timeout=60)
    with (folder / "log").open("wb") as log:
        command = [*host.command, str(binary), "run"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        url = f"http://{host.address}:{port}"
        _wait(url)
        name = "lakeFS" if is_tuned else "lakeFS as shipped"
        yield Server(name, url, _PEER_KEY, _PEER_SECRET, processes=Processes([process.pid]))
    finally:
        process.terminate()
        process.wait(30)


def _wait(url: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/api/v1/healthcheck", timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{url} does not answer")


def fill(server: Server) -> None:
    """Makes the repository and its objects, half of them committed."""
    made = {
        "name": REPOSITORY,
        "storage_namespace": f"{server.namespace}{REPOSITORY}",
        "default_branch": "main",
    }
    server.ask("POST", "/repositories", made)
    branch = f"/repositories/{REPOSITORY}/branches/main"
    for number in range(OBJECTS):
        server.ask("POST", f"{branch}/objects?path=data%2F{number:05}", BODY)
        if number == OBJECTS // 2:
            server.ask("POST", f"{branch}/commits", {"message": "half"})


def cases(server: Server) -> dict[str, list[Request]]:
    """Returns the requests of each row."""
    ref, branch = (
        f"/repositories/{REPOSITORY}/refs/main",
        f"/repositories/{REPOSITORY}/branches/main",
    )
    paths = [f"data%2F{number:05}" for number in range(OBJECTS)]
    new = [f"new%2F{number:05}" for number in range(4 * OBJECTS)]
    return {
        "stat": [server.request("GET", f"{ref}/objects/stat?path={path}") for path in paths],
        "list 1,000": [server.request("GET", f"{ref}/objects/ls?prefix=data%2F&amount=1000")],
        "get 1 KiB": [server.request("GET", f"{ref}/objects?path={path}") for path in paths],
        "upload 1 KiB": [
            server.request("POST", f"{branch}/objects?path={path}", BODY) for path in new
        ],
    }


async def commits(server: Server, rpc: tuple[str, str], key: tuple[str, str]) -> None:
    """Compares commits of one change, by REST and by gRPC, which take turns."""
    by: dict[str, list[float]] = {"REST": [], "gRPC": []}
    branch = f"/repositories/{REPOSITORY}/branches/main"
    calls = AsyncClient(
        rpc[0], access_key_id=key[0], secret_access_key=key[1], auth_addresses=rpc[1]
    )
    async with calls as client:
        for number in range(_COMMITS):
            for way, seconds in by.items():
                server.ask("POST", f"{branch}/objects?path=commits%2F{way}", b"%d" % number)
                began = time.perf_counter()
                if way == "REST":
                    server.ask("POST", f"{branch}/commits", {"message": "m"})
                else:
                    await client.create_commit(REPOSITORY, "main", "m")
                seconds.append(time.perf_counter() - began)
    rest, grpc = (statistics.median(each) * 1e3 for each in by.values())
    print(f"commit: REST {rest:.2f} ms, gRPC {grpc:.2f} ms, {rest / grpc:.2f} of gRPC (goal 1.3)")


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", type=Path, help="a lakeFS binary")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, running(Path(name), Form()) as node:
        key = node.access_key_id, node.secret
        tarn = tarn_of(node)
        servers = [tarn]
        if given.peer is None:
            _measure(servers, given.seconds, given.rounds)
        else:
            other = Path(name) / "peer"
            other.mkdir()
            with peer(given.peer.resolve(), other) as lakefs:
                servers.append(lakefs)
                _measure(servers, given.seconds, given.rounds)
        asyncio.run(commits(tarn, (node.server, node.auth_server), key))


def _measure(servers: list[Server], seconds: float, rounds: int) -> None:
    for server in servers:
        fill(server)
    rows = {server.name: cases(server) for server in servers}
    print(f"{'':14} {'c':>3}  " + "  ".join(f"{each.name:>22}" for each in servers) + "  ratio")
    for row in rows[servers[0].name]:
        for connections in (1, 16):
            best = {server.name: (0.0, 0.0) for server in servers}
            for _ in range(rounds):
                for server in servers:
                    load = Load(
                        address_of(server.url),
                        rows[server.name][row],
                        connections,
                        seconds,
                        repeat=True,
                    )
                    got = load.run()
                    if got.failures:
                        raise RuntimeError(
                            f"{server.name}, {row}: {got.failures} {got.first_failure}"
                        )
                    found = got.per_second, got.quantile_ms(0.5)
                    best[server.name] = max(best[server.name], found)
            shown = "  ".join(f"{rate:9,.0f}/s {p50:7.2f} ms" for rate, p50 in best.values())
            rates = [rate for rate, _ in best.values()]
            ratio = f"{rates[0] / rates[1]:6.2f}" if len(rates) > 1 else ""
            print(f"{row:14} {connections:3}  {shown}  {ratio}", flush=True)


if __name__ == "__main__":
    main()

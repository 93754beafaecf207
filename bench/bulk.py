"""Large bodies: Tarn beside nginx (GET), beside lakeFS (PUT), and through an S3 store beside the store itself.

    python -m bench.bulk --lakefs PATH [--nginx PATH] [--rounds 8] [--rows get] [--output results/bulk.md]

All servers are up during the whole run and take turns; the client (`bench.load.client`) shares the cores with them.
nginx has sendfile and two workers, and serves the very file that Tarn's block is. The S3 store is a lakeFS: it is
fast, and it has the ranges and conditions that Tarn needs. A ratio is of the rates; it is shown for the best rounds and
as the median of the rounds. The processor time is of the servers, per request, in the cheapest round; through a store,
Tarn's column includes the store. It takes about four minutes; `--rounds 3` is a trial. `python -m bench.load --render`
shows the output in `RESULTS.md`.

With `--link 2500` the store is behind a link of 2,500 Mbit/s (`bench.link`), as a store of its own machines is; its
processor time is still that of these cores.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.link import host_behind, refusal
from bench.load.cases.objects import REPOSITORY as LAKE
from bench.load.cases.objects import make_repository
from bench.load.client import Load, address_of, exchange
from bench.load.node import Form, Node, running
from bench.load.processes import Processes
from bench.load.signing import Request, Signer
from bench.peer import interpreter
from bench.rest import Server, peer

_MIB: Final = 1 << 20
_SIZE: Final = 64 * _MIB
_RANGE: Final = 8 * _MIB
_PART: Final = 5 * _MIB
_RANGES: Final = 64
_GET_SECONDS: Final = 0.6
_PUTS: Final = 4
"""Bodies of 64 MiB of a round: what is written stays on the disk until the end."""
_PARTS: Final = 24
_SECONDS_MAX: Final = 60.0
_CONNECTIONS: Final = (1, 4)
_STORE: Final = "store"
_NGINX: Final = """
worker_processes 2;
daemon off;
user root;
error_log {folder}/error.log;
pid {folder}/nginx.pid;
events {{ worker_connections 256; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{
        listen 127.0.0.1:{port} backlog=128;
        location = /large {{ alias {file}; }}
    }}
}}
"""


@dataclass(frozen=True)
class Side:
    """What a server is sent in a row.

    Attributes:
        name: of the server.
        processes: that work for it.
        requests: makes those of one round, by its number.
        seconds: of a round, in which they repeat; None: each is sent once.
    """

    name: str
    address: tuple[str, int]
    processes: Processes
    requests: Callable[[int], Sequence[Request]]
    seconds: float | None = None

    def round(self, number: int, connections: int) -> tuple[float, float]:
        """Runs one round; returns requests per second, and milliseconds of the servers' processor time per request.

        Raises:
            RuntimeError: an answer was no success.
        """
        requests = self.requests(number)
        repeat, seconds = self.seconds is not None, self.seconds or _SECONDS_MAX
        before = self.processes.cpu_s()
        got = Load(self.address, requests, connections, seconds, repeat=repeat).run()
        if got.failures:
            raise RuntimeError(f"{self.name}: {dict(got.failures)} {got.first_failure}")
        return got.per_second, (self.processes.cpu_s() - before) / got.count * 1000


@dataclass(frozen=True)
class Row:
    """A comparison of Tarn with another server.

    Attributes:
        size: bytes of each body.
        goal: least ratio of Tarn's rate to the other's.
    """

    name: str
    size: int
    other: Side
    tarn: Side
    goal: float

    def measure(self, connections: int, rounds: int) -> str:
        """Returns the row as a line of the table. The sides take turns, and so does who begins."""
        sides = (self.other, self.tarn)
        found: dict[Side, list[tuple[float, float]]] = {side: [] for side in sides}
        for number in range(-1, rounds):
            for side in sides if number % 2 else sides[::-1]:
                got = side.round(number * len(_CONNECTIONS) + connections, connections)
                if number >= 0:  # the first warms up
                    found[side].append(got)
        rates = [[rate for rate, _ in found[side]] for side in sides]
        best = [max(each) for each in rates]
        ratios = [tarn / other for other, tarn in zip(*rates, strict=True)]
        cells = [
            f"{side.name}, {rate * self.size / _MIB:,.0f} MiB/s, {min(cpu for _, cpu in found[side]):.1f} ms"
            for side, rate in zip(sides, best, strict=True)
        ]
        ratio, median = best[1] / best[0], statistics.median(ratios)
        told = f"{ratio:.2f} | {median:.2f} | {self.goal:g}"
        return f"| {self.name}, c={connections} | {' | '.join(cells)} | {told} |"


@dataclass(frozen=True)
class Body:
    """Random bytes, hashed once for all requests."""

    data: bytes
    sha256: str

    @classmethod
    def of(cls, size: int) -> Body:
        """Returns one of so many bytes."""
        data = os.urandom(size)
        return cls(data, hashlib.sha256(data).hexdigest())


@dataclass(frozen=True)
class Place:
    """A bucket in which a row writes and reads.

    Attributes:
        bucket: and the first folder, as `/lake/main`.
        processes: that work for it.
    """

    name: str
    address: tuple[str, int]
    signer: Signer
    bucket: str
    processes: Processes

    def put(self, key: str, body: Body, query: dict[str, str] | None = None) -> Request:
        """Returns a signed PUT."""
        path = f"{self.bucket}/{key}"
        return self.signer.request("PUT", path, query, body.data, body_sha256=body.sha256)

    def get(self, key: str, span: tuple[int, int] | None = None) -> Request:
        """Returns a signed GET, of bytes from and to."""
        headers = {"range": f"bytes={span[0]}-{span[1] - 1}"} if span else {}
        return self.signer.request("GET", f"{self.bucket}/{key}", headers=headers)

    def reads(self, requests: Sequence[Request]) -> Side:
        """Returns a side that reads."""
        return Side(self.name, self.address, self.processes, lambda _: requests, _GET_SECONDS)

    def writes(self, body: Body) -> Side:
        """Returns a side that writes new objects in each round."""

        def requests(number: int) -> Sequence[Request]:
            return [self.put(f"large/{number}/{each}", body) for each in range(_PUTS)]

        return Side(self.name, self.address, self.processes, requests)

    def parts(self, body: Body) -> Side:
        """Returns a side that writes parts of a new multipart upload in each round; it is not completed."""

        def requests(number: int) -> Sequence[Request]:
            key = f"parts/{number}"
            begin = self.signer.request("POST", f"{self.bucket}/{key}", {"uploads": ""})
            found = re.search(rb"<UploadId>(.*)</UploadId>", exchange(self.address, begin))
            assert found is not None, "the answer names the upload"
            named = {"uploadId": found[1].decode()}
            numbers = range(1, _PARTS + 1)
            return [self.put(key, body, named | {"partNumber": str(each)}) for each in numbers]

        return Side(self.name, self.address, self.processes, requests)


@contextmanager
def nginx(binary: str, folder: Path, file: Path) -> Iterator[tuple[tuple[str, int], Processes]]:
    """Runs nginx; it serves a file as `/large`. Yields its address and its workers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    conf = folder / "nginx.conf"
    conf.write_text(_NGINX.format(folder=folder, port=port, file=file))
    process = subprocess.Popen([binary, "-c", str(conf), "-p", str(folder)])
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        else:
            raise RuntimeError(f"nginx does not answer: {(folder / 'error.log').read_text()}")
        yield ("127.0.0.1", port), Processes([process.pid]).with_children()
    finally:
        process.terminate()
        process.wait(30)


def _place_of(node: Node, name: str, beside: Processes | None = None) -> Place:
    pids = (*node.processes.pids, *(beside.pids if beside else ()))
    return Place(name, node.address, node.signer, f"/{LAKE}/main", Processes(pids))


def _place_of_peer(server: Server, repository: str) -> Place:
    made = {
        "name": repository,
        "storage_namespace": f"{server.namespace}{repository}",
        "default_branch": "main",
    }
    server.ask("POST", "/repositories", made)
    address = address_of(server.url)
    return Place(server.name, address, server.signer, f"/{repository}/main", server.processes)


def _over(store: Place) -> Form:
    """Returns the form of a Tarn whose blocks are in a bucket of another server."""
    prefix = "TARN_BLOCKSTORE"
    host, port = store.address
    settings = {
        f"{prefix}_TYPE": "s3",
        f"{prefix}_DEFAULT_NAMESPACE_PREFIX": f"s3://{_STORE}/main/tarn",
        f"{prefix}_S3_ENDPOINT": f"http://{host}:{port}",
        f"{prefix}_S3_FORCE_PATH_STYLE": "true",
        f"{prefix}_S3_CREDENTIALS_ACCESS_KEY_ID": store.signer.access_key_id,
        f"{prefix}_S3_CREDENTIALS_ACCESS_SECRET_KEY": store.signer.secret,
    }
    return Form("os", settings=tuple(settings.items()))


def _ranges() -> list[tuple[int, int]]:
    rng = random.Random(1)
    starts = [rng.randrange(_SIZE - _RANGE) for _ in range(_RANGES)]
    return [(start, start + _RANGE) for start in starts]


@contextmanager
def rows(lakefs: Path, binary: str, folder: Path) -> Iterator[list[Row]]:
    """Starts all servers, and yields what is compared."""
    large, part = Body.of(_SIZE), Body.of(_PART)
    with ExitStack() as stack:
        own = _folder(folder, "peer"), _folder(folder, "tarn"), _folder(folder, "nginx")
        server = stack.enter_context(peer(lakefs, own[0]))
        other, store = _place_of_peer(server, "peer"), _place_of_peer(server, _STORE)
        node = stack.enter_context(running(own[1], Form("os")))
        make_repository(node)
        tarn = _place_of(node, "Tarn")
        _check(tarn, large)
        through = stack.enter_context(_through(store, folder, large))
        files = [each for each in own[1].rglob("*") if each.is_file()]
        file = next(each for each in files if each.stat().st_size == _SIZE)
        served, workers = stack.enter_context(nginx(binary, own[2], file))
        yield [
            *_reads(tarn, served, workers),
            Row("PUT 64 MiB", _SIZE, other.writes(large), tarn.writes(large), 1),
            Row("PUT of a part of 5 MiB", _PART, other.parts(part), tarn.parts(part), 1),
            *_beside_store(store, through, large),
        ]


@contextmanager
def rows_of_link(lakefs: Path, folder: Path, mbit: int) -> Iterator[list[Row]]:
    """Starts a store behind a link and a Tarn on this side of it, and yields what is compared.

    The client reaches the store by the link as well.
    """
    large = Body.of(_SIZE)
    with (
        host_behind(mbit) as host,
        peer(lakefs, _folder(folder, "peer"), host=host) as server,
    ):
        store = _place_of_peer(server, _STORE)
        with _through(store, folder, large) as through:
            yield list(_beside_store(store, through, large, f"S3 store at {mbit:,} Mbit/s"))


def _folder(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


@contextmanager
def _through(store: Place, folder: Path, large: Body) -> Iterator[Place]:
    """Runs a Tarn over a store; both get an object."""
    with running(_folder(folder, "over"), _over(store)) as node:
        make_repository(node)
        through = _place_of(node, "Tarn over it", store.processes)
        for place in (store, through):
            _check(place, large)
        yield through


def _check(place: Place, large: Body) -> None:
    exchange(place.address, place.put("large", large))
    if exchange(place.address, place.get("large")) != large.data:
        raise RuntimeError(f"{place.name}: an object is not what was put")


def _beside_store(
    store: Place, through: Place, large: Body, name: str = "S3 store"
) -> Iterator[Row]:
    """Yields the rows that compare Tarn over a store with the store."""
    reads = store.reads([store.get("large")]), through.reads([through.get("large")])
    yield Row(f"{name}: GET 64 MiB", _SIZE, *reads, 0.9)
    yield Row(f"{name}: PUT 64 MiB", _SIZE, store.writes(large), through.writes(large), 0.9)


def _reads(tarn: Place, served: tuple[str, int], workers: Processes) -> Iterator[Row]:
    """Yields the rows that compare a file of nginx with the same block."""

    def plain(span: tuple[int, int] | None = None) -> Request:
        line = f"Range: bytes={span[0]}-{span[1] - 1}\r\n" if span else ""
        return Request(f"GET /large HTTP/1.1\r\nHost: bulk\r\n{line}\r\n".encode())

    side = partial(Side, "nginx", served, workers, seconds=_GET_SECONDS)
    spans = _ranges()
    whole, some = [plain()], [plain(span) for span in spans]
    own, ranges = [tarn.get("large")], [tarn.get("large", span) for span in spans]
    yield Row("GET 64 MiB", _SIZE, side(lambda _: whole), tarn.reads(own), 0.95)
    yield Row("GET 8 MiB range", _RANGE, side(lambda _: some), tarn.reads(ranges), 0.95)


def table(found: Sequence[Row], wanted: str, rounds: int) -> Iterator[str]:
    """Measures, and yields the table line by line."""
    yield "| | other | Tarn | ratio of the best | median ratio | goal |"
    yield "|---|---|---|---|---|---|"
    for row in found:
        if wanted.lower() in row.name.lower():
            for connections in _CONNECTIONS:
                yield row.measure(connections, rounds)


def about(rounds: int) -> str:
    """Returns what stands above the table of a run."""
    day, load = time.strftime("%Y-%m-%d", time.gmtime()), os.getloadavg()[0]
    return (
        f"Made by `python -m bench.bulk` on {day}: {os.cpu_count()} cores that the client shares, load average "
        f"{load:.1f} at the end, {rounds} rounds in turns. Tarn has durability `os` and runs on {interpreter()}. "
        "Processor time is of the servers, per request; over an S3 store it includes the store's."
    )


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--lakefs", type=Path, required=True, help="the lakeFS binary")
    parser.add_argument("--nginx", default=shutil.which("nginx") or "/usr/sbin/nginx")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--rows", default="", help="only rows whose names contain this")
    parser.add_argument(
        "--link",
        type=int,
        help="Mbit/s: only the rows of the S3 store, behind such a link; root only",
    )
    parser.add_argument("--folder", type=Path, help="a folder for temporary data")
    parser.add_argument("--output", type=Path, help="a file for the table")
    given = parser.parse_args()
    lakefs: Path = given.lakefs.resolve()
    if given.link is not None and (why := refusal()):
        parser.error(why)
    with (
        tempfile.TemporaryDirectory(dir=given.folder) as name,
        rows(lakefs, given.nginx, Path(name))
        if given.link is None
        else rows_of_link(lakefs, Path(name), given.link) as found,
    ):
        lines = []
        for line in table(found, given.rows, given.rounds):
            print(line, flush=True)
            lines.append(line)
    if given.output is not None:
        given.output.write_text("\n".join([about(given.rounds), "", *lines, ""]))


if __name__ == "__main__":
    main()

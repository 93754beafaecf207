"""Tarn beside lakeFS in one run: rates and latencies of S3 and REST, and processor time of the servers per request.

    python -m bench.peer --lakefs PATH [--s3load PATH] [--seconds 4] [--rounds 2] [--rows get]

Four servers are up during the whole run and take turns: lakeFS as it is shipped and without its batch delay, on its
embedded store without fsync, and `tarn up` with durability `os` and `fsync`. The client shares the cores with them. The
best of some rounds counts, and only within one run: run it on an idle machine. `--s3load` is another client for the
S3 rows: a program that takes `-e -ak -sk -b -p -op -c -t -n -size -pid` and prints a line for each `-c`. Without it,
the client of `make bench` sends them, as it does those of REST. `--output results/peer.md` writes the table for
`RESULTS.md`; `python -m bench.load --render` shows it there.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load.client import Load, address_of
from bench.load.node import Form, running
from bench.load.signing import Request
from bench.rest import BODY, REPOSITORY, Server, cases, fill, peer, tarn_of

_KEYS: Final = 1000
_LARGE: Final = 64 << 20
_LINE: Final = re.compile(
    r"([\d.]+) req/s +p50 +([\d.]+) ms .* errors (\d+) +server cpu +([\d.]+) us/req"
)
_PREFIX: Final = "main/s3/"


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        name: as it is shown.
        operation: `get`, `head` or `put` of S3, or a row of `bench.rest.cases`.
        connections: at once; with one, latencies are shown instead of rates.
        size: of the objects in bytes, of S3 only.
    """

    name: str
    operation: str
    connections: int
    size: int = len(BODY)

    @property
    def is_s3(self) -> bool:
        """Whether it is of S3."""
        return self.operation in ("get", "head", "put")


ROWS: Final = [
    *(Row(f"S3 {op.upper()} c={c}", op, c) for op in ("get", "head", "put") for c in (32, 4)),
    Row("S3 lone GET", "get", 1),
    Row("S3 lone PUT", "put", 1),
    Row("S3 GET 64 MiB", "get", 1, _LARGE),
    *(
        Row(f"REST {op} c={c}", op, c)
        for op in ("stat", "list 1,000", "get 1 KiB", "upload 1 KiB")
        for c in (1, 16)
    ),
]


@dataclass(frozen=True, order=True)
class Measured:
    """The outcome of one round.

    Attributes:
        per_second: good answers.
        p50_ms: the median of the latencies.
        cpu_us: processor time of the server per request.
    """

    per_second: float
    p50_ms: float
    cpu_us: float

    def shown(self, row: Row) -> str:
        """Returns the cell of a row."""
        speed = f"{self.p50_ms:.2f} ms" if row.connections == 1 else f"{self.per_second:,.0f}/s"
        return f"{speed}, {self.cpu_us:,.0f} µs"


class Client:
    """Sends the requests of rows.

    Args:
        s3load: another client for S3; None: that of `make bench`.
        seconds: of each round.
    """

    def __init__(self, s3load: Path | None, seconds: float) -> None:
        self._s3load = s3load
        self._seconds = seconds

    def fill(self, server: Server) -> None:
        """Makes what the rows read."""
        fill(server)
        for size in (len(BODY), _LARGE):
            got = Load(_s3_address(server), _signed(server, Row("", "put", 1, size)), 1, 60).run()
            if got.failures:
                raise RuntimeError(f"{server.name}: {dict(got.failures)} {got.first_failure}")

    def measure(self, server: Server, row: Row) -> Measured:
        """Runs one round.

        Raises:
            RuntimeError: an answer was no success.
        """
        if row.is_s3 and self._s3load is not None:
            return self._by_s3load(self._s3load, server, row)
        if row.is_s3:
            address, requests = _s3_address(server), _signed(server, row)
        else:
            address, requests = address_of(server.url), cases(server)[row.operation]
        before = server.processes.cpu_s()
        got = Load(address, requests, row.connections, self._seconds, repeat=True).run()
        if got.failures:
            text = f"{server.name}, {row.name}: {dict(got.failures)} {got.first_failure}"
            raise RuntimeError(text)
        cpu_s = server.processes.cpu_s() - before
        return Measured(got.per_second, got.quantile_ms(0.5), cpu_s / got.count * 1e6)

    def _by_s3load(self, program: Path, server: Server, row: Row) -> Measured:
        options = {
            "-e": server.s3_url or server.url,
            "-ak": server.access_key_id,
            "-sk": server.secret,
            "-b": REPOSITORY,
            "-p": _prefix(row.size),
            "-op": row.operation,
            "-c": str(row.connections),
            "-t": f"{self._seconds}s",
            "-n": str(_count(row.size)),
            "-size": str(row.size),
            "-pid": ",".join(map(str, server.processes.pids)),
        }
        command = [str(program), *(part for pair in options.items() for part in pair)]
        timeout = self._seconds + 60
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        found = _LINE.search(done.stdout)
        if found is None or int(found[3]):
            raise RuntimeError(f"{server.name}, {row.name}: {done.stdout}{done.stderr}")
        return Measured(float(found[1]), float(found[2]), float(found[4]))


def _s3_address(server: Server) -> tuple[str, int]:
    return address_of(server.s3_url or server.url)


def _count(size: int) -> int:
    return _KEYS if size < _LARGE else 1


def _prefix(size: int) -> str:
    return f"{_PREFIX}{size}/"


def _signed(server: Server, row: Row) -> list[Request]:
    """Returns the requests of a row of S3, with the keys that s3load has."""
    sign, method = server.signer.request, row.operation.upper()
    body = bytes(row.size) if method == "PUT" else b""
    paths = [f"/{REPOSITORY}/{_prefix(row.size)}k{number:08}" for number in range(_count(row.size))]
    return [sign(method, path, body=body) for path in paths]


@contextmanager
def servers(lakefs: Path, folder: Path) -> Iterator[list[Server]]:
    """Runs the four servers."""
    with ExitStack() as stack:
        found = []
        for is_tuned in (False, True):
            (own := folder / f"lakefs-{is_tuned}").mkdir()
            found.append(stack.enter_context(peer(lakefs, own, is_tuned=is_tuned)))
        for durability in ("os", "fsync"):
            (own := folder / durability).mkdir()
            node = stack.enter_context(running(own, Form(durability=durability)))
            found.append(tarn_of(node, f"Tarn {durability}"))
        yield found


def table(
    rows: Sequence[Row], found: Sequence[Server], client: Client, rounds: int
) -> Iterator[str]:
    """Measures, and yields the table line by line."""
    names = [each.name for each in found]
    yield f"| | {' | '.join(names)} | Tarn os / lakeFS |"
    yield "|---" * (len(names) + 2) + "|"
    for row in rows:
        measured = [[client.measure(each, row) for each in found] for _ in range(rounds)]
        best = [max(column) for column in zip(*measured, strict=True)]
        ratio = best[names.index("Tarn os")].per_second / best[names.index("lakeFS")].per_second
        cells = " | ".join(each.shown(row) for each in best)
        yield f"| {row.name} | {cells} | {ratio:.2f} |"


def interpreter() -> str:
    """Returns the version and the build of this Python: another build of one version moves each figure by a tenth."""
    return f"CPython {platform.python_version()}, built by {platform.python_compiler()}"


def about(given: argparse.Namespace) -> str:
    """Returns what stands above the table of a run."""
    day, load = time.strftime("%Y-%m-%d", time.gmtime()), os.getloadavg()[0]
    return (
        f"Made by `make bench-peer` on {day}: {os.cpu_count()} cores that the client shares, "
        f"load average {load:.1f} at the end, best of {given.rounds} rounds of {given.seconds:g} s in turns. "
        f"Tarn runs on {interpreter()}. "
        "A cell has the rate, or the median latency of a lone client, and the server's processor time per request. "
        "lakeFS has no batch delay, unless as shipped."
    )


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--lakefs", type=Path, required=True, help="the lakeFS binary")
    parser.add_argument("--s3load", type=Path, help="another client for the rows of S3")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rows", default="", help="only rows whose names contain this")
    parser.add_argument("--output", type=Path, help="a file for the table")
    given = parser.parse_args()
    rows = [row for row in ROWS if given.rows.lower() in row.name.lower()]
    s3load = given.s3load and given.s3load.resolve()
    client = Client(s3load, given.seconds)
    with (
        tempfile.TemporaryDirectory() as name,
        servers(given.lakefs.resolve(), Path(name)) as found,
    ):
        for server in found:
            client.fill(server)
        lines = []
        for line in table(rows, found, client, given.rounds):
            print(line, flush=True)
            lines.append(line)
    if given.output is not None:
        given.output.write_text("\n".join([about(given), "", *lines, ""]))


if __name__ == "__main__":
    main()

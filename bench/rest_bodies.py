"""Bodies of 64 MiB through the REST endpoint and through the gateway of one `tarn up`, in turns.

Run: `python -m bench.rest_bodies [--rounds N]`. Prints the ratio of the two rates, which a busy machine changes little:
the goal is 0.7 at the median. REST is asked by Basic and raw bodies, S3 by requests that sign their bodies.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.load.cases.objects import REPOSITORY, make_repository
from bench.load.client import address_of
from bench.load.node import Form, running
from bench.load.signing import Request
from bench.rest import tarn_of

SIZE = 64 << 20
GOAL = 0.7


class Client:
    """One connection that blocks."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, 60)
        self._buffer = bytearray(1 << 20)

    def seconds(self, request: Request) -> float:
        """Sends a request and takes all of its answer; returns the time of both."""
        begin = time.perf_counter()
        self._socket.sendall(request.head)
        if request.body:
            self._socket.sendall(request.body)
        got = b""
        while b"\r\n\r\n" not in got:
            piece = self._socket.recv(4096)
            if not piece:
                raise RuntimeError(f"no answer: {got!r}")
            got += piece
        head, _, body = got.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        if lines[0].split()[1] not in ("200", "201"):
            raise RuntimeError(f"{lines[0]}: {body!r}")
        lengths = [line.split(":")[1] for line in lines if line.startswith("content-length:")]
        left = int(lengths[0]) - len(body)
        while left > 0:
            count = self._socket.recv_into(self._buffer)
            if not count:
                raise RuntimeError("the answer ended early")
            left -= count
        return time.perf_counter() - begin


def compared(name: str, rounds: int, rest: Callable[[], float], s3: Callable[[], float]) -> None:
    """Measures both in turns, and prints how their rates compare."""
    rest(), s3()
    order, pairs = random.Random(1), []
    for _ in range(rounds):
        if order.random() < 0.5:
            own, gateway = rest(), s3()
        else:
            gateway, own = s3(), rest()
        pairs.append((own, gateway))
    ratios = [gateway / own for own, gateway in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    own, gateway = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(
        f"{name}: REST has {middle:.2f} of the gateway's rate (quartiles {low:.2f} to {high:.2f}, goal {GOAL}); "
        f"{own * 1000:.0f} ms and {gateway * 1000:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    body = os.urandom(SIZE)
    digest = hashlib.sha256(body).hexdigest()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), Form(workers=1)) as node:
        make_repository(node)
        rest, lake = tarn_of(node), f"/repositories/{REPOSITORY}"
        by_rest, by_s3 = Client(address_of(rest.url)), Client(node.address)

        def rest_put() -> float:
            return by_rest.seconds(
                rest.request("POST", f"{lake}/branches/main/objects?path=large", body)
            )

        def s3_put() -> float:
            path = f"/{REPOSITORY}/main/large"
            return by_s3.seconds(node.signer.request("PUT", path, body=body, body_sha256=digest))

        def rest_get() -> float:
            return by_rest.seconds(rest.request("GET", f"{lake}/refs/main/objects?path=large"))

        def s3_get() -> float:
            return by_s3.seconds(node.signer.request("GET", f"/{REPOSITORY}/main/large"))

        compared("upload of 64 MiB", rounds, rest_put, s3_put)
        compared("GET of 64 MiB", rounds, rest_get, s3_get)


if __name__ == "__main__":
    main()

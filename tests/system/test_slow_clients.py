"""Memory under hundreds of clients that read and write slowly: it does not depend on the size of their objects."""

from __future__ import annotations

import base64
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from bench.load.client import address_of
from bench.load.signing import Request, Signer
from running_tarn import RunningTarn

from tarn.rpc.process.system import SystemClock

MIB = 1 << 20
OBJECT = 32 * MIB
SENT = 3 * MIB
"""What each writer sends of its object, and then little more: it would be held if bodies were."""
BUFFERS = MIB
"""Of one writer: two of 512 KiB (docs/design/security.md, "Bounds in sum")."""
KEPT = 128 * MIB
"""Unused buffers that two workers keep, 32 MiB each, and what they need for their first requests."""


def memory_of(tarn: RunningTarn) -> int:
    """Returns the bytes of memory of all processes, without mapped files, which the system can take back."""
    total = 0
    for pid in tarn.state()["processes"].values():
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
    return total * 1024


@contextmanager
def connections(tarn: RunningTarn, requests: list[Request]) -> Iterator[list[socket.socket]]:
    """Opens a connection for each request, with a small window, and sends its head."""
    with ExitStack() as stack:
        made = []
        for request in requests:
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.settimeout(60)
            one.connect(address_of(tarn.endpoint))
            one.sendall(request.head)
            made.append(one)
        yield made


def slowly(rounds: int, step: Callable[[], None]) -> None:
    for _ in range(rounds):
        step()
        time.sleep(0.2)


@pytest.mark.in_form("single")
@pytest.mark.parametrize(
    "count", [300, pytest.param(1000, marks=pytest.mark.long)], ids=["300", "1000"]
)
def test_memory_is_flat_under_slow_readers_and_writers(
    tarn: RunningTarn, repository: str, count: int
) -> None:
    host = tarn.endpoint.removeprefix("http://")
    sign = Signer(host, tarn.access_key_id, tarn.secret_access_key, SystemClock()).request
    s3 = tarn.s3()
    s3.put_object(Bucket=repository, Key="main/large", Body=bytes(OBJECT))
    s3.get_object(Bucket=repository, Key="main/large")["Body"].read()
    before = memory_of(tarn)

    gets = [sign("GET", f"/{repository}/main/large") for _ in range(count // 2)]
    with connections(tarn, gets) as readers:

        def read() -> None:
            for each in readers:
                assert each.recv(1024), "the server cut off a reader that makes progress"

        slowly(5, read)
        assert memory_of(tarn) - before < KEPT

        puts = []
        for number in range(count // 2):
            path = f"/{repository}/main/slow/{number}"
            made = sign("PUT", path, body_sha256="UNSIGNED-PAYLOAD")
            length = f"content-length: {OBJECT}".encode()
            puts.append(replace(made, head=made.head.replace(b"content-length: 0", length)))
        with connections(tarn, puts) as writers:
            piece = os.urandom(SENT)
            for each in writers:
                each.sendall(piece)

            def write() -> None:
                for each in writers:
                    each.sendall(bytes(1024))
                read()

            slowly(3, write)
            first = memory_of(tarn)
            assert first - before < len(writers) * BUFFERS + KEPT < len(writers) * SENT
            slowly(5, write)
            assert memory_of(tarn) - first < KEPT, "it grows with time"
            s3.head_object(Bucket=repository, Key="main/large")

    end = time.monotonic() + 60
    while (left := memory_of(tarn) - before) > KEPT:
        assert time.monotonic() < end, f"{left >> 20} MiB stay after the clients have left"
        time.sleep(0.2)
    s3.close()


@pytest.mark.in_form("single")
@pytest.mark.parametrize(
    "count", [300, pytest.param(1000, marks=pytest.mark.long)], ids=["300", "1000"]
)
def test_memory_of_the_rest_endpoint_is_flat_under_slow_clients(
    tarn: RunningTarn, repository: str, count: int
) -> None:
    """A third sends its head slowly, a third its body, and a third takes its answer slowly."""
    address = address_of(tarn.state()["api"])
    pair = f"{tarn.access_key_id}:{tarn.secret_access_key}".encode()
    authorization = b"authorization: Basic " + base64.b64encode(pair) + b"\r\n"
    head = b"GET /api/v1/user HTTP/1.1\r\nhost: x\r\n" + authorization
    post = f"POST /api/v1/repositories/{repository}/branches HTTP/1.1\r\n".encode()
    body_size = 2 * MIB
    length = f"content-length: {body_size}\r\n\r\n".encode()
    ask = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n"

    def connect(stack: ExitStack, sent: bytes) -> socket.socket:
        one = stack.enter_context(socket.socket())
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(60)
        one.connect(address)
        one.sendall(sent)
        return one

    with ExitStack() as stack:
        first = connect(stack, head + b"\r\n")
        assert first.recv(1024).startswith(b"HTTP/1.1 200")
        before = memory_of(tarn)
        heads = [connect(stack, head + b"x-a: " + b"a" * 20_000) for _ in range(count // 3)]
        bodies = [
            connect(stack, post + b"host: x\r\n" + authorization + length)
            for _ in range(count // 3)
        ]
        for each in bodies:
            with suppress(OSError):  # it was refused: too many bodies
                each.sendall(b" " * MIB)
        answers = []
        for number in range(count // 3):
            answers.append(connect(stack, ask * 10))
            if number % 50 == 49:
                time.sleep(0.5)  # the rate of an address

        def step() -> None:
            for each in (*heads, *bodies):
                with suppress(OSError):
                    each.sendall(b"  ")
            for each in answers:
                with suppress(OSError):
                    each.recv(256)

        slowly(3, step)
        held = memory_of(tarn)
        assert held - before < KEPT
        slowly(5, step)
        assert memory_of(tarn) - held < KEPT // 4, "it grows with time"
        # Others are served meanwhile.
        other = connect(stack, head + b"\r\n")
        assert other.recv(1024).startswith(b"HTTP/1.1 200")
    end = time.monotonic() + 60
    while (left := memory_of(tarn) - before) > KEPT:
        assert time.monotonic() < end, f"{left >> 20} MiB stay after the clients have left"
        time.sleep(0.2)

"""Responses that stream: iterators and files."""

from __future__ import annotations

import asyncio
import errno
import gc
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tarn.block.port import FileSlice
from tarn_gateway.http import HttpLimits, Request, Response

pytestmark = pytest.mark.timeout(20)

Serving = Callable[..., Any]
Wire = SimpleNamespace


# --- responses that stream


async def test_streams_with_and_without_a_length(serving: Serving, wire: Wire) -> None:
    async def pieces() -> AsyncIterator[bytes | memoryview]:
        yield b"a" * 10
        yield b""
        yield memoryview(b"b" * 100_000)

    async def handler(request: Request) -> Response:
        length = 100_010 if request.raw_path == b"/length" else None
        return Response(200, [], pieces(), length=length)

    expected = b"a" * 10 + b"b" * 100_000
    async with serving(handler) as stage:
        client = await stage.connect()
        for path in ("/length", "/", "/length"):
            answer = await client.ask(wire.get(path))
            assert answer.body == expected
            assert ("content-length" in answer.headers) == (path == "/length")
        old = await stage.connect()
        assert (await old.ask(b"GET / HTTP/1.0\r\n\r\n")).body == expected


@pytest.mark.parametrize("how", ["short", "long", "raises"])
async def test_a_stream_that_fails_midway_cuts_the_connection(
    how: str, serving: Serving, wire: Wire
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"12345"
        if how == "raises":
            raise ValueError("disk")
        if how == "long":
            yield b"678901"

    async def handler(request: Request) -> Response:
        return Response(200, [], pieces(), length=10)

    async with serving(handler) as stage:
        client = await stage.connect()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await client.ask(wire.get())
        exchange = await stage.exchange()
        assert exchange.error is not None


async def test_a_stream_that_fails_before_its_first_piece_is_a_clean_error(
    serving: Serving, wire: Wire
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        raise ValueError("gone")
        yield b""

    async def handler(request: Request) -> Response:
        return Response(200, [], pieces(), length=10)

    def on_error(request: Request, error: Exception) -> Response:
        return Response(503, [], str(error).encode())

    async with serving(handler, on_error=on_error) as stage:
        client = await stage.connect()
        for _ in range(2):
            answer = await client.ask(wire.get())
            assert (answer.status, answer.body) == (503, b"gone")
        assert isinstance((await stage.exchange()).error, ValueError)


async def test_a_stream_is_closed_when_its_client_goes_away(serving: Serving, wire: Wire) -> None:
    closed = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(100_000)
        finally:
            closed.set()

    async def handler(request: Request) -> Response:
        return Response(200, [], pieces(), length=1 << 40)

    async with serving(handler) as stage:
        client = await stage.connect()
        client.send(wire.get())
        await client.reader.readexactly(1000)
        client.reset()
        async with asyncio.timeout(10):
            await closed.wait()


async def test_a_handler_that_raises_is_a_500_and_the_connection_lives_on(
    serving: Serving, wire: Wire
) -> None:
    async def handler(request: Request) -> Response:
        if request.raw_path == b"/bad-header":
            return Response(200, [("X-Evil", "a\r\nSet-Cookie: b")])
        raise ZeroDivisionError

    async with serving(handler) as stage:
        client = await stage.connect()
        for path in ("/", "/bad-header", "/"):
            answer = await client.ask(wire.get(path))
            assert answer.status == 500
            assert "set-cookie" not in answer.headers
        errors = [type((await stage.exchange()).error) for _ in range(3)]
        assert errors == [ZeroDivisionError, ValueError, ZeroDivisionError]


@pytest.mark.parametrize("count", [0, 10, 64 * 1024, 64 * 1024 + 1, 5_000_000])
async def test_file_slices(count: int, tmp_path: Path, serving: Serving, wire: Wire) -> None:
    data = hashlib.sha256(b"file").digest() * 160_000
    (tmp_path / "f").write_bytes(data)
    files = []

    async def handler(request: Request) -> Response:
        file = (tmp_path / "f").open("rb")
        files.append(file)
        return Response(200, [], FileSlice(file, 7, count))

    async with serving(handler) as stage:
        client = await stage.connect()
        for _ in range(2):
            assert (await client.ask(wire.get())).body == data[7 : 7 + count]
        head = b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"
        assert (await client.ask(head, "HEAD")).headers["content-length"] == str(count)
        for _ in range(3):
            await stage.exchange()
        assert all(file.closed for file in files)


@pytest.mark.parametrize("count", [100, 200_000])
async def test_a_file_that_is_too_short_cuts_the_connection(
    count: int, tmp_path: Path, serving: Serving, wire: Wire
) -> None:
    (tmp_path / "f").write_bytes(bytes(count - 1))

    async def handler(request: Request) -> Response:
        return Response(200, [], FileSlice((tmp_path / "f").open("rb"), 0, count))

    async with serving(handler) as stage:
        client = await stage.connect()
        client.send(wire.get())
        if count <= 64 * 1024:  # noticed before the head is out
            assert (await client.answer()).status == 500
        else:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await client.answer()
        assert (await stage.exchange()).error is not None


async def test_a_file_sent_to_a_client_that_stops_reading_is_cut_off(
    tmp_path: Path, serving: Serving, wire: Wire
) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.truncate(1 << 30)
    files = []

    async def handler(request: Request) -> Response:
        files.append((tmp_path / "f").open("rb"))
        return Response(200, [], FileSlice(files[0], 0, 1 << 30))

    async with serving(handler, HttpLimits(write_stall_timeout_s=0.1)) as stage:
        client = await stage.connect()
        client.stop_reading()
        client.send(wire.get())
        assert (await stage.exchange()).status == 0
        assert files[0].closed


class Held:
    """A call in a thread that fails when it is released."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.runs, self.may_end = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> int:
        self.runs.set()
        assert self.may_end.wait(10)
        raise self._error


async def break_off_during(
    call: Held, serving: Serving, wire: Wire, path: Path
) -> list[dict[str, Any]]:
    """A client disconnects while a thread sends it a file, and then the thread's call fails. Returns the calls of the
    loop's exception handler."""
    told: list[dict[str, Any]] = []
    with path.open("wb") as file:
        file.truncate(1 << 20)
    files = []

    async def handler(request: Request) -> Response:
        files.append(path.open("rb"))
        return Response(200, [], FileSlice(files[0], 0, 1 << 20))

    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: told.append(context))
    async with serving(handler) as stage:
        client = await stage.connect()
        client.send(wire.get())
        await asyncio.to_thread(call.runs.wait, 10)
        (connection,) = stage.server._context.connections
        client.reset()
        async with asyncio.timeout(10):
            while not connection._task.cancelling():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.001)
        assert not files[0].closed, "the thread still uses its descriptor"
        call.may_end.set()
        assert (await stage.exchange()).status == 0
        assert files[0].closed
    gc.collect()
    await asyncio.sleep(0)
    loop.set_exception_handler(before)
    return told


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN])
async def test_a_send_that_fails_because_its_client_left_is_not_an_error(
    number: int,
    serving: Serving,
    wire: Wire,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = Held(OSError(number, "as sendfile says it"))
    monkeypatch.setattr(os, "sendfile", call)
    assert await break_off_during(call, serving, wire, tmp_path / "f") == []


async def test_a_file_that_cannot_be_read_is_told_though_its_client_left(
    serving: Serving,
    wire: Wire,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = Held(OSError(errno.EIO, "the disk is broken"))
    monkeypatch.setattr(os, "sendfile", call)
    (context,) = await break_off_during(call, serving, wire, tmp_path / "f")
    assert context["message"] == "reading a file for a client that left failed"
    assert context["exception"].errno == errno.EIO


async def test_a_file_arrives_whole_though_the_kernel_takes_it_in_any_pieces(
    serving: Serving, wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of a thread end because the socket is full, at any byte, also before the first one."""
    body = os.urandom(9_000_001)
    (tmp_path / "f").write_bytes(body)
    real, turns = os.sendfile, iter(range(1 << 30))

    def some(target: int, source: int, offset: int, count: int) -> int:
        turn = next(turns)
        if turn % 5 in (0, 3):
            raise BlockingIOError
        return real(target, source, offset, min(count, 1 + turn * 37_117 % 500_000))

    monkeypatch.setattr(os, "sendfile", some)

    async def handler(_: Request) -> Response:
        return Response(200, [], FileSlice((tmp_path / "f").open("rb"), 7, len(body) - 9))

    async with serving(handler) as stage:
        client = await stage.connect()
        assert (await client.ask(wire.get())).body == body[7:-2]
    assert next(turns) > 40


# --- the beginning of a file


def of_file(path: Path, data: bytes) -> Callable[[Request], Any]:
    path.write_bytes(data)

    async def handler(_: Request) -> Response:
        return Response(200, [], FileSlice(path.open("rb"), 0, len(data)))

    return handler


@pytest.mark.parametrize("taken", ["nothing", "10", "head", "head + 5"])
async def test_what_the_socket_does_not_take_of_the_beginning_follows(
    taken: str,
    serving: Serving,
    wire: Wire,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, write = bytes(range(256)) * 4096, os.writev

    def writev(descriptor: int, buffers: list[bytes]) -> int:
        head = len(buffers[0])
        count = {"nothing": 0, "10": 10, "head": head, "head + 5": head + 5}[taken]
        if not count:
            raise BlockingIOError
        return write(descriptor, [b"".join(buffers)[:count]])

    monkeypatch.setattr(os, "writev", writev)
    async with serving(of_file(tmp_path / "f", data)) as stage:
        client = await stage.connect()
        for _ in range(2):
            assert (await client.ask(wire.get())).body == data


@pytest.mark.parametrize("resident", [True, False])
async def test_only_a_file_in_the_page_cache_is_sent_without_a_thread(
    resident: bool,
    serving: Serving,
    wire: Wire,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event loop never waits for a disk."""
    data, threads = bytes(range(256)) * 800, []
    sendfile = os.sendfile

    def counted(*given: Any) -> int:
        threads.append(threading.current_thread())
        return sendfile(*given)

    def cold(*_: Any) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "sendfile", counted)
    if not resident:
        monkeypatch.setattr(os, "preadv", cold)
    async with serving(of_file(tmp_path / "f", data)) as stage:
        client = await stage.connect()
        assert (await client.ask(wire.get())).body == data
    assert bool(threads) is not resident
    assert threading.current_thread() not in threads

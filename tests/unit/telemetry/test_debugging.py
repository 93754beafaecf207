"""Stacks and profiles of a running process, directly and over its admin port."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator

import pytest

from tarn.telemetry.admin import AdminServer
from tarn.telemetry.debugging import Profiler, stacks
from tarn.telemetry.meters import Meters


async def waits_for(event: asyncio.Event) -> None:
    await event.wait()


async def outer(event: asyncio.Event) -> None:
    await waits_for(event)


def holds(event: threading.Event) -> None:
    event.wait()


def works(event: threading.Event) -> None:
    while not event.is_set():
        sum(range(1000))


async def test_stacks_show_threads_and_equal_tasks_once() -> None:
    over, held = asyncio.Event(), threading.Event()
    thread = threading.Thread(target=holds, args=(held,), name="the-thread")
    thread.start()
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(outer(over))
        await asyncio.sleep(0)
        text = stacks()
        over.set()
        held.set()
    thread.join()
    blocks = text.split("\n\n")
    assert re.search(
        r"thread the-thread\n(    .*\n)*    holds \(telemetry/test_debugging.py:\d+\)", text
    )
    (three,) = [block for block in blocks if block.startswith("3 tasks")]
    names = re.findall(r"^    (\S+) ", three, re.MULTILINE)
    assert names[:2] == ["outer", "waits_for"]  # outermost first


async def test_a_profile_shows_where_the_time_goes() -> None:
    over = threading.Event()
    thread = threading.Thread(target=works, args=(over,), name="worker")
    thread.start()
    profiler = Profiler()
    try:
        text = await profiler.profile(1.0)
    finally:
        over.set()
        thread.join()
    assert not profiler.is_running
    lines = [line.rpartition(" ") for line in text.splitlines()]
    worked = [
        int(count)
        for frames, _, count in lines
        if frames.startswith("worker;") and "works (" in frames
    ]
    assert sum(worked) >= 5
    assert not any("_sampled" in frames for frames, _, _ in lines)  # its own thread is left out


async def test_a_profile_that_is_given_up_ends() -> None:
    profiler = Profiler()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(profiler.profile(60.0))
        await asyncio.sleep(0.05)
        assert profiler.is_running
        task.cancel()
    assert task.cancelled()
    assert not profiler.is_running
    async with asyncio.timeout(10):
        assert await profiler.profile(0.05)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with AdminServer(Meters()) as server:
        yield int((await server.listen("127.0.0.1:0")).rpartition(":")[2])


async def ask(port: int, path: str) -> tuple[str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return head.split("\r\n")[0], body


async def test_the_admin_port_has_both(port: int) -> None:
    status, body = await ask(port, "/debug/stacks")
    assert status.endswith("200 OK")
    assert "thread MainThread\n" in body
    status, body = await ask(port, "/debug/profile?seconds=0.2")
    assert status.endswith("200 OK")
    assert re.fullmatch(r"([^\n]+ \d+\n)+", body)


@pytest.mark.parametrize("seconds", ["0", "-1", "61", "nan", "x", "inf"])
async def test_a_profile_of_a_wrong_length_is_refused(port: int, seconds: str) -> None:
    status, body = await ask(port, f"/debug/profile?seconds={seconds}")
    assert status.endswith("400 Bad Request")
    assert "up to 60" in body


async def test_only_one_profile_is_taken_at_a_time(port: int) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(ask(port, "/debug/profile?seconds=1"))
        await asyncio.sleep(0.2)
        status, _ = await ask(port, "/debug/profile?seconds=1")
        assert status.endswith("409 Conflict")
    status, _ = first.result()
    assert status.endswith("200 OK")


async def test_other_machines_get_metrics_only() -> None:
    server = AdminServer(Meters())
    limit = asyncio.timeout(5)
    for path in ("/debug/stacks", "/debug/profile?seconds=1"):
        answer = await server._answer(f"GET {path} HTTP/1.1\r\n\r\n", "192.0.2.7", limit)
        assert answer.startswith(b"HTTP/1.1 403 ")
    answer = await server._answer("GET /metrics HTTP/1.1\r\n\r\n", "192.0.2.7", limit)
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_process_that_hangs_tells_its_threads_on_a_signal() -> None:
    code = (
        "import time\n"
        "from tarn.telemetry.debugging import dump_threads_on_signal\n"
        "def hangs():\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "dump_threads_on_signal()\n"
        "hangs()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGUSR1)
        lines: list[str] = []
        until = time.monotonic() + 30
        while not any("in hangs" in line for line in lines) and time.monotonic() < until:
            lines.append(process.stderr.readline())
        assert any("in hangs" in line for line in lines)
        assert process.poll() is None  # it goes on
    finally:
        process.kill()
        process.communicate()

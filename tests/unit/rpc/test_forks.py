"""A process that forks beside a running gRPC server leaves gRPC's threads behind."""

from __future__ import annotations

import subprocess
import sys

FORKS = """
import asyncio
import ctypes
import os
import time

import tarn.rpc
import grpc


def threads():
    return len(os.listdir("/proc/self/task"))


async def main():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
        assert threads() > 1
        # As uvloop starts a program: `os.fork` has hooks of Python that this one has not.
        child = ctypes.CDLL(None).fork()
        if child == 0:
            time.sleep(0.2)
            os._exit(threads())
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    await server.stop(None)


asyncio.run(main())
"""


def test_a_fork_has_no_threads_of_grpc() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == "1\n", ran.stderr

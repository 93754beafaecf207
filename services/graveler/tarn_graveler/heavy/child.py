"""The heavy process: opens the same stores as its parent, does builds for it, and ends with it.

Its lifeline is the socket: when the parent's end closes (by a stop, a crash or a kill), it ends
immediately. It ignores signals that are sent to a whole process group (Ctrl-C, a service manager): its
parent still serves running calls, and may need it for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from contextlib import AsyncExitStack
from functools import partial

import pyarrow as pa
import structlog

from tarn.aio.task_set import TaskSet
from tarn.block.opening import open_blocks
from tarn.config import Config, load
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.kv.opening import open_scans
from tarn.rpc.process.defects import new_loop, warnings_logged
from tarn.rpc.process.log import REQUEST_ID, logging_to
from tarn.rpc.process.standalone import log_config
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.process.without_pandas import leave_out_pandas
from tarn.rpc.wire.errors import internal_error, unavailable_error
from tarn_graveler.branch.building import Builder, InlineBuilder
from tarn_graveler.config import open_committed_of
from tarn_graveler.heavy.wire import (
    Message,
    frame_of,
    order_of,
    read_message,
    said_error,
    said_result,
)

__all__ = ["Builds", "main"]

_log = structlog.get_logger()


def main(descriptor: int) -> int:
    """Does builds until the parent is gone; returns the exit code."""
    leave_out_pandas()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_run(socket.socket(fileno=descriptor)))


async def _run(connection: socket.socket) -> int:
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    try:
        return await _serve(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):  # the parent is gone
            await writer.wait_closed()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    variables = await read_message(reader)
    if variables is None:
        return 0
    config = load(None, {"HOME": "/", **variables})  # every path is given, and absolute
    with logging_to(log_config(config)), warnings_logged():
        async with AsyncExitStack() as stack:
            clock = SystemClock()
            try:
                builder = await _open(config, clock, stack)
            except (TarnError, OSError) as error:
                writer.write(frame_of({"error": said_error(_as_tarn(error))}))
                return 1
            writer.write(frame_of({"ready": True}))
            await Builds(builder, writer, clock).run(reader)
    return 0


async def _open(config: Config, clock: Clock, stack: AsyncExitStack) -> Builder:
    kv = await open_scans(config, clock, SystemIds(clock))
    stack.push_async_callback(kv.close)
    blocks = await open_blocks(config, clock)
    stack.push_async_callback(blocks.close)
    committed = await stack.enter_async_context(open_committed_of(config, blocks))
    return InlineBuilder(kv, committed)


def _as_tarn(error: TarnError | OSError) -> TarnError:
    return error if isinstance(error, TarnError) else unavailable_error(str(error))


class Builds:
    """The running builds. Every build is answered exactly once, a cancelled one when it has ended."""

    def __init__(self, builder: Builder, writer: asyncio.StreamWriter, clock: Clock) -> None:
        self._builder = builder
        self._writer = writer
        self._clock = clock
        self._tasks = TaskSet()
        self._running: dict[int, asyncio.Task[None]] = {}

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Handles messages until the parent is gone; then cancels the running builds."""
        try:
            while (message := await read_message(reader)) is not None:
                self._take(int(message["id"]), message)
        finally:
            await self._tasks.close()

    def _take(self, number: int, message: Message) -> None:
        if "cancel" not in message:
            self._running[number] = self._tasks.spawn(
                self._build(number, message), when_done=partial(self._ended, number)
            )
        elif number in self._running:
            self._running[number].cancel()

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        del self._running[number]
        if not self._running:
            # Arrow keeps freed memory for the next build, which may be hours away.
            pa.default_memory_pool().release_unused()
        if task.cancelled():
            self._say(number, {"error": said_error(unavailable_error("the build was cancelled"))})

    def _say(self, number: int, said: Message) -> None:
        self._writer.write(frame_of({"id": number, **said}))

    async def _build(self, number: int, message: Message) -> None:
        request_id = str(message["request_id"])
        REQUEST_ID.set(request_id)
        began = self._clock.monotonic()
        try:
            result = await self._builder.build(order_of(message["build"]))
        except TarnError as error:
            self._say(number, {"error": said_error(error)})
        except Exception as error:  # noqa: BLE001 - a bug: logged here; the answer refers to this log
            _log.error("build failed", exc_info=error)
            self._say(number, {"error": said_error(internal_error(request_id))})
        else:
            seconds = round(self._clock.monotonic() - began, 3)
            _log.info("built", seconds=seconds, entries=result.count, ranges=result.ranges_written)
            self._say(number, {"result": said_result(result)})

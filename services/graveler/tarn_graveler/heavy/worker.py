"""One heavy process, seen from its parent, a replica."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from tarn.aio.task_set import TaskSet
from tarn.block.committed import BuildResult
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.rpc.process.log import REQUEST_ID
from tarn.rpc.wire.errors import unavailable_error
from tarn_graveler.branch.building import BuildOrder
from tarn_graveler.heavy.priority import Priority
from tarn_graveler.heavy.wire import (
    Message,
    error_of,
    frame_of,
    read_message,
    result_of,
    said_order,
)

__all__ = ["HeavyProcess", "WorkerLimits", "start_process"]

_SETTINGS = "TARN_"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """How long the parent waits for its child, in seconds.

    Attributes:
        start_s: until the child has opened its stores.
        cancel_s: until the child has ended a cancelled build; then it is killed.
        stop_s: until the child has closed its stores; then it is killed, which loses nothing.
    """

    start_s: float = 60.0
    cancel_s: float = 30.0
    stop_s: float = 5.0


async def start_process(
    variables: Mapping[str, str], clock: Clock, limits: WorkerLimits, priority: Priority
) -> HeavyProcess:
    """Starts a child with the given settings (`tarn.config.variables_of`) and priority.

    Raises:
        TarnError: UNAVAILABLE: the child cannot run here, or its stores cannot be opened.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        # Before the start of the child: between that and `HeavyProcess`, which ends it, there must be no await.
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        try:
            child = await _spawn(theirs.fileno(), priority)
        except OSError as error:
            writer.close()
            raise unavailable_error(f"the heavy process cannot be started: {error}") from error
        except BaseException:
            writer.close()
            raise
    process = HeavyProcess(child, reader, writer, clock, limits)
    try:
        async with asyncio.timeout(limits.start_s):
            await process.begin(variables)
    except TimeoutError as error:
        await process.close()
        text = f"the heavy process was not ready after {limits.start_s:.0f} s"
        raise unavailable_error(text) from error
    except BaseException:
        await process.close()
        raise
    _log.info("heavy process started", child=process.pid, builds=priority.value)
    return process


async def _spawn(descriptor: int, priority: Priority) -> asyncio.subprocess.Process:
    # All settings are sent over the socket; the rest of the environment (PATH, AWS_…) is kept.
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_SETTINGS)}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tarn_graveler.heavy",
        str(descriptor),
        priority.value,
        stdin=asyncio.subprocess.DEVNULL,
        pass_fds=(descriptor,),
        env=kept,
    )


class HeavyProcess:
    """A child that builds. It ends when this end of the socket closes, for whatever reason."""

    def __init__(
        self,
        child: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        clock: Clock,
        limits: WorkerLimits,
    ) -> None:
        self._child = child
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._limits = limits
        self._tasks = TaskSet()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[BuildResult]] = {}
        self._abandoned: set[int] = set()  # cancelled builds that the child has not ended yet
        self._is_over = False

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    @property
    def is_over(self) -> bool:
        """Whether it accepts no more builds."""
        return self._is_over

    @property
    def is_idle(self) -> bool:
        """Whether no build is running."""
        return not self._waiting and not self._abandoned

    async def begin(self, variables: Mapping[str, str]) -> None:
        """Waits until the child has opened its stores.

        Raises:
            TarnError: UNAVAILABLE, with the reason.
        """
        self._send(dict(variables))
        answer = await read_message(self._reader)
        if answer is None:
            raise unavailable_error("the heavy process ended before it was ready")
        if "error" in answer:
            error = error_of(answer["error"])
            raise unavailable_error(f"the heavy process cannot work: {error.message}") from error
        self._tasks.spawn(self._listen())

    async def build(self, order: BuildOrder) -> BuildResult:
        """Has the child build an order. If the caller is cancelled, the child cancels the build.

        Raises:
            TarnError: the error of the build; UNAVAILABLE: the child has ended.
        """
        if self._is_over:
            raise self._gone()
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        said = {"id": number, "build": said_order(order), "request_id": REQUEST_ID.get()}
        try:
            self._send(said)
            result: BuildResult = await answer
            return result
        except asyncio.CancelledError:
            if answer.cancelled() and not self._is_over:
                self._abandon(number)
            raise
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """Ends the child and waits for its end; running builds fail. Idempotent."""
        self._end()
        self._writer.close()
        try:
            async with asyncio.timeout(self._limits.stop_s):
                await self._child.wait()
        except TimeoutError:
            self._kill("it did not stop")
        except BaseException:
            self._kill("its parent was cancelled while stopping it")
            raise
        finally:
            await self._child.wait()
            await self._tasks.close()

    def _send(self, message: Message) -> None:
        # No drain is needed: there are few orders, of a few hundred bytes each.
        self._writer.write(frame_of(message))

    async def _listen(self) -> None:
        """Delivers answers until the child has ended."""
        try:
            while (message := await read_message(self._reader)) is not None:
                self._take(message)
        except (ValueError, KeyError, TypeError) as error:
            self._kill(f"it sent an invalid message: {error!r}")
        if self._is_over:
            return
        self._end()
        code = await self._child.wait()
        _log.error("heavy process died", child=self.pid, exit_code=code)

    def _take(self, message: Message) -> None:
        number = int(message["id"])
        self._abandoned.discard(number)
        answer = self._waiting.get(number)
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(error_of(message["error"]))
        else:
            answer.set_result(result_of(message["result"]))

    def _abandon(self, number: int) -> None:
        self._abandoned.add(number)
        self._send({"id": number, "cancel": True})
        self._tasks.spawn(self._insist(number))

    async def _insist(self, number: int) -> None:
        """Kills a child that does not end a cancelled build: it is stuck."""
        await self._clock.sleep(self._limits.cancel_s)
        if number in self._abandoned and not self._is_over:
            self._kill("it did not end a cancelled build")

    def _end(self) -> None:
        self._is_over = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._gone())

    def _gone(self) -> TarnError:
        return unavailable_error("the heavy process ended; nothing was committed")

    def _kill(self, why: str) -> None:
        _log.error("heavy process is killed", child=self.pid, why=why)
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()

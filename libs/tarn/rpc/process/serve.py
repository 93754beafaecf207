"""Starts, runs and stops any service of Tarn; a service has no start-up code of its own.

`serve(build, config)` owns the process: the event loop, logs, telemetry, signals, the gRPC server, the
ready line, the health checks, and the stop. To stop, health turns to NOT_SERVING, running calls are answered within
`drain_seconds`, and then everything is closed in reverse order. A second signal skips the waiting.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Protocol, Self

import structlog

from tarn.aio.task_set import TaskSet
from tarn.config import SecretChanges
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import TarnError
from tarn.rpc.process.defects import new_loop, warnings_logged
from tarn.rpc.process.log import LogConfig, logging_to
from tarn.rpc.process.log_lines import LogLines
from tarn.rpc.process.open_files import raise_open_files
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.process.tls import TlsFiles, server_credentials
from tarn.rpc.server.grpc_server import RpcServer, ServerConfig
from tarn.rpc.server.health_server import HealthServer
from tarn.rpc.wire.methods import Endpoint
from tarn.telemetry.admin import AdminServer
from tarn.telemetry.audit.log import AuditConfig, AuditLog, auditing
from tarn.telemetry.debugging import dump_threads_on_signal
from tarn.telemetry.exporting import exporting
from tarn.telemetry.meters import Meters
from tarn.telemetry.process import measure_loop_lag, register_process
from tarn.telemetry.tracing import Tracing

__all__ = ["AdminPort", "Application", "Build", "Runtime", "ServeConfig", "serve"]

_GC_THRESHOLD = 20_000
_DRAIN_MARGIN_SECONDS = 2.0
"""Seconds beyond `drain_seconds`, for answers in transit, before a drain that ignores its limit is cancelled."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AdminPort:
    """Where the admin port listens.

    Attributes:
        address: `host:port`.
        is_required: whether the process must not start without it.
    """

    address: str
    is_required: bool


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Settings of a process, independent of its services.

    Attributes:
        name: the process, in logs and telemetry.
        grpc: None for a process that serves no gRPC (single node: all calls are in process).
        tls: for the gRPC server; None for plain text.
        health: `host:port` of the health checks for an orchestrator (`HealthServer`); None for none.
        drain_seconds: how long a stop waits for running calls.
        ready_fd: a file descriptor that receives the ready line and is then closed, for a supervisor.
        log: destination and format of log lines.
        admin: the admin port; None for none.
        trace_ratio: traced fraction of the requests without a sampled parent, 0 to 1.
        audit: the audit log; None for none.
    """

    name: str
    grpc: ServerConfig | None = None
    tls: TlsFiles | None = None
    health: str | None = None
    drain_seconds: float = 25.0
    ready_fd: int | None = None
    log: LogConfig = field(default_factory=LogConfig)
    admin: AdminPort | None = None
    trace_ratio: float = 0.0
    audit: AuditConfig | None = None


class Runtime:
    """The resources that a process provides to its services.

    Attributes:
        clock: time.
        ids: unique names.
        rng: random numbers for jitter and sampling; never for secrets.
        meters: counters and histograms.
        tracing: spans.
        audit: the audit log; None for none.
        secrets: parts of the process that are told of new secrets.
        addresses: listening addresses of the process by name (`grpc`, `s3`, …), for the ready line.
        failure: why the process stops by itself; empty if it was asked to stop.
    """

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        rng: random.Random,
        meters: Meters,
        tracing: Tracing,
        audit: AuditLog | None = None,
    ) -> None:
        self.clock = clock
        self.ids = ids
        self.rng = rng
        self.meters = meters
        self.tracing = tracing
        self.audit = audit
        self.secrets = SecretChanges()
        self.addresses: dict[str, str] = {}
        self.failure = ""
        self._starting: asyncio.Timeout | None = None
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    def listens(self, name: str, address: str) -> None:
        """Called by an application to publish its address, with the port that it was given."""
        self.addresses[name] = address

    def stop(self, failure: str = "") -> None:
        """Ends the process like a signal; with a failure the exit code is 1. A second call skips the waiting."""
        self.failure = self.failure or failure
        if self._stop.is_set():
            self._hurry.set()
        elif self._starting is not None:
            self._starting.reschedule(0)
        self._stop.set()

    def while_starting(self, starting: asyncio.Timeout | None) -> None:
        """Sets the timeout that a stop cancels during start-up, because a store may never answer."""
        self._starting = starting

    @property
    def is_stopping(self) -> bool:
        """Returns whether the process was asked to stop."""
        return self._stop.is_set()

    async def stopped(self) -> None:
        """Waits until the process is asked to stop."""
        await self._stop.wait()

    async def hurried(self) -> None:
        """Waits until the process is asked to stop without waiting for running calls."""
        await self._hurry.wait()


class Application(Protocol):
    """A service, or a part of one, with a life cycle: built, entered, drained, left.

    Entering starts it (its `endpoints` are read after that); leaving closes it. Leaving without a
    drain is allowed and loses calls in flight.
    """

    @property
    def name(self) -> str:
        """The name in log lines."""
        ...

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The endpoints to serve over gRPC, if the process does; may be empty."""
        ...

    async def __aenter__(self) -> Self:
        """Starts."""
        ...

    async def __aexit__(self, *exc: object) -> None:
        """Closes; called once after each successful start."""
        ...

    async def drain(self, timeout_s: float) -> None:
        """Rejects new work and waits for running work, at most `timeout_s`. May be cancelled."""
        ...


Build = Callable[[Runtime], "Awaitable[Sequence[Application]] | Sequence[Application]"]
"""Builds the applications of a process. They are entered in this order and left in reverse order."""


def serve(build: Build, config: ServeConfig) -> int:
    """Runs a process until it is asked to stop.

    Returns:
        The exit code: 0 after a requested stop, 1 if the process could not start or failed.
    """
    with (
        logging_to(config.log) as lines,
        asyncio.Runner(loop_factory=new_loop) as runner,
        warnings_logged(),
    ):
        return runner.run(_run(build, config, lines))


async def _run(build: Build, config: ServeConfig, lines: LogLines) -> int:
    clock, rng, meters = SystemClock(), random.SystemRandom(), Meters()
    ids = SystemIds(clock)
    open_files = raise_open_files()
    try:
        register_process(meters, clock, config.name, version("tarn"))
        stdout = _Stdout(lines if config.log.output == "-" else LogLines(sys.stdout))
        with (
            exporting(config.name, meters, config.trace_ratio, rng, os.environ, clock) as tracing,
            auditing(config.audit, config.name, clock, meters, stdout) as audit,
        ):
            runtime = Runtime(clock, ids, rng, meters, tracing, audit)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, runtime.stop)
            dump_threads_on_signal()
            await _live(build, config, runtime, open_files)
    except (TarnError, OSError, ValueError) as error:
        # Errors that an operator can fix: a taken port, a wrong file, a missing store.
        _log.error("cannot run", service=config.name, error=str(error), kind=type(error).__name__)
        return 1
    if runtime.failure:
        _log.error("stopped by itself", service=config.name, error=runtime.failure)
        return 1
    _log.info("stopped", service=config.name)
    return 0


class _Stdout:
    """Writes audit lines to standard output, between whole log lines."""

    def __init__(self, lines: LogLines) -> None:
        self._lines = lines

    def write(self, text: str) -> None:
        self._lines.error(text.removesuffix("\n"))


async def _live(build: Build, config: ServeConfig, runtime: Runtime, open_files: int) -> None:
    """Runs from the first application's start to the last one's close. The health checks are there before and after."""
    async with AsyncExitStack() as stack:
        health = None
        try:
            async with asyncio.timeout(None) as starting:
                runtime.while_starting(starting)
                if config.health is not None:
                    health = HealthServer(config.health, runtime.clock)
                    stack.push_async_callback(health.close)
                    runtime.listens("health", await health.start())
                await _start_telemetry(config, runtime, stack)
                applications, server = await _start(build, config, runtime, stack)
            runtime.while_starting(None)
        except TimeoutError:
            if not runtime.is_stopping:
                raise  # an application's own
            _log.info("stopped while starting", service=config.name)
            return
        _settle_memory()
        if health is not None:
            health.set_ready(is_ready=True)
        _announce(config, runtime, open_files)
        await runtime.stopped()
        _log.info("stopping", service=config.name)
        if health is not None:
            health.set_ready(is_ready=False)
        await _drain(server, applications, config.drain_seconds, runtime)


async def _start_telemetry(config: ServeConfig, runtime: Runtime, stack: AsyncExitStack) -> None:
    """Opens the admin port, before the applications, so that a slow start can be watched."""
    tasks = TaskSet()
    stack.push_async_callback(tasks.close)
    tasks.spawn(measure_loop_lag(runtime.meters))
    if config.admin is None:
        return
    admin = await stack.enter_async_context(AdminServer(runtime.meters))
    try:
        runtime.listens("admin", await admin.listen(config.admin.address))
    except OSError as error:
        if config.admin.is_required:
            text = f"cannot listen on {config.admin.address} (telemetry.admin_address): {error.strerror}"
            raise OSError(text) from error
        _log.warning("no admin port", address=config.admin.address, error=str(error))


async def _start(
    build: Build, config: ServeConfig, runtime: Runtime, stack: AsyncExitStack
) -> tuple[Sequence[Application], RpcServer | None]:
    built = build(runtime)
    applications = await built if inspect.isawaitable(built) else built
    for application in applications:
        await stack.enter_async_context(application)
    if config.grpc is None:
        return applications, None
    server = _server(applications, config, config.grpc, runtime)
    stack.push_async_callback(server.close)
    runtime.listens("grpc", await server.start())
    return applications, server


def _server(
    applications: Sequence[Application], config: ServeConfig, grpc: ServerConfig, runtime: Runtime
) -> RpcServer:
    endpoints = [endpoint for application in applications for endpoint in application.endpoints]
    return RpcServer(
        endpoints,
        grpc,
        clock=runtime.clock,
        ids=runtime.ids,
        meters=runtime.meters,
        tracing=runtime.tracing,
        credentials=None if config.tls is None else server_credentials(config.tls),
        audit=runtime.audit,
    )


def _settle_memory() -> None:
    """Excludes the objects loaded at start from garbage collection, as they live as long as the process:
    traversing them sometimes stopped everything for 20 ms. Reference counts free the objects of a request;
    the collector is for the rare cycle, so it also runs less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 20)


def _announce(config: ServeConfig, runtime: Runtime, open_files: int) -> None:
    """Announces that the process serves, once everything listens."""
    _log.info(
        "ready",
        service=config.name,
        pid=os.getpid(),
        addresses=runtime.addresses,
        open_files_max=open_files,
    )
    if config.ready_fd is not None:
        line = json.dumps({"event": "ready", "addresses": runtime.addresses})
        with os.fdopen(config.ready_fd, "w", encoding="utf-8") as ready:
            ready.write(line + "\n")


async def _drain(
    server: RpcServer | None, applications: Sequence[Application], seconds: float, runtime: Runtime
) -> None:
    """Drains in reverse order of start: an application may need those that started before it."""
    end = runtime.clock.monotonic() + seconds

    async def drain_all() -> None:
        if server is not None:
            await server.drain(seconds)
        for application in reversed(applications):
            try:
                await application.drain(max(0.0, end - runtime.clock.monotonic()))
            except Exception as error:  # noqa: BLE001 - the others still have work to end
                _log.error("drain failed", application=application.name, exc_info=error)

    async def cut_short(work: asyncio.Task[None]) -> None:
        await runtime.hurried()
        work.cancel()

    try:
        async with asyncio.timeout(seconds + _DRAIN_MARGIN_SECONDS), asyncio.TaskGroup() as group:
            work = group.create_task(drain_all())
            hurry = group.create_task(cut_short(work))
            work.add_done_callback(lambda _: hurry.cancel())
    except TimeoutError:
        _log.warning("drain took too long", seconds=seconds)

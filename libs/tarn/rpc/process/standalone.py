"""Runs one service as a process: the command line, the configuration, and the resources of the service.

Every stand-alone service has the same `main`: `run(name, …, assemble)`. The service only names its parts.
The order of opening and closing, signals, logs, gRPC and readiness are the same for all services.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal, Self

from tarn.config import Config, ConfigError, SecretFiles, ServiceName, load
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.client.replicas import Replicas
from tarn.rpc.process.log import LogConfig
from tarn.rpc.process.secret_watch import SecretWatch
from tarn.rpc.process.serve import AdminPort, Application, Runtime, ServeConfig, serve
from tarn.rpc.process.tls import ChannelTls, TlsFiles
from tarn.rpc.process.without_pandas import leave_out_pandas
from tarn.rpc.server.grpc_server import ServerConfig
from tarn.rpc.server.slots import SlotLimits
from tarn.rpc.wire.methods import Endpoint
from tarn.telemetry.audit.log import AuditConfig

__all__ = [
    "READY_FD",
    "Assemble",
    "Held",
    "connect",
    "connect_each",
    "log_config",
    "run",
    "serve_config",
    "tls_files",
]

EXIT_CONFIG = 2
READY_FD = "TARN_READY_FD"
"""Environment variable with the file descriptor on which a supervisor waits for the ready line."""

_ADMIN_PORTS = {
    "gateway": 8110,
    "node": 8110,
    "auth": 8111,
    "graveler": 8112,
    "compactor": 8113,
    "api": 8114,
}

Assemble = Callable[[Config, Runtime, AsyncExitStack], Awaitable[Sequence[Application]]]
"""Builds the applications of a process, and pushes on the stack everything that it opens."""


class Held:
    """The resources that the applications use; entered before them, closed after them."""

    name = "held"
    endpoints: Sequence[Endpoint] = ()

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def drain(self, timeout_s: float) -> None:
        """Does nothing: it has no work of its own."""


def log_config(config: Config) -> LogConfig:
    """Returns the settings of log lines."""
    logging = config.logging
    return LogConfig(level=logging.threshold, format=logging.format, output=logging.sink)


def tls_files(config: Config) -> TlsFiles | None:
    """Returns the files for mutual TLS between services; None for plain text."""
    tls = config.rpc.tls
    if tls.cert is None:
        return None
    return TlsFiles(certificate=tls.cert, key=tls.key, authority=tls.ca)


def connect(
    config: Config, runtime: Runtime, service: Literal["auth", "graveler"]
) -> GrpcTransport:
    """Returns a transport to the replicas of a service; the caller closes it."""
    files = tls_files(config)
    addresses = (config.services.auth if service == "auth" else config.services.graveler).addresses
    tls = None if files is None else ChannelTls(files)
    return GrpcTransport(addresses, tls=tls, clock=runtime.clock, rng=runtime.rng)


def connect_each(config: Config, runtime: Runtime) -> Replicas:
    """Returns the transports to each replica of graveler; the caller closes them."""
    files = tls_files(config)
    tls = None if files is None else ChannelTls(files)
    addresses = config.services.graveler.addresses
    return Replicas(addresses, tls=tls, clock=runtime.clock)


def run(
    name: str,
    description: str,
    assemble: Assemble,
    *,
    takes_rpcs_as: ServiceName | None = None,
    reuse_port: bool = False,
) -> int:
    """Runs a service until it is asked to stop. Returns the exit code, 2 for an invalid configuration.

    With `reuse_port`, several processes of one machine serve rpcs at one address.
    """
    parser = argparse.ArgumentParser(prog=f"tarn-{name}", description=description)
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML configuration")
    path: Path | None = parser.parse_args().config
    leave_out_pandas()
    try:
        config = load(path, os.environ)
        process = serve_config(name, config, takes_rpcs_as, reuse_port=reuse_port)

        async def build(runtime: Runtime) -> Sequence[Application]:
            async with AsyncExitStack() as stack:
                applications = await assemble(config, runtime, stack)
                watch = SecretWatch(
                    config,
                    SecretFiles(config, os.environ),
                    runtime.secrets,
                    runtime.clock,
                    runtime.meters,
                )
                return [Held(stack.pop_all()), *applications, watch]

        return serve(build, process)
    except ConfigError as error:
        sys.stderr.write(f"tarn-{name}: {error.message}\n")
        return EXIT_CONFIG


def _admin_port(name: str, config: Config) -> AdminPort:
    given = config.telemetry.admin_address
    if given is not None:
        return AdminPort(given, is_required=True)
    return AdminPort(f"127.0.0.1:{_ADMIN_PORTS[name]}", is_required=False)


def serve_config(
    name: str,
    config: Config,
    takes_rpcs_as: ServiceName | None,
    *,
    reuse_port: bool = False,
) -> ServeConfig:
    """Returns the settings of a process; the arguments are those of `run`.

    Raises:
        ConfigError: the service would accept rpcs from other machines without authenticating them.
    """
    ready_fd = os.environ.get(READY_FD, "")
    listen = None
    if takes_rpcs_as is not None:
        listen = ServerConfig(
            listen=config.rpc_address(takes_rpcs_as),
            listen_also=config.rpc.replica_address,
            reuse_port=reuse_port,
            reflection=config.rpc.reflection,
            slots=SlotLimits(config.rpc.concurrent_max, config.rpc.unauthenticated_max),
            operations_max=config.rpc.operations_max,
            operations_bytes_max=config.rpc.operations_size_bytes,
        )
    return ServeConfig(
        name=name,
        grpc=listen,
        tls=None if listen is None else tls_files(config),
        health=config.rpc.health_address,
        drain_seconds=config.rpc.drain_timeout_ms / 1000,
        ready_fd=int(ready_fd) if ready_fd.isdecimal() else None,
        log=log_config(config),
        admin=_admin_port(name, config),
        trace_ratio=config.tracing.sample_ratio,
        audit=_audit_config(config),
    )


def _audit_config(config: Config) -> AuditConfig | None:
    audit = config.audit
    if audit.output == "off":
        return None
    return AuditConfig(
        audit.folder if audit.output == "file" else None,
        audit.file_size_bytes,
        audit.files,
        audit.queue,
        audit.reads,
    )

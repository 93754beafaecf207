"""The plan of `tarn up`: the configuration overridden by flags, the ports, and the workers' commands.

Workers get all settings through environment variables (`TARN_…`, see `tarn.config`). These override the
configuration file, and so do the flags of `tarn up`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from tarn.config import Config, ConfigError, installation_secrets, load
from tarn.config.sections import EndpointTls
from tarn_cli.exits import CliError, Exit
from tarn_cli.node.data_dir import DataDir, State
from tarn_cli.node.kv_url import kv_variables
from tarn_cli.node.log_rotation import LogRotation
from tarn_cli.node.ports import hold_port, with_port
from tarn_cli.node.supervisor import WorkerSpec
from tarn_cli.node.timer_plan import plan_timers
from tarn_cli.node.timers import TimerSpec

__all__ = ["NodeFlags", "NodePlan", "read_config"]

_API = "TARN_API_LISTEN_ADDRESS"
_ADMIN = "TARN_TELEMETRY_ADMIN_ADDRESS"
_AUTH = "TARN_SERVICES_AUTH_ADDRESSES"
_COMPACTOR = "TARN_SERVICES_COMPACTOR_ADDRESSES"
_DATA_DIR = "TARN_DATA_DIR"
_GRAVELER = "TARN_SERVICES_GRAVELER_ADDRESSES"
_REPLICA = "TARN_RPC_REPLICA_ADDRESS"
_RPC = "TARN_RPC_LISTEN_ADDRESS"
_GATEWAYS = "TARN_QUOTAS_GATEWAYS"
_S3 = "TARN_GATEWAYS_S3_LISTEN_ADDRESS"
_SECRET_FILE = "TARN_INSTALLATION_SECRET_FILE"  # noqa: S105 - the name of a variable
_PREVIOUS_FILE = "TARN_INSTALLATION_PREVIOUS_SECRET_FILE"

_STOP_MARGIN_SECONDS = 5.0
"""Longer than the margin after which a drain is cancelled (`tarn.rpc.process.serve`), and the close after it."""


def read_config(
    file: Path | None, environment: Mapping[str, str], data_dir: Path | None = None
) -> Config:
    """The configuration of a node; a data folder given as a flag overrides it.

    Raises:
        CliError: USAGE, the configuration is invalid; the text names every problem.
    """
    above = {} if data_dir is None else {_DATA_DIR: str(data_dir.absolute())}
    try:
        return load(file, {**environment, **above})
    except ConfigError as error:
        raise CliError(Exit.USAGE, error.problems[0], details=error.problems[1:]) from error


@dataclass(frozen=True, slots=True)
class NodeFlags:
    """Flags that override the configuration; None or empty: not given.

    Attributes:
        config_file: YAML file.
        data_dir: data folder.
        host: address on which the S3 endpoint and the REST endpoint listen.
        port: port of the S3 endpoint; 0 takes a free one.
        rpc_port: port of graveler's rpc; 0 takes a free one.
        workers: number of worker processes; with `separate`, of graveler processes.
        separate: run each service in a separate process.
        kv: URL of the metadata store, see `tarn_cli.node.kv_url`.
        kv_replicas: replicas of a keyspace that has to be created.
        api_port: port of the REST endpoint; 0 takes a free one.
    """

    config_file: Path | None = None
    data_dir: Path | None = None
    host: str = ""
    port: int | None = None
    rpc_port: int | None = None
    workers: int | None = None
    separate: bool = False
    kv: str = ""
    kv_replicas: int | None = None
    api_port: int | None = None

    def variables(self) -> dict[str, str]:
        """Environment variables for the flags of the metadata store.

        Raises:
            CliError: USAGE, a flag is invalid.
        """
        return kv_variables(self.kv, self.kv_replicas)

    def arguments(self) -> list[str]:
        """The same flags as arguments of another `tarn up`."""
        named = {
            "--config": self.config_file and str(self.config_file.absolute()),
            "--data-dir": self.data_dir and str(self.data_dir.absolute()),
            "--host": self.host or None,
            "--port": self.port,
            "--api-port": self.api_port,
            "--rpc-port": self.rpc_port,
            "--workers": self.workers,
            "--kv": self.kv or None,
            "--kv-replicas": self.kv_replicas,
        }
        pairs = [(name, str(value)) for name, value in named.items() if value is not None]
        flags = ["--separate"] if self.separate else []
        return [spec for pair in pairs for spec in pair] + flags


@dataclass(slots=True)
class NodePlan:
    """A node that is about to run; holds its ports until the context ends.

    Attributes:
        specs: the processes of the supervisor, in order of their start.
        endpoint: URL of the S3 endpoint.
        server: `host:port` of graveler's rpc.
        auth_server: `host:port` of auth's rpc.
        compactor_server: `host:port` of the compactor's rpc; empty if none runs.
        stop_s: time for a process to drain; then it is killed.
        admin_addresses: `host:port` of the admin port of each process, by its name.
        timers: the timers of the node.
        log_rotation: limits of the log of a detached node.
        api: URL of the REST endpoint.
    """

    specs: tuple[WorkerSpec, ...]
    endpoint: str
    server: str
    auth_server: str
    compactor_server: str
    stop_s: float
    admin_addresses: dict[str, str]
    timers: tuple[TimerSpec, ...]
    log_rotation: LogRotation
    api: str
    _ports: ExitStack

    @staticmethod
    def of(flags: NodeFlags, config: Config, environment: Mapping[str, str]) -> NodePlan:
        """Holds the ports, creates the installation's secret if it is missing, and plans the processes.

        Raises:
            CliError: CONFLICT, a port is taken; USAGE, the configuration contradicts itself.
        """
        if config.rpc.health_address is not None:
            text = "rpc.health_address is for tarn-auth, tarn-graveler, tarn-gateway, tarn-api and tarn-compactor"
            raise CliError(Exit.USAGE, f"{text}; remove it: `tarn up` runs several processes")
        s3 = _on_host(flags, config.gateways.s3.listen_address)
        if flags.port is not None:
            s3 = with_port(s3, flags.port)
        graveler, auth = _rpc_addresses(flags, config)
        with ExitStack() as stack:

            def held(address: str) -> str:
                port = hold_port(address)
                stack.callback(port.close)
                return port.address

            s3, graveler = held(s3), held(graveler)
            api = _api_port(flags, config, held)
            auth = held(auth) if flags.separate else graveler
            # Further replicas of graveler take free ports, which the gateway gets as a setting.
            more = [
                held(with_port(graveler, 0))
                for _ in range((flags.workers or 1) - 1 if flags.separate else 0)
            ]
            # Workers share one port; each also has its own, for the compactor.
            count = flags.workers or config.workers or len(os.sched_getaffinity(0))
            watches = config.compactor.enabled and not flags.separate
            own = [held(with_port(graveler, 0)) for _ in range(count if watches else 0)]
            compactor = _compactor_port(flags, config, graveler, held)
            told = {
                _DATA_DIR: str(config.data_dir.absolute()),
                _S3: s3,
                _API: api,
                _GRAVELER: ",".join([graveler, *more]),
                _AUTH: auth,
                **_secret(config, environment),
            }
            specs = _parts(flags, config, told, environment, own)
            if compactor:
                watched = {**told, _GRAVELER: ",".join(own or [graveler, *more])}
                specs = (*specs, _compactor(flags, watched, environment, compactor))
            specs, admin = _with_admin_ports(flags, config, specs, held)
            stop_s = config.rpc.drain_timeout_ms / 1000 + _STOP_MARGIN_SECONDS
            timers = plan_timers(config, flags.config_file, {**environment, **told}, graveler, auth)
            s3_url = _url(config.gateways.s3.tls, s3)
            api_url, ports = _url(config.api.tls, api), stack.pop_all()
            rotation = LogRotation(
                DataDir(config.data_dir).log_file,
                config.logging.file_size_bytes,
                config.logging.file_age_ms / 1000,
                config.logging.files,
            )
            return NodePlan(
                specs,
                s3_url,
                graveler,
                auth,
                compactor,
                stop_s,
                admin,
                timers,
                rotation,
                api_url,
                ports,
            )

    def state(self, processes: dict[str, int], restart_count: int) -> State:
        """The contents of the state file while these processes run (process id by name)."""
        return State(
            os.getpid(),
            self.endpoint,
            self.server,
            self.auth_server,
            processes,
            restart_count,
            self.compactor_server,
            self.admin_addresses,
            self.api,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._ports.close()


def _rpc_addresses(flags: NodeFlags, config: Config) -> tuple[str, str]:
    """The rpc addresses of graveler and of auth; auth's is used only if they are separate."""
    try:
        graveler = config.rpc_address("graveler")
        auth = config.services.auth.addresses[0]
    except ConfigError as error:
        raise CliError(Exit.USAGE, error.problems[0], details=error.problems[1:]) from error
    if flags.rpc_port is not None:
        graveler = with_port(graveler, flags.rpc_port)
        auth = with_port(auth, max(0, flags.rpc_port - 1))
    return graveler, auth


def _secret(config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that give workers the installation's secrets; the first start creates the secret.

    The other secret of a rotation need not exist: the workers read it as soon as it does.
    """
    try:
        installation_secrets(config, make=True)
    except ConfigError as error:
        raise CliError(Exit.USAGE, error.problems[0], details=error.problems[1:]) from error
    if config.installation.secret is not None:
        return {}
    folder = DataDir(config.data_dir)
    files = {_SECRET_FILE: str(folder.secret_file)}
    if config.installation.previous_secret is None and _PREVIOUS_FILE not in environment:
        files[_PREVIOUS_FILE] = str(folder.previous_secret_file)
    return files


def _on_host(flags: NodeFlags, address: str) -> str:
    """The address of an endpoint, on the host of the flags if they name one."""
    return f"{flags.host}:{address.rpartition(':')[2]}" if flags.host else address


def _api_port(flags: NodeFlags, config: Config, held: Callable[[str], str]) -> str:
    """Holds the port of the REST endpoint. Without its flag a free one serves as well if the S3 port is one, or if
    another program has the port: the state file tells it."""
    address = _on_host(flags, config.api.listen_address)
    if flags.api_port is not None:
        return held(with_port(address, flags.api_port))
    if flags.port != 0:
        with contextlib.suppress(CliError):
            return held(address)
    return held(with_port(address, 0))


def _compactor_port(
    flags: NodeFlags, config: Config, graveler: str, held: Callable[[str], str]
) -> str:
    """Holds the compactor's port; empty if none runs.

    Only `tarn compact status` needs the port, and the state file tells it. So a free one serves as well if the rpc
    port is not the default, or if another program has the port.
    """
    if not config.compactor.enabled:
        return ""
    if flags.rpc_port is None:
        with contextlib.suppress(CliError):
            return held(config.services.compactor.addresses[0])
    return held(with_port(graveler, 0))


def _with_admin_ports(
    flags: NodeFlags,
    config: Config,
    specs: tuple[WorkerSpec, ...],
    held: Callable[[str], str],
) -> tuple[tuple[WorkerSpec, ...], dict[str, str]]:
    """Gives every process its admin port; returns the specs with it, and the addresses by process.

    Ports are consecutive. A process gets a free one instead if the rpc port is not the default, as in
    `_compactor_port`, or if its port is taken.
    """
    given = config.telemetry.admin_address
    host, _, port = (given or "127.0.0.1:8110").rpartition(":")
    following = int(port) if given is not None or flags.rpc_port is None else 0
    addresses: dict[str, str] = {}
    planned = []
    for spec in specs:
        own = list(spec.own) or [{}] * spec.count
        for number, name in enumerate(spec.names()):
            address = ""
            with contextlib.suppress(CliError):
                address = held(f"{host}:{following}")
            addresses[name] = address or held(f"{host}:0")
            following += 1 if following else 0
            own[number] = {**own[number], _ADMIN: addresses[name]}
        planned.append(replace(spec, own=tuple(own)))
    return tuple(planned), addresses


def _compactor(
    flags: NodeFlags, told: dict[str, str], environment: Mapping[str, str], address: str
) -> WorkerSpec:
    command = (sys.executable, "-m", "tarn_compactor", *_file(flags))
    variables = {**environment, **told, _RPC: address, _COMPACTOR: address}
    return WorkerSpec("compactor", command, variables)


def _file(flags: NodeFlags) -> list[str]:
    return [] if flags.config_file is None else ["--config", str(flags.config_file.absolute())]


def _parts(
    flags: NodeFlags,
    config: Config,
    told: dict[str, str],
    environment: Mapping[str, str],
    own: Sequence[str],
) -> tuple[WorkerSpec, ...]:
    """The processes of a node, but for the compactor; `own` holds an address for each worker, or none."""

    def spec(name: str, module: str, rpc: str, count: int = 1) -> WorkerSpec:
        command = (sys.executable, "-m", module, *_file(flags))
        return WorkerSpec(name, command, {**environment, **told, _RPC: rpc}, count)

    gravelers = told[_GRAVELER].split(",")
    if not flags.separate:
        count = flags.workers or config.workers or len(os.sched_getaffinity(0))
        workers = spec("worker", "tarn_cli.node.worker", gravelers[0], count)
        # Each worker is a gateway, and enforces its share of a rate.
        shared = {**workers.environment, _GATEWAYS: str(count * config.quotas.gateways)}
        addresses = tuple({_REPLICA: address} for address in own)
        return (replace(workers, environment=shared, own=addresses),)
    names = ["graveler", *(f"graveler-{n}" for n in range(2, len(gravelers) + 1))]
    return (
        spec("auth", "tarn_auth", told[_AUTH]),
        *(spec(name, "tarn_graveler", rpc) for name, rpc in zip(names, gravelers, strict=True)),
        spec("gateway", "tarn_gateway", gravelers[0]),
        spec("api", "tarn_api", gravelers[0]),
    )


def _url(tls: EndpointTls, address: str) -> str:
    """The URL at which this machine reaches an endpoint."""
    scheme = "http" if tls.cert is None else "https"
    host, _, port = address.rpartition(":")
    return f"{scheme}://{ {'0.0.0.0': '127.0.0.1', '[::]': '[::1]'}.get(host, host) }:{port}"  # noqa: S104 - not bound here

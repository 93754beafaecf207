"""The settings, typed: one frozen class for each section of the table.

Field names are the last part of a key's name, with the unit of durations (`_ms`) and sizes (`_bytes`).
A test keeps this page and `tarn.config.keys` the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Literal, TypeVar, cast, get_type_hints

from tarn.config.errors import ConfigError
from tarn.config.values import Secret

__all__ = [
    "Api",
    "Blockstore",
    "Cache",
    "Config",
    "Gateways",
    "Graveler",
    "Installation",
    "Limits",
    "Logging",
    "Metadata",
    "Rpc",
    "Services",
    "Tracing",
    "build",
]


@dataclass(frozen=True, slots=True)
class Installation:
    """Which Tarn this is."""

    id: str
    secret: Secret | None
    previous_secret: Secret | None


@dataclass(frozen=True, slots=True)
class Logging:
    """What is logged and where."""

    format: Literal["json", "text"]
    level: Literal["debug", "info", "warning", "error", "none"]
    output: str

    @property
    def threshold(self) -> str:
        """The least level that is logged, for loggers that know no `none`; see `sink`."""
        return "error" if self.level == "none" else self.level

    @property
    def sink(self) -> str:
        """Where lines go: nowhere if none are wanted."""
        return os.devnull if self.level == "none" else self.output


@dataclass(frozen=True, slots=True)
class Embedded:
    """The embedded store."""

    path: Path

    @property
    def file(self) -> Path:
        """The database in the folder; the same for every service that shares it."""
        return self.path / "tarn.db"


@dataclass(frozen=True, slots=True)
class CassandraTls:
    """TLS to the nodes; `cert` and `key` are set together."""

    enabled: bool
    ca: Path | None
    cert: Path | None
    key: Path | None


@dataclass(frozen=True, slots=True)
class Cassandra:
    """The Cassandra cluster; `username` and `password` are set together."""

    contact_points: tuple[str, ...]
    local_datacenter: str
    keyspace: str
    replication_factor: int
    username: str | None
    password: Secret | None
    tls: CassandraTls
    request_timeout_ms: int


@dataclass(frozen=True, slots=True)
class Db:
    """The metadata store."""

    type: Literal["embedded", "cassandra"]
    embedded: Embedded
    cassandra: Cassandra


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata."""

    db: Db


@dataclass(frozen=True, slots=True)
class Local:
    """Objects in a folder."""

    path: Path


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Static credentials of the bucket."""

    access_key_id: str | None
    access_secret_key: Secret | None
    session_token: Secret | None


@dataclass(frozen=True, slots=True)
class S3ServerTls:
    """TLS to the server of the bucket."""

    ca: Path | None


@dataclass(frozen=True, slots=True)
class S3:
    """Objects in a bucket."""

    endpoint: str | None
    region: str
    force_path_style: bool
    tls: S3ServerTls
    profile: str | None
    credentials_file: Path | None
    credentials: S3Credentials
    part_size_bytes: int
    spool: Path | None
    requests: int
    large_writes: int
    attempts: int
    connect_timeout_ms: int
    request_timeout_ms: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Blockstore:
    """Objects."""

    type: Literal["local", "s3"]
    default_namespace_prefix: str | None
    local: Local
    s3: S3

    @property
    def namespace_prefix(self) -> str:
        """What the storage namespaces of repositories begin with that name none; ends in `/`."""
        given = self.default_namespace_prefix or "local://"
        return given if given.endswith("/") else given + "/"


@dataclass(frozen=True, slots=True)
class S3Tls:
    """The S3 endpoint's certificate; both or neither is set."""

    cert: Path | None
    key: Path | None


@dataclass(frozen=True, slots=True)
class S3Gateway:
    """The S3 endpoint."""

    listen_address: str
    domain_name: str
    region: str
    tls: S3Tls
    access_log: bool


@dataclass(frozen=True, slots=True)
class Gateways:
    """Endpoints that speak other systems' protocols."""

    s3: S3Gateway


@dataclass(frozen=True, slots=True)
class Api:
    """The REST endpoint."""

    listen_address: str


@dataclass(frozen=True, slots=True)
class RpcTls:
    """Mutual TLS between services; all three or none is set."""

    ca: Path | None
    cert: Path | None
    key: Path | None


@dataclass(frozen=True, slots=True)
class Rpc:
    """How services take calls."""

    listen_address: str | None
    tls: RpcTls
    allow_plaintext: bool


@dataclass(frozen=True, slots=True)
class Service:
    """Where a service is; at least one address."""

    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Services:
    """Where services are."""

    auth: Service
    graveler: Service


@dataclass(frozen=True, slots=True)
class Graveler:
    """The branch protocol's settings."""

    cleanup_delay_ms: int
    cleanup_poll_ms: int
    heavy_process: bool


@dataclass(frozen=True, slots=True)
class Ranges:
    """The cache of decoded ranges."""

    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Cache:
    """What is kept to be quick."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Limits:
    """What one gateway takes."""

    connections: int
    body_size_bytes: int


@dataclass(frozen=True, slots=True)
class Tracing:
    """What is traced."""

    sample_ratio: float


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting, checked. Its repr holds no secret."""

    data_dir: Path
    durability: Literal["fsync", "os"]
    workers: int
    installation: Installation
    logging: Logging
    metadata: Metadata
    blockstore: Blockstore
    gateways: Gateways
    api: Api
    rpc: Rpc
    services: Services
    graveler: Graveler
    cache: Cache
    limits: Limits
    tracing: Tracing

    def rpc_address(self, service: Literal["auth", "graveler"]) -> str:
        """Where a service takes rpcs.

        Raises:
            ConfigError: it would take them from other machines, without knowing who they are.
        """
        own: Service = getattr(self.services, service)
        address = self.rpc.listen_address or own.addresses[0]
        host = address.rpartition(":")[0]
        is_local = host in {"localhost", "[::1]"} or host.startswith("127.")
        if not is_local and self.rpc.tls.cert is None and not self.rpc.allow_plaintext:
            text = f"{service} would take rpcs at {address} from other machines without TLS"
            raise ConfigError([f"{text}: set rpc.tls, or rpc.allow_plaintext behind a mesh"])
        return address


S = TypeVar("S")


def build(section: type[S], values: Mapping[str, object], prefix: str = "") -> S:
    """A section of values by the full name of their field, such as `cache.ranges.size_bytes`."""
    hints = get_type_hints(section)
    arguments: dict[str, object] = {}
    for field in fields(section):  # type: ignore[arg-type]  # every section is a dataclass
        hint = hints[field.name]
        name = prefix + field.name
        inner = is_dataclass(hint) and isinstance(hint, type) and hint is not Secret
        arguments[field.name] = build(hint, values, name + ".") if inner else values[name]
    return cast("Callable[..., S]", section)(**arguments)

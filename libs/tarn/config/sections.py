"""The table of every setting: one frozen class for each section, one field for each key.

A key's name, type, default and documentation are defined only here; loading, errors, `tarn config
reference` and `docs/operate/configuration.md` derive from them (`tarn.config.keys`). A field has the name of
the last part of its key, followed by the unit of durations (`_ms`) and sizes (`_bytes`). The order of the
fields is the order of the page.

Names and defaults are those of the first draft of lakeFS (docs/design/departures.md), except that services
listen only on loopback by default and all paths are in one data folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tarn.config.compactor_sections import Compactor, CompactorPlace
from tarn.config.errors import ConfigError
from tarn.config.lifecycle_sections import Lifecycle
from tarn.config.quota_sections import Quotas
from tarn.config.rpc_sections import Rpc
from tarn.config.setting import FromFile, setting
from tarn.config.telemetry_sections import Audit, Telemetry, Tracing
from tarn.config.timer_sections import Backup, CollectionTimer
from tarn.config.values import Choice, Form, Number, Secret, Sort, Within

__all__ = [
    "Api",
    "Backup",
    "Blockstore",
    "Cache",
    "CollectionTimer",
    "Compactor",
    "Config",
    "Gateways",
    "Graveler",
    "Installation",
    "Lifecycle",
    "Limits",
    "Logging",
    "Metadata",
    "Quotas",
    "Rpc",
    "ServiceName",
    "Services",
    "Telemetry",
    "Tracing",
]

ServiceName = Literal["auth", "graveler", "compactor"]
"""A service that accepts rpcs."""

_LOG_AGE = Within(Sort.DURATION, "1m", "3650d")
_SOME_TIME = Within(Sort.DURATION, "1ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The identity and the secrets of an installation."""

    id: str = setting(
        "tarn",
        "Distinguishes several installations on one shared store.",
        Form("[a-z0-9][a-z0-9-]{0,31}", "1 to 32 of a-z, 0-9 and '-', not starting with '-'"),
    )
    secret: Secret | None = setting(
        None,
        "Secret from which auth derives its keys, the same for all replicas of auth; `openssl rand "
        "-hex 32` makes one. A single-node Tarn makes its own, in `<data_dir>/secret`.",
        Sort.HEX_SECRET,
        from_file=FromFile.REQUIRED,
    )
    previous_secret: Secret | None = setting(
        None,
        "The other secret during a rotation (docs/operate/rotation.md): data that it encrypted or signed stays valid. "
        "A single-node Tarn also reads it from `<data_dir>/previous_secret`.",
        Sort.HEX_SECRET,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """Level, form and destination of the log."""

    format: Literal["json", "text"] = setting("text", "Form of a log line.")
    level: Literal["debug", "info", "warning", "error", "none"] = setting(
        "INFO",
        "Lowest level that is logged.",
        Choice(
            ("DEBUG", "INFO", "WARN", "ERROR", "NONE"),
            (("warn", "warning"), ("warning", "warning")),
        ),
    )
    output: str = setting("-", "`-`: standard output; `=`: standard error; else a file.")
    file_size_bytes: int = setting(
        "64MiB",
        "Size at which `tarn up --detach` begins a new log. Earlier ones get a number at the end of their name; 1 is "
        "the latest.",
        Within(Sort.SIZE, "1MiB"),
    )
    file_age_ms: int = setting(
        "7d", "Age of its first line at which `tarn up --detach` begins a new log.", _LOG_AGE
    )
    files: int = setting("5", "Logs that are kept, the current one included.", Number(1, 1000))

    @property
    def threshold(self) -> str:
        """The lowest level that is logged, for loggers that do not know `none`; see `sink`."""
        return "error" if self.level == "none" else self.level

    @property
    def sink(self) -> str:
        """The destination of log lines; the null device for level `none`."""
        return os.devnull if self.level == "none" else self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """The embedded store."""

    path: Path = setting(
        None,
        "Folder of the embedded store, on a local file system; `<data_dir>/kv` if not given.",
        aliases=("metadata.db.badger.path", "metadata.badger.path"),
        folder="kv",
    )

    @property
    def file(self) -> Path:
        """The database in the folder; the same for every service that shares it."""
        return self.path / "tarn.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraTls:
    """TLS to the nodes; `cert` and `key` are set together."""

    enabled: bool = setting(
        "false", "Whether connections are encrypted and the nodes' certificates checked."
    )
    ca: Path | None = setting(
        None,
        "Authorities that must have signed the nodes' certificates, PEM; the system's if not given.",
    )
    cert: Path | None = setting(None, "Tarn's own certificate, for nodes that require one, PEM.")
    key: Path | None = setting(None, "Private key of that certificate, PEM.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cassandra:
    """The Cassandra cluster; `username` and `password` are set together."""

    contact_points: tuple[str, ...] = setting(
        "127.0.0.1:9042", "Some nodes of the cluster, through which the others are found."
    )
    local_datacenter: str = setting(
        "datacenter1",
        "Data centre whose nodes are used. Equal in all processes of an installation: a process "
        "with another value is refused.",
    )
    keyspace: str = setting(
        "tarn", "Keyspace; created if it does not exist. Several installations may share one."
    )
    replication_factor: int = setting(
        "3",
        "Replicas of each row, in a keyspace that Tarn creates; 0: one per node, at most 3.",
        Number(0, 9),
    )
    username: str | None = setting(
        None, "Role that Tarn logs in as. May come from a file.", from_file=FromFile.OPTIONAL
    )
    password: Secret | None = setting(None, "Password of that role.")
    tls: CassandraTls
    request_timeout_ms: int = setting(
        "5s", "Time-out of one request; must be longer than the nodes' own time-outs."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Db:
    """The metadata store."""

    type: Literal["embedded", "cassandra"] = setting(
        "embedded",
        "Store of the metadata. `badger` and `sqlite` are aliases of `embedded`.",
        Choice(("embedded", "cassandra"), (("badger", "embedded"), ("sqlite", "embedded"))),
    )
    embedded: Embedded
    cassandra: Cassandra


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Metadata."""

    db: Db


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """Objects in a folder."""

    path: Path = setting(
        None, "Folder of the objects; `<data_dir>/blocks` if not given.", folder="blocks"
    )
    reserve_bytes: int = setting(
        "256MiB",
        "Space on the disk that objects leave free, so that a full disk still takes deletes and commits; at most a "
        "twentieth of the disk.",
        Within(Sort.SIZE, "0"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Credentials:
    """Static credentials of the bucket."""

    access_key_id: str | None = setting(
        None, "Static credentials. May come from a file.", from_file=FromFile.OPTIONAL
    )
    access_secret_key: Secret | None = setting(None, "Static credentials.")
    session_token: Secret | None = setting(None, "Static session token.")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3ServerTls:
    """TLS to the server of the bucket."""

    ca: Path | None = setting(
        None,
        "Authorities that may have signed the server's certificate, PEM; the system's if not given.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class S3:
    """Objects in a bucket."""

    endpoint: str | None = setting(
        None,
        "URL of the server, such as `https://minio.example.com:9000`; AWS if not given.",
        Form(
            r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?",
            "`http://host:port` or `https://host:port`, without a path",
        ),
    )
    region: str = setting("us-east-1", "Region of the bucket.")
    force_path_style: bool = setting(
        "false",
        "Whether the bucket is in the path of the URL instead of the host name; most servers "
        "except AWS need it.",
    )
    tls: S3ServerTls
    profile: str | None = setting(None, "Named profile of the AWS credentials file.")
    credentials_file: Path | None = setting(None, "AWS credentials file.")
    credentials: S3Credentials
    part_size_bytes: int = setting(
        "8MiB",
        "Largest body of one request; larger objects are written in parts of this size. A process "
        "holds one part in memory for each object that it writes.",
        Within(Sort.SIZE, "5MiB", "1GiB"),  # the limits of S3, and of the memory of a process
    )
    spool: Path | None = setting(
        None,
        "Folder for parts of multipart uploads that are larger than `part_size`, until they "
        "are complete; the system's temporary folder if not given. Needs room for `large_writes`"
        " parts.",
    )
    requests: int = setting(
        "64", "Most requests that one process has in flight.", Number(1, 10_000)
    )
    large_writes: int = setting(
        "32",
        "Most objects of more than 1 MiB that one process writes concurrently; others wait, then "
        "get 503.",
        Number(1, 10_000),
    )
    attempts: int = setting(
        "6",
        "Most attempts of one request, including the first, when the server is busy or "
        "cannot be reached.",
        Number(1, 100),
    )
    connect_timeout_ms: int = setting("5s", "Time-out of a new connection.", _SOME_TIME)
    request_timeout_ms: int = setting("30s", "Time-out of one attempt.", _SOME_TIME)
    deadline_ms: int = setting(
        "60s", "Time limit of all attempts and the pauses between them.", _SOME_TIME
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Blockstore:
    """Objects."""

    type: Literal["local", "s3"] = setting(
        "local", "Kind of the block store; see `docs/operate/blockstores.md`."
    )
    default_namespace_prefix: str | None = setting(
        None,
        "Prefix of the storage namespaces of repositories that name none; `local://` if not given."
        " With `s3` it must be given, such as `s3://bucket/tarn`: Tarn checks the server "
        "there at start.",
    )
    local: Local
    s3: S3

    @property
    def namespace_prefix(self) -> str:
        """Prefix of the storage namespaces of repositories that name none; ends in `/`."""
        given = self.default_namespace_prefix or "local://"
        return given if given.endswith("/") else given + "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Tls:
    """The S3 endpoint's certificate; both or neither is set."""

    cert: Path | None = setting(None, "Certificate chain, PEM; enables TLS together with `key`.")
    key: Path | None = setting(None, "Private key of the certificate, PEM.")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Gateway:
    """The S3 endpoint."""

    listen_address: str = setting("127.0.0.1:8000", "Address for S3 clients.", Sort.ADDRESS)
    domain_name: str = setting(
        "s3.local", "Name of the endpoint, for buckets in host names (`lake.s3.local`)."
    )
    region: str = setting("us-east-1", "Region that S3 clients sign for; others are refused.")
    tls: S3Tls
    access_log: bool = setting(
        "true", "Log a line for every request; if false, only for requests that failed with 5xx."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateways:
    """Endpoints that speak other systems' protocols."""

    s3: S3Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The REST endpoint."""

    listen_address: str = setting(
        "127.0.0.1:8001",
        "Accepted and not used: this version has no REST endpoint.",
        Sort.ADDRESS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthPlace:
    """Addresses of auth; at least one."""

    addresses: tuple[str, ...] = setting(
        "127.0.0.1:8101", "Addresses of auth.", aliases=("services.auth.address",)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GravelerPlace:
    """Addresses of graveler; at least one."""

    addresses: tuple[str, ...] = setting(
        "127.0.0.1:8102", "Addresses of graveler.", aliases=("services.graveler.address",)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Addresses of the services."""

    auth: AuthPlace
    graveler: GravelerPlace
    compactor: CompactorPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Graveler:
    """The branch protocol's settings."""

    drop_delay_ms: int = setting(
        "60s",
        "The drop delay: how long data outlives the last record that names it; longer than any "
        "read takes. Far below the grace time of garbage collections, 6 h. Equal on all replicas: "
        "a replica with another value is refused.",
        Within(Sort.DURATION, "1ms", "1h"),
    )
    cleanup_poll_ms: int = setting("3s", "Interval at which graveler looks for data to drop.")
    heavy_process: bool = setting(
        "true",
        "Build large commits in a second process, and large compactions in a third one of the "
        "lowest priority, so that they do not delay requests. Each starts with its first build "
        "and ends after some minutes without one (see `docs/design/heavy-process.md`).",
    )
    reflog_retention_ms: int = setting(
        "90d",
        "Age at which the entries of a reflog expire. Until then `main@{…}` reaches them, and a deleted "
        "branch can be restored. Use one value on all replicas.",
        Within(Sort.DURATION, "1h", "3650d"),
    )
    reflog_entries_max: int = setting(
        "10000",
        "Most entries of the reflog of one branch; older ones expire.",
        Number(10, 100_000),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """The cache of decoded ranges."""

    path: Path = setting(
        None,
        "Folder of decoded ranges; `<data_dir>/cache` if not given. May be emptied at any time.",
        folder="cache",
    )
    size_bytes: int = setting("1GiB", "Most bytes that the cache may take.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Caches on the local disk."""

    ranges: Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one gateway."""

    connections: int = setting(
        "10000", "Most open connections of one gateway.", Number(1, 1_000_000)
    )
    body_size_bytes: int = setting(
        "5GiB", "Largest body of one S3 request; the default is S3's own limit."
    )
    document_memory_bytes: int = setting(
        "64MiB",
        "Most memory of one gateway for documents of requests (DeleteObjects, CompleteMultipartUpload) that are "
        "being received, by their announced sizes. A user may take half of it. Beyond it: 503 SlowDown.",
        Within(Sort.SIZE, "16MiB", "1TiB"),  # the largest document, 8 MiB, fits into a half
    )
    body_rate_bytes: int = setting(
        "512",
        "Bytes per second at which a client must send a body at least, averaged over 30 s in which the gateway "
        "waits for it; 0: any rate. Documents need 16 KiB per second.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting, checked. Its repr holds no secret."""

    data_dir: Path = setting("~/tarn", "Folder of all data on this machine.")
    durability: Literal["fsync", "os"] = setting(
        "fsync",
        "When a local write is acknowledged: `fsync`, when it is on the disk; `os`, when the "
        "operating system has it, so that a power failure may lose or damage the writes of the last "
        "half minute (see `docs/design/crash.md`).",
    )
    workers: int = setting(
        "0", "Worker processes of a single-node Tarn; 0: one per core.", Number(0, 256)
    )
    installation: Installation
    logging: Logging
    metadata: Metadata
    blockstore: Blockstore
    gateways: Gateways
    api: Api
    rpc: Rpc
    services: Services
    graveler: Graveler
    compactor: Compactor
    lifecycle: Lifecycle
    backup: Backup
    cache: Cache
    limits: Limits
    quotas: Quotas
    tracing: Tracing
    telemetry: Telemetry
    audit: Audit

    def rpc_address(self, service: ServiceName) -> str:
        """The address on which a service accepts rpcs.

        Raises:
            ConfigError: the service would accept rpcs from other machines without authenticating them.
        """
        place: AuthPlace | GravelerPlace | CompactorPlace = getattr(self.services, service)
        address = self.rpc.listen_address or place.addresses[0]
        for each in (address, self.rpc.replica_address or address):
            host = each.rpartition(":")[0]
            is_local = host in {"localhost", "[::1]"} or host.startswith("127.")
            if not is_local and self.rpc.tls.cert is None and not self.rpc.allow_plaintext:
                text = f"{service} would accept rpcs at {each} from other machines without TLS"
                raise ConfigError([f"{text}: set rpc.tls, or rpc.allow_plaintext behind a mesh"])
        return address

"""The table of every setting: one frozen class for each section, one field for each key.

A key's name, type, default and documentation are defined only here; loading, errors, `tarn config
reference` and `docs/operate/configuration.md` derive from them (`tarn.config.key_table`). A field has the name of
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

from tarn.config.errors import ConfigError
from tarn.config.setting import FromFile, setting
from tarn.config.values import Choice, Form, Number, Secret, Sort, Within

__all__ = [
    "Api",
    "Backup",
    "Blockstore",
    "Cache",
    "CollectionTimer",
    "Compactor",
    "Config",
    "EndpointTls",
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
class EndpointTls:
    """An endpoint's certificate; both or neither is set."""

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
    bucket_mode: Literal["view", "repository", "refuse"] = setting(
        "view",
        "What CreateBucket makes: a bucket whose keys are plain paths, a repository whose keys begin with a ref, "
        "or nothing; see `docs/user/buckets.md`.",
    )
    sigv2: bool = setting(
        "false",
        "Accept Signature Version 2 beside version 4, for old clients. It does not protect the body, nor most headers "
        "and parameters; see `docs/user/s3.md`.",
    )
    tls: EndpointTls
    access_log: bool = setting(
        "true", "Log a line for every request; if false, only for requests that failed with 5xx."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateways:
    """Endpoints that speak other systems' protocols."""

    s3: S3Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The REST endpoint and the web interface."""

    listen_address: str = setting(
        "127.0.0.1:8001", "Address for REST clients and browsers.", Sort.ADDRESS
    )
    s3_url: str = setting(
        "",
        "URL of the S3 endpoint that the web interface shows, and from which browsers download objects; empty: it "
        "shows the host of the page with the port of `gateways.s3.listen_address`, and sends the bytes itself. A URL "
        "without TLS is for browsers of the same machine only.",
        Form(
            r"(https?://[A-Za-z0-9.\-:\[\]]+/?)?", "an http or https URL without a path, or empty"
        ),
    )
    tls: EndpointTls
    access_log: bool = setting(
        "true", "Log a line for every request; if false, only for requests that failed with 5xx."
    )
    requests: int = setting(
        "256",
        "Most requests that one process answers at once, half of them of callers that it does not know yet; as many "
        "more may move bytes of objects, half of them for one user. Beyond it: 503 with `Retry-After`.",
        Number(2, 100_000),
    )
    failed_sign_ins: int = setting(
        "20",
        "Failed sign-ins of one address, or one /64 of IPv6, in a second. Beyond it, sign-ins of that address are 429; "
        "key pairs that have signed in before are not. Behind a proxy, whose address is that of all clients, set it to "
        "a multiple; 0: no limit.",
        Number(0, 1_000_000),
    )
    presigned_links: bool = setting(
        "true",
        "Give clients that ask for it URLs of the bucket, by which they read and write objects themselves; if false, "
        "all bytes pass the endpoint. A local block store has no URLs.",
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
class RpcTls:
    """Mutual TLS between services; all three or none is set."""

    ca: Path | None = setting(
        None, "Authorities that must have signed the other services' certificates, PEM."
    )
    cert: Path | None = setting(None, "Certificate of this service, PEM.")
    key: Path | None = setting(None, "Private key of this service, PEM.")
    gateway_name: str = setting(
        "gateway",
        "DNS name in the certificates of gateways. Auth gives signing keys to the holders of such a certificate, so no "
        "certificate of a user may have it.",
    )
    graveler_name: str = setting(
        "graveler", "DNS name in the certificates of graveler, which auth tells whose a token is."
    )
    api_name: str = setting(
        "api",
        "DNS name in the certificates of the REST endpoint, which auth tells whose a token is.",
    )
    compactor_name: str = setting(
        "compactor", "DNS name in the certificates of compactors, which get a compactor's token."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpc:
    """How services accept rpcs."""

    listen_address: str | None = setting(
        None,
        "Address on which this service accepts rpcs; its first address below if not given.",
        Sort.ADDRESS,
    )
    replica_address: str | None = setting(
        None,
        "A further address on which this process accepts rpcs. `tarn up` sets it for each of its workers, which share "
        "`listen_address`, so that the compactor can reach every one of them.",
        Sort.ADDRESS,
    )
    tls: RpcTls
    allow_plaintext: bool = setting(
        "false",
        "Lets a service accept rpcs from other machines without TLS. Tokens and signing keys then cross the network as "
        "they are: use it only behind a mesh that encrypts. Gateways, graveler and compactors need "
        "`installation.secret` then, to prove to auth that they are services.",
    )
    reflection: bool = setting(
        "false",
        "Lets any client list the rpcs and their messages, for tools such as grpcurl (docs/user/grpc.md).",
    )
    health_address: str | None = setting(
        None,
        "A further address, without TLS, on which this process answers gRPC health checks and nothing else, for the "
        "probes of Kubernetes. The empty service name stands for readiness: not before the start is complete, not "
        "after the process was asked to stop. The service `live` stands for the process, whatever its stores do. "
        "`tarn up` refuses the key, because it runs several processes.",
        Sort.ADDRESS,
    )
    concurrent_max: int = setting(
        "1024",
        "Rpcs of authenticated callers that a process serves at once, streams included; more are refused.",
        Number(128, 65_536),
    )
    unauthenticated_max: int = setting(
        "64",
        "The same for callers that have not shown a valid token yet: who logs in, and the first call with a token "
        "until it is accepted. When all are taken, a new one takes the place of one that waits for its client. Each "
        "may hold the memory of one message, 4 MiB.",
        Number(8, 4096),
    )
    operations_max: int = setting(
        "16384",
        "Operations of streams, such as reads and writes of entries, that a process works on at once; streams wait "
        "above this number. Callers without a valid token have an eighth of it apart.",
        Number(4096, 1_000_000),
    )
    operations_size_bytes: int = setting(
        "256MiB",
        "Memory for the messages that brought these operations, and for requests above 64 KiB; streams wait, and "
        "requests are refused, above it. Callers without a valid token have an eighth of it apart.",
        Within(Sort.SIZE, "4MiB", "64GiB"),
    )
    drain_timeout_ms: int = setting(
        "25s",
        "How long a process that is asked to stop waits for its running requests; then it ends them. Longer than the "
        "longest commit, if no commit may be cut short; shorter than the time after which the process is killed.",
        Within(Sort.DURATION, "0s", "1h"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """Tracing of requests."""

    sample_ratio: float = setting(
        "0.01",
        "Fraction of the requests without a sampling decision of their own that are traced, if traces are exported "
        "(docs/operate/metrics.md).",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """The admin port."""

    admin_address: str | None = setting(
        None,
        "Address of the admin port, which serves `/metrics` to every client that reaches it. If not given: on "
        "127.0.0.1, port 8110 of a gateway, 8111 of auth, 8112 of graveler, 8113 of a compactor; if that port is "
        "taken, the service runs without an admin port. `tarn up` gives its processes consecutive ports from this "
        "one (8110), or free ones.",
        Sort.ADDRESS,
    )
    slow_operation_ms: int = setting(
        "5s",
        "An S3 request, commit, merge or compaction that takes longer is logged with the duration of its phases; the "
        "transfer of a body is part of a request.",
        Within(Sort.DURATION, "1ms"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The audit log (docs/operate/audit.md)."""

    output: Literal["off", "stdout", "file"] = setting(
        "off",
        "Where each process writes the audit log: `stdout` beside its log lines, or `file` into files of its own in "
        "`audit.folder`.",
    )
    folder: Path = setting(
        None, "Folder of the files; `<data_dir>/audit` if not given.", folder="audit"
    )
    file_size_bytes: int = setting(
        "64MiB", "Size at which a file is renamed and a new one begun.", Within(Sort.SIZE, "4KiB")
    )
    files: int = setting(
        "8", "Most files of one process; the oldest one is removed.", Number(1, 1000)
    )
    queue: int = setting(
        "10000",
        "Most records that wait to be written; further ones are lost and counted, so that no request waits.",
        Number(100, 1_000_000),
    )
    reads: bool = setting(
        "false", "Whether reads are recorded too: GET, HEAD, listings and rpcs that change nothing."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorPlace:
    """Addresses of the compactors; at least one."""

    addresses: tuple[str, ...] = setting(
        "127.0.0.1:8103", "Addresses of the compactors.", aliases=("services.compactor.address",)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compactor:
    """When a compactor compacts a branch (docs/operate/compactor.md)."""

    enabled: bool = setting(
        "true", "Whether `tarn up` runs a compactor. `tarn-compactor` does not read this key."
    )
    concurrency: int = setting("2", "Most compactions of one compactor at a time.", Number(1, 64))
    tombstones: int = setting(
        "5000",
        "Uncommitted deletes from which a branch is compacted.",
        Number(1, 1_000_000_000),
    )
    tombstone_share: float = setting(
        "0.1",
        "Least share of deletes among the uncommitted rows of the branch. Below it, a branch is compacted if "
        "listings read twice as many rows as they return.",
    )
    rows: int = setting(
        "1000000", "Uncommitted rows from which a branch is compacted.", Number(1, 1_000_000_000)
    )
    size_bytes: int = setting(
        "512MiB", "Bytes of uncommitted rows (not of objects) from which a branch is compacted."
    )
    sealed_tokens: int = setting(
        "6", "Sealed tokens from which a branch is compacted.", Number(1, 1_000)
    )
    age_ms: int = setting(
        "1h",
        "Age of the oldest uncommitted row from which a tenth of `tombstones`, `rows` and `size` is enough.",
        _SOME_TIME,
    )
    interval_ms: int = setting(
        "10s", "Shortest time between two compactions of a branch.", _SOME_TIME
    )
    commit_interval_ms: int = setting(
        "30s",
        "A branch with two commits that are not farther apart is left alone until it has had no commit for twice "
        "this time.",
        _SOME_TIME,
    )


_INTERVAL = Within(
    Sort.DURATION,
    "1s",
    "365d",
    (("off", "0ms"), ("hourly", "1h"), ("daily", "1d"), ("weekly", "7d")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionTimer:
    """Garbage collections that `tarn up` runs (docs/operate/gc.md)."""

    interval_ms: int = setting(
        "off",
        "How often `tarn up` runs `tarn gc run`, from begin to begin. Other processes do not read the keys of this "
        "section.",
        _INTERVAL,
    )
    settings: Path = setting(
        None,
        "Settings file of the command line with the key of a user who may collect (permission `ManageCollection`); "
        "`<data_dir>/credentials` if not given. `tarn auth setup --save` writes one.",
        folder="credentials",
    )
    rate: int = setting(
        "0", "Most blocks that such a run deletes per second; 0: no limit.", Number(0, 1_000_000)
    )
    max_percent: int = setting(
        "50",
        "A mark with more than this share of the blocks of one kind, or of their bytes, waits for `tarn gc run "
        "--confirm`.",
        Number(0, 100),
    )
    max_gib: int = setting(
        "0",
        "A mark with more GiB waits for `tarn gc run --confirm`; 0: no limit.",
        Number(0, 1 << 40),
    )
    max_growth: int = setting(
        "5",
        "A mark with more than this many times the blocks or bytes of the last sweep, and more than 10,000 blocks or "
        "10 GiB, waits for `tarn gc run --confirm`; 0: no limit.",
        Number(0, 1_000_000),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """Backups that `tarn up` makes (docs/operate/backup.md)."""

    interval_ms: int = setting(
        "off",
        "How often `tarn up` runs `tarn backup create` and `tarn backup prune`, from begin to begin. Other processes "
        "do not read the keys of this section.",
        _INTERVAL,
    )
    place: str | None = setting(
        None,
        "Where the backups are kept: a folder, or `s3://BUCKET/PREFIX`.",
        Form(r"/[^\0]*|s3://[^\0]+", "an absolute path, or s3://BUCKET/PREFIX"),
    )
    keep: int = setting("30", "How many of the newest backups are kept.", Number(1, 100_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Online:
    """Deletion of objects that were overwritten or deleted before they were committed (docs/operate/gc.md)."""

    enabled: bool = setting(
        "false",
        "Whether graveler deletes blocks of objects that were replaced in the staging token in which they were "
        "written, without a garbage collection. Equal on all replicas: a replica with another value is refused. "
        "Every process must have a version that knows this key.",
    )
    delay_ms: int = setting(
        "10m",
        "Time between the end of such an object and the deletion of its block. Longer than any GET takes.",
        Within(Sort.DURATION, "1s", "24h"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The journal of reads, for the retention rule `keep_read_days` (docs/operate/retention.md)."""

    enabled: bool = setting(
        "false",
        "Whether graveler keeps a journal of which objects were read on which day, in the bucket. Equal on all "
        "replicas: a replica with another value is refused.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """The life of objects."""

    online: Online
    reads: Reads
    gc: CollectionTimer


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The journal of mutations (docs/design/journal.md)."""

    enabled: bool = setting(
        "true",
        "Whether each mutation leaves an event, which is drained to files in the bucket. `tarn rebuild` makes a lost "
        "metadata store anew from them. Equal on all replicas: a replica with another value is refused.",
    )
    interval_ms: int = setting(
        "10s",
        "Pause between two rounds of the drain over all repositories.",
        Within(Sort.DURATION, "1s", "10m"),
    )
    lag_max_ms: int = setting(
        "1h",
        "A repository takes no writes, with 503 and the reason JOURNAL_BEHIND, while its bucket has taken no files of "
        "the journal for longer. Deletes go on.",
        Within(Sort.DURATION, "1m", "30d"),
    )
    undrained_max_bytes: int = setting(
        "4GiB",
        "Events of all repositories that wait for their buckets, by the bytes of keys and values. With more, each "
        "repository that is behind takes no writes, with 503 and the reason JOURNAL_BEHIND. Deletes go on. The store "
        "needs some twice as much, on each node that has a copy, and room for what comes late and for deletes.",
        Within(Sort.SIZE, "16MiB"),
    )
    reserve_bytes: int = setting(
        "512MiB",
        "Space on the disk of the embedded metadata store that writes leave free with a journal, so that deletes and "
        "commits still fit, with their events; at most a twentieth of the disk. It looks at no disks of Cassandra.",
        Within(Sort.SIZE, "0"),
    )
    compact_interval_ms: int = setting(
        "off",
        "How often `tarn up` runs `tarn journal compact`, from begin to begin, with the key in lifecycle.gc.settings. "
        "Other processes do not read this key.",
        _INTERVAL,
    )
    namespace: str = setting(
        "",
        "Storage namespace of the journal of what belongs to no repository, such as users and quotas; empty: "
        "`tarn-journal-<installation.id>` below blockstore.default_namespace_prefix. Equal on all replicas.",
    )


_COUNT_MAX = 1_000_000_000_000
_AS = "of each repository for which `tarn quota set` has set no limits; 0: no limit"
_USER = "of each user for whom `tarn quota set` has set no limits; 0: no limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryQuota:
    """Limits of each repository for which none were set."""

    staged_objects: int = setting("0", f"Most uncommitted objects {_AS}.", Number(0, _COUNT_MAX))
    staged_size_bytes: int = setting("0", f"Most bytes of uncommitted objects {_AS}.")
    branches: int = setting("0", f"Most branches {_AS}.", Number(0, _COUNT_MAX))
    uploads: int = setting("0", f"Most open uploads {_AS}.", Number(0, _COUNT_MAX))
    requests_per_second: int = setting(
        "0", f"Most S3 requests per second {_AS}.", Number(0, _COUNT_MAX)
    )
    bytes_per_second: int = setting(
        "0", f"Most bytes of bodies per second {_AS}.", Number(0, _COUNT_MAX)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuota:
    """Limits of each user for whom none were set."""

    requests_per_second: int = setting(
        "0", f"Most S3 requests per second {_USER}.", Number(0, _COUNT_MAX)
    )
    bytes_per_second: int = setting(
        "0", f"Most bytes of bodies per second {_USER}.", Number(0, _COUNT_MAX)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Limits of repositories and users."""

    gateways: int = setting(
        "1",
        "Processes that share the requests, gateways and REST endpoints together: each enforces this fraction of a "
        "rate. `tarn up` counts its workers by itself.",
        Number(1, 10_000),
    )
    repository: RepositoryQuota
    user: UserQuota


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
        "5GiB", "Largest body of one object in one request; the default is S3's own limit."
    )
    document_memory_bytes: int = setting(
        "64MiB",
        "Most memory of one gateway for documents of requests (DeleteObjects, CompleteMultipartUpload) that are "
        "being received, by their announced sizes. A user may take half of it. Beyond it: 503 SlowDown.",
        Within(Sort.SIZE, "16MiB", "1TiB"),  # the largest document, 8 MiB, fits into a half
    )
    body_rate_bytes: int = setting(
        "512",
        "Bytes per second at which a client must send a body at least, averaged over 30 s in which the endpoint "
        "waits for it; 0: any rate. Documents need 16 KiB per second.",
    )
    anonymous_requests: int = setting(
        "1000",
        "Requests without a signature that public buckets answer in a second, of all gateways together "
        "(`quotas.gateways`). Beyond it: 503 SlowDown.",
        Number(1, 1_000_000),
    )
    anonymous_address_requests: int = setting(
        "200",
        "Likewise, from one address, or one /64 of IPv6. Behind a proxy, whose address is that of all clients, set it "
        "to `limits.anonymous_requests`.",
        Number(1, 1_000_000),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """Counts of requests by month (docs/operate/usage.md)."""

    enabled: bool = setting(
        "true",
        "Whether gateways and REST endpoints report how many requests they answered, and REST endpoints tell the sums.",
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
    journal: Journal
    backup: Backup
    cache: Cache
    limits: Limits
    quotas: Quotas
    tracing: Tracing
    telemetry: Telemetry
    usage_report: UsageReport
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

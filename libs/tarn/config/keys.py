"""Every setting of Tarn: the one table that loading, sections, errors and documentation follow.

Names and defaults of the first block of each section are those of the first draft of lakeFS
(docs/design/departures.md), with two departures: nothing listens beyond this machine unless it is told to,
and paths lie in one data folder.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.config.values import Choice, Number, Sort

__all__ = ["KEYS", "Key"]


@dataclass(frozen=True, slots=True)
class Key:
    """One setting.

    Attributes:
        name: dotted, as in the file; `TARN_` and the name in capitals in the environment.
        sort: what it is made of.
        default: as somebody would type it; None: unset, `doc` says what then happens.
        doc: one sentence or two, in Markdown.
        aliases: other names of it, dotted.
        absent: choices that are documented but not part of this version.
    """

    name: str
    sort: Sort | Choice | Number
    default: str | None
    doc: str
    aliases: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return "TARN_" + self.name.upper().replace(".", "_")

    @property
    def is_secret(self) -> bool:
        """Whether its value is shown nowhere, and may come from a file named by `<variable>_FILE`."""
        return self.sort in (Sort.SECRET, Sort.HEX_SECRET)


KEYS: tuple[Key, ...] = (
    Key("data_dir", Sort.PATH, "~/tarn", "Folder of everything that this machine keeps."),
    Key(
        "durability",
        Choice(("fsync", "os")),
        "fsync",
        "When a local write counts as done: `fsync`, on the disk; `os`, in the operating system, "
        "where a power failure may take or damage the writes of the last half minute (see "
        "`docs/design/crash.md`).",
    ),
    Key("workers", Number(0, 256), "0", "Processes of a single-node Tarn; 0: one per core."),
    # installation
    Key(
        "installation.id",
        Sort.TEXT,
        "tarn",
        "Tells several installations on one shared store apart: 1 to 32 of a-z, 0-9 and '-'.",
    ),
    Key(
        "installation.secret",
        Sort.HEX_SECRET,
        None,
        "What auth's keys are derived from, the same for all of its replicas; `openssl rand -hex 32` "
        "makes one. A single-node Tarn makes its own, in `<data_dir>/secret`.",
    ),
    Key(
        "installation.previous_secret",
        Sort.HEX_SECRET,
        None,
        "The secret before the current one, so that what it sealed can still be opened.",
    ),
    # logging
    Key("logging.format", Choice(("json", "text")), "text", "Form of a log line."),
    Key(
        "logging.level",
        Choice(
            ("DEBUG", "INFO", "WARN", "ERROR", "NONE"),
            (("warn", "warning"), ("warning", "warning")),
        ),
        "INFO",
        "Least level that is logged.",
    ),
    Key(
        "logging.output", Sort.TEXT, "-", "`-`: standard output; `=`: standard error; else a file."
    ),
    # metadata
    Key(
        "metadata.db.type",
        Choice(("embedded", "cassandra"), (("badger", "embedded"), ("sqlite", "embedded"))),
        "embedded",
        "Store of the metadata. `badger` and `sqlite` are other words for `embedded`.",
    ),
    Key(
        "metadata.db.embedded.path",
        Sort.PATH,
        None,
        "Folder of the embedded store; `<data_dir>/kv` if not given. On a local file system.",
        aliases=("metadata.db.badger.path", "metadata.badger.path"),
    ),
    Key(
        "metadata.db.cassandra.contact_points",
        Sort.ADDRESSES,
        "127.0.0.1:9042",
        "Some nodes of the cluster, through which the others are found.",
    ),
    Key(
        "metadata.db.cassandra.local_datacenter",
        Sort.TEXT,
        "datacenter1",
        "Data centre whose nodes are used. Equal on all processes of an installation: one that differs "
        "is refused.",
    ),
    Key(
        "metadata.db.cassandra.keyspace",
        Sort.TEXT,
        "tarn",
        "Keyspace; made if it is not there. Several installations may share one.",
    ),
    Key(
        "metadata.db.cassandra.replication_factor",
        Number(0, 9),
        "3",
        "Copies of each row, in a keyspace that Tarn makes; 0: one per node, 3 at most.",
    ),
    Key("metadata.db.cassandra.username", Sort.TEXT, None, "Role that Tarn logs in as."),
    Key("metadata.db.cassandra.password", Sort.SECRET, None, "Its password."),
    Key(
        "metadata.db.cassandra.tls.enabled",
        Sort.FLAG,
        "false",
        "Whether connections are encrypted and the nodes' certificates checked.",
    ),
    Key(
        "metadata.db.cassandra.tls.ca",
        Sort.PATH,
        None,
        "Certificates that the nodes' must descend from, PEM; those of the system if not given.",
    ),
    Key(
        "metadata.db.cassandra.tls.cert",
        Sort.PATH,
        None,
        "Tarn's own certificate, for nodes that ask for one, PEM.",
    ),
    Key("metadata.db.cassandra.tls.key", Sort.PATH, None, "Private key of that certificate, PEM."),
    Key(
        "metadata.db.cassandra.request_timeout",
        Sort.DURATION,
        "5s",
        "Of one request; longer than the nodes' own time-outs.",
    ),
    # blockstore
    Key(
        "blockstore.type",
        Choice(("local", "s3")),
        "local",
        "Where objects are kept; see `docs/operate/blockstores.md`.",
    ),
    Key(
        "blockstore.default_namespace_prefix",
        Sort.TEXT,
        None,
        "Where repositories are kept that name no storage namespace; `local://` if not given. With "
        "`s3` it must be given, such as `s3://bucket/tarn`: the server is checked there.",
    ),
    Key(
        "blockstore.local.path",
        Sort.PATH,
        None,
        "Folder of the objects; `<data_dir>/blocks` if not given.",
    ),
    Key(
        "blockstore.s3.endpoint",
        Sort.TEXT,
        None,
        "URL of the server, such as `https://minio.example.com:9000`; AWS if not given.",
    ),
    Key("blockstore.s3.region", Sort.TEXT, "us-east-1", "Region of the bucket."),
    Key(
        "blockstore.s3.force_path_style",
        Sort.FLAG,
        "false",
        "Whether the bucket is in the path of the URL, not in the host name; most servers but AWS need it.",
    ),
    Key(
        "blockstore.s3.tls.ca",
        Sort.PATH,
        None,
        "Certificates that the server's may descend from, PEM; those of the system if not given.",
    ),
    Key("blockstore.s3.profile", Sort.TEXT, None, "Named profile of the AWS credentials file."),
    Key("blockstore.s3.credentials_file", Sort.PATH, None, "AWS credentials file."),
    Key("blockstore.s3.credentials.access_key_id", Sort.TEXT, None, "Static credentials."),
    Key("blockstore.s3.credentials.access_secret_key", Sort.SECRET, None, "Static credentials."),
    Key("blockstore.s3.credentials.session_token", Sort.SECRET, None, "Static session token."),
    Key(
        "blockstore.s3.part_size",
        Sort.SIZE,
        "8MiB",
        "Largest body of one request, 5 MiB to 1 GiB; larger objects are written in parts of it. A "
        "process holds one part for each object that it writes.",
    ),
    Key(
        "blockstore.s3.spool",
        Sort.PATH,
        None,
        "Folder for parts of multipart uploads that are larger than `part_size`, until they are complete; "
        "the system's temporary one if not given. Needs room for `large_writes` of them.",
    ),
    Key(
        "blockstore.s3.requests",
        Number(1, 10_000),
        "64",
        "Requests of one process that may be on their way.",
    ),
    Key(
        "blockstore.s3.large_writes",
        Number(1, 10_000),
        "32",
        "Objects of more than 1 MiB that one process may write at a time; others wait, then get 503.",
    ),
    Key(
        "blockstore.s3.attempts",
        Number(1, 100),
        "6",
        "How often a request is made, the first time included, when the server is busy or cannot be reached.",
    ),
    Key("blockstore.s3.connect_timeout", Sort.DURATION, "5s", "Of a new connection."),
    Key("blockstore.s3.request_timeout", Sort.DURATION, "30s", "Of one attempt."),
    Key("blockstore.s3.deadline", Sort.DURATION, "60s", "Of all attempts and the pauses between."),
    # gateways
    Key("gateways.s3.listen_address", Sort.ADDRESS, "127.0.0.1:8000", "Where S3 clients connect."),
    Key(
        "gateways.s3.domain_name",
        Sort.TEXT,
        "s3.local",
        "Name of the endpoint, for buckets in host names (`lake.s3.local`).",
    ),
    Key(
        "gateways.s3.region",
        Sort.TEXT,
        "us-east-1",
        "Region that S3 clients sign for; other ones are refused.",
    ),
    Key(
        "gateways.s3.tls.cert", Sort.PATH, None, "Certificate chain, PEM; with `key` turns on TLS."
    ),
    Key("gateways.s3.tls.key", Sort.PATH, None, "Private key of the certificate, PEM."),
    Key(
        "gateways.s3.access_log",
        Sort.FLAG,
        "true",
        "A log line for every request; without it only for those that failed on our side.",
    ),
    # api
    Key("api.listen_address", Sort.ADDRESS, "127.0.0.1:8001", "Where REST clients connect."),
    # rpc
    Key(
        "rpc.listen_address",
        Sort.ADDRESS,
        None,
        "Where this service takes rpcs; its own first address below if not given.",
    ),
    Key("rpc.tls.ca", Sort.PATH, None, "Certificates that the other services must have, PEM."),
    Key("rpc.tls.cert", Sort.PATH, None, "Certificate of this service, PEM."),
    Key("rpc.tls.key", Sort.PATH, None, "Private key of this service, PEM."),
    Key(
        "rpc.allow_plaintext",
        Sort.FLAG,
        "false",
        "Lets a service take rpcs from other machines without TLS: whoever reaches auth then gets "
        "signing keys. Only behind a mesh that encrypts and authenticates.",
    ),
    # services
    Key(
        "services.auth.addresses",
        Sort.ADDRESSES,
        "127.0.0.1:8101",
        "Where auth is.",
        aliases=("services.auth.address",),
    ),
    Key(
        "services.graveler.addresses",
        Sort.ADDRESSES,
        "127.0.0.1:8102",
        "Where graveler is.",
        aliases=("services.graveler.address",),
    ),
    # graveler
    Key(
        "graveler.cleanup_delay",
        Sort.DURATION,
        "60s",
        "How long data outlives the last record that names it; longer than any read takes. Equal "
        "on all replicas: one that differs is refused.",
    ),
    Key(
        "graveler.cleanup_poll",
        Sort.DURATION,
        "5s",
        "How often graveler looks for data that may go.",
    ),
    Key(
        "graveler.heavy_process",
        Sort.FLAG,
        "true",
        "Large commits are built in a second process, so that requests do not feel them; it starts with "
        "the first of them and ends when none has come for some minutes (see "
        "`docs/design/heavy-process.md`).",
    ),
    # cache
    Key(
        "cache.ranges.path",
        Sort.PATH,
        None,
        "Folder of decoded ranges; `<data_dir>/cache` if not given. May be emptied at any time.",
    ),
    Key("cache.ranges.size", Sort.SIZE, "1GiB", "Bytes that it may take."),
    # limits
    Key("limits.connections", Number(1, 1_000_000), "10000", "Open connections of one gateway."),
    Key("limits.body_size", Sort.SIZE, "5GiB", "Largest body of one S3 request; S3's own limit."),
    # tracing
    Key(
        "tracing.sample_ratio",
        Sort.RATIO,
        "0",
        "Requests that are traced, of those that do not come with a decision.",
    ),
)

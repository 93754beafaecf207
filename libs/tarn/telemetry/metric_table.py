"""The table of all metrics. Code registers a metric by its name here; the table in docs/operate/metrics.md, the
page `/metrics`, the OTLP names and the tests of dashboards and alerts derive from it.

A name is stable: dashboards of users depend on it. A label takes few values, and none that a client chooses; a
metric whose labels name repositories has a bound of series (`series_max`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

__all__ = ["LATENCY_SECONDS", "Kind", "Metric", "SERIES_MAX", "TABLE", "page"]

LATENCY_SECONDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    10,
    60,
)
"""Upper bounds of the buckets of durations, in seconds."""

SERIES_MAX: Final = 500
"""Greatest number of series of one metric in one process, unless the table states another."""

_UNITS: Final = {"s": "seconds", "By": "bytes", "": ""}


class Kind(enum.Enum):
    """How the values of a metric are read."""

    COUNTER = "counter"
    """Only grows, from 0 at the start of the process."""
    GAUGE = "gauge"
    """Read at the moment of the scrape."""
    HISTOGRAM = "histogram"
    """The number of values in each of fixed buckets, and their sum."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table.

    Attributes:
        name: lower-case words separated by dots; `tarn.` precedes it in OTLP.
        kind: see `Kind`.
        unit: `s`, `By` (bytes) or empty, as in OpenTelemetry.
        help: one sentence.
        labels: names of the labels, in order.
        processes: the processes that emit it.
        buckets: upper bounds of a histogram, inclusive, ascending.
        series_max: greatest number of series in one process.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    processes: str = "all"
    buckets: tuple[float, ...] = ()
    series_max: int = SERIES_MAX

    @property
    def otlp_name(self) -> str:
        """The name in OTLP, such as `tarn.kv.duration`."""
        return f"tarn.{self.name}"

    @property
    def family(self) -> str:
        """The name of the family in OpenMetrics, without `_total`: `tarn_kv_duration_seconds`."""
        unit = _UNITS[self.unit]
        return "_".join(filter(None, ["tarn", *self.name.split("."), unit]))

    @property
    def prometheus_name(self) -> str:
        """The name in queries; of a histogram, followed by `_bucket`, `_sum` or `_count`."""
        return f"{self.family}_total" if self.kind is Kind.COUNTER else self.family


def _counter(
    name: str, unit: str, text: str, *labels: str, of: str = "all", series: int = SERIES_MAX
) -> Metric:
    return Metric(name, Kind.COUNTER, unit, text, labels, of, series_max=series)


def _gauge(
    name: str, unit: str, text: str, *labels: str, of: str = "all", series: int = SERIES_MAX
) -> Metric:
    return Metric(name, Kind.GAUGE, unit, text, labels, of, series_max=series)


def _of_repository(name: str, text: str) -> Metric:
    """A gauge of the compactor, for each of the repositories with most uncommitted rows."""
    return _gauge(name, "", text, "repository", of="compactor", series=_REPOSITORIES)


def _duration(name: str, text: str, *labels: str, of: str = "all") -> Metric:
    return Metric(name, Kind.HISTOGRAM, "s", text, labels, of, LATENCY_SECONDS)


_COUNTS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_KV = "graveler, auth"
_BLOCKS = "gateway, api, graveler"
_REPOSITORIES = 100

TABLE: Final = (
    # The S3 endpoint
    _duration(
        "gateway.duration",
        "Time from the last header of a request to the last byte of its answer that was handed to the socket.",
        "operation",
        of="gateway",
    ),
    _counter(
        "gateway.requests",
        "",
        "Requests by S3 operation (`none`: refused before the operation was known) and HTTP status "
        "(`0`: the client hung up first).",
        "operation",
        "status",
        of="gateway",
    ),
    _duration(
        "gateway.phase",
        "Time of each phase of a request: `auth` (signature and grant), `perform` (a GET: the lookup and the begin "
        "of the block; a PUT: the body and the staging), `send` (the answer).",
        "operation",
        "phase",
        of="gateway",
    ),
    _counter(
        "gateway.throttled",
        "",
        "Requests that a rate refused (`SlowDown`, 503), by kind of the quota and by limit. Those that are refused "
        "because a store is overloaded are not counted here: they are failures.",
        "kind",
        "limit",
        of="gateway",
    ),
    _counter(
        "gateway.shed",
        "",
        "Requests that were refused (`SlowDown`, 503) because they had waited too long for their turn: the gateway has "
        "more requests than it can answer.",
        of="gateway",
    ),
    _gauge("gateway.queue", "", "Requests that wait for their turn.", of="gateway"),
    _gauge("gateway.in_flight", "", "Requests that are being served.", of="gateway"),
    _gauge("gateway.connections", "", "Open connections of S3 clients.", of="gateway"),
    _gauge("gateway.document_memory", "By", "Documents being received.", of="gateway"),
    _gauge("gateway.unsent_memory", "By", "Answers that clients have not taken.", of="gateway"),
    _counter("gateway.received", "By", "Bytes of bodies of requests.", of="gateway"),
    _counter("gateway.sent", "By", "Bytes of bodies of answers.", of="gateway"),
    Metric(
        "gateway.delete_keys",
        Kind.HISTOGRAM,
        "",
        "Keys of each DeleteObjects.",
        (),
        "gateway",
        _COUNTS,
    ),
    # Tenants
    _counter(
        "repository.requests",
        "",
        "S3 requests of each repository: `ok`, `refused` (4xx), `throttled` (503 of a rate of the repository or the "
        "user), `failed` (another 5xx, or the client left). The first 100 "
        "repositories of a process have series of their own; `other` has the rest, and those that do not exist.",
        "repository",
        "outcome",
        of="gateway",
    ),
    _counter(
        "repository.moved",
        "By",
        "Bytes of bodies of those requests (`received`) and of their answers (`sent`).",
        "repository",
        "direction",
        of="gateway",
    ),
    _counter("user.requests", "", "The same by user.", "user", "outcome", of="gateway"),
    _counter("user.moved", "By", "The same by user.", "user", "direction", of="gateway"),
    # The REST endpoint
    _duration(
        "api.duration",
        "Time of REST requests, from the last header to the last byte of the answer.",
        "operation",
        of="api",
    ),
    _counter(
        "api.requests",
        "",
        "REST requests by operation (`none`: refused before the operation was known) and HTTP status (`0`: no answer "
        "was sent).",
        "operation",
        "status",
        of="api",
        series=2000,
    ),
    _gauge("api.in_flight", "", "REST requests that are being served.", of="api"),
    _gauge(
        "api.transfers",
        "",
        "REST requests that move the bytes of an object; they are not among those in flight.",
        of="api",
    ),
    _gauge(
        "api.streams",
        "",
        "Open streams of events of branches; not among those in flight.",
        of="api",
    ),
    _counter("api.received", "By", "Bytes of bodies of REST requests.", of="api"),
    _counter("api.sent", "By", "Bytes of bodies of REST answers.", of="api"),
    _counter(
        "api.throttled",
        "",
        "REST requests that a rate refused (429), by kind of the quota and by limit.",
        "kind",
        "limit",
        of="api",
    ),
    _counter(
        "api.shed",
        "",
        "REST requests that were refused (503) because they had waited too long for their turn: the endpoint has more "
        "requests than it can answer.",
        of="api",
    ),
    _gauge("api.queue", "", "REST requests that wait for their turn.", of="api"),
    _gauge("api.connections", "", "Open connections of REST clients.", of="api"),
    _counter(
        "cache.lookups",
        "",
        "Look-ups in the caches of `signing-key` (SigV4 keys and grants by access key), `token` (grants by caller "
        "token), `key-pair` (tokens by key pair, of the REST endpoint), `repository` and `bucket` (of a gateway) and "
        "`record` (of a repository, in graveler): `hit`, or `miss`, which asks another service or the store.",
        "cache",
        "outcome",
        of="gateway, api, graveler",
    ),
    # Calls between services
    _duration(
        "rpc.duration",
        "Time of calls in the service that serves them, by path of the rpc; each operation of a coalesced "
        "stream (`…/Operate`) is a call.",
        "method",
    ),
    _counter("rpc.failed", "", "Failed calls, by path and reason.", "method", "reason"),
    _gauge("rpc.in_flight", "", "Unary calls and streams that are being served over gRPC."),
    _gauge(
        "rpc.work_in_flight",
        "",
        "Operations of coalesced streams, and unary calls that change something, that are being worked on over gRPC.",
    ),
    _gauge("rpc.unauthenticated", "", "Rpcs that brought no valid token so far."),
    _counter("rpc.refused", "", "Refused rpcs, by bound (docs/design/security.md).", "bound"),
    # The metadata store
    _duration(
        "kv.duration",
        "Time of calls of the metadata store: `get_many`, `set_many`, `set_if`, `delete_many`, `delete_if`, "
        "`scan`, `scan_without`, `scan_arrow` (each batch is a call), `scan_companions`, `delete_companions`, "
        "`drop_partition`.",
        "operation",
        of=_KV,
    ),
    _counter(
        "kv.failed",
        "",
        "Failed calls; for `set_many`, failed groups of rows. `REF_MOVED`: a failed compare-and-set, which is a "
        "normal answer. `OUTCOME_UNKNOWN`, `UNAVAILABLE`, `OVERLOADED`: see [cassandra.md](cassandra.md). "
        "`OTHER`: a cancelled call, or a defect.",
        "operation",
        "reason",
        of=_KV,
    ),
    _gauge("kv.in_flight", "", "Calls that wait for the metadata store.", "operation", of=_KV),
    Metric(
        "kv.batch",
        Kind.HISTOGRAM,
        "",
        "Writes that are sent together: those in each transaction of the embedded store (group commit), rows in each "
        "request to Cassandra. Compare-and-sets on Cassandra, one row each, are not counted.",
        (),
        _KV,
        _COUNTS,
    ),
    # The block store
    _duration(
        "block.duration",
        "Time of calls of the block store: `put`, `open_write`, `write` (each piece of a body, or each turn of a "
        "thread, is a call), `finish`, `read`, `stream` (each chunk is a call), `open_file`, `stat`, `list_page`, "
        "`delete_many`, `upload` (multipart).",
        "operation",
        of=_BLOCKS,
    ),
    _counter(
        "block.failed",
        "",
        "Failed calls, by operation and reason.",
        "operation",
        "reason",
        of=_BLOCKS,
    ),
    _gauge("block.in_flight", "", "Calls that wait for the block store.", "operation", of=_BLOCKS),
    _counter("block.read", "By", "Bytes that were read, without those of `open_file`.", of=_BLOCKS),
    _counter("block.written", "By", "Bytes that were written.", of=_BLOCKS),
    # Long operations
    _duration(
        "operation.duration",
        "Time of operations on branches: `commit`, `merge`, `revert`, `cherry-pick`, `move`, `compaction`; failed "
        "ones too.",
        "operation",
        of="graveler",
    ),
    _duration(
        "operation.phase",
        "Time of each phase of such an operation: `seal` (a new staging token, and the check of the old one), "
        "`build` (the new listing; of a merge, also its comparison), `publish` (the drop list, the reflog and the "
        "branch record). All tries of an operation count together.",
        "operation",
        "phase",
        of="graveler",
    ),
    # The cleaner, the caches and the heavy processes of a replica
    _gauge(
        "cleanup.lag",
        "s",
        "Age of the checkpoint of the drop list, before which all drops are done. Some minutes are normal; hours mean "
        "that dropped data piles up.",
        of="graveler",
    ),
    _counter("cleanup.drops", "", "Partitions that the cleaner dropped.", of="graveler"),
    _counter(
        "cleanup.failed", "", "Passes of the cleaner that ended with an error.", of="graveler"
    ),
    _counter(
        "branches.expired",
        "",
        "Branches whose time to live and grace were over: `deleted`, or `kept` because a rule of the repository "
        "protects them; those are looked at again a day later.",
        "outcome",
        of="graveler",
    ),
    _counter(
        "uploads.abandoned",
        "",
        "Multipart uploads that were aborted because they were not completed in the days of the retention rules.",
        of="graveler",
    ),
    _gauge(
        "reads.waiting",
        "",
        "Objects in the journal of reads that wait to be written (docs/design/last-read.md).",
        of="graveler",
    ),
    _counter(
        "reads.objects",
        "",
        "Objects in the journal of reads: `noted`, each once a day, and then `written`, or `dropped` because the "
        "bucket or the store did not take them. If any is dropped, rules count all objects as read.",
        "outcome",
        of="graveler",
    ),
    _gauge(
        "journal.lag",
        "s",
        "Age of the oldest change that may not be in the bucket yet, of the repository that is furthest behind; 0 "
        "without a journal (docs/operate/journal.md).",
        of="graveler",
    ),
    _counter(
        "journal.failed",
        "",
        "Passes of the journal's drain over a repository that ended with an error.",
        of="graveler",
    ),
    _gauge(
        "journal.undrained",
        "By",
        "Events of the installation that may not be in the bucket yet, by the bytes of keys and values, as this "
        "replica knows.",
        of="graveler",
    ),
    _gauge(
        "journal.undrained.limit",
        "By",
        "`journal.undrained_max`; 0 without a journal.",
        of="graveler",
    ),
    _gauge(
        "journal.damaged",
        "",
        "Branches that the last passes of this replica could not read: their events stay in the store, and nothing of "
        "their repositories is deleted (docs/operate/journal.md).",
        of="graveler",
    ),
    _gauge(
        "online.waiting",
        "",
        "Replaced objects whose blocks wait to be deleted online (docs/operate/gc.md).",
        of="graveler",
    ),
    _counter(
        "online.rows",
        "",
        "Objects that were replaced in the staging token in which they were written: `queued`, and then `deleted`, or "
        "left to the garbage collection: `copied`, `not-replaced`, `token-left` (a commit came), `failed` (an error), "
        "`queue-full`.",
        "outcome",
        of="graveler",
    ),
    _counter(
        "range.lookups",
        "",
        "Look-ups in the cache of decoded ranges: `hit` (mapped in memory), `load` (from the local disk), `fetch` "
        "(from the block store).",
        "outcome",
        of="graveler",
    ),
    # What waits for garbage collections
    _gauge(
        "collection.candidates",
        "",
        "Blocks and files that the last complete marks of all repositories found, and no sweep has deleted yet. Every "
        "replica tells the same about all repositories, as it was at most 15 minutes ago: take the maximum.",
        of="graveler",
    ),
    _gauge("collection.candidate", "By", "Bytes of those.", of="graveler"),
    _gauge(
        "collection.mark_age",
        "s",
        "Age of the oldest complete mark that was not swept; 0: there is none.",
        of="graveler",
    ),
    _gauge(
        "collection.run_age",
        "s",
        "Time since the last complete mark or sweep, of the repository for which it is the longest; one that was never "
        "collected counts from its creation.",
        of="graveler",
    ),
    _gauge(
        "collection.purges_waiting",
        "",
        "Deleted repositories whose data may be deleted by now, and are not ([erase.md](erase.md)).",
        of="graveler",
    ),
    _counter(
        "collection.looks_failed",
        "",
        "Looks at the collections of all repositories that failed; the gauges keep their last numbers.",
        of="graveler",
    ),
    _gauge("heavy.running", "", "Number of heavy processes that run, 0 to 2.", of="graveler"),
    _gauge(
        "heavy.builds",
        "",
        "Large builds: `running` in a heavy process, or `waiting` for one.",
        "state",
        of="graveler",
    ),
    _counter(
        "heavy.starts",
        "",
        "Starts of heavy processes. One ends by itself after some minutes without a build.",
        of="graveler",
    ),
    _counter(
        "heavy.deaths",
        "",
        "Unexpected ends of heavy processes, counted by the next large build.",
        of="graveler",
    ),
    # The compactor
    _of_repository(
        "staging.rows",
        "Uncommitted rows of a repository, as far as the compactor knows: the 100 repositories with most rows.",
    ),
    _of_repository("staging.tombstones", "Uncommitted deletes among these rows."),
    _of_repository(
        "staging.amplification",
        "Rows that listings of branches with uncommitted rows read for each row that they returned, since the last "
        "commit or compaction of each branch, of the same repositories; 0: none was listed.",
    ),
    _of_repository(
        "staging.sealed_tokens",
        "Sealed tokens of the branch that has most of them, of the same repositories.",
    ),
    _gauge("staging.branches", "", "Branches with uncommitted rows.", of="compactor"),
    _counter(
        "compaction.attempts",
        "",
        "Compactions that this compactor asked for: `compacted`, `nothing_to_do`, `superseded` (a commit, merge "
        "or reset came in between), `running` (another compactor was faster), `failed`.",
        "outcome",
        of="compactor",
    ),
    _duration("compaction.duration", "Durations of those that compacted.", of="compactor"),
    _counter("compaction.rows_read", "", "Staged rows that they read.", of="compactor"),
    _counter(
        "compaction.rows_written", "", "Rows of the listings that they wrote.", of="compactor"
    ),
    _counter("compaction.sealed_tokens", "", "Sealed tokens that they removed.", of="compactor"),
    _counter("compaction.tombstones", "", "Tombstones that they removed.", of="compactor"),
    _counter(
        "listing.rows_read",
        "",
        "Rows that listings of branches with uncommitted rows read, on the replicas that this compactor watches and "
        "that have written to the branch since its last seal. Rows that leaps pass are not read.",
        of="compactor",
    ),
    _counter(
        "listing.rows_returned",
        "",
        "Rows that those listings returned. The ratio is the listing amplification; `tarn compact status` shows "
        "it for each branch.",
        of="compactor",
    ),
    # The process
    _gauge("build.info", "", "Always 1; the labels tell what runs.", "service", "version"),
    _gauge("process.start_time", "s", "Start of the process, in seconds since the epoch."),
    _gauge("process.clock", "s", "Wall clock at the scrape, in seconds since the epoch."),
    _counter("process.cpu", "s", "Processor time of the process."),
    _gauge("process.resident_memory", "By", "Resident memory."),
    _gauge("process.open_files", "", "Open file descriptors, sockets included."),
    _gauge("process.open_files_max", "", "Greatest number of open file descriptors (`ulimit -n`)."),
    _gauge("process.threads", "", "Threads."),
    _duration(
        "process.loop_lag",
        "How late a timer of the event loop fires, four times a second. All requests of the process wait as long.",
    ),
    # Secrets that were replaced while the process runs
    _counter(
        "secrets.reloads",
        "",
        "New contents of the files of secrets: `used`, or `refused` (a file is damaged, or the secrets cannot be used; "
        "the log says why, and the old ones stay in use).",
        "outcome",
    ),
    _gauge(
        "secrets.refused",
        "",
        "Whether the files of secrets hold something that this process does not use: 1 or 0.",
    ),
    # Telemetry itself
    _counter(
        "audit.records",
        "",
        "Records of the audit log ([audit.md](audit.md)): `written`, or lost: `dropped` (the queue was full), `failed` "
        "(the disk or pipe), `limited` (too many refusals of unknown callers).",
        "outcome",
    ),
    _counter(
        "telemetry.dropped_series",
        "",
        "Series of a metric that were not created or not sampled, because the metric has too many.",
        "metric",
    ),
    _counter(
        "telemetry.skipped_samples",
        "",
        "Gauges that a scrape left out, because sampling took too long or failed.",
        "metric",
    ),
)
"""All metrics, in the order of the documentation."""


def page() -> str:
    """Returns the table of docs/operate/metrics.md; `python -m tarn.telemetry` prints it."""
    lines = ["| metric | kind | labels | processes | meaning |", "| --- | --- | --- | --- | --- |"]
    for metric in TABLE:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(
            f"| `{metric.prometheus_name}` | {metric.kind.value} | {labels} | {metric.processes} | {metric.help} |"
        )
    return "\n".join(lines) + "\n"

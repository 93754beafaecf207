"""The sections of the settings of metrics, traces and the audit log; see `tarn.config.sections`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tarn.config.setting import setting
from tarn.config.values import Number, Sort, Within

__all__ = ["Audit", "Telemetry", "Tracing"]


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

"""The sections of the settings of metrics and traces; see `tarn.config.sections`."""

from __future__ import annotations

from dataclasses import dataclass

from tarn.config.setting import setting
from tarn.config.values import Sort, Within

__all__ = ["Telemetry", "Tracing"]


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

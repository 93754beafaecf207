"""The sections of settings about the life of objects; see `tarn.config.sections`."""

from __future__ import annotations

from dataclasses import dataclass

from tarn.config.setting import setting
from tarn.config.timer_sections import CollectionTimer
from tarn.config.values import Sort, Within

__all__ = ["Lifecycle", "Online", "Reads"]


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

"""The sections of the timers of `tarn up`; see `tarn.config.sections`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tarn.config.setting import setting
from tarn.config.values import Form, Number, Sort, Within

__all__ = ["Backup", "CollectionTimer"]

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

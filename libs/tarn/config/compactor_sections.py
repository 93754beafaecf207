"""The sections of the compactor's settings; see `tarn.config.sections`."""

from __future__ import annotations

from dataclasses import dataclass

from tarn.config.setting import setting
from tarn.config.values import Number, Sort, Within

__all__ = ["Compactor", "CompactorPlace"]

_SOME_TIME = Within(Sort.DURATION, "1ms")


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

"""The compactor's settings, from the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from tarn.config import Config
from tarn_compactor.policy import Thresholds

__all__ = ["CompactorSettings"]


@dataclass(frozen=True, slots=True)
class CompactorSettings:
    """Settings of a compactor.

    Attributes:
        thresholds: when a branch is due.
        concurrency: most compactions at a time.
    """

    thresholds: Thresholds
    concurrency: int = 2

    @staticmethod
    def of(config: Config) -> CompactorSettings:
        """Returns the settings of a compactor."""
        own = config.compactor
        return CompactorSettings(
            Thresholds(
                tombstones=own.tombstones,
                tombstone_share=own.tombstone_share,
                rows=own.rows,
                size_bytes=own.size_bytes,
                sealed_tokens=own.sealed_tokens,
                age_s=own.age_ms / 1000,
                interval_s=own.interval_ms / 1000,
                commit_interval_s=own.commit_interval_ms / 1000,
            ),
            own.concurrency,
        )

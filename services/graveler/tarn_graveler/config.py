"""Graveler's part of the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tarn.block.committed import Committed, open_committed
from tarn.block.port import BlockStore
from tarn.config import Config
from tarn.core.quota import Limits
from tarn_graveler.assembly import GravelerSettings
from tarn_graveler.collection.online_deletion import OnlineSettings
from tarn_graveler.records.quotas import QuotaDefaults

__all__ = ["open_committed", "open_committed_of", "settings_of"]


def settings_of(config: Config) -> GravelerSettings:
    """Returns graveler's settings from a configuration."""
    return GravelerSettings(
        installation_id=config.installation.id,
        drop_delay_seconds=config.graveler.drop_delay_ms / 1000,
        cleanup_poll_seconds=config.graveler.cleanup_poll_ms / 1000,
        namespace_prefix=config.blockstore.namespace_prefix,
        reflog_retention_seconds=config.graveler.reflog_retention_ms / 1000,
        reflog_entries_max=config.graveler.reflog_entries_max,
        slow_operation_seconds=config.telemetry.slow_operation_ms / 1000,
        online=OnlineSettings(
            is_enabled=config.lifecycle.online.enabled,
            delay_seconds=config.lifecycle.online.delay_ms / 1000,
        ),
        keeps_reads=config.lifecycle.reads.enabled,
        quotas=_quotas_of(config),
        keeps_events=config.journal.enabled,
        drain_poll_seconds=config.journal.interval_ms / 1000,
        journal_namespace=config.journal.namespace,
        journal_lag_seconds_max=config.journal.lag_max_ms / 1000,
        journal_undrained_max=config.journal.undrained_max_bytes,
        store_folder=_store_folder(config),
        journal_reserve_bytes=config.journal.reserve_bytes,
    )


def _store_folder(config: Config) -> Path | None:
    """The folder of the embedded store; None: the store is another one."""
    database = config.metadata.db
    return database.embedded.file.parent if database.type == "embedded" else None


def _quotas_of(config: Config) -> QuotaDefaults:
    repository, user = config.quotas.repository, config.quotas.user
    return QuotaDefaults(
        Limits(
            staged_objects=repository.staged_objects,
            staged_bytes=repository.staged_size_bytes,
            branches=repository.branches,
            uploads=repository.uploads,
            requests_per_second=repository.requests_per_second,
            bytes_per_second=repository.bytes_per_second,
        ),
        Limits(
            requests_per_second=user.requests_per_second, bytes_per_second=user.bytes_per_second
        ),
    )


@asynccontextmanager
async def open_committed_of(config: Config, blocks: BlockStore) -> AsyncIterator[Committed]:
    """Opens the committed listings of a block store as a configuration says."""
    ranges = config.cache.ranges
    async with open_committed(blocks, ranges.path, cache_bytes=ranges.size_bytes) as committed:
        yield committed

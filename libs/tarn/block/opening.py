"""Opens the block store that the configuration selects."""

from __future__ import annotations

import random

from tarn.block.local import open_local
from tarn.block.metered import metered
from tarn.block.port import BlockStore, ReadBlocks
from tarn.config import Config, Secret
from tarn.core.clock import Clock
from tarn.telemetry.meters import Meters

__all__ = ["open_blocks", "open_blocks_to_read"]


async def open_blocks(config: Config, clock: Clock, meters: Meters | None = None) -> BlockStore:
    """Opens the block store; the caller closes it.

    Args:
        config: names the store.
        clock: the store's clock.
        meters: counts the store's operations (`tarn.block.metered`); None: they are not counted.

    Raises:
        TarnError: the store cannot be opened; the message gives the reason.
    """
    store = await _open(config, clock)
    return store if meters is None else metered(store, clock, meters)


async def _open(config: Config, clock: Clock) -> BlockStore:
    match config.blockstore.type:
        case "local":
            path = config.blockstore.local.path
            return await open_local(path, clock=clock, durability=config.durability)
        case "s3":
            return await _open_s3(config, clock)


async def open_blocks_to_read(config: Config, clock: Clock) -> ReadBlocks:
    """Opens the configured block store for reading; the caller closes it.

    Raises:
        ConfigError: this version has no driver for the configured store.
        TarnError: the store cannot be opened or does not exist; the message gives the reason.
    """
    if config.blockstore.type == "local":
        return await open_local(config.blockstore.local.path, clock=clock, read_only=True)
    return await open_blocks(config, clock)


async def _open_s3(config: Config, clock: Clock) -> BlockStore:
    # Imported only here: the clients take 0.3 s to import, and other installations may not have them.
    from tarn.block.s3 import S3Limits, S3Settings, open_s3

    section = config.blockstore.s3
    keys = section.credentials
    settings = S3Settings(
        config.blockstore.namespace_prefix.rstrip("/"),
        region=section.region,
        endpoint=section.endpoint.rstrip("/") if section.endpoint is not None else None,
        path_style=section.force_path_style,
        ca=section.tls.ca,
        access_key_id=keys.access_key_id,
        secret_access_key=_revealed(keys.access_secret_key),
        session_token=_revealed(keys.session_token),
        profile=section.profile,
        credentials_file=section.credentials_file,
        spool=section.spool,
    )
    limits = S3Limits(
        part_bytes=section.part_size_bytes,
        requests=section.requests,
        large_writes=section.large_writes,
        attempts=section.attempts,
        attempt_seconds=section.request_timeout_ms / 1000,
        deadline_seconds=section.deadline_ms / 1000,
        connect_seconds=section.connect_timeout_ms / 1000,
    )
    return await open_s3(settings, clock=clock, chance=random.SystemRandom(), limits=limits)


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()

"""Opens the block store that the configuration selects."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from tarn.block.local import open_local
from tarn.block.metered import metered
from tarn.block.port import BlockStore, ReadBlocks
from tarn.config import Config, SecretChanges, certificates_of_blocks, contents_of
from tarn.config.certificate_change import CertificateChange
from tarn.config.sections import Blockstore
from tarn.core.clock import Clock
from tarn.telemetry.meters import Meters

__all__ = ["BlockPlace", "open_blocks", "open_blocks_to_read"]


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """Where the blocks of an installation are: what other processes need to open the block store, and no more.

    It can be pickled. It holds the key of the bucket, if the configuration does, and none of the other secrets.

    Attributes:
        blockstore: the section of the configuration.
        durability: of a local store.
    """

    blockstore: Blockstore
    durability: Literal["fsync", "os"]

    @staticmethod
    def of(config: Config) -> BlockPlace:
        """Returns the place that a configuration names."""
        return BlockPlace(config.blockstore, config.durability)

    async def open(self, clock: Clock) -> BlockStore:
        """Opens the block store; the caller closes it.

        Raises:
            TarnError: the store cannot be opened; the message gives the reason.
        """
        match self.blockstore.type:
            case "local":
                local = self.blockstore.local
                return await open_local(
                    local.path,
                    clock=clock,
                    durability=self.durability,
                    reserve_bytes=local.reserve_bytes,
                )
            case "s3":
                return await _open_s3(self.blockstore, clock)


async def open_blocks(
    config: Config,
    clock: Clock,
    meters: Meters | None = None,
    secrets: SecretChanges | None = None,
) -> BlockStore:
    """Opens the block store; the caller closes it.

    Args:
        config: names the store.
        clock: the store's clock.
        meters: counts the store's operations (`tarn.block.metered`); None: they are not counted.
        secrets: tells the store of other keys of the bucket; None: it keeps those of the start.

    Raises:
        TarnError: the store cannot be opened; the message gives the reason.
    """
    if config.blockstore.type == "s3":
        store: BlockStore = await _open_s3(config.blockstore, clock, secrets)
    else:
        store = await BlockPlace.of(config).open(clock)
    return store if meters is None else metered(store, clock, meters)


async def open_blocks_to_read(config: Config, clock: Clock) -> ReadBlocks:
    """Opens the configured block store for reading; the caller closes it.

    Raises:
        ConfigError: this version has no driver for the configured store.
        TarnError: the store cannot be opened or does not exist; the message gives the reason.
    """
    if config.blockstore.type == "local":
        return await open_local(config.blockstore.local.path, clock=clock, read_only=True)
    return await open_blocks(config, clock)


async def _open_s3(
    blockstore: Blockstore, clock: Clock, secrets: SecretChanges | None = None
) -> BlockStore:
    # Imported only here: the clients take 0.3 s to import, and other installations may not have them.
    from tarn.block.s3 import S3Limits, open_s3
    from tarn.block.s3.key_change import KeyChange, settings_of

    section = blockstore.s3
    limits = S3Limits(
        part_bytes=section.part_size_bytes,
        requests=section.requests,
        large_writes=section.large_writes,
        attempts=section.attempts,
        attempt_seconds=section.request_timeout_ms / 1000,
        deadline_seconds=section.deadline_ms / 1000,
        connect_seconds=section.connect_timeout_ms / 1000,
    )
    settings = settings_of(blockstore)
    files = certificates_of_blocks(blockstore)
    contents = contents_of(files)
    store = await open_s3(settings, clock=clock, chance=random.SystemRandom(), limits=limits)
    if secrets is not None:
        secrets.subscribe(KeyChange(store, settings).use)
        if settings.ca is not None:
            change = CertificateChange("s3", files, contents, store.use_authorities)
            secrets.subscribe(change.use)
    return store

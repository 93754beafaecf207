"""Holds the garbage collections of all repositories while a backup is made or after a restore.

A hold never shortens one that another user has set, and its end restores the earlier hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import structlog

from tarn.aio.first_error import collapse_error_groups
from tarn.core.clock import Clock
from tarn.core.collection import NEVER, Collection
from tarn.core.errors import TarnError
from tarn.kv.collection_records import collection_register
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Kv

__all__ = ["RENEW_SECONDS", "hold_until", "holding"]

RENEW_SECONDS: Final = 300.0
_HOLD_US: Final = 1_800_000_000
"""A hold that is not renewed any more, because the process died, ends after half an hour."""

_log = structlog.get_logger()


@asynccontextmanager
async def holding(
    kv: Kv, repositories: Sequence[RepositoryKeys], clock: Clock
) -> AsyncIterator[None]:
    """Holds collections inside the block.

    Raises:
        TarnError: a collection record cannot be changed; also when a renewal fails during the block.
    """
    before: dict[str, int] = {}
    until_us = 0

    async def hold_all() -> None:
        nonlocal until_us
        wanted_us = clock.now_us() + _HOLD_US
        for keys in repositories:
            # A record that is gone went with its repository: a renewal must not write it again.
            found_us = await hold_until(kv, keys, wanted_us, create=keys.root not in before)
            before.setdefault(keys.root, found_us)
        until_us = wanted_us

    async def renew() -> None:
        while True:
            await clock.sleep(RENEW_SECONDS)
            await hold_all()

    await hold_all()
    try:
        with collapse_error_groups():
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(renew())
                try:
                    yield
                finally:
                    renewing.cancel()
    finally:
        for keys in repositories:
            await _release(kv, keys, until_us, before.get(keys.root, 0))


async def hold_until(kv: Kv, keys: RepositoryKeys, until_us: int, *, create: bool = True) -> int:
    """Holds collections of a repository at least until a time; returns until when they were held before.

    Args:
        kv: the store.
        keys: of the repository. Nothing is done if its deletion has begun.
        until_us: the time.
        create: whether to write a record if there is none.

    Raises:
        TarnError: UNAVAILABLE: the record kept changing. CORRUPT. Also the store's errors.
    """
    before_us = 0

    def longer(found: Collection) -> Collection:
        nonlocal before_us
        before_us = found.hold_until_us
        return replace(found, hold_until_us=max(found.hold_until_us, until_us))

    await _change(kv, keys, longer, create=create)
    return before_us


async def _release(kv: Kv, keys: RepositoryKeys, ours_us: int, before_us: int) -> None:
    """Ends our own hold, if it has not been changed since. A failure only makes the hold last until its time."""

    def shorter(found: Collection) -> Collection:
        return replace(found, hold_until_us=before_us) if found.hold_until_us == ours_us else found

    try:
        await _change(kv, keys, shorter, create=False)
    except TarnError as error:
        _log.warning(
            "cannot release a hold of collections", repository=keys.root, error=error.message
        )


async def _change(
    kv: Kv,
    keys: RepositoryKeys,
    decide: Callable[[Collection], Collection],
    *,
    create: bool,
) -> None:
    def decided(found: Collection) -> Collection:
        return found if found is NEVER and not create else decide(found)

    # A deletion that begins after this look drops the partition, and the record with it.
    (closed,) = await kv.get_many(keys.refs, [keys.CLOSED], settle=True)
    if closed is None:
        await collection_register(kv, keys, keys.root).change(decided)

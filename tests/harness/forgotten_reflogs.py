"""Reflogs of a running Tarn that end at once, and not after 90 days."""

from __future__ import annotations

import asyncio
import os

from running_tarn import RunningTarn

from tarn.core.ids import RepositoryId
from tarn.kv.keys import InstallationKeys
from tarn.kv.opening import open_kv
from tarn.kv.records import Repository, decode_bucket
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_cli.node.plan import read_config

__all__ = ["forget_reflog"]


def forget_reflog(tarn: RunningTarn, lake: str) -> None:
    """Drops the reflog of a repository. The newest entry of each branch is in the branch record, and stays."""
    asyncio.run(_forget(tarn, lake))


async def _forget(tarn: RunningTarn, lake: str) -> None:
    config = read_config(None, os.environ, tarn.data)
    clock = SystemClock()
    kv = await open_kv(config, clock, SystemIds(clock))
    try:
        keys = InstallationKeys(config.installation.id)
        repository_id = RepositoryId(lake)
        (row,) = await kv.get_many(keys.graveler, [keys.repository(repository_id)])
        assert row is not None
        found = decode_bucket(row.value)
        assert isinstance(found, Repository)
        await kv.drop_partition(keys.of_repository(repository_id, found.instance_uid).reflog)
    finally:
        await kv.close()

"""Looks at the metadata store before anything is started on it, so that what is wrong is told once."""

from __future__ import annotations

import asyncio

from tarn.config import Config
from tarn.core.errors import Kind, TarnError
from tarn.kv.opening import open_kv
from tarn.rpc.log import logging_to
from tarn.rpc.process import log_config
from tarn.rpc.system import SystemClock, SystemIds
from tarn_cli.exits import CliError, Exit

__all__ = ["check_kv"]

_HINT = "docs/operate/cassandra.md says what the cluster must be"


def check_kv(config: Config) -> None:
    """Opens a store that other machines keep, which also makes its schema, and closes it again.

    The embedded store is a file of ours: its workers can tell what is wrong with it.

    Raises:
        CliError: UNAVAILABLE, no node answers; FAILURE, the cluster is not one to keep data in; says why.
    """
    if config.metadata.db.type == "embedded":
        return
    try:
        with logging_to(log_config(config)):
            asyncio.run(_open(config))
    except TarnError as error:
        code = Exit.UNAVAILABLE if error.kind is Kind.UNAVAILABLE else Exit.FAILURE
        raise CliError(code, error.message, _HINT) from error


async def _open(config: Config) -> None:
    clock = SystemClock()
    store = await open_kv(config, clock, SystemIds(clock))
    await store.close()

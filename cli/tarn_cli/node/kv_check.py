"""Checks the metadata store before the workers start, so that a problem is reported once."""

from __future__ import annotations

import asyncio

from tarn.config import Config
from tarn.core.errors import Kind, TarnError
from tarn.kv.opening import open_kv
from tarn.rpc.process.log import logging_to
from tarn.rpc.process.standalone import log_config
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_cli.exits import CliError, Exit

__all__ = ["check_kv"]

_HINT = "docs/operate/cassandra.md lists the requirements for the cluster"


def check_kv(config: Config) -> None:
    """Opens a Cassandra store, which also creates its schema, and closes it again.

    Does nothing for the embedded store, whose workers report its problems.

    Raises:
        CliError: UNAVAILABLE, no node answers; FAILURE, the cluster does not meet a requirement, which the
            text names.
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

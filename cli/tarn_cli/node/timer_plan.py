"""Plans the timers of a node: which commands they run, with which settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tarn.config import Config
from tarn_cli.node.timers import TimerSpec
from tarn_cli.settings import variable_of

__all__ = ["plan_timers"]

_US_PER_MS = 1000
_OF_A_PERSON = {
    "TARN_SETTINGS",
    *map(variable_of, ("server", "auth_server", "endpoint", "access_key_id", "secret_access_key")),
}
"""Variables that the timers do not take from the environment: they run as their own user, not as the one who starts
Tarn."""
_TARN = (sys.executable, "-m", "tarn_cli", "--quiet")


def plan_timers(
    config: Config,
    config_file: Path | None,
    environment: Mapping[str, str],
    server: str,
    auth_server: str,
) -> tuple[TimerSpec, ...]:
    """Returns the timers that are on.

    Args:
        config: of the node.
        config_file: that the node was started with.
        environment: of the processes of the node, with its settings.
        server: `host:port` of graveler's rpc.
        auth_server: `host:port` of auth's rpc.
    """
    variables = {
        name: value for name, value in environment.items() if name not in _OF_A_PERSON
    } | _certificates(config)
    places = [] if config_file is None else ["--config", str(config_file.absolute())]
    timers = []
    collection, backup = config.lifecycle.gc, config.backup
    addresses = ("--server", server, "--auth-server", auth_server)
    key = ("--settings", str(collection.settings))
    if collection.interval_ms:
        limits = (
            *("--max-percent", str(collection.max_percent)),
            *("--max-gib", str(collection.max_gib)),
            *("--max-growth", str(collection.max_growth)),
        )
        run = ("gc", "run", "--rate", str(collection.rate), *limits, *places)
        timers.append(
            TimerSpec(
                "gc",
                ((*_TARN, *addresses, *key, *run),),
                variables,
                collection.interval_ms * _US_PER_MS,
                collection.settings,
            )
        )
    if config.journal.compact_interval_ms:
        timers.append(
            TimerSpec(
                "journal",
                ((*_TARN, *addresses, *key, "journal", "compact", *places),),
                variables,
                config.journal.compact_interval_ms * _US_PER_MS,
                collection.settings,
            )
        )
    if backup.interval_ms:
        assert backup.place is not None, "the configuration was checked"
        create = (*_TARN, "backup", "create", backup.place, *places)
        prune = (*_TARN, "backup", "prune", backup.place, "--keep", str(backup.keep), *places)
        timers.append(
            TimerSpec("backup", (create, prune), variables, backup.interval_ms * _US_PER_MS)
        )
    return tuple(timers)


def _certificates(config: Config) -> dict[str, str]:
    """Returns the variables with which commands reach services that require certificates."""
    tls = config.rpc.tls
    files = {"rpc_tls_ca": tls.ca, "rpc_tls_cert": tls.cert, "rpc_tls_key": tls.key}
    return {variable_of(name): str(path) for name, path in files.items() if path is not None}

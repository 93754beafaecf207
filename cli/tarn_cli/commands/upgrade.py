"""`tarn upgrade`: which releases use an installation, and the last step of an upgrade."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import click

from tarn.config import Config
from tarn.core.errors import Kind, TarnError
from tarn.core.levels import LEVEL_MAX, LEVEL_MIN
from tarn.kv.fence import read_level
from tarn.kv.opening import open_store
from tarn.kv.port import ListingKv
from tarn.kv.replicas import read_replicas
from tarn.kv.upgrading import raise_level
from tarn.rpc.process.log import LogConfig, logging_to
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_cli.audited import audited
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import store_config
from tarn_cli.exits import CliError, Exit
from tarn_cli.interrupts import run_interruptibly
from tarn_cli.node.kv_url import kv_variables
from tarn_cli.output import Record
from tarn_cli.session import Command, Group, Session, pass_session

__all__ = ["upgrade"]

T = TypeVar("T")

_REPLICA_COLUMNS = ("service", "version", "host", "pid", "supports", "age_s")

_kv = click.option("--kv", default="", help="The metadata store, as in `tarn up --kv`.")


@click.group(cls=Group)
def upgrade() -> None:
    """Upgrades: the feature level of an installation and the releases that use it.

    Old and new replicas may run side by side until `tarn upgrade finish`; until then the upgrade can be undone.
    """


@upgrade.command(cls=Command)
@config_option
@data_dir_option
@_kv
@pass_session
def status(session: Session, config_file: Path | None, data_dir: Path | None, kv: str) -> None:
    """Show the feature level and the replicas that have the metadata store open.

    Replicas of release 0.9.0 do not report themselves. Gateways and compactors have no store open: `tarn doctor`
    asks them.

    \b
    Example:
      tarn upgrade status --config tarn.yaml
    """
    config = _config(session, config_file, data_dir, kv)
    clock = SystemClock()

    async def work(store: ListingKv) -> Record:
        level = await read_level(store, config.installation.id)
        now_us = clock.now_us()
        replicas = await read_replicas(store, config.installation.id, now_us)
        return {
            "installation": config.installation.id,
            "level": level.level,
            "raising_to": level.next_level if level.next_level > level.level else None,
            "this_release": version("tarn"),
            "this_release_supports": f"{LEVEL_MIN} to {LEVEL_MAX}",
            "replicas": [
                {
                    "service": each.service,
                    "version": each.version,
                    "host": each.host,
                    "pid": each.pid,
                    "supports": f"{each.level_min} to {each.level_max}",
                    "age_s": (now_us - each.begin_us) // 1_000_000,
                }
                for each in replicas
            ],
        }

    record = _with_store(config, work, alone=False)
    if session.as_json:
        session.output.one(record)
    else:
        replicas: list[Record] = record["replicas"]  # type: ignore[assignment]  # made above
        session.output.one(
            {**record, "raising_to": record["raising_to"] or "", "replicas": len(replicas)}
        )
        session.output.many(replicas, _REPLICA_COLUMNS, empty="no replica has the store open")
    if record["level"] != LEVEL_MAX:
        session.output.remark(
            f"the installation is at feature level {record['level']} of {LEVEL_MAX}: older releases may run, and the "
            "upgrade can be undone. `tarn upgrade finish` ends that"
        )


@upgrade.command(cls=Command)
@config_option
@data_dir_option
@_kv
@pass_session
def finish(session: Session, config_file: Path | None, data_dir: Path | None, kv: str) -> None:
    """Raise the feature level to that of this release. Older releases cannot use the installation any more.

    On Cassandra, run it while Tarn runs, after the last old replica has ended; it waits a few seconds. On the embedded
    store, stop Tarn first. It cannot be undone. If it is interrupted, run it again.

    \b
    Example:
      tarn upgrade finish --config tarn.yaml
    """
    config = _config(session, config_file, data_dir, kv)
    is_shared = config.metadata.db.type != "embedded"

    async def work(store: ListingKv) -> Record:
        clock = SystemClock()
        with audited(config, clock, "upgrade finish", to_level=LEVEL_MAX):
            before = await raise_level(
                store,
                config.installation.id,
                clock,
                is_shared=is_shared,
                said=session.output.remark,
            )
        return {"level_before": before.level, "level": max(before.level, LEVEL_MAX)}

    session.output.one(_with_store(config, work, alone=True))


def _config(session: Session, config_file: Path | None, data_dir: Path | None, kv: str) -> Config:
    config = store_config(
        session, config_file, data_dir, variables=kv_variables(kv, None), with_blocks=False
    )
    file = config.metadata.db.embedded.file
    if config.metadata.db.type == "embedded" and not file.exists():
        raise CliError(
            Exit.NOT_FOUND, f"there is no store at {file}", "name it by --data-dir or --config"
        )
    return config


def _with_store(config: Config, work: Callable[[ListingKv], Awaitable[T]], *, alone: bool) -> T:
    async def run() -> T:
        clock = SystemClock()
        store = await open_store(config, clock, SystemIds(clock), alone=alone)
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        with logging_to(LogConfig(level="error", format="text")):
            return run_interruptibly(run())
    except TarnError as error:
        code = Exit.UNAVAILABLE if error.kind is Kind.UNAVAILABLE else Exit.FAILURE
        raise CliError(code, error.message) from error

"""`tarn doctor`: checks whether an installation can run well."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import click

from tarn.config import Config
from tarn.rpc.process.log import LogConfig, logging_to
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import store_config
from tarn_cli.doctor import Finding, Level, examine, look_at_processes
from tarn_cli.exits import Exit
from tarn_cli.interrupts import run_interruptibly
from tarn_cli.node.data_dir import DataDir
from tarn_cli.node.kv_url import kv_variables
from tarn_cli.session import Command, Session, pass_session

__all__ = ["doctor", "examined"]


@click.command(cls=Command)
@config_option
@data_dir_option
@click.option("--kv", default="", help="The metadata store, as in `tarn up --kv`.")
@click.option(
    "--admin",
    "admin_ports",
    multiple=True,
    metavar="HOST:PORT",
    help="Admin port of a running process; may be repeated. Those of a running `tarn up` are known.",
)
@pass_session
def doctor(
    session: Session,
    config_file: Path | None,
    data_dir: Path | None,
    kv: str,
    admin_ports: tuple[str, ...],
) -> None:
    """Check configuration, stores, clocks and versions; run it before and after an upgrade.

    It opens the configured stores itself, and writes, reads and removes one small block. Exit code 1: at least one
    error. Warnings do not change the exit code.

    \b
    Examples:
      tarn doctor
      tarn doctor --config tarn.yaml --admin graveler-0:8112 --admin graveler-1:8112
    """
    config = store_config(
        session,
        config_file,
        data_dir,
        variables=kv_variables(kv, None),
        may_be_new=config_file is not None,  # it is also run before the first start
    )
    state = DataDir(config.data_dir).state()
    ports = {} if state is None else dict(state.admin_addresses)
    ports |= {address: address for address in admin_ports}
    with logging_to(LogConfig(level="error", format="text")):
        findings = [Finding("configuration", Level.OK, str(config_file or "defaults"))]
        findings += run_interruptibly(examined(config))
        findings += look_at_processes(
            ports, SystemClock(), version("tarn"), config.limits.connections
        )
    if not ports:
        session.output.remark("no running process is known: clocks and versions were not compared")
    records = [
        {"check": each.check, "result": each.level.value, "text": each.text} for each in findings
    ]
    session.output.many(records, ("check", "result", "text"))
    if any(each.level is Level.ERROR for each in findings):
        raise click.exceptions.Exit(Exit.FAILURE)


async def examined(config: Config) -> list[Finding]:
    """Returns the findings of `examine`."""
    clock = SystemClock()
    return [finding async for finding in examine(config, clock, SystemIds(clock))]

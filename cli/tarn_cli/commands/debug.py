"""`tarn debug`: what support needs to know of an installation."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path

import click

from tarn.rpc.process.log import LogConfig, logging_to
from tarn.rpc.process.system import SystemClock
from tarn_cli.bundle import write_bundle
from tarn_cli.commands.doctor import examined
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.doctor import look_at_processes
from tarn_cli.exits import CliError, Exit
from tarn_cli.node.data_dir import DataDir
from tarn_cli.node.plan import read_config
from tarn_cli.session import Group, Session, pass_session

__all__ = ["debug"]


@click.group(cls=Group)
def debug() -> None:
    """Finding out why an installation behaves as it does."""


@debug.command()
@config_option
@data_dir_option
@click.option(
    "--admin",
    "admin_ports",
    multiple=True,
    metavar="HOST:PORT",
    help="Admin port of a running process; may be repeated. Those of a running `tarn up` are known.",
)
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@pass_session
def bundle(
    session: Session,
    config_file: Path | None,
    data_dir: Path | None,
    admin_ports: tuple[str, ...],
    out: Path,
) -> None:
    """Write a support bundle: versions, configuration, `tarn doctor`, metrics, the end of the log.

    It holds no secrets: of passwords, keys and tokens it tells only whether they are set. It does hold names of
    repositories, branches, users and objects (from the log). OUT is a .tar.gz, readable by you only.

    \b
    Example:
      tarn debug bundle bundle.tar.gz
    """
    config = read_config(config_file, session.environment, data_dir)
    where = DataDir(config.data_dir)
    state = where.state()
    ports = {} if state is None else dict(state.admin_addresses)
    ports |= {address: address for address in admin_ports}
    clock = SystemClock()
    with logging_to(LogConfig(level="error", format="text")):
        findings = asyncio.run(examined(config))
        findings += look_at_processes(ports, clock, version("tarn"))
    try:
        names = write_bundle(out, config, findings, ports, where.log_file, clock)
    except OSError as error:
        raise CliError(Exit.CONFLICT, f"cannot write {out}: {error.strerror}") from error
    session.output.one({"bundle": str(out), "files": names})

"""`tarn debug`: information about an installation for support."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import click

from tarn.rpc.process.log import LogConfig, logging_to
from tarn.rpc.process.system import SystemClock
from tarn.telemetry.debugging import SECONDS_MAX
from tarn_cli.bundle import file_name, write_bundle
from tarn_cli.commands.doctor import examined
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import data_folder
from tarn_cli.doctor import admin_page, look_at_processes
from tarn_cli.exits import CliError, Exit
from tarn_cli.interrupts import run_interruptibly
from tarn_cli.node.data_dir import DataDir
from tarn_cli.node.plan import read_config
from tarn_cli.session import Group, Session, pass_session

__all__ = ["debug"]


@click.group(cls=Group)
def debug() -> None:
    """Finding out why an installation behaves as it does."""


admin_option = click.option(
    "--admin",
    "admin_ports",
    multiple=True,
    metavar="HOST:PORT",
    help="Admin port of a running process; may be repeated. Those of a running `tarn up` are known.",
)


@debug.command()
@config_option
@data_dir_option
@admin_option
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@pass_session
def bundle(
    session: Session,
    config_file: Path | None,
    data_dir: Path | None,
    admin_ports: tuple[str, ...],
    out: Path,
) -> None:
    """Write a support bundle: versions, configuration, `tarn doctor`, metrics, stacks, the end of the log.

    It holds no secrets: of passwords, keys and tokens it tells only whether they are set. It does hold names of
    repositories, branches, users and objects (from the log). OUT is a .tar.gz, readable by you only.

    \b
    Example:
      tarn debug bundle bundle.tar.gz
    """
    if config_file is None:
        data_dir = data_folder(session, None, data_dir)
    config = read_config(config_file, session.environment, data_dir)
    where = DataDir(config.data_dir)
    ports = _known(where, admin_ports)
    clock = SystemClock()
    with logging_to(LogConfig(level="error", format="text")):
        findings = run_interruptibly(examined(config))
        findings += look_at_processes(ports, clock, version("tarn"), config.limits.connections)
    try:
        names = write_bundle(out, config, findings, ports, where.log_file, clock)
    except OSError as error:
        raise CliError(Exit.CONFLICT, f"cannot write {out}: {error.strerror}") from error
    session.output.one({"bundle": str(out), "files": names})


@debug.command()
@config_option
@data_dir_option
@admin_option
@pass_session
def stacks(
    session: Session,
    config_file: Path | None,
    data_dir: Path | None,
    admin_ports: tuple[str, ...],
) -> None:
    """Show the stacks of all threads and tasks of each process.

    Run it on the machine of the processes. A process that hangs does not answer; `kill -USR1 PID` makes it write the
    stacks of its threads to its log.

    \b
    Example:
      tarn debug stacks --data-dir .tarn
    """
    ports = _required(DataDir(data_folder(session, config_file, data_dir)), admin_ports)
    pages = _pages(ports, "/debug/stacks", 0)
    text = [line for name, page in pages.items() for line in (f"== {name}", *page.splitlines())]
    session.output.one(pages, text)


@debug.command()
@config_option
@data_dir_option
@admin_option
@click.option(
    "--seconds",
    type=click.FloatRange(0, SECONDS_MAX, min_open=True),
    default=10,
    show_default=True,
    help="Length of the profile.",
)
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@pass_session
def profile(
    session: Session,
    config_file: Path | None,
    data_dir: Path | None,
    admin_ports: tuple[str, ...],
    seconds: float,
    out: Path,
) -> None:
    """Profile all processes for some seconds: one file for each in the folder OUT.

    The files hold folded stacks, 100 samples for each second, which flamegraph.pl and speedscope show. A profile
    costs a process some percent of its speed. Run it on the machine of the processes.

    \b
    Example:
      tarn debug profile --seconds 20 profiles
    """
    ports = _required(DataDir(data_folder(session, config_file, data_dir)), admin_ports)
    session.output.remark(f"profiling {len(ports)} processes for {seconds:g} s")
    pages = _pages(ports, f"/debug/profile?seconds={seconds:g}", seconds)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, page in pages.items():
            (out / f"{file_name(name)}.folded").write_text(page)
    except OSError as error:
        raise CliError(Exit.CONFLICT, f"cannot write to {out}: {error.strerror}") from error
    session.output.one(
        {"profiles": str(out), "files": [f"{file_name(name)}.folded" for name in pages]}
    )


def _known(where: DataDir, admin_ports: tuple[str, ...]) -> dict[str, str]:
    """Returns the admin ports of a running `tarn up` and the given ones, by names of processes."""
    state = where.state()
    ports = {} if state is None else dict(state.admin_addresses)
    return ports | {address: address for address in admin_ports}


def _required(where: DataDir, admin_ports: tuple[str, ...]) -> dict[str, str]:
    ports = _known(where, admin_ports)
    if not ports:
        text = f"no process runs with the data folder {where.path}"
        raise CliError(
            Exit.UNAVAILABLE, text, "start `tarn up`, or name admin ports by --admin HOST:PORT"
        )
    return ports


def _pages(ports: dict[str, str], path: str, wait_s: float) -> dict[str, str]:
    """Asks all processes for a page at the same time; returns the pages by names of processes."""
    with ThreadPoolExecutor(len(ports)) as threads:
        asked = {name: threads.submit(admin_page, at, path, wait_s) for name, at in ports.items()}
        try:
            return {name: each.result() for name, each in asked.items()}
        except OSError as error:
            hint = "name running processes of this machine by --admin; see docs/operate/metrics.md"
            raise CliError(Exit.UNAVAILABLE, f"no page of an admin port: {error}", hint) from error

"""`tarn up`, `tarn down`, `tarn status`: run Tarn on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from tarn.config import Config
from tarn.core.errors import Kind, TarnError
from tarn.kv.opening import open_kv
from tarn.rpc.process.log import logging_to
from tarn.rpc.process.standalone import log_config
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_cli.context import data_folder
from tarn_cli.exits import CliError, Exit
from tarn_cli.interrupts import run_interruptibly
from tarn_cli.node.data_dir import DataDir, State
from tarn_cli.node.plan import NodeFlags, NodePlan, read_config
from tarn_cli.node.running import run_node
from tarn_cli.node.timers import timers_record
from tarn_cli.output import Record
from tarn_cli.session import Command, Session, pass_session
from tarn_cli.terminal import write_line

__all__ = ["check_kv", "config_option", "data_dir_option", "down", "status", "up"]

T = TypeVar("T")

_DETACH_SECONDS = 120.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.05
_TAIL_LINES = 12
_KV_HINT = "docs/operate/cassandra.md lists the requirements for the cluster"

_port = click.IntRange(0, 65_535)
_WORKERS = (
    "Worker processes; with --separate, graveler processes.  "
    "[default: one per core; with --separate 1]"
)

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration of the services, YAML; `tarn config reference` lists the keys.",
)
data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data folder.  [default: that of the context, see `tarn context`; else ~/tarn]",
)


@click.command(cls=Command)
@config_option
@data_dir_option
@click.option(
    "--host", default="", help="Address of the S3 and REST endpoints.  [default: 127.0.0.1]"
)
@click.option("--port", type=_port, help="Port of the S3 endpoint; 0: a free one.  [default: 8000]")
@click.option(
    "--api-port",
    type=_port,
    help="Port of the REST endpoint; 0: a free one.  [default: 8001, or a free one if it is taken]",
)
@click.option(
    "--rpc-port", type=_port, help="Port for the `tarn` command; 0: a free one.  [default: 8102]"
)
@click.option("--workers", type=click.IntRange(1, 256), help=_WORKERS)
@click.option("--separate", is_flag=True, help="Run each service in a separate process, over gRPC.")
@click.option(
    "--kv", default="", help="Metadata in Cassandra: cassandra://HOST[:PORT][,…][/KEYSPACE]."
)
@click.option(
    "--kv-replicas",
    type=click.IntRange(1, 9),
    help="Replicas of a keyspace that --kv creates.  [default: one per node, at most 3]",
)
@click.option("-d", "--detach", is_flag=True, help="Return when Tarn serves; keep it running.")
@pass_session
def up(
    session: Session,
    config_file: Path | None,
    data_dir: Path | None,
    host: str,
    port: int | None,
    api_port: int | None,
    rpc_port: int | None,
    workers: int | None,
    separate: bool,
    kv: str,
    kv_replicas: int | None,
    detach: bool,
) -> None:
    """Start all services of Tarn on this machine.

    The command runs in the foreground until Ctrl-C. With --detach Tarn runs in the background until
    `tarn down`.

    \b
    Examples:
      tarn up --detach
      tarn up --data-dir /srv/tarn --port 9000
      tarn up --kv cassandra://127.0.0.1
    """
    if data_dir is None and config_file is None:
        data_dir, config_file = _of_context(session)
    flags = NodeFlags(
        config_file,
        data_dir,
        host,
        port,
        rpc_port,
        workers,
        separate,
        kv,
        kv_replicas,
        api_port,
    )
    environment = {**session.environment, **flags.variables()}
    config = read_config(config_file, environment, data_dir)
    where = DataDir(config.data_dir)
    if warning := lost_metadata(config):
        write_line(f"tarn: warning: {warning}", err=True)
    if detach:
        session.output.one(_record(where, _detach(flags, where)))
        return
    with where.locked(), NodePlan.of(flags, config, environment) as plan:
        check_kv(config)
        session.output.remark(f"starting Tarn on {where.path}")
        run_node(plan, where, lambda line: write_line(f"tarn: {line}", err=True))


def _of_context(session: Session) -> tuple[Path | None, Path | None]:
    """The data folder and the configuration that the context names; the default folder is that of the configuration."""
    context = session.context()
    return context.data_dir, context.config_file


def check_kv(config: Config) -> None:
    """Opens a Cassandra store, which also creates its schema, and closes it again: before the workers start, so
    that a problem is reported once.

    Does nothing for the embedded store, whose workers report its problems.

    Raises:
        CliError: UNAVAILABLE, no node answers; FAILURE, the cluster does not meet a requirement, which the
            text names.
    """
    if config.metadata.db.type == "embedded":
        return
    try:
        with logging_to(log_config(config)):
            run_interruptibly(_open_once(config))
    except TarnError as error:
        code = Exit.UNAVAILABLE if error.kind is Kind.UNAVAILABLE else Exit.FAILURE
        raise CliError(code, error.message, _KV_HINT) from error


def lost_metadata(config: Config) -> str:
    """Returns a warning if the embedded store is new, but its folder of objects is not; empty if all is well."""
    kv, blocks = config.metadata.db, config.blockstore
    if kv.type != "embedded" or blocks.type != "local" or kv.embedded.file.exists():
        return ""
    folder = blocks.local.path
    names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    journal = f"tarn-journal-{config.installation.id}"
    found = [name for name in names if not name.startswith(".") and name != journal]
    what = ["a journal"] if journal in names else []
    if found:
        what.insert(0, f"objects of {len(found)} repositories, such as {found[0]}")
    if not what:
        return ""
    return (
        f"there is no metadata store in {kv.embedded.path}, so this Tarn starts empty; but {folder} has "
        f"{', and '.join(what)}. If the metadata were lost: stop Tarn, remove {kv.embedded.path}, and run "
        "`tarn rebuild` if it had a journal, or `tarn backup restore`; without both, "
        "`tarn repo recover` brings back commits (docs/operate/disaster.md)"
    )


async def _open_once(config: Config) -> None:
    clock = SystemClock()
    store = await open_kv(config, clock, SystemIds(clock))
    await store.close()


def _record(where: DataDir, state: State) -> Record:
    return {
        "endpoint": state.endpoint,
        "api": state.api,
        "web": f"{state.api}/" if state.api else "",  # a state of an earlier release has none
        "server": state.server,
        "auth_server": state.auth_server,
        "compactor_server": state.compactor_server,
        "data_dir": str(where.path),
        "log": str(where.log_file),
        "pid": state.pid,
        "workers": state.processes,
        "admin_ports": state.admin_addresses,
        "restarts": state.restart_count,
        **({"timers": timers} if (timers := timers_record(where)) else {}),
    }


def _detach(flags: NodeFlags, where: DataDir) -> State:
    """Starts the same node in a new session, and returns its state when it serves."""
    if where.is_locked():
        raise CliError(
            Exit.CONFLICT, f"another Tarn already runs on {where.path}", "see `tarn status`"
        )
    where.create()
    command = [sys.executable, "-m", "tarn_cli", "up", *flags.arguments()]
    with where.open_log() as log:
        start = log.tell()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        state = _wait(lambda: _started(where, process), _DETACH_SECONDS)
    except BaseException:
        process.terminate()
        raise
    if isinstance(state, State):
        return state
    said = where.log_file.read_bytes()[start:].decode(errors="replace").splitlines()
    code = Exit(process.returncode) if process.returncode in list(Exit) else Exit.FAILURE
    hint = f"the full log is {where.log_file}"
    raise CliError(code, "Tarn did not start", hint, said[-_TAIL_LINES:])


def _started(where: DataDir, process: subprocess.Popen[bytes]) -> State | bool | None:
    """The state when it serves, False when it ended, None while it is starting."""
    if process.poll() is not None:
        return False
    state = where.state()
    return state if state is not None and state.pid == process.pid else None


def _wait(look: Callable[[], T | None], seconds: float) -> T:
    """Calls `look` until it returns a value, and returns that.

    Raises:
        CliError: UNAVAILABLE, `look` returned None until the time was over.
    """
    end = time.monotonic() + seconds
    while (found := look()) is None:
        if time.monotonic() >= end:
            raise CliError(Exit.UNAVAILABLE, f"gave up after {seconds:.0f} s")
        time.sleep(_POLL_SECONDS)
    return found


@click.command(cls=Command)
@config_option
@data_dir_option
@pass_session
def down(session: Session, config_file: Path | None, data_dir: Path | None) -> None:
    """Stop the Tarn of a data folder; requests in flight are answered first."""
    where = DataDir(data_folder(session, config_file, data_dir))
    state = where.state()
    if state is None:
        session.output.remark(f"no Tarn runs on {where.path}")
        return
    # The lock is held, so the process id in the state file is the supervisor's.
    os.kill(state.pid, signal.SIGTERM)
    _wait(lambda: None if where.is_locked() else True, _STOP_SECONDS)
    session.output.remark(f"stopped; the data stays in {where.path}")


@click.command(cls=Command)
@config_option
@data_dir_option
@pass_session
def status(session: Session, config_file: Path | None, data_dir: Path | None) -> None:
    """Show whether Tarn runs on a data folder, and its addresses. Exit code 6 if it does not run."""
    where = DataDir(data_folder(session, config_file, data_dir))
    state = where.state()
    if state is None:
        text = "is starting or stopping" if where.is_locked() else "does not run"
        raise CliError(Exit.UNAVAILABLE, f"Tarn {text} on {where.path}", "`tarn up` starts it")
    session.output.one(_record(where, state))

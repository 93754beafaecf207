"""`tarn kv`: moves a whole installation's metadata from one store to another and verifies the copy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn

from tarn.config import Config
from tarn.kv.agreement import read_settings
from tarn.kv.opening import open_store
from tarn.kv.port import ListingKv
from tarn.rpc.process.log import logging_to
from tarn.rpc.process.standalone import log_config
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.snapshot.files.content import corrupt_error
from tarn.snapshot.files.manifest import Scope
from tarn.snapshot.files.stored import check_files, open_snapshot
from tarn.snapshot.files.target import FolderTarget, new_folder
from tarn.snapshot.store import (
    OpenStore,
    RateLimiter,
    SnapshotSource,
    Source,
    StoreSource,
    TransferOptions,
    Transferred,
    compare,
    forget_agreed,
)
from tarn.snapshot.store import TransferProgress as Pass
from tarn.snapshot.store import dump as dump_place
from tarn.snapshot.store import load as load_place
from tarn.snapshot.store import migrate as migrate_place
from tarn.snapshot.store import reopen as reopen_place
from tarn_cli.audited import audited
from tarn_cli.bars import PlainColumn, bar
from tarn_cli.exits import CliError, Exit
from tarn_cli.interrupts import run_interruptibly
from tarn_cli.journal_notes import JournalNotes
from tarn_cli.kv_place import about, check_apart, config_of, secret_of
from tarn_cli.output import Record
from tarn_cli.session import Group, Session, pass_session

__all__ = ["kv"]

T = TypeVar("T")

_STORE = "Configuration file of the services, or URL of the store."
_SECRET_HINT = "copy the secret of the source: users' keys are encrypted with it"  # noqa: S105 - advice
_SHOWN_STRAYS = 5
_STANDARD_ERROR = "="

_concurrency = click.option(
    "--concurrency",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Pieces that are copied concurrently; each takes some 50 MiB of memory.",
)
_rate = click.option(
    "--rows-per-second", type=click.IntRange(1), help="Most rows per second, to limit the load."
)
_config = click.option("--config", "store", metavar="STORE", required=True, help=_STORE)


@click.group(cls=Group)
def kv() -> None:
    """The metadata store: move a whole installation, verified by digests.

    A STORE is a configuration file of the services, embedded:///FOLDER (which holds tarn.db) or
    cassandra://HOST[:PORT][,…][/KEYSPACE]; URLs take ?installation=ID. Objects are not moved: both
    metadata stores refer to the same blocks.
    """


@kv.command()
@_config
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--keep-closed", is_flag=True, help="Leave the source closed afterwards.")
@_concurrency
@_rate
@pass_session
def dump(
    session: Session,
    store: str,
    out: Path,
    keep_closed: bool,
    concurrency: int,
    rows_per_second: int | None,
) -> None:
    """Write all metadata into the folder OUT. A dump that is there already stays; only new data is written.

    The installation is closed during the dump and open again afterwards. If the dump is interrupted, run
    the same command again to resume. A dump is as secret as the store itself.

    \b
    Example:
      tarn kv dump --config tarn.yaml /backup/tarn-2026-11-21
    """
    config = _existing(config_of(store, session.environment))
    folder = out.absolute()

    async def work(run: _Run) -> Record:
        source = await run.place(config)
        manifest, done = await dump_place(
            source, new_folder(folder), run.ids, run.options, keep_closed=keep_closed
        )
        return {"dump": str(out), "new_chunks": manifest.new_chunks, **_record(done)}

    command = _Command("kv dump", {"store": about(config), "to": str(folder)}, (config,))
    _carry_out(session, config, concurrency, rows_per_second, work, command)
    session.output.remark("the dump does not contain the installation's secret: keep that, too")


@kv.command()
@_config
@click.argument("dump_folder", metavar="DUMP", type=click.Path(path_type=Path))
@click.option(
    "--dump", "dump_id", default="", metavar="ID", help="Which dump.  [default: the newest]"
)
@_concurrency
@_rate
@pass_session
def load(
    session: Session,
    store: str,
    dump_folder: Path,
    dump_id: str,
    concurrency: int,
    rows_per_second: int | None,
) -> None:
    """Fill an empty store from a dump, and compare all of it by digests.

    If it is interrupted, run the same command again to resume. Tarn does not start on the store until
    the load is complete.

    \b
    Example:
      tarn kv load --config cassandra.yaml /backup/tarn-2026-11-21
    """
    config = config_of(store, session.environment)
    folder = dump_folder.absolute()
    notes = JournalNotes(config, SystemClock())

    async def work(run: _Run) -> Record:
        dumped = await open_snapshot(FolderTarget(folder), Scope.STORE, dump_id)
        place = await run.place(config)
        done = await load_place(dumped, place, run.ids, run.options, before_opening=notes)
        return {"store": about(config), **_record(done)}

    command = _Command("kv load", {"store": about(config), "from": str(folder)}, (config,))
    _carry_out(session, config, concurrency, rows_per_second, work, command)
    if remark := notes.remark():
        session.output.remark(remark)
    if secret_of(config) is None:
        session.output.remark(f"no installation secret is set here: {_SECRET_HINT}")


@kv.command()
@click.option("--from", "source", metavar="STORE", required=True, help=_STORE)
@click.option(
    "--to",
    "target",
    metavar="STORE",
    required=True,
    help="Configuration file or URL of an empty store.",
)
@_concurrency
@_rate
@pass_session
def migrate(
    session: Session, source: str, target: str, concurrency: int, rows_per_second: int | None
) -> None:
    """Move an installation from one store to another, compare all of it, and close the old one.

    If it is interrupted, run the same command again to resume. Afterwards Tarn starts on the new store,
    and refuses to start on the old one.

    \b
    Examples:
      tarn kv migrate --from tarn.yaml --to cassandra.yaml
      tarn kv migrate --from embedded:///srv/tarn/kv --to cassandra://db1,db2,db3/tarn
    """
    old = _existing(config_of(source, session.environment))
    new = config_of(target, session.environment)
    check_apart(old, new)
    secrets = secret_of(old), secret_of(new)
    if None not in secrets and secrets[0] != secrets[1]:
        raise CliError(Exit.USAGE, "source and target have different secrets", _SECRET_HINT)

    async def work(run: _Run) -> Record:
        done = await migrate_place(await run.place(old), await run.place(new), run.ids, run.options)
        return {"source": about(old), "target": about(new), **_record(done)}

    logs = (new,) if old.audit == new.audit else (old, new)
    command = _Command("kv migrate", {"from": about(old), "to": about(new)}, logs)
    _carry_out(session, new, concurrency, rows_per_second, work, command)
    session.output.remark(f"use {about(new)} from now on; {about(old)} is closed")
    if secrets[1] is None:
        session.output.remark(f"no installation secret is set there: {_SECRET_HINT}")


@kv.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="[B]", required=False)
@_concurrency
@_rate
@pass_session
def verify(
    session: Session,
    first: str,
    second: str | None,
    concurrency: int,
    rows_per_second: int | None,
) -> None:
    """Compare two stores, or a dump and a store; with one dump, check its files.

    Names the first rows that differ. Exit code 1 if any differs. Works while Tarn runs; writes during
    the comparison then show as differences.

    \b
    Examples:
      tarn kv verify /backup/tarn-2026-11-21
      tarn kv verify /backup/tarn-2026-11-21 cassandra.yaml
      tarn kv verify embedded:///srv/tarn/kv cassandra://db1/tarn
    """
    if second is not None and _is_dump(second):
        first, second = second, first
    if second is None or _is_dump(second):
        if not _is_dump(first) or second is not None:
            raise CliError(Exit.USAGE, "give two stores, or a dump and a store, or one dump")
        config = config_of("embedded:///nowhere", session.environment)
    else:
        config = _existing(config_of(second, session.environment))

    async def work(run: _Run) -> Record:
        return await _verify(run, first, None if second is None else config)

    record = _carry_out(session, config, concurrency, rows_per_second, work)
    if record["different_rows"]:
        raise CliError(Exit.FAILURE, f"{record['different_rows']} rows differ")


@kv.command()
@click.argument("store")
@click.option(
    "--force", is_flag=True, help="Also open a store that is half loaded or was moved away."
)
@pass_session
def reopen(session: Session, store: str, force: bool) -> None:
    """Open a store again that an abandoned transfer closed.

    Needs --force where data can be lost: for an incomplete store, and for a store whose data was moved
    and may have newer writes in the other store.
    """
    config = _existing(config_of(store, session.environment))

    async def work(run: _Run) -> Record:
        fence = await reopen_place(await run.place(config), force=force)
        return {"store": about(config), "was": "open" if fence is None else fence.state.value}

    command = _Command("kv reopen", {"store": about(config), "force": force}, (config,))
    _carry_out(session, config, 1, None, work, command)


@kv.command()
@_config
@click.option("--forget", is_flag=True, help="Remove the record. Stop every process of Tarn first.")
@pass_session
def settings(session: Session, store: str, forget: bool) -> None:
    """Show the settings that all replicas must agree on, as recorded in the store.

    A process with another value does not start. To change a value: stop every process, run this with
    --forget, and start them with the new value. On a shared store Tarn cannot check whether a process
    still runs; such a process would continue with the old value.

    \b
    Examples:
      tarn kv settings --config tarn.yaml
      tarn kv settings --config cassandra://db1,db2,db3/tarn --forget
    """
    config = _existing(config_of(store, session.environment))

    async def work(run: _Run) -> Record:
        if forget:
            noted = await forget_agreed(await run.place(config), run.ids, run.options)
        else:
            opened = await run.open(config, alone=False)
            noted = await read_settings(opened, config.installation.id)
        return {"store": about(config), "forgotten": forget, "settings": noted}

    command = _Command("kv settings --forget", {"store": about(config)}, (config,))
    _carry_out(session, config, 1, None, work, command if forget else None)


@dataclass(frozen=True, slots=True)
class _Command:
    """A command as the audit log records it: its words, details, and the installations whose logs have it."""

    words: str
    details: dict[str, str | int]
    logs: tuple[Config, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """The resources of one running command."""

    clock: SystemClock
    ids: SystemIds
    options: TransferOptions
    environment: dict[str, str]
    stack: AsyncExitStack

    async def open(self, config: Config, *, alone: bool) -> ListingKv:
        store = await open_store(config, self.clock, self.ids, alone=alone)
        self.stack.push_async_callback(store.close)
        return store

    async def place(self, config: Config) -> OpenStore:
        """Opens a store exclusively: no other process on this machine may have it open."""
        store = await self.open(config, alone=True)
        is_shared = config.metadata.db.type != "embedded"
        return OpenStore(store, config.installation.id, about(config), is_shared)


def _carry_out(
    session: Session,
    config: Config,
    concurrency: int,
    rows_per_second: int | None,
    work: Callable[[_Run], Awaitable[T]],
    command: _Command | None = None,
) -> T:
    """Runs `work` with progress on standard error; prints its result and returns it.

    With a `command`, which changes or copies a store, the audit log records it.
    """
    clock = SystemClock()

    async def opened(report: Callable[[Pass], None]) -> T:
        options = TransferOptions(clock, RateLimiter(clock, rows_per_second), concurrency, report)
        async with AsyncExitStack() as stack:
            if command is not None:
                for each in command.logs:
                    stack.enter_context(audited(each, clock, command.words, **command.details))
            environment = dict(session.environment)
            return await work(_Run(clock, SystemIds(clock), options, environment, stack))

    # Standard output is for the result alone.
    log = replace(log_config(config), output=_STANDARD_ERROR)
    with logging_to(log), _progress(session) as report:
        record = run_interruptibly(opened(report))
    session.output.one(record)  # type: ignore[arg-type]  # every command returns a record
    return record


@contextmanager
def _progress(session: Session) -> Iterator[Callable[[Pass], None]]:
    columns = (BarColumn(), MofNCompleteColumn(), PlainColumn("{task.fields[extra]:,} rows"))
    with bar(session.output.progress_console, "opening", *columns) as shown:
        yield lambda done: shown.show(done.phase, done.units, done.units_total, done.rows)


async def _verify(run: _Run, first: str, second: Config | None) -> Record:
    if _is_dump(first):
        dumped = await open_snapshot(FolderTarget(Path(first)), Scope.STORE)
        progress = Pass("check dump", units_total=len(dumped.lines))
        if wrong := await check_files(dumped, run.options, progress):
            raise corrupt_error(wrong[0])
        source: Source = SnapshotSource(dumped)
        installation_id = dumped.manifest.installation_id
        if second is None:
            return _compared(progress, 0, [])
    else:
        assert second is not None
        config = _existing(config_of(first, run.environment))
        check_apart(config, second)
        installation_id = config.installation.id
        source = StoreSource(await run.open(config, alone=False), installation_id)
    if installation_id != second.installation.id:
        text = f"A holds installation {installation_id!r}, B {second.installation.id!r}"
        raise CliError(Exit.USAGE, text, "URLs take ?installation=ID")
    store = await run.open(second, alone=False)
    found = await compare(source, store, installation_id, run.options)
    differences = [
        {"partition": each.partition, "key": _shown_key(each.key), "how": each.sort.value}
        for each in found.differences
    ]
    return _compared(found.progress, found.count, differences)


def _compared(progress: Pass, count: int, differences: list[dict[str, str]]) -> Record:
    return {
        "ranges": progress.ranges,
        "rows": progress.rows,
        "size_bytes": progress.size_bytes,
        "different_ranges": progress.changed,
        "different_rows": count,
        "differences": differences,
    }


def _record(done: Transferred) -> dict[str, object]:
    return {
        "transfer_id": done.transfer_id,
        "ranges": done.ranges,
        "rows": done.rows,
        "size_bytes": done.size_bytes,
        "changed_meanwhile": done.changed,
        "unreferenced_partitions": len(done.strays),
        "unreferenced": list(done.strays[:_SHOWN_STRAYS]),
    }


def _existing(config: Config) -> Config:
    """Checks that the store exists, because opening a missing embedded store would create it.

    Raises:
        CliError: NOT_FOUND, there is no store.
    """
    file = config.metadata.db.embedded.file
    if config.metadata.db.type == "embedded" and not file.exists():
        raise CliError(Exit.NOT_FOUND, f"there is no store at {file}")
    return config


def _is_dump(where: str) -> bool:
    return "://" not in where and Path(where).is_dir()


def _shown_key(key: bytes) -> str:
    """The key as text if it is UTF-8, otherwise in hex."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"

"""`tarn repo import-lakefs`: brings a repository over from lakeFS, with its history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click

from tarn.core.byte_sizes import shown_size
from tarn.core.errors import TarnError
from tarn.core.ids import parse_branch_id
from tarn.core.moments import iso_time
from tarn_cli.audited import audited
from tarn_cli.collecting import interruptible
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import store_config
from tarn_cli.objects.uri import parse_repository
from tarn_cli.output import Record
from tarn_cli.session import Command, Session, pass_session
from tarn_cli.ticking import ticking

if TYPE_CHECKING:  # imported when the command runs
    from tarn.config import Config
    from tarn.lakefs.history import ImportProgress, PeerHistory
    from tarn.lakefs.server import PeerServer
    from tarn.lakefs.state import ImportState
    from tarn.snapshot.repository.transfer import Restored
    from tarn_cli.connection import Connection

__all__ = ["import_lakefs"]

_KEY: Final = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"
_SECRET: Final = "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"  # noqa: S105 - the name of a variable
_ENDPOINT: Final = "LAKECTL_SERVER_ENDPOINT_URL"
_PEER: Final = "peer"


@dataclass(frozen=True, slots=True)
class _Peer:
    """What is imported, as it was at the first run.

    Attributes:
        refs: the document that names the tables of the dump.
        default_branch: of the repository.
        protected: patterns of protected branches.
    """

    refs: str
    default_branch: str
    protected: list[str]


@click.command(name="import-lakefs", cls=Command)
@click.argument("repository")
@click.argument("source", default="")
@click.option(
    "--server",
    "url",
    default="",
    help=f"Address of a running lakeFS; {_KEY} and {_SECRET} are its key.",
)
@click.option(
    "--from", "peer_repository", default="", help="Name in lakeFS.  [default: REPOSITORY]"
)
@click.option(
    "--refs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Instead of --server: the output of `lakectl refs-dump`.",
)
@click.option("--default-branch", default="", help="[default: that of --server, else main]")
@click.option("--endpoint", default="", help="Address of the S3 server of SOURCE.  [default: AWS]")
@click.option("--profile", default="", help="Profile of the credentials for SOURCE.")
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="PREFIX",
    help="Also copy imported objects from here, such as s3://raw/2025/; may be given more than once.",
)
@click.option(
    "--storage-namespace", default="", help="Place of the new blocks, e.g. s3://bucket/lake."
)
@click.option(
    "--work",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the state of the import.  [default: REPOSITORY.lakefs-import]",
)
@click.option(
    "--expire-missing",
    is_flag=True,
    help="Bring commits whose objects lakeFS has deleted over as expired ones.",
)
@click.option("--dry-run", is_flag=True, help="Count commits, objects and bytes; copy nothing.")
@config_option
@data_dir_option
@pass_session
def import_lakefs(
    session: Session,
    repository: str,
    source: str,
    url: str,
    peer_repository: str,
    refs: Path | None,
    default_branch: str,
    endpoint: str,
    profile: str,
    allowed: tuple[str, ...],
    storage_namespace: str,
    work: Path | None,
    expire_missing: bool,
    dry_run: bool,
    config_file: Path | None,
    data_dir: Path | None,
) -> None:
    """Bring a repository over from lakeFS: commits, branches, tags, and all their objects.

    SOURCE is its storage namespace in lakeFS: s3://bucket/prefix, or a folder. With --server it may be left out if it
    is in a bucket. Objects are copied, so SOURCE is not needed afterwards; nothing is written there. Uncommitted
    changes stay behind: commit them first.

    It runs where the block store of Tarn can be reached, with the configuration of the services, and needs an admin's
    key. The repository becomes visible when it is complete and verified. After an interruption, the same command
    continues; `tarn repo delete` gives up.

    \b
    Examples:
      tarn repo import-lakefs shop --server http://lakefs:8000 --dry-run
      tarn repo import-lakefs shop s3://acme/shop --refs refs.json
    """
    name = parse_repository(repository)
    url = url or ("" if refs else session.environment.get(_ENDPOINT, ""))
    if bool(url) == bool(refs):
        raise click.UsageError("give --server, or --refs with the output of `lakectl refs-dump`")
    server = _server(session, url, peer_repository or name) if url else None
    options = _Options(
        name,
        source or _place(server),
        refs,
        default_branch,
        endpoint,
        profile,
        allowed,
        storage_namespace,
        expire_missing,
    )
    folder = work or Path(f"{name}.lakefs-import")
    if dry_run:
        _count_only(session, options, server, folder)
    else:
        config = store_config(session, config_file, data_dir, beside_server=True)
        _import(session, config, options, server, folder)


def _count_only(
    session: Session, options: _Options, server: PeerServer | None, folder: Path
) -> None:
    from tarn.lakefs.history import ImportProgress
    from tarn.lakefs.state import ImportState

    progress, parent = ImportProgress(), folder.absolute().parent
    # A state of its own: the import that follows must not use the dump of the dry run, which is older.
    with (
        TemporaryDirectory(prefix=f".{folder.name}-", dir=parent) as passing,
        ImportState(Path(passing), options.scope) as state,
    ):
        peer = _peer(session, state, server, options)
        asyncio.run(_count(session, _history(state, options, progress), peer))
        behind = _uncommitted(state, server)
    session.output.one({**_counted(options.name, progress), "uncommitted": behind})


def _import(
    session: Session, config: Config, options: _Options, server: PeerServer | None, folder: Path
) -> None:
    from tarn.lakefs.history import ImportProgress
    from tarn.lakefs.state import ImportState
    from tarn.rpc.process.system import SystemClock

    name, progress = options.name, ImportProgress()
    with ImportState(folder, options.scope) as state:
        peer = _peer(session, state, server, options)
        history = _history(state, options, progress)
        facts = {"repository": name, "place": options.place}
        with audited(config, SystemClock(), "repo import-lakefs", **facts):
            done = interruptible(
                session,
                lambda tarn: _bring(session, config, tarn, history, peer, options),
                "interrupted; the same command continues",
            )
        behind = _uncommitted(state, server)
    session.output.one({**_brought(name, done, progress), "uncommitted_left_behind": behind})
    session.output.remark(f"{folder} is not needed any more")


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of the command; `name` is the new repository, and `place` its source."""

    name: str
    place: str
    refs: Path | None
    default_branch: str
    endpoint: str
    profile: str
    allowed: tuple[str, ...]
    storage_namespace: str
    expire_missing: bool

    @property
    def scope(self) -> str:
        return f"{self.place} into {self.name}"


def _server(session: Session, url: str, repository: str) -> PeerServer:
    from tarn.lakefs.server import PeerServer

    key, secret = (session.environment.get(each, "") for each in (_KEY, _SECRET))
    if not key or not secret:
        raise click.UsageError(f"--server needs a key of lakeFS: set {_KEY} and {_SECRET}")
    return PeerServer(url, key, secret, repository)


def _place(server: PeerServer | None) -> str:
    found = "" if server is None else server.place()[0]
    if not found.startswith("s3://"):
        about = f" (lakeFS calls it {found})" if found else ""
        raise click.UsageError(
            f"give SOURCE, the folder or bucket with the repository's blocks{about}"
        )
    return found


def _peer(
    session: Session,
    state: ImportState,
    server: PeerServer | None,
    options: _Options,
) -> _Peer:
    """Returns what to import: at the first run from the flags and the server, later from the state."""
    from tarn.rpc.process.system import SystemClock

    clock = SystemClock()
    given = options.refs.read_text(errors="replace") if options.refs else ""
    default_branch = options.default_branch
    if not state.get(_PEER):
        default, protected, text = default_branch or "main", [], given
        if server is not None:
            default = default_branch or server.place()[1]
            protected = server.protected()
            text = asyncio.run(server.dump(clock.sleep))
        about = [text, str(parse_branch_id(default)), protected, iso_time(clock.now_us())]
        state.set(_PEER, json.dumps(about))
    else:
        session.output.remark(f"continues with the dump of {json.loads(state.get(_PEER))[3]}")
    text, default, protected, _ = json.loads(state.get(_PEER))
    return _Peer(given or text, default_branch or default, protected)


def _uncommitted(state: ImportState, server: PeerServer | None) -> list[str]:
    """Returns the branches of the dump that have uncommitted changes now; `unknown` if no server can be asked."""
    if server is None:
        return ["unknown"]
    try:
        return [each.name for each in state.refs("branch") if server.has_uncommitted(each.name)]
    except TarnError:  # the import is done all the same
        return ["unknown"]


def _history(state: ImportState, options: _Options, progress: ImportProgress) -> PeerHistory:
    from tarn.lakefs.history import PeerHistory
    from tarn.lakefs.source import opened_source

    source = opened_source(
        options.place, endpoint=options.endpoint, profile=options.profile, allowed=options.allowed
    )
    return PeerHistory(source, state, progress)


async def _count(session: Session, history: PeerHistory, peer: _Peer) -> None:
    async with _shown(session, history.progress):
        await _load(history, peer)
        await history.count()


async def _load(history: PeerHistory, peer: _Peer) -> None:
    from tarn.lakefs.history import DumpIds

    await history.load(DumpIds.parse(peer.refs))
    history.require_branch(peer.default_branch)


async def _bring(
    session: Session,
    config: Config,
    tarn: Connection,
    history: PeerHistory,
    peer: _Peer,
    options: _Options,
) -> Restored:
    from tarn.block.committed import Committed
    from tarn.block.opening import open_blocks
    from tarn.block.rangecache import RangeCache
    from tarn.core.rules import Rules, Settings
    from tarn.lakefs.bringing import Bringing
    from tarn.lakefs.importing import HistoryImport
    from tarn.lakefs.server import protections_of
    from tarn.rpc.process.system import SystemClock, SystemIds
    from tarn.snapshot.repository.transfer import Transfer

    clock, state, name = SystemClock(), history.state, options.name
    ids = SystemIds(clock)
    settings = Settings(Rules(protections_of(peer.protected)))
    namespace = state.get("namespace")
    if not namespace:
        default = f"{config.blockstore.namespace_prefix}{name}-{ids.nonce().hex()[:8]}"
        namespace = (options.storage_namespace or default).rstrip("/")
        state.set("namespace", namespace)
    blocks = await open_blocks(config, clock)
    cache = RangeCache(state.folder / "ranges")
    try:
        async with _shown(session, history.progress):
            await _load(history, peer)
            bringing = Bringing(
                tarn.graveler,
                tarn.call,
                Transfer(tarn.graveler, tarn.call, sleep=clock.sleep),
                HistoryImport(
                    history,
                    blocks,
                    Committed(blocks, cache),
                    namespace,
                    clock,
                    ids,
                    expires_missing=options.expire_missing,
                ),
                state,
                name,
                namespace,
                parse_branch_id(peer.default_branch),
                settings,
                clock,
                ids,
            )
            return await bringing.run()
    finally:
        cache.close()
        await blocks.close()


@asynccontextmanager
async def _shown(session: Session, progress: ImportProgress) -> AsyncIterator[None]:
    """Shows the progress during the block."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn

    from tarn.aio.first_error import collapse_error_groups
    from tarn.rpc.process.system import SystemClock
    from tarn_cli.bars import bar

    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with bar(session.output.progress_console, "begin", *columns) as shown:

        def show() -> None:
            about = (
                f"{progress.step}: {progress.objects} objects, {shown_size(progress.size_bytes)}"
            )
            shown.show(about, progress.commits_done, progress.commits)

        with collapse_error_groups(prefer=TarnError):
            async with ticking(show, SystemClock()):
                yield


def _counted(name: str, progress: ImportProgress) -> Record:
    return {
        "repository": name,
        "did": "dry run",
        "commits": progress.commits,
        "objects": progress.objects,
        "bytes": progress.size_bytes,
    }


def _brought(name: str, done: Restored, progress: ImportProgress) -> Record:
    return {
        "repository": name,
        "storage_namespace": done.repository.storage_namespace if done.repository else "",
        "branches": done.branches,
        "tags": done.tags,
        "commits": progress.commits,
        "objects_copied": progress.objects,
        "bytes_copied": progress.size_bytes,
        "objects_gone": progress.gone,
        "size_compared_only": progress.unverified,
        "entries_with_headers_left_out": progress.headers_left_out,
    }

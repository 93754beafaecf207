"""The checks of `tarn doctor`: whether an installation can run well, before it starts and while it runs."""

from __future__ import annotations

import contextlib
import enum
import http
import http.client
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarn.block.opening import open_blocks
from tarn.block.port import BlockKey
from tarn.config import Config, ConfigError
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import TarnError
from tarn.core.ids import physical_path
from tarn.core.levels import LEVEL_MAX, StoreLevel
from tarn.kv.fence import read_level
from tarn.kv.opening import open_kv_to_read
from tarn.kv.replicas import ReplicaRow, read_replicas
from tarn.rpc.process.open_files import attainable_open_files
from tarn_cli.node.data_dir import DataDir

__all__ = ["Finding", "Level", "admin_page", "examine", "look_at_processes"]

SKEW_WARNED_SECONDS = 1.0
SKEW_MAX_SECONDS = 5.0
"""The clock skew on which the branch protocol relies; see `graveler.clock_skew` in docs/operate/configuration.md."""

_PROBE = b"tarn doctor"
_ADMIN_TIMEOUT_SECONDS = 5.0
_PAGE_BYTES_MAX = 16 << 20
_FREE_BYTES_MIN = 1 << 30
_OTHER_FILES = 512
_REPLICAS_SHOWN = 20
_VALUE = re.compile(r"^tarn_process_clock_seconds (\S+)$", re.MULTILINE)
_FILES = re.compile(r"^tarn_process_open_files_max (\S+)$", re.MULTILINE)
_GATEWAYS = ("gateway", "node")
"""The names of processes that hold connections of S3 clients."""
_BUILD = re.compile(
    r'^tarn_build_info\{service="([^"]*)",version="([^"]*)"\} 1$',
    re.MULTILINE,
)


class Level(enum.Enum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    """It runs, but not well or not safely."""
    ERROR = "error"
    """It does not run, or data is in danger."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        check: the subject of the check, a few words.
        level: see `Level`.
        text: the result, and what to do about it.
    """

    check: str
    level: Level
    text: str


async def examine(config: Config, clock: Clock, ids: IdSource) -> AsyncIterator[Finding]:
    """Checks the secret, this machine and both stores.

    Writes one block of a few bytes to the block store and removes it. Else changes nothing.
    """
    yield _secret(config)
    yield _files(config)
    yield _disk(config)
    for finding in await _of("metadata store", lambda: _metadata(config, clock, ids)):
        yield finding
    for finding in await _of("block store", lambda: _blocks(config, clock, ids)):
        yield finding


async def _of(check: str, work: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    try:
        return await work()
    except (TarnError, ConfigError, OSError) as error:
        return [Finding(check, Level.ERROR, str(error))]


def _secret(config: Config) -> Finding:
    check, file = "secret", DataDir(config.data_dir).secret_file
    if config.installation.secret is not None:
        return Finding(check, Level.OK, "is configured")
    tls = config.rpc.tls
    if not file.exists() and tls.ca is not None and tls.cert is not None:
        return Finding(check, Level.OK, "is not set here: with mutual TLS only auth needs it")
    if not file.exists():
        text = (
            "installation.secret is not set, which separate services need; `tarn up` makes one at its first start: "
            f"{file}"
        )
        return Finding(check, Level.WARNING, text)
    if file.stat().st_mode & 0o077:
        text = f"other users of this machine may read {file}: chmod 600 it"
        return Finding(check, Level.WARNING, text)
    return Finding(check, Level.OK, f"is {file}")


def _files(config: Config) -> Finding:
    """The limit that a process started here has: it raises its own (`tarn.rpc.process.open_files`)."""
    limit = attainable_open_files()
    needed = config.limits.connections + _OTHER_FILES
    if limit < needed:
        text = (
            f"a process may open {limit} files, and limits.connections needs {needed}: raise the hard limit "
            "(`ulimit -Hn`), or lower limits.connections"
        )
        return Finding("open files", Level.WARNING, text)
    return Finding("open files", Level.OK, f"a process may open {limit}")


def _disk(config: Config) -> Finding:
    place = config.data_dir
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{free >> 20} MiB free at {place}"
    if free < _FREE_BYTES_MIN:
        return Finding("disk", Level.WARNING, f"{text}: caches and local data need more")
    return Finding("disk", Level.OK, text)


async def _metadata(config: Config, clock: Clock, ids: IdSource) -> list[Finding]:
    embedded = config.metadata.db.embedded.file
    if config.metadata.db.type == "embedded" and not embedded.exists():
        text = f"{embedded} does not exist yet; the first start makes it"
        return [Finding("metadata store", Level.OK, text)]
    began = clock.monotonic()
    kv = await open_kv_to_read(config, clock, ids)
    try:
        async for _ in kv.partitions(config.installation.id):
            break
        seconds = clock.monotonic() - began
        advice = tuple(getattr(kv, "advice", ()))
        level = await read_level(kv, config.installation.id)
        replicas = await read_replicas(kv, config.installation.id, clock.now_us())
    finally:
        await kv.close()
    opened = Finding(
        "metadata store",
        Level.OK,
        f"{config.metadata.db.type}, opened and read in {seconds:.2f} s",
    )
    if advice:
        opened = Finding("metadata store", Level.WARNING, "; ".join(advice))
    return [opened, _level(level, replicas)]


def _level(level: StoreLevel, replicas: Sequence[ReplicaRow]) -> Finding:
    """Judges the feature level, and the releases of the processes that have the store open."""
    shown = ", ".join(
        f"{each.service} {each.version} on {each.host} (process {each.pid}, levels {each.level_min} to "
        f"{each.level_max})"
        for each in replicas[:_REPLICAS_SHOWN]
    )
    if len(replicas) > _REPLICAS_SHOWN:
        shown += f" and {len(replicas) - _REPLICAS_SHOWN} more"
    text = f"{level.level} of {LEVEL_MAX}; open in {shown or 'no process'}"
    if level.next_level > level.level:
        text = f"{text}. `tarn upgrade finish` was interrupted: run it again"
    elif len({each.version for each in replicas}) > 1:
        text = f"{text}. Several releases run: replace the processes of the older one"
    elif level.level < LEVEL_MAX:
        text = f"{text}. Older releases may still run, and the upgrade can be undone; `tarn upgrade finish` ends that"
    else:
        return Finding("feature level", Level.OK, text)
    return Finding("feature level", Level.WARNING, text)


async def _blocks(config: Config, clock: Clock, ids: IdSource) -> list[Finding]:
    place = config.blockstore.local.path
    try:
        if config.blockstore.type == "local":
            place.stat()
    except FileNotFoundError:
        text = f"{place} does not exist yet; the first start makes it"
        return [Finding("block store", Level.OK, text)]
    return [await _probed(config, clock, ids)]


async def _probed(config: Config, clock: Clock, ids: IdSource) -> Finding:
    namespace = config.blockstore.namespace_prefix + "tarn-doctor"
    key = BlockKey(namespace, physical_path(ids.uuid7()))
    store = await open_blocks(config, clock)
    step = "write"
    try:
        await store.put(key, _PROBE)
        step = "read"
        body = await store.read(key)
        ahead = ((await store.stat(key)).mtime_us - clock.now_us()) / 1_000_000
        step = "remove"
        await store.delete_many(namespace, [key.path])
    except TarnError as error:
        if step == "read":
            with contextlib.suppress(TarnError):
                await store.delete_many(namespace, [key.path])
        text = f"cannot {step} a block in {namespace}: {error.message}"
        return Finding("block store", Level.ERROR, text)
    finally:
        await store.close()
    if body != _PROBE:
        text = f"{key.path} in {namespace} was read with other bytes than were written"
        return Finding("block store", Level.ERROR, text)
    if abs(ahead) > SKEW_MAX_SECONDS:
        text = f"its clock differs by {ahead:+.0f} s from that of this machine: synchronise both"
        return Finding("block store", Level.WARNING, text)
    return Finding("block store", Level.OK, f"a block was written, read and removed in {namespace}")


def look_at_processes(
    addresses: Mapping[str, str], clock: Clock, own_version: str, connections: int
) -> Iterator[Finding]:
    """Checks the clock, the version and the limit of open files of running processes.

    Args:
        addresses: admin ports (`host:port`) by the names of their processes.
        clock: this machine's.
        own_version: of this command.
        connections: the most connections of a gateway.
    """
    versions: dict[str, list[str]] = {}
    for name, address in addresses.items():
        check = f"process {name}"
        before = clock.now_us()
        try:
            page = admin_page(address)
        except OSError as error:
            yield Finding(check, Level.ERROR, f"no answer of its admin port {address}: {error}")
            continue
        middle = (before + clock.now_us()) / 2_000_000
        built, told = _BUILD.search(page), _VALUE.search(page)
        if built is None or told is None:
            yield Finding(check, Level.ERROR, f"{address} is no admin port of this version of Tarn")
            continue
        versions.setdefault(built[2], []).append(name)
        yield _clock(check, float(told[1]) - middle, built)
        files = _FILES.search(page)
        if built[1] in _GATEWAYS and files and float(files[1]) < connections + _OTHER_FILES:
            yield _few_files(name, int(float(files[1])), connections + _OTHER_FILES)
    if versions and set(versions) != {own_version}:
        shown = "; ".join(f"{version}: {', '.join(names)}" for version, names in versions.items())
        text = f"this command is {own_version}, the processes are {shown}"
        yield Finding("versions", Level.WARNING, f"{text}. Finish the upgrade")
    elif versions:
        yield Finding("versions", Level.OK, f"all processes and this command are {own_version}")


def _few_files(name: str, limit: int, needed: int) -> Finding:
    text = (
        f"it may open {limit} files, and limits.connections needs {needed}: raise the hard limit of the process "
        "(`ulimit -Hn`, LimitNOFILE of a systemd unit), or lower limits.connections"
    )
    return Finding(f"open files {name}", Level.WARNING, text)


def _clock(check: str, ahead: float, built: re.Match[str]) -> Finding:
    what = f"{built[1]} {built[2]}"
    if abs(ahead) < SKEW_WARNED_SECONDS:
        return Finding(check, Level.OK, what)
    level = Level.ERROR if abs(ahead) >= SKEW_MAX_SECONDS else Level.WARNING
    text = (
        f"{what}: its clock differs by {ahead:+.1f} s from that of this machine; branches are safe only below "
        f"{SKEW_MAX_SECONDS:.0f} s: run NTP on both"
    )
    return Finding(check, level, text)


def admin_page(address: str, path: str = "/metrics", wait_s: float = 0) -> str:
    """Returns a page of an admin port.

    Args:
        address: `host:port`.
        path: of the page.
        wait_s: time that the page itself takes.

    Raises:
        OSError: no answer, or another status than 200; it names the answer.
    """
    connection = http.client.HTTPConnection(address, timeout=_ADMIN_TIMEOUT_SECONDS + wait_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read(_PAGE_BYTES_MAX).decode(errors="replace")
    except http.client.HTTPException as error:
        raise OSError(f"{address} does not speak HTTP: {error}") from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise OSError(f"{address} answered {answer.status}: {text.strip()[:200]}")
    return text

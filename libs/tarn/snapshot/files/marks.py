"""Marks of unfinished snapshots, which no manifest names yet, and of prunes. They keep the two apart.

A snapshot writes its mark and then looks for one of a prune; a prune writes its mark and then looks for unfinished
snapshots. Whatever the order, one of the two sees the other and gives up. A mark counts for a day, in case its process
died; so neither may take longer, or it writes its mark again meanwhile.

The mark of a snapshot that can be continued says of what it is, too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError
from tarn.snapshot.files.manifest import SNAPSHOT_ID, Scope, manifest_file, snapshot_folder
from tarn.snapshot.files.target import Target

__all__ = [
    "MARK_US",
    "begin_prune",
    "begin_snapshot",
    "begun_file",
    "check_time",
    "end_prune",
    "end_snapshot",
    "unfinished",
    "write_mark",
]

MARK_US: Final = 86_400_000_000
"""How long a mark counts, and the longest time that a snapshot or a prune may take without a new one: one day."""
_PRUNES: Final = "prunes"
_MARK_BYTES_MAX: Final = 4096


def begun_file(scope: Scope, snapshot_id: str) -> str:
    """The name of the mark of an unfinished snapshot."""
    return f"{snapshot_folder(scope, snapshot_id)}/begun.json"


async def begin_snapshot(
    target: Target,
    scope: Scope,
    snapshot_id: str,
    now_us: int,
    about: Mapping[str, str] | None = None,
) -> None:
    """Marks a snapshot as begun.

    Args:
        target: where it will be.
        scope: of the snapshot.
        snapshot_id: its id.
        now_us: the time, microseconds since the epoch.
        about: of what it is, so that `unfinished` finds it.

    Raises:
        TarnError: CONFLICT: a prune is running.
    """
    await write_mark(target, scope, snapshot_id, now_us, about)
    async for name in target.files(_PRUNES):
        if await _counts(target, name, now_us):
            await end_snapshot(target, scope, snapshot_id)
            text = f"`tarn backup prune` is running on {target.about}, or died less than a day ago ({name}); try later"
            raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)


async def write_mark(
    target: Target,
    scope: Scope,
    snapshot_id: str,
    now_us: int,
    about: Mapping[str, str] | None = None,
) -> None:
    """Writes the mark of an unfinished snapshot again: it counts for a day from now on."""
    await target.put(begun_file(scope, snapshot_id), _encode(now_us, about))


async def end_snapshot(target: Target, scope: Scope, snapshot_id: str) -> None:
    """Removes the mark of a snapshot, after its manifest was written or its work was given up."""
    await target.delete([begun_file(scope, snapshot_id)])


async def unfinished(target: Target, scope: Scope, about: Mapping[str, str]) -> str | None:
    """Returns the id of an unfinished snapshot of a scope that is of the same (see `begin_snapshot`); None: there is
    none."""
    async for name, snapshot_id in _begun(target, scope):
        if not SNAPSHOT_ID.fullmatch(snapshot_id):
            continue
        try:
            found = json.loads(await target.read(name, _MARK_BYTES_MAX))
        except (ValueError, RecursionError):
            continue
        except TarnError as error:
            if error.kind not in (Kind.NOT_FOUND, Kind.CORRUPT):
                raise
            continue
        if isinstance(found, dict) and found.get("about") == about:
            return snapshot_id
    return None


async def _begun(target: Target, scope: Scope) -> AsyncIterator[tuple[str, str]]:
    """Yields the names of the marks of unfinished snapshots, and their ids."""
    async for name in target.files(scope.value):
        folder, _, last = name.rpartition("/")
        snapshot_id = folder.removeprefix(f"{scope.value}/")
        if last == "begun.json" and not await target.has(manifest_file(scope, snapshot_id)):
            yield name, snapshot_id


async def begin_prune(target: Target, prune_id: str, now_us: int) -> str:
    """Marks a prune as begun; returns the name of its mark.

    Raises:
        TarnError: CONFLICT: a snapshot is being made.
    """
    mark = f"{_PRUNES}/{prune_id}.json"
    await target.put(mark, _encode(now_us))
    for scope in Scope:
        async for name, snapshot_id in _begun(target, scope):
            if await _counts(target, name, now_us):
                await target.delete([mark])
                text = f"{scope.value}/{snapshot_id} is being made, or died less than a day ago; prune later"
                raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)
    return mark


async def end_prune(target: Target, mark: str) -> None:
    """Removes the mark of a prune."""
    await target.delete([mark])


def check_time(begin_us: int, now_us: int, what: str) -> None:
    """Refuses to go on when the mark of this work no longer counts.

    Raises:
        TarnError: DEADLINE.
    """
    if now_us - begin_us >= MARK_US:
        text = f"{what} took longer than a day, so its mark no longer counts; begin again"
        raise TarnError(Kind.DEADLINE, Reason.UNAVAILABLE, text)


async def _counts(target: Target, name: str, now_us: int) -> bool:
    try:
        begin_us = json.loads(await target.read(name, _MARK_BYTES_MAX))["begin_time_us"]
        return bool(now_us - begin_us < MARK_US)
    except (ValueError, KeyError, TypeError, RecursionError):
        return True  # written by a later version, or damaged: be careful
    except TarnError as error:
        if error.kind is Kind.CORRUPT:
            return True
        if error.kind is not Kind.NOT_FOUND:
            raise
        return False


def _encode(now_us: int, about: Mapping[str, str] | None = None) -> bytes:
    return json.dumps({"begin_time_us": now_us, "about": about or {}}).encode() + b"\n"

"""Marks that keep a prune away from unfinished backups, whose chunks no manifest names yet.

A backup writes its mark and then looks for one of a prune; a prune writes its mark and then looks for unfinished
backups. Whatever the order, one of the two sees the other and gives up. A mark counts for a day, in case its process
died; so neither may take longer.
"""

from __future__ import annotations

import json
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError
from tarn.snapshot.files.manifest import manifest_file
from tarn.snapshot.files.target import Target

__all__ = [
    "MARK_US",
    "begin_backup",
    "begin_prune",
    "begun_file",
    "check_time",
    "end_backup",
    "end_prune",
]

MARK_US: Final = 86_400_000_000
"""How long a mark counts, and the longest time that a backup or a prune may take: one day."""
_PRUNES: Final = "prunes"
_MARK_BYTES_MAX: Final = 4096


def begun_file(backup_id: str) -> str:
    """The name of the mark of an unfinished backup."""
    return f"backups/{backup_id}/begun.json"


async def begin_backup(target: Target, backup_id: str, now_us: int) -> None:
    """Marks a backup as begun.

    Raises:
        TarnError: CONFLICT: a prune is running.
    """
    mark = begun_file(backup_id)
    await target.put(mark, _encode(now_us))
    async for name in target.files(_PRUNES):
        if await _counts(target, name, now_us):
            await target.delete([mark])
            text = f"`tarn backup prune` is running on {target.about}, or died less than a day ago ({name}); try later"
            raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)


async def end_backup(target: Target, backup_id: str) -> None:
    """Removes the mark of a backup, after its manifest was written or its work was given up."""
    await target.delete([begun_file(backup_id)])


async def begin_prune(target: Target, prune_id: str, now_us: int) -> str:
    """Marks a prune as begun; returns the name of its mark.

    Raises:
        TarnError: CONFLICT: a backup is being made.
    """
    mark = f"{_PRUNES}/{prune_id}.json"
    await target.put(mark, _encode(now_us))
    async for name in target.files("backups"):
        folder, _, last = name.rpartition("/")
        backup_id = folder.removeprefix("backups/")
        if last != "begun.json" or await target.has(manifest_file(backup_id)):
            continue
        if await _counts(target, name, now_us):
            await target.delete([mark])
            text = f"backup {backup_id} is being made, or its process died less than a day ago; prune later"
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


def _encode(now_us: int) -> bytes:
    return json.dumps({"begin_time_us": now_us}).encode() + b"\n"

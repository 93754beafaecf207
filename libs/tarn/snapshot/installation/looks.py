"""Saves the looks of the list of drops: at branches that expire, and at reflogs whose entries expire.

Records need their looks: without one, an expired branch or entry stays for ever. A look is registered before the record
that needs it, so the list is read after all records. One that was due meanwhile may be done and gone, while the backup
holds the record as it was before. Such a look is made again, from the record.

Only looks are saved; all other entries of the list drop something (`tarn.snapshot.installation.installation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Final

from tarn.core.branch import Branch
from tarn.core.ids import BranchId, RepositoryId
from tarn.kv.drop_records import BranchOwner, Drop, ReflogOwner, decode_drop, encode_drop
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.port import ListingKv, Row
from tarn.snapshot.files.ranges import all_rows
from tarn.snapshot.files.writing import KvWriter, Lines

__all__ = ["Looks", "looks_of", "save_checkpoint", "save_looks"]

_HOUR_US: Final = 3_600_000_000

Looks = dict[str, Drop]
"""Looks that records need, by the name under which each is registered. Each has the earliest time at which it serves:
zero for a reflog, which the cleaner may look at at any time."""


def looks_of(
    keys: RepositoryKeys,
    repository_id: RepositoryId,
    branches: Mapping[BranchId, Branch],
    with_reflog: Iterable[BranchId],
) -> Looks:
    """Returns the looks that a saved repository needs.

    Args:
        keys: of the repository.
        repository_id: its name.
        branches: the saved records.
        with_reflog: the names, also of deleted branches, of which rows of the reflog are saved.
    """
    looks: Looks = {}
    for branch_id, branch in branches.items():
        if branch.expiry is not None:
            owner = BranchOwner(keys.root, branch_id, repository_id)
            place = keys.branch_look(branch_id)
            looks[place.name] = Drop(place, branch.expiry.delete_time_us, branch=owner)
    for branch_id in with_reflog:
        place = keys.reflog_expiry(branch_id)
        looks[place.name] = Drop(place, 0, reflog=ReflogOwner(keys.root, branch_id))
    return looks


async def save_checkpoint(
    writer: KvWriter, keys: InstallationKeys, now_us: int
) -> tuple[Lines, int]:
    """Saves the checkpoint of the drop list, before anything else: looks behind it are done, or are made again.

    A cleaner of the restored store begins there. Without a checkpoint it would begin a day before its own time, and
    miss what came due before that. So the backup makes one.

    Returns:
        The lines, and the saved time, microseconds since the epoch.
    """
    rows = {key: value async for key, value in all_rows(writer.kv, keys.cleanup)}
    if not rows.get(keys.DONE_BEFORE, b"").isdigit():
        rows[keys.DONE_BEFORE] = b"%d" % now_us
    return await writer.save(keys.cleanup, rows.items()), int(rows[keys.DONE_BEFORE])


async def save_looks(
    writer: KvWriter,
    kv: ListingKv,
    keys: InstallationKeys,
    needed: Looks,
    checkpoint_us: int,
) -> Lines:
    """Saves the looks that are registered now, and those of `needed` that are not among them.

    Args:
        writer: writes the rows.
        kv: the store, to list its partitions.
        keys: of the installation.
        needed: see `looks_of`.
        checkpoint_us: the saved checkpoint; a restored store never looks at rows before it.

    Raises:
        TarnError: CORRUPT: a row cannot be read. Also the errors of the store and of the target.
    """
    missing = {
        name: replace(look, drop_time_us=max(look.drop_time_us, checkpoint_us))
        for name, look in needed.items()
    }

    def is_look(_: bytes, value: bytes) -> bool:
        drop = decode_drop(value)
        name = drop.partition.name
        if name in missing and drop.drop_time_us >= missing[name].drop_time_us:
            del missing[name]
        return drop.reflog is not None or drop.branch is not None

    lines: dict[int, Lines] = {}
    for hour in await _hours(kv, keys):
        lines[hour] = await writer.copy(keys.drops(hour), keep=is_look)
    made: dict[int, list[Row]] = {}
    for look in missing.values():
        # A later look serves as well. So no saved hour is read and written a second time.
        hour = next(each for each in count(look.drop_time_us // _HOUR_US) if not lines.get(each))
        time_us = max(look.drop_time_us, hour * _HOUR_US)
        row = (
            keys.drop(time_us, look.partition.name),
            encode_drop(replace(look, drop_time_us=time_us)),
        )
        made.setdefault(hour, []).append(row)
    for hour, rows in made.items():
        lines[hour] = await writer.save(keys.drops(hour), rows)
    return [line for hour in sorted(lines) for line in lines[hour]]


async def _hours(kv: ListingKv, keys: InstallationKeys) -> list[int]:
    """The hours of the list that have entries, in order."""
    prefix = f"{keys.cleanup.name}/"
    names = [each.name.removeprefix(prefix) async for each in kv.partitions(prefix)]
    return sorted(int(name) for name in names if name.isdigit())

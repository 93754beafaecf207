"""Dumps a store: copies every partition, in repeated passes until nothing changes.

The fence (`tarn.kv.fence`) keeps other processes from writing meanwhile. The passes after the first prove
this, and also catch writes that were under way when the fence was set: they read all rows again, and write chunks that
have changed. If the store keeps changing, the dump fails.
"""

from __future__ import annotations

from collections.abc import Iterable

from tarn.aio.parallel import for_each
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import ListingKv, Partition
from tarn.snapshot.files.work import TransferOptions, TransferProgress
from tarn.snapshot.files.writing import KvWriter, Lines
from tarn.snapshot.store.layout import Inventory, take_inventory

__all__ = ["PASSES_MAX", "batches_of_partitions", "dump_store", "restless_error"]

PASSES_MAX = 4
"""Most checks of a store that should be quiet; the dump ends with the first one that finds no change."""

_PARTITIONS_AT_ONCE = 64


async def dump_store(
    kv: ListingKv, installation_id: str, writer: KvWriter, options: TransferOptions
) -> tuple[Lines, Inventory, int]:
    """Copies the rows of a store until a pass finds what the pass before it found.

    Returns:
        The lines, the partitions, and how many of these changed during the dump.

    Raises:
        TarnError: CONFLICT: another process keeps writing. Also the errors of the store and of the target.
        OSError: the target cannot be written.
    """
    changed = 0
    found, _ = await _pass(kv, installation_id, writer, options, "dump")
    for _number in range(PASSES_MAX):
        before = found
        found, inventory = await _pass(kv, installation_id, writer, options, "check")
        different = {line.partition.name for line in set(found) ^ set(before)}
        if not different:
            return found, inventory, changed
        changed += len(different)
    raise restless_error(changed)


def restless_error(changed: int) -> TarnError:
    """The error for a store that changes although it is fenced."""
    text = (
        f"the store keeps changing: {changed} ranges changed while it was read; a process that does not "
        "check the fence (an older Tarn?) writes to it: stop that process and start again"
    )
    return TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)


def batches_of_partitions(
    partitions: Iterable[Partition], concurrency: int
) -> list[list[Partition]]:
    """Groups neighbouring partitions into units of work, since most partitions are small."""
    found = list(partitions)
    step = max(1, min(_PARTITIONS_AT_ONCE, len(found) // (4 * concurrency)))
    return [found[at : at + step] for at in range(0, len(found), step)]


async def _pass(
    kv: ListingKv, installation_id: str, writer: KvWriter, options: TransferOptions, phase: str
) -> tuple[Lines, Inventory]:
    inventory = await take_inventory(kv, installation_id)
    units = batches_of_partitions(inventory.partitions.values(), options.concurrency)
    progress = writer.progress = TransferProgress(phase, units_total=len(units))
    lines: list[Lines] = [[] for _ in units]

    async def copy(number: int) -> None:
        for partition in units[number]:
            lines[number] += await writer.copy(partition)
        progress.units += 1
        options.report(progress)

    await for_each(range(len(units)), copy, options.concurrency)
    return [line for unit in lines for line in unit], inventory

"""Dumps a store to files: every partition in ranges, in repeated passes until nothing changes.

The fence (`tarn.kv.fence`) keeps other processes from writing meanwhile. The passes after the first prove
this, and also catch writes that were under way when the fence was set: a range whose digest has changed is
dumped again. If the store keeps changing, the dump fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tarn.aio.parallel import for_each
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import ListingKv, Partition
from tarn.snapshot.files.ranges import Range, digest_of, read_chunks
from tarn.snapshot.files.work import TransferOptions, TransferProgress
from tarn.snapshot.store.dump_folder import DumpWriter
from tarn.snapshot.store.layout import Inventory, take_inventory
from tarn.snapshot.store.parts import Batches

__all__ = ["PASSES_MAX", "Dumped", "batches_of_partitions", "dump_store", "restless_error"]

PASSES_MAX = 4
"""Most passes over a store that should be quiet; the dump ends with the first pass that finds no change."""

_PART_BYTES = 12 << 20
_PARTITIONS_AT_ONCE = 64

Dumped = tuple[Inventory, int]
"""The partitions that were dumped, and how many changed during the dump."""


async def dump_store(
    kv: ListingKv, installation_id: str, writer: DumpWriter, options: TransferOptions
) -> Dumped:
    """Dumps the ranges that the dump lacks, until the dump equals the store.

    Raises:
        TarnError: CONFLICT: another process keeps writing. Also the store's errors.
        OSError: the files cannot be written.
    """
    changed = 0
    for number in range(PASSES_MAX):
        inventory = await take_inventory(kv, installation_id)
        await _dump(kv, inventory, writer, options, "dump" if number == 0 else "dump again")
        different = await _differences(kv, installation_id, writer, options)
        if not different:
            return inventory, changed
        changed += len(different)
        await asyncio.to_thread(writer.forget, {each.name for each in different})
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


async def _dump(
    kv: ListingKv, inventory: Inventory, writer: DumpWriter, options: TransferOptions, phase: str
) -> None:
    covered = writer.covered()
    missing = [
        partition
        for name, partition in inventory.partitions.items()
        if covered.get(name, b"") is not None
    ]
    units = batches_of_partitions(missing, options.concurrency)
    progress = TransferProgress(phase, units_total=len(units))
    recording = asyncio.Lock()

    async def save(found: list[tuple[Range, Batches]]) -> None:
        part = await asyncio.to_thread(writer.write, writer.next_file(), found)
        async with recording:
            await asyncio.to_thread(writer.record, part)

    async def dump(unit: list[Partition]) -> None:
        held: list[tuple[Range, Batches]] = []
        size_bytes = 0
        for partition in unit:
            start = covered.get(partition.name) or b""
            async for chunk in read_chunks(kv, partition, start):
                held.append((chunk.range, await chunk.load()))
                size_bytes += chunk.range.size_bytes
                if size_bytes >= _PART_BYTES:
                    await save(held)
                    held, size_bytes = [], 0
                progress.add(chunk.range.rows, chunk.range.size_bytes, changed=True)
                options.report(progress)
                await options.rate_limiter.take(chunk.range.rows)
        if held:
            await save(held)
        progress.units += 1
        options.report(progress)

    await for_each(units, dump, options.concurrency)


async def _differences(
    kv: ListingKv, installation_id: str, writer: DumpWriter, options: TransferOptions
) -> list[Partition]:
    """The partitions whose rows in the store differ from those in the dump."""
    parts = writer.parts
    progress = TransferProgress("check", units_total=len(parts))
    different: dict[str, Partition] = {}

    async def check(ranges: tuple[Range, ...]) -> None:
        for each in ranges:
            same = await digest_of(kv, each.partition, each.start, each.end) == each.digest
            if not same:
                different[each.partition.name] = each.partition
            progress.add(each.rows, each.size_bytes, changed=not same)
            options.report(progress)
            await options.rate_limiter.take(each.rows)
        progress.units += 1
        options.report(progress)

    await for_each([part.ranges for part in parts], check, options.concurrency)
    dumped = writer.covered()
    # Partitions created since then: no digest covers a partition that was never read.
    now = (await take_inventory(kv, installation_id)).partitions
    different |= {name: partition for name, partition in now.items() if name not in dumped}
    return list(different.values())

"""Copies rows into a store: writes every range that the target lacks, until the target has all of them.

A pass reads the source and the same ranges of the target; a range with equal digests is skipped. So a pass
that writes nothing proves that both hold the same. An interrupted transfer simply starts again and skips what
the target has already. Writing a row twice changes nothing.

The target must not hold rows that the source lacks. Deleting them would leave tombstones on Cassandra, which
can hide later writes (docs/design/kv.md, "Deletes and tombstones"). So they are an error, and the operator
has to empty the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tarn.aio.backoff import doubled_seconds
from tarn.aio.parallel import for_each
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.fence import fence_partition
from tarn.kv.port import Group, ListingKv, Partition, Row
from tarn.snapshot.files.ranges import Range, digest_of, row_batches
from tarn.snapshot.files.work import TransferOptions, TransferProgress
from tarn.snapshot.store.dumping import PASSES_MAX, restless_error
from tarn.snapshot.store.layout import take_inventory
from tarn.snapshot.store.sources import Piece, Source, Unit

__all__ = ["copy_into", "extra_error"]

_WRITE_ROWS = 1_000
_WRITE_BYTES = 1 << 20
_ATTEMPTS = 8
_PAUSE_SECONDS = 0.25
_PAUSE_SECONDS_MAX = 5.0
_PASSING = frozenset((Kind.UNAVAILABLE, Kind.EXHAUSTED, Kind.UNKNOWN_OUTCOME, Kind.DEADLINE))


async def copy_into(
    target: ListingKv, installation_id: str, source: Source, options: TransferOptions
) -> tuple[TransferProgress, int]:
    """Copies until a pass finds nothing more to write.

    Returns:
        The progress of the last pass, and the number of ranges that were written again after the first pass
        because the source had changed.

    Raises:
        TarnError: CONFLICT: the source keeps changing, or the target holds rows that the source lacks. Also
            the stores' errors. CORRUPT: the source names partitions of another installation.
    """
    changed = 0
    for number in range(PASSES_MAX):
        phase = "copy" if number == 0 else "check"
        progress = await _pass(target, installation_id, source, options, phase)
        if number:
            changed += progress.changed
        if not progress.changed:
            return progress, changed
    raise restless_error(changed)


def extra_error(where: str) -> TarnError:
    """The error for a target that holds rows which the source lacks."""
    text = (
        f"the target holds {where}, which the source does not: it belongs to another installation, or the "
        "source changed since an earlier attempt; empty the target and start again"
    )
    return TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)


async def _pass(
    target: ListingKv, installation_id: str, source: Source, options: TransferOptions, phase: str
) -> TransferProgress:
    partitions, units = await source.look(options.concurrency)
    _check_names(installation_id, partitions)
    await _check_no_others(target, installation_id, partitions)
    progress = TransferProgress(phase, units_total=len(units))

    async def copy(unit: Unit) -> None:
        async for piece in unit.pieces():
            each = piece.range
            same = await digest_of(target, each.partition, each.start, each.end) == each.digest
            if not same:
                await _write_piece(target, piece, options)
            progress.add(each.rows, each.size_bytes, changed=not same)
            options.report(progress)
            await options.rate_limiter.take(each.rows)
        progress.units += 1
        options.report(progress)

    await for_each(units, copy, options.concurrency)
    return progress


def _check_names(installation_id: str, names: Iterable[str]) -> None:
    """Refuses a dump or a backup that would write to another installation of the cluster, or open the store."""
    fence = fence_partition(installation_id).name
    for name in names:
        if name == fence or not name.startswith(f"{installation_id}/"):
            text = (
                f"the source names partition {name[:200]!r}, which no transfer of installation {installation_id!r} "
                "writes: it is damaged, or was made to do harm"
            )
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)


async def _check_no_others(
    target: ListingKv, installation_id: str, partitions: Mapping[str, Partition]
) -> None:
    for name, partition in (await take_inventory(target, installation_id)).partitions.items():
        if name not in partitions and await target.scan(partition, b"", None, 1):
            raise extra_error(f"partition {name!r}")


async def _write_piece(target: ListingKv, piece: Piece, options: TransferOptions) -> None:
    rows = await piece.load()
    await _check_no_extra(target, piece.range, rows)
    part: list[Row] = []
    size_bytes = 0
    for row in rows:
        part.append(row)
        size_bytes += len(row[0]) + len(row[1])
        if len(part) >= _WRITE_ROWS or size_bytes >= _WRITE_BYTES:
            await _write(target, piece.range.partition, part, options)
            part, size_bytes = [], 0
    if part:
        await _write(target, piece.range.partition, part, options)


async def _check_no_extra(target: ListingKv, each: Range, rows: Sequence[Row]) -> None:
    wanted = {key for key, _ in rows}
    async for found in row_batches(target, each.partition, each.start, each.end):
        for key, _ in found:
            if key not in wanted:
                raise extra_error(f"key {key!r} in partition {each.partition.name!r}")


async def _write(
    target: ListingKv, partition: Partition, rows: Sequence[Row], options: TransferOptions
) -> None:
    """Writes each row as a group of its own, so that a look-up by key finds it in its bucket."""
    pending = [Group(row[0], (row,)) for row in rows]
    for attempt in range(_ATTEMPTS):
        if attempt:
            pause = doubled_seconds(attempt - 1, first_s=_PAUSE_SECONDS, most_s=_PAUSE_SECONDS_MAX)
            await options.clock.sleep(pause)
        try:
            outcomes = await target.set_many(partition, pending)
        except TarnError as error:
            if error.kind not in _PASSING or attempt == _ATTEMPTS - 1:
                raise
            continue
        failed = [(group, why) for group, why in zip(pending, outcomes, strict=True) if why]
        if not failed:
            return
        for _, why in failed:
            if why.kind not in _PASSING or attempt == _ATTEMPTS - 1:
                raise why
        pending = [group for group, _ in failed]

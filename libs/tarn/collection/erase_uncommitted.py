"""The uncommitted entries of an erasure: which branches have them, how many, and their end (docs/design/erase.md).

An entry is uncommitted in staged rows, or in the compacted listing of its branch. Rows are read before the listings,
and an address that is old enough to be erased gets no new row. So an entry that moves meanwhile moves into a listing
that is read later, or into a commit. The entries that are found are candidates: graveler judges each of them when it
discards it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final

import pyarrow as pa

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError, ReadBlocks
from tarn.block.rangefile import decode_metarange, metarange_path, range_path
from tarn.client.erasures import ErasureClient
from tarn.collection.erase_search import (
    ROWS_MAX,
    HistoryRoots,
    may_hold,
    missing_error,
    rows_of,
)
from tarn.collection.progress import CollectionProgress
from tarn.core.erasure import ADDRESSES_MAX
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.listing.metarange import EMPTY_METARANGE, Metarange
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import erasure_service_pb2 as pb

__all__ = ["Entries", "discard", "find_uncommitted"]

Entries = dict[str, list[tuple[str, bytes]]]
"""Paths and addresses of entries that may be uncommitted, by branch."""

_OPENED_AT_ONCE: Final = 4


async def find_uncommitted(
    roots: HistoryRoots,
    blocks: ReadBlocks,
    namespace: str,
    wanted: pa.Table,
    prefix: str,
    progress: CollectionProgress,
) -> Entries:
    """Finds which entries of an erasure may be uncommitted.

    Args:
        roots: of the repository.
        blocks: its listings.
        namespace: its storage namespace.
        wanted: columns path and address: the entries that are meant.
        prefix: with which all of their paths begin.
        progress: is told.

    Raises:
        TarnError: EXHAUSTED: there are more than `ROWS_MAX`; CORRUPT: a file of a compacted listing is missing or
            damaged; any error of the roots or the store.
    """
    found = _Found(wanted.select(["path", "address"]))
    progress.begin("look for uncommitted entries")
    async with aclosing(roots.staged(prefix)) as batches:
        async for batch in batches:
            found.add(batch.branch_id, batch.rows)
            progress.done += 1
    compacted = await roots.compacted()
    heads = await roots.heads() if compacted else {}

    async def work(branch_id: str) -> None:
        metarange = await _metarange(blocks, namespace, compacted[branch_id])
        shared: set[str] = set()
        if head := heads.get(branch_id):
            shared = {info.range_id for info in (await _metarange(blocks, namespace, head)).ranges}
        for info in metarange.ranges:
            if info.range_id not in shared and may_hold(info, prefix):
                range_id = RangeId(info.range_id)
                body = await _read(blocks, namespace, range_path(range_id))
                found.add(branch_id, await asyncio.to_thread(_inside, range_id, body))
                progress.done += 1

    await for_each(compacted, work, _OPENED_AT_ONCE)
    return {branch_id: sorted(entries) for branch_id, entries in sorted(found.by_branch.items())}


async def discard(
    client: ErasureClient,
    call: Callable[[], Call],
    repeated: Callable[[Callable[[], Awaitable[int]]], Awaitable[int]],
    place: tuple[str, str],
    entries: Entries,
    progress: CollectionProgress,
    *,
    validate_only: bool,
) -> dict[str, int]:
    """Discards entries; returns how many on each branch, zeros left out. A branch that is deleted has none.

    Args:
        client: of graveler's erasures.
        call: makes the context of each call.
        repeated: makes a call, and repeats it while graveler cannot answer. Entries that an attempt discarded whose
            answer was lost are not counted.
        place: the repository and the run that holds its lease.
        entries: from `find_uncommitted`.
        progress: is told.
        validate_only: discard nothing; count what would be discarded now.

    Raises:
        TarnError: COLLECTION_LOST, COLLECTION_HELD; NOT_IMPLEMENTED: graveler is too old.
    """
    counts: dict[str, int] = {}
    text = "count uncommitted entries" if validate_only else "discard uncommitted entries"
    progress.begin(text, sum(map(len, entries.values())))
    repository_id, run_id = place
    for branch_id, of_branch in entries.items():
        for at in range(0, len(of_branch), ADDRESSES_MAX):
            page = of_branch[at : at + ADDRESSES_MAX]

            async def send(
                branch_id: str = branch_id, page: Sequence[tuple[str, bytes]] = page
            ) -> int:
                outcomes = await client.discard_erased(
                    call(), repository_id, run_id, branch_id, page, validate_only=validate_only
                )
                return outcomes.count(pb.DISCARD_OUTCOME_DISCARDED)

            try:
                count = await repeated(send)
            except TarnError as error:
                if error.reason is not Reason.BRANCH_NOT_FOUND:
                    raise
                progress.done += len(of_branch) - at
                break
            if count:
                counts[branch_id] = counts.get(branch_id, 0) + count
            progress.done += len(page)
    return counts


class _Found:
    """Collects the entries of branches."""

    def __init__(self, wanted: pa.Table) -> None:
        self._wanted = wanted
        self._count = 0
        self.by_branch: dict[str, set[tuple[str, bytes]]] = {}

    def add(self, branch_id: str, rows: pa.Table) -> None:
        """Adds those of some rows that are wanted.

        Raises:
            TarnError: EXHAUSTED.
        """
        rows = rows.select(["path", "address"]).join(
            self._wanted, ["path", "address"], join_type="left semi"
        )
        if not len(rows):
            return
        entries = self.by_branch.setdefault(branch_id, set())
        self._count -= len(entries)
        entries |= set(zip(rows["path"].to_pylist(), rows["address"].to_pylist(), strict=True))
        self._count += len(entries)
        if self._count > ROWS_MAX:
            text = (
                f"more than {ROWS_MAX:,} uncommitted entries match on all branches together; nothing was deleted; "
                "commit or reset some branches, or erase by several narrower patterns"
            )
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)


async def _metarange(blocks: ReadBlocks, namespace: str, listing: MetarangeId) -> Metarange:
    if listing == EMPTY_METARANGE.metarange_id:
        return EMPTY_METARANGE  # it needs no file
    body = await _read(blocks, namespace, metarange_path(listing))
    return await asyncio.to_thread(decode_metarange, listing, body)


async def _read(blocks: ReadBlocks, namespace: str, path: str) -> bytes:
    try:
        return await blocks.read(BlockKey(namespace, path))
    except BlockNotFoundError as error:
        raise missing_error(namespace, path) from error


def _inside(range_id: RangeId, body: bytes) -> pa.Table:
    """Returns the entries of a range whose data is inside the namespace."""
    rows, is_outside = rows_of(range_id, body)
    return rows.filter(pa.array(~is_outside))

"""Confirms suspects: reads a block that seems missing, truncated or damaged again, and the records that name
it.

Suspects are grouped by referrer. The referrer is read again, so that the finding can name the affected
objects; a token that its branch no longer names has no references. Then the block itself is read again.
Each confirmed block is reported once, however many ranges share it.

`--verify-data` finds suspects by their bytes: it reads every block whose entry has a plain MD5, each once.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.core.entry import FLAG_EXTERNAL, FLAG_TOMBSTONE, HEAD_BYTES, unpack
from tarn.core.errors import TarnError
from tarn.core.ids import RangeId
from tarn.core.listing.run import VALUE_END, heads_of
from tarn.fsck.erased import is_erased
from tarn.fsck.finding import Code
from tarn.fsck.listings import read_range
from tarn.fsck.references import ANY_SIZE, Records, SortedReferences, path_of_address
from tarn.fsck.session import Lake, or_corrupt
from tarn.fsck.staged import named_token, token_of_source
from tarn.kv.keys import path_key

__all__ = ["Confirming", "verify_data"]

_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class _Victim:
    """An object whose block is suspected."""

    block: str
    path: str
    packed: bytes


async def is_intact(lake: Lake, block: str, size: int, md5: bytes) -> bool:
    """Whether a block's bytes have this MD5. True also for a missing or truncated block, which is another
    finding. With `ANY_SIZE`, all of its bytes count.
    """
    digest = hashlib.md5(usedforsecurity=False)
    key = BlockKey(lake.namespace, block)
    try:
        if size == ANY_SIZE:
            size = (await lake.session.reads.stat(key)).size
        async for chunk in lake.session.reads.stream(key, size):
            digest.update(chunk)
    except BlockNotFoundError:
        return True
    except TarnError as error:
        or_corrupt(error)
        return True
    return digest.digest() == md5


class Confirming:
    """Confirms the suspects of one repository."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._state = lake.session.state

    async def run(self) -> None:
        """Turns confirmed suspects into findings."""
        uid = self._lake.uid
        name = self._lake.repository.repository_id
        sources = self._state.all(
            "SELECT id, kind, name FROM sources WHERE id IN"
            " (SELECT DISTINCT source FROM suspects WHERE uid=?)",
            uid,
        )
        self._lake.session.progress.begin(f"{name}: looking again", len(sources))
        for source, kind, referrer in sources:
            step = f"confirmed {uid} {source}"
            if not self._state.is_done(step):
                await self._source(source, kind, referrer)
                self._state.done(step)
            self._lake.session.progress.done += 1
        self._tell()

    async def _source(self, source: int, kind: str, referrer: str) -> None:
        rows = self._state.pages(
            "SELECT block, is_damaged FROM suspects WHERE uid=? AND source=? AND block>?"
            " ORDER BY block",
            self._lake.uid,
            source,
        )
        wanted: dict[str, bool] = {}
        for block, is_damaged in rows:
            wanted[block] = bool(is_damaged)
            if len(wanted) == _AT_ONCE:
                await self._some(source, kind, referrer, wanted)
                wanted = {}
        if wanted:
            await self._some(source, kind, referrer, wanted)

    async def _some(self, source: int, kind: str, referrer: str, wanted: dict[str, bool]) -> None:
        found: dict[str, _Victim] = {}
        async for paths, values in self._columns(kind, referrer):
            for victim in _victims(paths, values, wanted):
                found.setdefault(victim.block, victim)
        where = _where(kind, referrer)

        async def look(victim: _Victim) -> None:
            await self._look(victim, source, where, check_bytes=wanted[victim.block])

        await for_each(found.values(), look, self._lake.session.options.concurrency)

    async def _columns(
        self, kind: str, referrer: str
    ) -> AsyncGenerator[tuple[pa.StringArray, pa.BinaryArray], None]:
        """Yields paths and packed entries of a referrer as they are now; nothing if it no longer exists."""
        if kind == "range":
            try:
                run = await read_range(self._lake, RangeId(referrer))
            except TarnError as error:
                if not isinstance(error, BlockNotFoundError):
                    or_corrupt(error)
                return
            yield run.paths, run.values
            return
        branch_id, token_id = token_of_source(referrer)
        token = await named_token(self._lake, branch_id, token_id)
        if token is None:
            return
        partition = self._lake.keys.token(branch_id, token)
        prefix = path_key("")
        batches = self._lake.session.reads.batches(partition)
        async with aclosing(batches):
            async for batch in batches:
                keys, values = batch.column("key"), batch.column("value")
                good = pc.greater_equal(pc.binary_length(values), HEAD_BYTES)
                keys, values = keys.filter(good), values.filter(good)
                yield pc.binary_slice(keys, len(prefix), VALUE_END), values

    async def _look(self, victim: _Victim, source: int, where: str, *, check_bytes: bool) -> None:
        entry = unpack(victim.packed)
        try:
            size = (
                await self._lake.session.reads.stat(BlockKey(self._lake.namespace, victim.block))
            ).size
        except BlockNotFoundError:
            if await is_erased(self._lake, victim.block):
                return
            code, text = Code.BLOCK_MISSING, "its block does not exist"
        else:
            if size != entry.size:
                code = Code.BLOCK_SIZE
                text = f"its block has {size} bytes, the entry says {entry.size}"
            elif check_bytes and not await is_intact(
                self._lake, victim.block, entry.size, entry.md5
            ):
                code = Code.BLOCK_DAMAGED
                text = f"the MD5 of its block is not {entry.md5.hex()}"
            else:
                return
        self._state.change(
            "INSERT OR REPLACE INTO victims VALUES (?, ?, ?, ?, ?, ?, ?)",
            self._lake.uid,
            victim.block,
            source,
            code.label,
            victim.path,
            f"object {victim.path!r} in {where}: {text}",
            entry.size,
        )

    def _tell(self) -> None:
        """Reports one finding for each block."""
        rows = self._state.pages(
            "SELECT block, code, detail, size, count(*) FROM victims WHERE uid=? AND block>?"
            " GROUP BY block ORDER BY block",
            self._lake.uid,
        )
        for block, label, detail, size, count in rows:
            more = f"; {count - 1} more refer to it" if count > 1 else ""
            self._lake.find(Code.of(label), block, detail + more, size)


def _victims(
    paths: pa.StringArray, values: pa.BinaryArray, wanted: dict[str, bool]
) -> Sequence[_Victim]:
    """Returns the rows whose block is suspected."""
    if not len(values):
        return []
    addresses = np.array([bytes.fromhex(block.rpartition("/")[2]) for block in wanted], "S16")
    blocks = dict(zip(addresses.tolist(), wanted, strict=True))
    heads = heads_of(values)
    here = (heads["flags"] & (FLAG_TOMBSTONE | FLAG_EXTERNAL)) == 0
    found = np.ascontiguousarray(heads["address"]).view("S16")
    rows = np.flatnonzero(here & np.isin(found, addresses)).tolist()
    return [
        _Victim(
            blocks[found[row]],
            _text(paths[row].as_py()),
            cast("bytes", values[row].as_py()),
        )
        for row in rows
    ]


def _text(path: str | bytes) -> str:
    return path if isinstance(path, str) else path.decode(errors="backslashreplace")


def _where(kind: str, referrer: str) -> str:
    if kind == "range":
        return f"range {referrer}"
    branch_id, _ = token_of_source(referrer)
    return f"the uncommitted changes of branch {branch_id}"


async def verify_data(lake: Lake) -> None:
    """Marks blocks whose bytes have another MD5 as suspects. Continues after the last finished part."""
    state, progress = lake.session.state, lake.session.progress
    step = f"verified {lake.uid}"
    progress.begin(f"{lake.repository.repository_id}: verifying data")

    async def verify(record: Records) -> None:
        block = path_of_address(record["address"].item())
        size = int(record["size"])
        if not await is_intact(lake, block, size, record["md5"].tobytes()):
            state.change(
                "INSERT OR REPLACE INTO suspects VALUES (?, ?, ?, ?, 1)",
                lake.uid,
                int(record["source"]),
                block,
                size,
            )
        progress.done += 1

    for records in SortedReferences(state, lake.uid, 1, state.meta(step)).upto(None):
        plain = records[records["plain"]]
        _, first = np.unique(plain["address"], return_index=True)
        await for_each(plain[first], verify, lake.session.options.concurrency)
        state.set_meta(step, path_of_address(records["address"][-1]))
        state.save()

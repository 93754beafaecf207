"""Tables of lakeFS: any bytes are refused as damaged, or are sorted records; what a record becomes, Tarn can keep."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.fuzz.targets.refusals import corrupt_only
from tests.support.fuzz.target import PropertyError, Target
from tests.support.peer_tables import message, number, stored_block, table, value

from tarn.core.commit import Commit, commit_id_of
from tarn.core.dump import from_line, to_line
from tarn.core.entry import pack
from tarn.core.entry_check import check_entry
from tarn.core.errors import TarnError
from tarn.core.ids import MetarangeId
from tarn.lakefs.conversion import commit_from, entry_from
from tarn.lakefs.records import commit_of, entry_of, pair_of, range_of, ref_of
from tarn.lakefs.sstable import Row, Table
from tarn.lakefs.state import CopiedBlock

__all__ = ["TARGET"]

_R = TypeVar("_R")
_LISTING = MetarangeId("0" * 64)


def _finished(work: Coroutine[Any, Any, _R]) -> _R:
    """Runs a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        result: _R = end.value
        return result
    raise PropertyError("a table waits")


async def _rows(data: bytes) -> list[Row]:
    async def read(start: int, length: int) -> bytes:
        return data[start : start + length]

    return [row async for block in Table("t", len(data), read).rows() for row in block]


def _entry(data: bytes) -> None:
    found = entry_of(data)
    if found.size < 1 << 40:
        made, _ = entry_from(found, CopiedBlock(b"a" * 16, found.size, b"m" * 16))
        check_entry(pack(made))


def _commit(data: bytes) -> None:
    made = commit_from(commit_of(data), [], _LISTING)
    back = from_line(to_line(made))
    if not isinstance(back, Commit) or commit_id_of(back) != commit_id_of(made):
        raise PropertyError(f"another commit comes back than {made}")


_KINDS: tuple[Callable[[bytes], object], ...] = (_entry, _commit, ref_of)


def _check(data: bytes) -> str:
    rows = corrupt_only(lambda: _finished(_rows(data)))
    keys = [key for key, _ in rows]
    if keys != sorted(set(keys)):
        raise PropertyError("keys are not sorted")
    read = set()
    for key, stored in rows:
        try:
            range_of(key, stored)
            read.add("range")
        except ValueError:
            pass
        for kind in _KINDS:
            try:
                kind(pair_of(stored)[1])
                read.add(kind.__name__)
            except ValueError:
                pass
    return f"{min(len(rows), 3)} rows of {sorted(read)}"


def _again(rng: random.Random, data: bytes) -> bytes:
    """Changes a byte of the first block, and makes its checksum right."""
    length = rng.randrange(1, max(2, min(len(data), 400)))
    body = bytearray(data[:length])
    body[rng.randrange(len(body))] = rng.randrange(256)
    return stored_block(bytes(body), rng.choice((0, 1, 1, 7))) + data[length + 5 :]


def _record(rng: random.Random, data: bytes) -> bytes:
    fields = []
    for _ in range(rng.randrange(9)):
        at = rng.randrange(len(data) + 1)
        some: int | bytes = rng.choice((data[at : at + 64], rng.randrange(1 << 20), (1 << 64) - 1))
        if rng.random() < 0.3:
            some = message((1, rng.choice((b"k", b"tarn.task", b"\xff"))), (2, data[:9]))
        elif rng.random() < 0.3:
            some = rng.randbytes(32).hex().encode()
        fields.append((rng.randrange(1, 10), some))
    return message(*fields)


def _table(rng: random.Random, data: bytes) -> bytes:
    """Makes a table of random records that is whole, or lies about one thing."""
    keys = sorted({rng.randbytes(rng.randrange(5)) for _ in range(rng.randrange(1, 9))})
    rows = [(key, value(key, _record(rng, data))) for key in keys]
    lies: dict[bytes, bytes] = {}
    if rng.random() < 0.2:
        lies[b"rocksdb.num.entries"] = rng.choice((b"", b"\xff" * 11, number(9)))
    if rng.random() < 0.2:
        lies[b"rocksdb.block.based.table.index.type"] = struct.pack("<I", rng.choice((0, 2, 9)))
    kind = rng.choice((0, 1))
    deep = rng.random() < 0.3
    return table([rows], kind=kind, deep=deep, key_kind=rng.choice((1, 1, 1, 0)), properties=lies)


TARGET = Target(
    "sstables",
    _check,
    refusals=(TarnError,),
    traced=("tarn.lakefs.sstable", "tarn.lakefs.records", "tarn.lakefs.conversion"),
    mutations=(_again, _table),
    tokens=(b"rocksdb.properties", b"rocksdb.num.entries"),
    input_bytes_max=64 * 1024,
    memory_bytes=256 << 20,
    cpu_s=4.0,
)

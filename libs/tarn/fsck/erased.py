"""Erased addresses (docs/design/erase.md): a missing block with a row is no damage, and one that is there is."""

from __future__ import annotations

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.core.errors import TarnError
from tarn.fsck.finding import Code
from tarn.fsck.references import path_of_address
from tarn.fsck.session import Lake, or_corrupt
from tarn.kv.collection_records import decode_erased
from tarn.kv.keys import RepositoryKeys, after_prefix

__all__ = ["check_erased", "is_erased"]

_ADDRESS_DIGITS = 32
_ROWS = 1000


async def is_erased(lake: Lake, block: str) -> bool:
    """Whether the block of a path was erased, or is about to be."""
    address = bytes.fromhex(block.rpartition("/")[2])
    row = await lake.session.reads.get(lake.keys.commits, RepositoryKeys.erased(address))
    return row is not None


async def check_erased(lake: Lake) -> None:
    """Reports the blocks that are there although they are noted as erased, and rows that cannot be read."""
    prefix = RepositoryKeys.ERASED
    lake.session.progress.begin(f"{lake.repository.repository_id}: erased blocks")
    start, end = prefix, after_prefix(prefix)
    while rows := await lake.session.reads.scan(lake.keys.commits, start, end, _ROWS):
        await for_each(rows, lambda row: _look(lake, *row), lake.session.options.concurrency)
        start = rows[-1][0] + b"\0"


async def _look(lake: Lake, key: bytes, value: bytes) -> None:
    lake.session.progress.done += 1
    name = key.removeprefix(RepositoryKeys.ERASED).decode(errors="backslashreplace")
    try:
        address = bytes.fromhex(name)
        block = path_of_address(address) if len(name) == _ADDRESS_DIGITS else ""
    except ValueError:
        block = ""
    if not block:
        lake.find(Code.KEY_UNKNOWN, f"row {key!r}", "it names no address")
        return
    try:
        plan_id = decode_erased(value).plan_id
    except TarnError as error:
        or_corrupt(error)
        lake.find(Code.RECORD_DAMAGED, f"row {key!r}", error.message)
        return
    try:
        info = await lake.session.reads.stat(BlockKey(lake.namespace, block))
    except BlockNotFoundError:
        return
    text = (
        f"plan {plan_id} erased it, and it is there: a run was broken off, or the block came back"
    )
    lake.find(Code.BLOCK_ERASED, block, text, info.size)

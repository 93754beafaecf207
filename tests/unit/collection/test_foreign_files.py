"""Files of collections and erasures that someone else put into the bucket: small ones that become large."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.clock import ManualClock

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey, BlockNotFoundError, read_whole
from tarn.collection import erasure_files, outcomes, purging, quarantine, root_files
from tarn.collection.outcomes import Outcome
from tarn.core.errors import Kind, TarnError

NAMESPACE = "mem://lake"
PATH = "_tarn/collection/x/file.parquet"
ROWS = 8192


def bomb_of(schema: pa.Schema) -> bytes:
    """Short rows, and then long ones, of every text of a schema."""
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0] * (ROWS // 2) + [1] * (ROWS // 2), pa.int32()),
        pa.array(["s", "b" * 1_000_000]),
    )
    arrays, fields = [], []
    for field in schema:
        if pa.types.is_string(field.type):
            arrays.append(texts)
        elif pa.types.is_fixed_size_binary(field.type):
            arrays.append(pa.repeat(pa.scalar(bytes(field.type.byte_width), field.type), ROWS))
        else:
            arrays.append(pa.repeat(pa.scalar(0, pa.int64()).cast(field.type), ROWS))
        fields.append(field.with_type(arrays[-1].type))
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    pq.write_table(
        table,
        sink,
        compression="zstd",
        store_schema=False,
        dictionary_pagesize_limit=1 << 30,
        write_statistics=False,
    )
    body: bytes = sink.getvalue().to_pybytes()
    return body


def part(body: bytes, kind: str) -> quarantine.Part:
    return quarantine.Part(PATH, kind, ROWS, 0, hashlib.sha256(body).hexdigest())


async def of_a_sweep(blocks: MemBlockStore) -> object:
    return await outcomes.read_outcomes(blocks, NAMESPACE, PATH, Outcome.DELETED)


async def of_a_mark(blocks: MemBlockStore) -> object:
    body = await blocks.read(BlockKey(NAMESPACE, PATH))
    return await quarantine.read_part(blocks, NAMESPACE, part(body, "data"))


async def of_roots(blocks: MemBlockStore) -> object:
    body = await blocks.read(BlockKey(NAMESPACE, PATH))
    return await root_files.read_root_part(blocks, NAMESPACE, part(body, "data"))


@pytest.mark.parametrize(
    ("read", "schema"),
    [
        (of_a_sweep, outcomes._SCHEMA),
        (of_a_mark, quarantine._SCHEMA),
        (of_roots, outcomes._SCHEMA),
    ],
)
async def test_a_file_that_becomes_large_is_damaged(
    read: Callable[[MemBlockStore], Awaitable[object]], schema: pa.Schema
) -> None:
    blocks = MemBlockStore(ManualClock())
    body = bomb_of(schema)
    assert len(body) < 128 << 10
    await blocks.put(BlockKey(NAMESPACE, PATH), body)
    with pytest.raises(TarnError, match=PATH) as caught:
        await read(blocks)
    assert caught.value.kind is Kind.CORRUPT


async def test_a_list_of_too_many_objects_is_not_written() -> None:
    rows = (1 << 24) + 1
    columns = {
        "path": pa.repeat(pa.scalar("p"), rows),
        "address": pa.repeat(pa.scalar(bytes(16), pa.binary(16)), rows),
        "size": pa.repeat(pa.scalar(0), rows),
        "matches": pa.repeat(pa.scalar(True), rows),
        "too_young": pa.repeat(pa.scalar(True), rows),
    }
    table = pa.Table.from_arrays(list(columns.values()), schema=erasure_files.OBJECTS_SCHEMA)
    with pytest.raises(TarnError, match="make several plans") as caught:
        erasure_files.encode_list(table)
    assert caught.value.kind is Kind.EXHAUSTED


async def test_a_file_of_a_purge_that_becomes_large_is_damaged() -> None:
    blocks = MemBlockStore(ManualClock())
    name = f"{purging.PURGE_FOLDER}a-000000.parquet"
    await blocks.put(BlockKey(NAMESPACE, name), bomb_of(purging._SCHEMA))
    with pytest.raises(
        TarnError, match=r"a file of a purge, cannot be read: more than \d+"
    ) as caught:
        await purging._deleted_by_all(blocks, NAMESPACE)
    assert caught.value.kind is Kind.CORRUPT


async def test_a_whole_file_is_read_up_to_its_bound() -> None:
    blocks, key = MemBlockStore(ManualClock()), BlockKey(NAMESPACE, PATH)
    with pytest.raises(BlockNotFoundError):
        await read_whole(blocks, key)
    await blocks.put(key, b"x" * 100)
    assert await read_whole(blocks, key, 100) == b"x" * 100
    with pytest.raises(TarnError, match=f"{PATH} in {NAMESPACE} has more than 99 bytes") as caught:
        await read_whole(blocks, key, 99)
    assert caught.value.kind is Kind.CORRUPT

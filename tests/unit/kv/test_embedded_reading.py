"""The embedded store opened for reading."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.embedded import open_embedded
from tarn.kv.embedded.reading import open_embedded_to_read
from tarn.kv.port import Group, Partition, PartitionKind

ROWS = Partition("test/rows", PartitionKind.PLAIN)
REGISTER = Partition("test/register", PartitionKind.REGISTER)


def contents(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))


async def test_it_sees_what_another_store_writes_meanwhile_and_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "tarn.db"
    writer = await open_embedded(path)
    reader = await open_embedded_to_read(path)
    assert await reader.scan(ROWS, b"", None, 10) == []
    rows = [(b"%03d" % number, b"v") for number in range(200)]
    await writer.set_many(ROWS, [Group(row[0], (row,)) for row in rows])
    await writer.set_if(REGISTER, b"k", b"1", None)
    await writer.close()
    assert await reader.scan(ROWS, b"", None, 1000) == rows
    found = await reader.get_many(ROWS, [key for key, _ in rows])
    assert [each and each.value for each in found] == [b"v"] * 200
    batches = [batch async for batch in reader.scan_arrow(ROWS, b"", None)]
    assert sum(batch.num_rows for batch in batches) == 200
    listed = [each async for each in reader.partitions("test/r")]
    assert [(each.name, each.kind) for each in listed] == [
        (REGISTER.name, REGISTER.kind),
        (ROWS.name, ROWS.kind),
    ]
    await reader.close()
    with pytest.raises(TarnError, match="closed"):
        await reader.scan(ROWS, b"", None, 10)


async def test_its_connection_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "tarn.db"
    await (await open_embedded(path)).close()
    before = path.read_bytes()
    reader = await open_embedded_to_read(path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader._connection.execute("DELETE FROM partitions")
    await reader.close()
    assert path.read_bytes() == before


async def test_a_missing_store_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(TarnError) as refused:
        await open_embedded_to_read(tmp_path / "tarn.db")
    assert refused.value.kind is Kind.NOT_FOUND
    assert contents(tmp_path) == []
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE x (y)").connection.close()
    with pytest.raises(TarnError, match="not a store of schema"):
        await open_embedded_to_read(tmp_path / "other.db")

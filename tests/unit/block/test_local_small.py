"""Rows of small bodies."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarn.block.local.small import (
    NamespaceOverlapError,
    SmallReader,
    SmallWriter,
    create_small,
)
from tarn.block.port import BlockInfo
from tarn.core.errors import Kind, TarnError


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[SmallWriter, SmallReader]]:
    path = tmp_path / "small.sqlite"
    create_small(path)
    writer, reader = SmallWriter(path, fsync=True), SmallReader(path)
    yield writer, reader
    writer.close()
    reader.close()


def test_rows_appear_at_commit(pair: tuple[SmallWriter, SmallReader]) -> None:
    writer, reader = pair
    writer.begin()
    assert writer.insert([(1, "a", 7, b"body")]) == set()
    assert reader.read(1, "a", 0, None) is None
    assert writer.has(1, "a")
    writer.commit()
    assert reader.read(1, "a", 0, None) == b"body"
    assert reader.read(1, "a", 1, 2) == b"od"
    assert reader.stat(1, "a") == BlockInfo("a", 4, 7)
    assert reader.read(2, "a", 0, None) is None


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
def test_only_taken_paths_of_a_group_are_refused(
    pair: tuple[SmallWriter, SmallReader], count: int
) -> None:
    writer, reader = pair
    writer.begin()
    writer.insert([(1, str(number), 0, b"old") for number in range(0, count, 5)])
    writer.commit()
    writer.begin()
    rows = [(1, str(number), 0, b"new") for number in range(count)]
    rows.append((1, str(count - 1), 0, b"twice"))
    taken = writer.insert(rows)
    writer.commit()
    assert taken == {*range(0, count, 5), count}
    for number in range(count):
        assert reader.read(1, str(number), 0, None) == (b"new" if number % 5 else b"old")


@pytest.mark.parametrize("count", [1, 2, 3, 64, 65, 128])
@pytest.mark.parametrize("is_taken", [False, True])
def test_rows_added_alone_are_those_of_a_transaction(
    pair: tuple[SmallWriter, SmallReader], count: int, is_taken: bool
) -> None:
    """All of them or none, visible on return; what one statement cannot do is left to a transaction."""
    writer, reader = pair
    if is_taken:
        assert writer.insert_alone([(1, str(count - 1), 0, b"old")])
    rows = [(1, str(number), 7, b"new") for number in range(count)]
    added = writer.insert_alone(rows)
    assert added is (not is_taken and count in (1, 2, 64))
    before = [b"old"] if is_taken else []
    found = [reader.read(1, path, 0, None) for _, path, _, _ in rows]
    assert [body for body in found if body] == ([b"new"] * count if added else before)
    if not added:
        writer.begin()
        assert writer.insert(rows) == ({count - 1} if is_taken else set())
        writer.commit()
    found = [reader.read(1, path, 0, None) for _, path, _, _ in rows]
    assert found == [b"new"] * (count - is_taken) + before
    assert reader.stat(1, "0") == (BlockInfo("0", 3, 0 if is_taken and count == 1 else 7))


def test_a_rollback_discards_inserted_rows(pair: tuple[SmallWriter, SmallReader]) -> None:
    writer, reader = pair
    writer.rollback()
    writer.begin()
    writer.insert([(1, "a", 0, b"x")])
    writer.rollback()
    assert reader.stat(1, "a") is None


@pytest.mark.parametrize(
    ("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a"), ("a", "a/b/c")]
)
def test_namespaces_must_not_overlap(
    pair: tuple[SmallWriter, SmallReader], first: str, second: str
) -> None:
    writer, reader = pair
    number = writer.register(first)
    with pytest.raises(NamespaceOverlapError):
        writer.register(second)
    assert writer.register(first) == number == reader.namespace_id(first)
    assert writer.register("a-b") != number
    assert reader.namespaces() == sorted([first, "a-b"])


def test_delete_takes_many(pair: tuple[SmallWriter, SmallReader]) -> None:
    writer, reader = pair
    writer.begin()
    writer.insert([(1, f"{number:05}", 0, b"x") for number in range(1200)])
    writer.insert([(2, "00001", 0, b"x")])
    writer.delete(1, [f"{number:05}" for number in range(1199)] + ["absent"])
    writer.commit()
    assert [info.path for info in reader.list(1, "", "", 10)] == ["01199"]
    assert reader.stat(2, "00001") is not None


def test_newer_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "small.sqlite"
    create_small(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(TarnError, match="99") as caught:
        create_small(path)
    assert caught.value.kind is Kind.UNIMPLEMENTED


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "small.sqlite"
    path.write_bytes(b"x" * 10_000)
    with pytest.raises(sqlite3.DatabaseError):
        create_small(path)

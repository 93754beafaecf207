"""Opening the embedded store's file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.embedded import open_embedded, reader, sql
from tarn.kv.port import Group, Partition, PartitionKind, RowFilter

PLAIN = Partition("p", PartitionKind.PLAIN)
REGISTER = Partition("r", PartitionKind.REGISTER)


async def refusal(path: Path) -> TarnError:
    with pytest.raises(TarnError) as caught:
        await open_embedded(path)
    assert str(path) in str(caught.value)
    return caught.value


def names_in(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


@pytest.fixture
def sealed_folder(tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(0o500)
    yield tmp_path
    tmp_path.chmod(0o700)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_files_belong_to_their_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "kv.db"
    kv = await open_embedded(path)
    await kv.set_if(REGISTER, b"k", b"", None)
    modes = {file.name: mode_of(file) for file in path.parent.iterdir()}
    await kv.close()
    names = ("kv.db", "kv.db-wal", "kv.db-shm", "kv.db-gate", "kv.db-lock", "kv.db-users")
    assert modes == dict.fromkeys(names, 0o600)
    assert mode_of(path.parent) == 0o700


async def test_rows_and_versions_outlive_the_opening(tmp_path: Path) -> None:
    versions = set()
    for number in range(3):
        kv = await open_embedded(tmp_path / "kv.db")
        await kv.set_many(PLAIN, [Group(b"k", ((b"%d" % number, b"v"),))])
        versions.add(await kv.set_if(REGISTER, b"%d" % number, b"v", None))
        await kv.close()
    assert len(versions) == 3
    kv = await open_embedded(tmp_path / "kv.db")
    assert [key for key, _ in await kv.scan(PLAIN, b"", None, 10)] == [b"0", b"1", b"2"]
    found = await kv.get_many(REGISTER, [b"0", b"1", b"2"])
    assert {v.predicate for v in found if v} == versions
    await kv.close()


async def test_closed_store_leaves_no_log(tmp_path: Path) -> None:
    kv = await open_embedded(tmp_path / "kv.db")
    await kv.set_if(REGISTER, b"k", b"", None)
    await kv.close()
    assert names_in(tmp_path) == {"kv.db", "kv.db-gate", "kv.db-lock", "kv.db-users"}


@pytest.mark.parametrize(("durability", "synchronous"), [("fsync", 2), ("os", 1)])
async def test_durability_says_when_the_log_is_synced(
    tmp_path: Path, durability: sql.Durability, synchronous: int
) -> None:
    kv = await open_embedded(tmp_path / "kv.db", durability=durability)
    connection = kv._writer._transaction_writer._connection
    assert connection.execute("PRAGMA synchronous").fetchall() == [(synchronous,)]
    await kv.close()


async def test_empty_file_of_a_creation_cut_short_is_finished(tmp_path: Path) -> None:
    (tmp_path / "kv.db").touch()
    kv = await open_embedded(tmp_path / "kv.db")
    await kv.set_if(REGISTER, b"k", b"", None)
    await kv.close()


async def test_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kv.db"
    await (await open_embedded(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {sql.SCHEMA_VERSION + 1}")
    error = await refusal(path)
    assert error.kind is Kind.FAILED_PRECONDITION
    assert "newer" in error.message


async def test_file_of_another_program_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "kv.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()
    error = await refusal(path)
    assert error.kind is Kind.FAILED_PRECONDITION
    assert "another program" in error.message
    assert path.read_bytes() == before


async def test_file_that_is_no_database_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "kv.db"
    path.write_bytes(b"not a database " * 1000)
    assert (await refusal(path)).kind is Kind.CORRUPT


@pytest.mark.parametrize("quick_steps", [60_000, 100])
async def test_damaged_pages_are_reported_as_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_steps: int
) -> None:
    """By each kind of scan, in the event loop and in the thread."""
    monkeypatch.setattr(reader, "_QUICK_STEPS", quick_steps)
    monkeypatch.setattr(reader, "_QUICK_STEPS_PER_CALL", 100)
    path = tmp_path / "kv.db"
    kv = await open_embedded(path)
    rows = [Group(b"k", ((b"%06d" % n, bytes(500)),)) for n in range(2000)]
    assert not any(await kv.set_many(PLAIN, rows))
    await kv.close()
    with path.open("r+b") as file:
        file.seek(4096 * 16)
        file.write(b"\xa5" * (path.stat().st_size - 4096 * 16))
    kv = await open_embedded(path)
    for read in (
        lambda: kv.scan(PLAIN, b"", None, 10_000),
        lambda: kv.scan_without(PLAIN, b"", None, 10_000, RowFilter(b"x")),
        lambda: kv.scan_without(PLAIN, b"", None, 10_000, RowFilter(sql.TOMBSTONE_BEGINS)),
    ):
        with pytest.raises(TarnError) as caught:
            await read()
        assert caught.value.kind is Kind.CORRUPT
    await kv.close()


async def test_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kv.db").mkdir()
    assert (await refusal(tmp_path / "kv.db")).kind is Kind.FAILED_PRECONDITION


async def test_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert (await refusal(tmp_path / "file" / "kv.db")).kind is Kind.FAILED_PRECONDITION


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_folder_that_may_not_be_written_is_refused(sealed_folder: Path) -> None:
    error = await refusal(sealed_folder / "kv.db")
    assert error.kind is Kind.FAILED_PRECONDITION
    assert "Permission denied" in error.message


async def test_two_handles_of_one_process_share_the_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    one = await open_embedded(tmp_path / "kv.db")
    two = await open_embedded(tmp_path / "link" / "kv.db")
    version = await one.set_if(REGISTER, b"k", b"1", None)
    await two.set_if(REGISTER, b"k", b"2", version)
    await two.close()
    (found,) = await one.get_many(REGISTER, [b"k"])
    assert found is not None
    assert found.value == b"2"
    await one.set_if(REGISTER, b"k", b"3", found.predicate)
    await one.close()

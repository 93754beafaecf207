"""The model of a disk, on calls with a known outcome."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.crash.examine import contents, library
from tests.support.crash.disk import Disk
from tests.support.crash.loss import rebuild_all, rebuild_some, rebuild_synced
from tests.support.crash.recorder import recording
from tests.support.crash.trace import Sync, Trace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def trace(root: Path) -> Iterator[Trace]:
    with recording(root, library()) as trace:
        yield trace


def synced(trace: Trace, target: Path) -> dict[str, bytes | None]:
    disk = Disk(trace)
    disk.advance(trace.now)
    target.mkdir()
    rebuild_synced(disk, target)
    return contents(target)


def write(path: Path, data: bytes, *, sync: bool) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, data)
    if sync:
        os.fdatasync(fd)
    os.close(fd)


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def test_bytes_and_name_of_a_file_are_synced_apart(
    root: Path, trace: Trace, tmp_path: Path
) -> None:
    write(root / "both", b"x", sync=True)
    write(root / "name", b"x", sync=False)
    sync_folder(root)
    write(root / "bytes", b"x", sync=True)
    assert synced(trace, tmp_path / "left") == {"both": b"x", "name": b""}


def test_folder_needs_a_sync_of_its_parent(root: Path, trace: Trace, tmp_path: Path) -> None:
    (root / "a").mkdir()
    write(root / "a/file", b"x", sync=True)
    sync_folder(root / "a")
    assert synced(trace, tmp_path / "before") == {}
    sync_folder(root)
    assert synced(trace, tmp_path / "after") == {"a": None, "a/file": b"x"}


def test_removal_and_link_are_synced_with_their_folder(
    root: Path, trace: Trace, tmp_path: Path
) -> None:
    write(root / "old", b"x", sync=True)
    sync_folder(root)
    os.link(root / "old", root / "new")
    (root / "old").unlink()
    assert synced(trace, tmp_path / "before") == {"old": b"x"}
    sync_folder(root)
    assert synced(trace, tmp_path / "after") == {"new": b"x"}


def test_file_of_the_same_name_is_another_file(root: Path, trace: Trace, tmp_path: Path) -> None:
    write(root / "name", b"first", sync=True)
    sync_folder(root)
    (root / "name").unlink()
    write(root / "name", b"second", sync=True)
    assert synced(trace, tmp_path / "left") == {"name": b"first"}


def test_inode_of_a_removed_file_belongs_to_no_node(
    root: Path, trace: Trace, tmp_path: Path
) -> None:
    for number in range(20):
        write(root / "gone", b"x", sync=False)
        (root / "gone").unlink()
        events = trace.now
        write(
            tmp_path / f"elsewhere{number}", b"x", sync=True
        )  # most file systems give it the inode
        assert trace.now == events


def test_sync_of_one_place_can_be_left_out(root: Path, trace: Trace, tmp_path: Path) -> None:
    with closing(sqlite3.connect(root / "a.db")) as connection:
        connection.execute("CREATE TABLE t (a)")
    (site,) = {event.site for event in trace.events if isinstance(event, Sync)} & {
        "sqlite database < "
    }
    sync_folder(root)
    assert synced(trace, tmp_path / "with")["a.db"]
    assert synced(trace.without_site(site), tmp_path / "without")["a.db"] == b""


def test_choices_lie_between_nothing_and_everything(
    root: Path, trace: Trace, tmp_path: Path
) -> None:
    write(root / "file", b"1" * 5000, sync=True)
    sync_folder(root)
    write(root / "file", b"2" * 9000, sync=False)
    disk = Disk(trace)
    disk.advance(trace.now)
    found = set()
    for seed in range(100):
        target = tmp_path / str(seed)
        target.mkdir()
        rebuild_some(disk, target, random.Random(seed))
        found.add((target / "file").read_bytes())
    assert {b"1" * 5000, b"2" * 9000} <= found
    assert len(found) > 5, "no torn write"
    assert all(set(body) <= set(b"12\0") for body in found)
    assert all(b"\0" not in body[:5000] for body in found), "durable bytes turned to zeros"
    (tmp_path / "all").mkdir()
    rebuild_all(disk, tmp_path / "all")
    assert contents(tmp_path / "all") == contents(root)


def test_call_that_is_not_modelled_is_refused(root: Path, trace: Trace, tmp_path: Path) -> None:
    write(root / "file", b"x", sync=False)
    with pytest.raises(AssertionError, match=r"os\.rename"):
        (root / "file").rename(root / "other")
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "elsewhere").rename(tmp_path / "there")

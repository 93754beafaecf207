"""Opens a local store: rejects a root on which its guarantees cannot hold, and removes drafts of dead processes."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tarn.aio.close_guard import CloseGuard
from tarn.aio.thread_work import Threads
from tarn.block.local.draft import Drafts, sweep
from tarn.block.local.faults import from_os, from_sqlite
from tarn.block.local.group_writer import GroupWriter
from tarn.block.local.intake import Intake
from tarn.block.local.mount import refuse_network
from tarn.block.local.open_files import OpenFiles
from tarn.block.local.reserve import DiskReserve
from tarn.block.local.small import SmallReader, create_small
from tarn.block.local.store import LocalBlockStore
from tarn.block.local.tree import FILE_MODE, Tree, make_root
from tarn.block.port import closed_error
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["DRAFT_AGE_US", "open_local"]

_OWN: Final = ".tarn"
"""The driver's own directory in the root; no namespace can have this name."""
_PROBE: Final = "probe-"
DRAFT_AGE_US: Final = 24 * 3600 * 1_000_000
"""Age, without a write, at which opening the store removes a draft whose writer is dead."""
SMALL_BYTES_LIMIT: Final = 1 << 20


async def open_local(
    root: Path,
    *,
    clock: Clock,
    durability: Literal["fsync", "os"] = "fsync",
    small_bytes_max: int = 65536,
    files_max: int = 512,
    threads: int = 8,
    reserve_bytes: int = 0,
    read_only: bool = False,
) -> LocalBlockStore:
    """Opens the store of a directory, which is created if it is absent.

    Args:
        root: a directory used for nothing else, on a local file system with hard links.
        clock: gives the blocks' times and the age of drafts.
        durability: `fsync`: an acknowledged block survives a power failure. `os`: it survives the death
            of the process; the operating system writes it to disk later. A power failure then loses
            the latest rows, and may lose or damage any file not yet written.
        small_bytes_max: bodies up to this size become rows; 0 to 1 MiB.
        files_max: descriptors that transfers may hold concurrently; further transfers fail as EXHAUSTED.
        threads: number of threads for long reads, and of those for long writes.
        reserve_bytes: space on the disk that objects leave free for deletes and metadata, at most a twentieth of it.
        read_only: open an existing store without creating, probing or sweeping anything. Callers use it
            only as `tarn.block.port.ReadBlocks`.

    Raises:
        TarnError: INVALID if an argument is out of bounds; INTERNAL or UNAVAILABLE if the root cannot be
            used (not writable, no hard links); FAILED_PRECONDITION if it is on a network file system;
            NOT_FOUND if `read_only` is set and there is no store.
    """
    if not 0 <= small_bytes_max <= SMALL_BYTES_LIMIT or files_max < 1 or threads < 1:
        text = f"small_bytes_max must be 0 to {SMALL_BYTES_LIMIT}, files_max and threads at least 1"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    readers = Threads("tarn-block-read", threads)
    writers = Threads("tarn-block-write", threads)
    try:
        if read_only:
            ground = await writers.run(lambda: _look_at(root))
        else:
            ground = await writers.run(lambda: _prepare(root, clock, sync=durability == "fsync"))
    except BaseException:
        readers.close()
        writers.close()
        raise
    tree = ground.tree
    group_writer = GroupWriter(
        ground.database, ground.lock, tree, clock, fsync=durability == "fsync"
    )
    intake = Intake(
        tree=tree,
        drafts=Drafts(tree, clock),
        group_writer=group_writer,
        threads=writers,
        files=OpenFiles(files_max),
        guard=CloseGuard(closed_error),
        small_bytes_max=small_bytes_max,
        reserve=DiskReserve.of(tree.descriptor, reserve_bytes),
    )
    return LocalBlockStore(tree, ground.reader, group_writer, intake, readers)


@dataclass(frozen=True, slots=True)
class _Ground:
    """The resources of a store. The store closes `lock` and the files inside `tree` and `reader`."""

    database: Path
    tree: Tree
    lock: int
    reader: SmallReader


def _prepare(root: Path, clock: Clock, *, sync: bool) -> _Ground:
    root = root.absolute()
    database = root / _OWN / "small.sqlite"
    try:
        make_root(root)
        refuse_network(root)
        with ExitStack() as undo:
            tree = Tree(root, sync=sync)
            undo.callback(tree.close)
            lock = _lock(tree)
            undo.callback(os.close, lock)
            create_small(database)
            tree.sync_dir([_OWN])
            fcntl.flock(lock, fcntl.LOCK_UN)
            reader = SmallReader(database)
            undo.callback(reader.close)
            oldest_us = clock.now_us() - DRAFT_AGE_US
            for name in reader.namespaces():
                sweep(tree, name.split("/"), oldest_us)
            undo.pop_all()
    except OSError as error:
        raise from_os(error, f"cannot open the block store {root}") from error
    except sqlite3.Error as error:
        raise from_sqlite(error, f"cannot open the block store {root}") from error
    return _Ground(database, tree, lock, reader)


def _look_at(root: Path) -> _Ground:
    """Opens what exists, unchanged. Locking is impossible: the descriptor is that of the null device."""
    root = root.absolute()
    database = root / _OWN / "small.sqlite"
    if not database.is_file():
        text = f"there is no block store at {root}; check blockstore.local.path"
        raise TarnError(Kind.NOT_FOUND, Reason.INVALID_ARGUMENT, text, path=str(root))
    try:
        refuse_network(root)
        with ExitStack() as undo:
            tree = Tree(root, sync=False)
            undo.callback(tree.close)
            reader = SmallReader(database, read_only=True)
            undo.callback(reader.close)
            reader.namespaces()
            lock = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            undo.pop_all()
    except OSError as error:
        raise from_os(error, f"cannot open the block store {root}") from error
    except sqlite3.Error as error:
        raise from_sqlite(error, f"cannot open the block store {root}") from error
    return _Ground(database, tree, lock, reader)


def _lock(tree: Tree) -> int:
    """Returns the lock file, locked, after probing the features that the store needs of its file system."""
    with tree.open_dir([_OWN], create=True) as own:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open("small.lock", flags, FILE_MODE, dir_fd=own)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in os.listdir(own):  # noqa: PTH208 - of a descriptor, not of a path
                if name.startswith(_PROBE):  # of a killed process: only the lock's holder probes
                    os.unlink(name, dir_fd=own)
            probe = f"{_PROBE}{os.getpid()}"
            os.close(tree.create([_OWN], probe))
            tree.link([_OWN, probe], [_OWN, probe + "-link"])
            os.unlink(probe, dir_fd=own)
            os.unlink(probe + "-link", dir_fd=own)
        except BaseException:
            os.close(lock)
            raise
    return lock

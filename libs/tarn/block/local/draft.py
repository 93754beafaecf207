"""Drafts: files that are still being written, under names that no reader looks up.

A draft lies in `<namespace>/.tmp/`, in the same file system as its final path. A hard link gives it the final
name and never replaces an existing file. The writer holds a `flock` on the draft, so `sweep` removes old
drafts of killed processes and never the draft of a live writer.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from tarn.block.local.tree import Tree
from tarn.core.clock import Clock

__all__ = ["DRAFTS", "Draft", "Drafts", "Part", "Source", "sweep"]

DRAFTS: Final = ".tmp"
_NAME_ATTEMPTS: Final = 100
_COPY_BYTES: Final = 1 << 20
_SPLICE_BYTES: Final = 64 << 20


class Source(Protocol):
    """A complete file that can be linked under a block's name. Its methods block and raise `OSError`."""

    def link(self, target: Sequence[str]) -> None:
        """Links the file under the name; raises `FileExistsError` if the name is taken."""
        ...

    def equals(self, other: int) -> bool:
        """Returns whether the open file `other` holds the same bytes."""
        ...


class Drafts:
    """Creates drafts with names that are unique without randomness: time, process id and a count. If a dead
    process with the same id left such a name, the next count is used."""

    def __init__(self, tree: Tree, clock: Clock) -> None:
        self.tree = tree
        self.clock = clock
        self._count = 0

    def create(self, directory: Sequence[str]) -> Draft:
        """Creates an empty draft in the namespace's directory `directory`. Blocks; raises `OSError`."""
        for attempt in range(1, _NAME_ATTEMPTS + 1):
            self._count += 1
            name = f"{self.clock.now_us():x}-{os.getpid()}-{self._count}"
            try:
                fd = self.tree.create((*directory, DRAFTS), name)
            except FileExistsError:
                if attempt == _NAME_ATTEMPTS:
                    raise
            else:
                return Draft(self, (*directory, DRAFTS, name), fd)
        raise AssertionError("the loop returns or raises")


class Draft:
    """One draft. All methods block and raise `OSError`; use it from one thread at a time."""

    def __init__(self, drafts: Drafts, names: tuple[str, ...], fd: int) -> None:
        self._tree = drafts.tree
        self._clock = drafts.clock
        self._names = names
        self._fd = fd
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.discard()
            raise

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends all of the bytes."""
        with memoryview(data) as view:
            done = 0
            while done < len(view):
                done += os.write(self._fd, view[done:])

    def append_file(self, source: int) -> None:
        """Appends a whole file from its start, inside the kernel if the file systems support it."""
        size = os.fstat(source).st_size
        done = 0
        with suppress(
            OSError
        ):  # EXDEV, EINVAL, ENOSYS, EOPNOTSUPP: the loop below continues from here
            while done < size:
                copied = os.copy_file_range(source, self._fd, min(size - done, _SPLICE_BYTES), done)
                if copied == 0:
                    break
                done += copied
        while chunk := os.pread(source, _COPY_BYTES, done):
            self.write(chunk)
            done += len(chunk)

    def size(self) -> int:
        """Returns the bytes written so far."""
        return os.fstat(self._fd).st_size

    def seal(self) -> None:
        """Sets the file's time and makes its bytes durable; no write may follow."""
        now_ns = self._clock.now_us() * 1000
        os.utime(self._fd, ns=(now_ns, now_ns))
        self._tree.sync_file(self._fd)

    def link(self, target: Sequence[str], *, create: bool = True) -> None:
        """Links the draft under the name `target`; see `Tree.link`."""
        self._tree.link(self._names, target, create=create)

    def replace(self, target: Sequence[str]) -> None:
        """Gives the draft the name `target`, whatever has it; see `Tree.replace`."""
        self._tree.replace(self._names, target)

    def equals(self, other: int) -> bool:
        """Returns whether the open file `other` holds the same bytes."""
        return _same(self._fd, other)

    def discard(self) -> None:
        """Closes the draft and removes its temporary name; a linked block keeps its own name. Idempotent."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            with suppress(FileNotFoundError), self._tree.open_dir(self._names[:-1]) as directory:
                os.unlink(self._names[-1], dir_fd=directory)
        finally:
            os.close(fd)


class Part:
    """A part of an upload that becomes the whole block. The part is linked, not copied.

    Args:
        tree: the store's directory tree.
        names: the part's path.
        clock: gives the block's time. The part may be days old, and garbage collection spares young blocks.
    """

    def __init__(self, tree: Tree, names: Sequence[str], clock: Clock) -> None:
        self._tree = tree
        self._names = names
        self._clock = clock

    def size(self) -> int:
        """Returns the part's size in bytes."""
        return self._tree.stat(self._names).st_size

    def link(self, target: Sequence[str]) -> None:
        """See `Source.link`. The new time reaches the disk with the new link count."""
        fd = self._tree.open_read(self._names)
        try:
            now_ns = self._clock.now_us() * 1000
            os.utime(fd, ns=(now_ns, now_ns))
        finally:
            os.close(fd)
        self._tree.link(self._names, target)

    def equals(self, other: int) -> bool:
        """See `Source.equals`."""
        fd = self._tree.open_read(self._names)
        try:
            return _same(fd, other)
        finally:
            os.close(fd)


def _same(one: int, other: int) -> bool:
    size = os.fstat(one).st_size
    if os.fstat(other).st_size != size:
        return False
    return all(
        os.pread(one, _COPY_BYTES, at) == os.pread(other, _COPY_BYTES, at)
        for at in range(0, size, _COPY_BYTES)
    )


def sweep(tree: Tree, directory: Sequence[str], before_us: int) -> int:
    """Removes drafts that were last written before `before_us` and whose writers are dead; returns their number."""
    removed = 0
    for name in tree.names((*directory, DRAFTS)):
        names = (*directory, DRAFTS, name)
        with suppress(OSError):  # gone, or not a draft: the store must open all the same
            if tree.stat(names).st_mtime_ns // 1000 >= before_us:
                continue
            fd = tree.open_read(names)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                tree.remove(names, keep=len(names) - 1)
                removed += 1
            except BlockingIOError:
                continue  # its writer is alive
            finally:
                os.close(fd)
    return removed

"""The directory tree of a local store, accessed through descriptors only.

Every path is walked from the root's descriptor, with one `openat(O_NOFOLLOW)` per segment. So neither `..`
nor a symbolic link, planted before or during the walk, can lead out of a namespace. A `realpath` check
would leave a race; this does not.

Durability: a file counts when its bytes, its name and every directory above it are on disk. The name of a
directory is synced when this process creates it, and on the first use of one that another process created.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from tarn.block.port import BlockInfo

__all__ = ["DIR_MODE", "FILE_MODE", "Tree", "make_root"]

DIR_MODE = 0o700
FILE_MODE = 0o600

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a planted FIFO must not hang the opener; regular files ignore it.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KNOWN_MAX = 4096
_LINK_ATTEMPTS = 8


def make_root(root: Path) -> None:
    """Creates a directory and its missing parents; its name is durable afterwards.

    Also syncs the name of the first directory that already exists: its creator may have died before the sync.
    Blocks; raises `OSError`.
    """
    if not root.is_dir():
        if root.parent != root:
            make_root(root.parent)
        root.mkdir(DIR_MODE, exist_ok=True)
    with suppress(PermissionError):  # we may enter but not read it, so we did not create it
        above = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(above)
        finally:
            os.close(above)


class Tree:
    """Files and directories under one root.

    Paths are sequences of checked segments (`tarn.block.keys`). All methods block and raise `OSError`.

    Args:
        root: an existing directory.
        sync: whether names are fsynced before they count.
    """

    def __init__(self, root: Path, *, sync: bool) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._sync = sync
        # Directories whose names are on disk. Not a `BoundedMap`: several threads use it at a time, and each
        # operation of a set is one step under the interpreter's lock.
        self._known: set[tuple[str, ...]] = set()

    @property
    def descriptor(self) -> int:
        """The open root; it stays the tree's."""
        return self._root

    def close(self) -> None:
        """Closes the root's descriptor."""
        os.close(self._root)

    @contextmanager
    def open_dir(self, names: Sequence[str], *, create: bool = False) -> Iterator[int]:
        """Opens a directory for the `with` block and yields its descriptor."""
        current = os.dup(self._root)
        try:
            for depth, name in enumerate(names):
                child = self._step(current, tuple(names[: depth + 1]), name, create=create)
                os.close(current)
                current = child
            yield current
        finally:
            os.close(current)

    def _step(self, parent: int, path: tuple[str, ...], name: str, *, create: bool) -> int:
        try:
            child = _enter(parent, name)
        except FileNotFoundError:
            if not create:
                raise
            with suppress(FileExistsError):
                os.mkdir(name, DIR_MODE, dir_fd=parent)
            self._known.discard(path)
            child = _enter(parent, name)
        if create and path not in self._known:
            try:
                if self._sync:
                    os.fsync(parent)
            except OSError:
                os.close(child)
                raise
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known.add(path)
        return child

    def open_read(self, names: Sequence[str]) -> int:
        """Opens a regular file and returns its descriptor.

        Raises:
            FileNotFoundError: the file does not exist, or a directory has the name.
            OSError: ELOOP if a symbolic link is on the path.
        """
        with self.open_dir(names[:-1]) as parent:
            fd = os.open(names[-1], _READ, dir_fd=parent)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "not a regular file", names[-1])

    def create(self, directory: Sequence[str], name: str) -> int:
        """Creates an empty file and returns its descriptor, open for reading and writing.

        Raises:
            FileExistsError: the name is taken.
        """
        with self.open_dir(directory, create=True) as parent:
            return os.open(name, _CREATE, FILE_MODE, dir_fd=parent)

    def stat(self, names: Sequence[str]) -> os.stat_result:
        """Returns the attributes of a regular file. Raises as `open_read`."""
        with self.open_dir(names[:-1]) as parent:
            found = os.stat(names[-1], dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, "a symbolic link", names[-1])
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a regular file", names[-1])
        return found

    def exists(self, path: str) -> bool:
        """Returns whether this `/`-joined path exists, as a file, link or directory. One system call. Use it
        only to refuse: it follows links on the way and must not decide what is read or written."""
        try:
            os.stat(path, dir_fd=self._root, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def link(self, source: Sequence[str], target: Sequence[str], *, create: bool = True) -> None:
        """Gives a file a second name without replacing anything; `sync_dir` makes the name durable.

        Args:
            source: an existing file.
            target: the new name.
            create: whether to create missing directories of the target.

        Raises:
            FileExistsError: the name is taken.
            FileNotFoundError: the source or the target's directory does not exist.
        """
        self._name(partial(os.link, follow_symlinks=False), source, target, create=create)

    def replace(self, source: Sequence[str], target: Sequence[str]) -> None:
        """Gives a file another name, and makes missing directories of it. A file that has the name is replaced, in one
        step for readers; `sync_dir` makes it durable.

        Raises:
            FileNotFoundError: the source does not exist.
            IsADirectoryError: a directory has the name.
        """
        self._name(os.replace, source, target, create=True)

    def _name(
        self,
        give: Callable[..., None],
        source: Sequence[str],
        target: Sequence[str],
        *,
        create: bool,
    ) -> None:
        """Calls `os.link` or `os.replace` between two directories."""
        for attempt in range(1, _LINK_ATTEMPTS + 1):
            try:
                with (
                    self.open_dir(source[:-1]) as old,
                    self.open_dir(target[:-1], create=create) as new,
                ):
                    give(source[-1], target[-1], src_dir_fd=old, dst_dir_fd=new)
            except FileNotFoundError:
                # A concurrent `remove` of the directory's last file may delete the directory before the call.
                if not create or attempt == _LINK_ATTEMPTS:
                    raise
            else:
                return

    def sync_dir(self, names: Sequence[str]) -> None:
        """Makes the names in a directory durable, unless this tree does not sync."""
        if self._sync:
            with self.open_dir(names) as fd:
                os.fsync(fd)

    def sync_file(self, fd: int) -> None:
        """Makes a file's bytes and size durable, unless this tree does not sync. fdatasync is enough: it
        writes the inode whenever the size or the extents changed; only the times may be old."""
        if self._sync:
            os.fdatasync(fd)

    def sync_times(self, fd: int) -> None:
        """Makes a file's times durable, too, unless this tree does not sync."""
        if self._sync:
            os.fsync(fd)

    def remove(self, names: Sequence[str], keep: int) -> None:
        """Removes a file, if it exists, and then its directories that are empty.

        Not synced: if a power failure restores a removed file, the next garbage collection removes it.

        Args:
            names: the file.
            keep: number of leading directories that are never removed.
        """
        with suppress(FileNotFoundError, NotADirectoryError):
            with self.open_dir(names[:-1]) as parent:
                os.unlink(names[-1], dir_fd=parent)
            self.prune(names[:-1], keep)

    def prune(self, names: Sequence[str], keep: int) -> None:
        """Removes a directory and its parents as far as they are empty; `keep` as in `remove`."""
        for depth in range(len(names), keep, -1):
            try:
                with self.open_dir(names[: depth - 1]) as parent:
                    os.rmdir(names[depth - 1], dir_fd=parent)
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT}:
                    return
                raise
            self._known.discard(tuple(names[:depth]))

    def names(self, names: Sequence[str]) -> list[str]:
        """Returns the names in a directory, unordered; empty if the directory does not exist."""
        try:
            with self.open_dir(names) as fd:
                return os.listdir(fd)  # noqa: PTH208 - of a descriptor, not of a path
        except FileNotFoundError:
            return []

    def list_files(
        self, base: Sequence[str], prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        """Yields regular files below `base` in byte order of their path, like `BlockStore.list_page`.

        Cost: one read of each directory up to the end of the page. Subtrees outside the prefix or
        before `after` are not opened. Names that begin with `.` directly below `base` are skipped.
        """
        page: list[BlockInfo] = []
        with suppress(FileNotFoundError), self.open_dir(base) as fd:
            for info in _walk(fd, "", prefix, after):
                page.append(info)
                if len(page) == limit:
                    break
        return page


def _enter(parent: int, name: str) -> int:
    """Opens a child directory; a symbolic link raises ELOOP, a file in its place "not found"."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except NotADirectoryError:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, "a symbolic link", name) from None
        raise


def _walk(fd: int, here: str, prefix: str, after: str) -> Iterator[BlockInfo]:
    """Yields files below an open directory whose own path is `here` (empty, or ending in `/`)."""
    for path, is_dir in _children(fd, here, prefix):
        name = path[len(here) :].rstrip("/")
        with suppress(FileNotFoundError, NotADirectoryError):  # removed after it was listed
            if not is_dir:
                if path > after and path.startswith(prefix):
                    found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    yield BlockInfo(path, found.st_size, found.st_mtime_ns // 1000)
            elif path > after or after.startswith(path):
                child = _enter(fd, name)
                try:
                    yield from _walk(child, path, prefix, after)
                finally:
                    os.close(child)


def _children(fd: int, here: str, prefix: str) -> list[tuple[str, bool]]:
    """Returns paths that may match. Directories end in `/`: that is how they sort among files."""
    inner, slash, _ = prefix[len(here) :].partition("/")
    if slash:  # the prefix names the one child that matters
        return [(here + inner + "/", True)]
    found = []
    with os.scandir(fd) as entries:
        for entry in entries:
            name = entry.name
            if not name.startswith(inner) or not _is_utf8(name):
                continue
            if not here and name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                found.append((here + name + "/", True))
            elif entry.is_file(follow_symlinks=False):
                found.append((here + name, False))
    return sorted(found)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True

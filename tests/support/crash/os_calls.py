"""Records the calls of the `os` module that change files below a root.

A wrapper in place of each function makes the real call and records it. A mutating call that the recorder
does not know is an error when it touches the recorded tree; otherwise the recording would miss changes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from tests.support.crash.trace import Name, Sync, Trace, Write, calling_site

__all__ = ["OsCalls"]

_UNKNOWN: Final = (
    "ftruncate", "truncate", "pwrite", "pwritev", "writev", "rename", "replace", "symlink",
    "sendfile", "splice", "posix_fallocate", "removedirs", "renames", "mkfifo", "mknod",
)  # fmt: skip

Call = Callable[..., Any]
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class OsCalls:
    """Replaces functions of `os` while it is installed."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._real: dict[str, Call] = {}

    def install(self) -> None:
        """Starts the recording."""
        wrappers: dict[str, Call] = {
            "open": self._open,
            "write": self._write,
            "copy_file_range": self._copy_file_range,
            "fsync": self._fsync,
            "fdatasync": self._fdatasync,
            "link": self._link,
            "unlink": self._unlink,
            "remove": self._unlink,
            "mkdir": self._mkdir,
            "rmdir": self._rmdir,
        }
        for name in _UNKNOWN:
            if hasattr(os, name):
                wrappers[name] = self._refusal(name)
        for name, wrapper in wrappers.items():
            self._real[name] = getattr(os, name)
            setattr(os, name, wrapper)

    def remove(self) -> None:
        """Restores the real functions."""
        for name, real in self._real.items():
            setattr(os, name, real)
        self._real.clear()

    def _open(
        self, path: AnyPath, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        trace = self._trace
        with trace.lock:
            if not flags & os.O_CREAT:
                return self._real["open"](path, flags, mode, dir_fd=dir_fd)  # type: ignore[no-any-return]
            folder = self._folder(path, dir_fd)
            before = None
            with suppress(FileNotFoundError):
                before = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
            fd: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
            if folder is not None and before is None:
                self._made(folder, path, os.fstat(fd))
            assert folder is None or not flags & (os.O_TRUNC | os.O_APPEND), "not recorded"
            return fd

    def _write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        node = self._of_fd(fd)
        if node is None:
            return self._real["write"](fd, data)  # type: ignore[no-any-return]
        with self._trace.lock:
            at = os.lseek(fd, 0, os.SEEK_CUR)
            done: int = self._real["write"](fd, data)
            self._trace.events.append(Write(node, at, bytes(memoryview(data).cast("B")[:done])))
            return done

    def _copy_file_range(self, source: int, target: int, count: int, *offsets: int) -> int:
        assert len(offsets) <= 1, "copies to an offset are not recorded"
        node = self._of_fd(target)
        with self._trace.lock:
            at = os.lseek(target, 0, os.SEEK_CUR)
            done: int = self._real["copy_file_range"](source, target, count, *offsets)
            if node is not None:
                self._trace.events.append(Write(node, at, os.pread(target, done, at)))
            return done

    def _fsync(self, fd: int) -> None:
        self._sync("fsync", fd)

    def _fdatasync(self, fd: int) -> None:
        self._sync("fdatasync", fd)

    def _sync(self, call: str, fd: int) -> None:
        covers = self._trace.now  # the sync may not cover concurrent writes
        self._real[call](fd)
        node = self._of_fd(fd)
        if node is not None:
            self._trace.events.append(Sync(node, covers, calling_site(3)))

    def _link(
        self,
        source: AnyPath,
        target: AnyPath,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        with self._trace.lock:
            self._real["link"](
                source,
                target,
                src_dir_fd=src_dir_fd,
                dst_dir_fd=dst_dir_fd,
                follow_symlinks=follow_symlinks,
            )
            folder = self._folder(target, dst_dir_fd)
            if folder is not None:
                found = os.stat(target, dir_fd=dst_dir_fd, follow_symlinks=False)
                node = self._trace.find(found)
                assert node is not None, "a link from outside of the root is not recorded"
                self._trace.events.append(Name(folder, _base(target), node))

    def _unlink(self, path: AnyPath, *, dir_fd: int | None = None) -> None:
        self._take("unlink", path, dir_fd)

    def _rmdir(self, path: AnyPath, *, dir_fd: int | None = None) -> None:
        self._take("rmdir", path, dir_fd)

    def _take(self, call: str, path: AnyPath, dir_fd: int | None) -> None:
        with self._trace.lock:
            folder = self._folder(path, dir_fd)
            if folder is None:
                self._real[call](path, dir_fd=dir_fd)
                return
            found = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
            self._real[call](path, dir_fd=dir_fd)
            self._trace.forget(found)
            self._trace.events.append(Name(folder, _base(path), None))

    def _mkdir(self, path: AnyPath, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        with self._trace.lock:
            self._real["mkdir"](path, mode, dir_fd=dir_fd)
            folder = self._folder(path, dir_fd)
            if folder is not None:
                self._made(folder, path, os.stat(path, dir_fd=dir_fd, follow_symlinks=False))

    def _refusal(self, name: str) -> Call:
        real = getattr(os, name)

        def refuse(changed: int | AnyPath, *others: object, **keywords: object) -> object:
            assert not self._touches(changed), f"teach the recorder os.{name} first"
            return real(changed, *others, **keywords)

        return refuse

    def _touches(self, changed: int | AnyPath) -> bool:
        if isinstance(changed, int):
            return self._of_fd(changed) is not None
        return self._folder(changed, None) is not None

    def _made(self, folder: int, path: AnyPath, found: os.stat_result) -> None:
        node = self._trace.new_node(found, _base(path))
        self._trace.events.append(Name(folder, _base(path), node))

    def _folder(self, path: AnyPath, dir_fd: int | None) -> int | None:
        """Returns the recorded folder that contains a path; None if there is none."""
        parent = os.path.dirname(os.fsdecode(path))  # noqa: PTH120 - a string as `os` takes it
        try:
            return self._trace.find(os.stat(parent or ".", dir_fd=dir_fd))
        except OSError:
            return None

    def _of_fd(self, fd: int) -> int | None:
        try:
            found = os.fstat(fd)
        except OSError:
            return None  # the real call raises the error
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            return None
        return self._trace.find(found)


def _base(path: AnyPath) -> str:
    return os.path.basename(os.fsdecode(path))  # noqa: PTH119 - a string as `os` takes it

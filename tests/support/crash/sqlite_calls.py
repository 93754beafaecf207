"""Records the changes that the sqlite library makes to files below a root, through a VFS around the
library's own.

A VFS is the table of functions through which sqlite reaches the operating system
(https://www.sqlite.org/vfs.html). The recorder's VFS is a copy of the default one in which the functions
that change files also record the change. It is registered, as the new default, with the same library that
Python's `sqlite3` is linked to. Connections that were opened meanwhile must be closed before `remove`.

sqlite syncs a folder inside of `xSync` and `xDelete` without a call to its VFS. The recorder detects this
by the system call `openDirectory`, which sqlite makes for no other purpose.

The shared memory of the log (`-shm`) is not recorded: sqlite rebuilds it after a crash.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any, Final

from tests.support.crash.trace import (
    Name,
    NodeKind,
    Sync,
    Trace,
    Truncate,
    Write,
    calling_site,
)

__all__ = ["SqliteCalls", "find_library"]

_OK: Final = 0
_FILE_METHODS: Final = (
    "close", "read", "write", "truncate", "sync", "file_size", "lock", "unlock",
    "check_reserved_lock", "file_control", "sector_size", "device_characteristics",
    "shm_map", "shm_lock", "shm_barrier", "shm_unmap", "fetch", "unfetch",
)  # fmt: skip
_VFS_METHODS: Final = (
    "open", "delete", "access", "full_pathname", "dl_open", "dl_error", "dl_sym", "dl_close",
    "randomness", "sleep", "current_time", "get_last_error", "current_time_int64",
    "set_system_call", "get_system_call", "next_system_call",
)  # fmt: skip

# The name is an address and not a string: sqlite keeps it for as long as the file is open, and a string
# would be passed on as a copy.
_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_Delete = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
_Close = CFUNCTYPE(c_int, c_void_p)
_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)
_OpenDirectory = CFUNCTYPE(c_int, c_char_p, c_void_p)
_SetSystemCall = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)
_GetSystemCall = CFUNCTYPE(c_void_p, c_void_p, c_char_p)


class _Methods(ctypes.Structure):
    """sqlite3_io_methods, version 3."""

    _fields_ = (("version", c_int), *((name, c_void_p) for name in _FILE_METHODS))


class _File(ctypes.Structure):
    """The public head of sqlite3_file."""

    _fields_ = (("methods", POINTER(_Methods)),)


class _Vfs(ctypes.Structure):
    """sqlite3_vfs, version 3."""

    _fields_ = (
        ("version", c_int),
        ("file_bytes", c_int),
        ("pathname_max", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("app_data", c_void_p),
        *((name, c_void_p) for name in _VFS_METHODS),
    )


def find_library() -> ctypes.CDLL | None:
    """Returns the sqlite library that the `sqlite3` module uses; None if its functions cannot be reached (an
    interpreter that has sqlite built in without exporting it).
    """
    extension = getattr(_sqlite3, "__file__", None)  # absent when built into the interpreter
    library = ctypes.CDLL(extension)
    if not hasattr(library, "sqlite3_vfs_register"):
        return None
    library.sqlite3_vfs_find.restype = POINTER(_Vfs)
    library.sqlite3_vfs_find.argtypes = (c_char_p,)
    library.sqlite3_vfs_register.argtypes = (POINTER(_Vfs), c_int)
    library.sqlite3_vfs_unregister.argtypes = (POINTER(_Vfs),)
    return library


class SqliteCalls:
    """Replaces the default VFS of the library while it is installed.

    Args:
        trace: receives the changes; files outside its root are not recorded.
        library: from `find_library`.
    """

    def __init__(self, trace: Trace, library: ctypes.CDLL) -> None:
        self._trace = trace
        self._library = library
        self._default = library.sqlite3_vfs_find(None)
        default: _Vfs = self._default.contents
        assert default.version >= 3, "sqlite is older than 3.7.6"
        self._vfs = _Vfs.from_buffer_copy(default)
        self._vfs.name = b"tarn-crash"
        # Open files by the address of their sqlite3_file, and the tables and functions that sqlite
        # has pointers to: they live as long as this object.
        self._files: dict[int, int] = {}
        self._methods: dict[int, _Methods] = {}
        self._kept: list[object] = []
        self._synced_folders: list[Path] = []
        self._real_open = _Open(default.open)
        self._real_delete = _Delete(default.delete)
        real = _GetSystemCall(default.get_system_call)(self._default, b"openDirectory")
        self._real_open_directory = _OpenDirectory(real)
        self._vfs.open = self._keep(_Open, self._open)
        self._vfs.delete = self._keep(_Delete, self._delete)
        self._open_directory_hook = self._keep(_OpenDirectory, self._open_directory)

    def install(self) -> None:
        """Starts the recording of connections that are opened from now on."""
        self._set_open_directory(self._open_directory_hook)
        assert self._library.sqlite3_vfs_register(ctypes.byref(self._vfs), 1) == _OK

    def remove(self) -> None:
        """Makes sqlite's own VFS the default again.

        Raises:
            AssertionError: a connection is still open; its functions must stay in memory.
        """
        assert not self._files, f"{len(self._files)} files are still open"
        self._set_open_directory(None)
        assert self._library.sqlite3_vfs_register(self._default, 1) == _OK
        assert self._library.sqlite3_vfs_unregister(ctypes.byref(self._vfs)) == _OK

    def _set_open_directory(self, function: int | None) -> None:
        change = _SetSystemCall(self._default.contents.set_system_call)
        assert change(self._default, b"openDirectory", function) == _OK

    def _keep(self, kind: type[Any], function: Callable[..., int]) -> int | None:
        made = kind(function)
        self._kept.append(made)
        return ctypes.cast(made, c_void_p).value

    # sqlite calls these functions in the thread that uses the connection. An exception would be lost
    # there, so they must not raise.

    def _open(self, vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        path = Path(os.fsdecode(ctypes.string_at(name))) if name else None
        folder = self._folder(path) if path else None
        if path is None or folder is None:
            return self._real_open(vfs, name, file, flags, out)  # type: ignore[no-any-return]
        with self._trace.lock:
            existed = path.exists()
            code: int = self._real_open(vfs, name, file, flags, out)
            if code != _OK:
                return code
            found = path.stat()
            node = self._trace.find(found)
            if not existed or node is None:
                node = self._trace.new_node(found, path.name)
                self._trace.events.append(Name(folder, path.name, node))
            self._files[file] = node
            head = _File.from_address(file)
            head.methods = ctypes.pointer(self._wrapped(head.methods))
            return code

    def _wrapped(self, real: ctypes._Pointer[_Methods]) -> _Methods:
        """Returns the table of recording functions for one of the library's own tables."""
        address = ctypes.addressof(real.contents)
        if address not in self._methods:
            made = _Methods.from_buffer_copy(real.contents)
            close, write = _Close(made.close), _Write(made.write)
            truncate, sync = _Truncate(made.truncate), _Sync(made.sync)
            made.close = self._keep(_Close, lambda *a: self._close(close, *a))
            made.write = self._keep(_Write, lambda *a: self._write(write, *a))
            made.truncate = self._keep(_Truncate, lambda *a: self._truncate(truncate, *a))
            made.sync = self._keep(_Sync, lambda *a: self._sync(sync, *a))
            self._methods[address] = made
        return self._methods[address]

    def _close(self, real: Callable[..., int], file: int) -> int:
        self._files.pop(file, None)
        return real(file)

    def _write(self, real: Callable[..., int], file: int, data: int, count: int, at: int) -> int:
        with self._trace.lock:
            code = real(file, data, count, at)
            if code == _OK:
                event = Write(self._files[file], at, ctypes.string_at(data, count))
                self._trace.events.append(event)
            return code

    def _truncate(self, real: Callable[..., int], file: int, size: int) -> int:
        with self._trace.lock:
            code = real(file, size)
            if code == _OK:
                self._trace.events.append(Truncate(self._files[file], size))
            return code

    def _sync(self, real: Callable[..., int], file: int, flags: int) -> int:
        with self._trace.lock:
            covers = self._trace.now
            code = real(file, flags)
            if code == _OK:
                node = self._files[file]
                site = f"sqlite {self._subject(node)} < {calling_site(3)}"
                self._trace.events.append(Sync(node, covers, site))
            self._note_folders(covers)
            return code

    def _subject(self, node: int) -> str:
        """Names the object of a sync; syncs of the log are of three kinds with different reasons."""
        kind = self._trace.nodes[node].kind
        if kind is not NodeKind.LOG:
            return str(kind.value)
        for event in reversed(self._trace.events):
            if event.node == node and isinstance(event, Sync):
                break
            if event.node == node and isinstance(event, Write):
                return "log's header" if event.at == 0 else "log's frames"
        return "log before a checkpoint"

    def _delete(self, vfs: int, name: bytes, sync_folder: int) -> int:
        path = Path(os.fsdecode(name))
        with self._trace.lock:
            folder = self._folder(path)
            found = path.stat() if folder is not None and path.exists() else None
            code: int = self._real_delete(vfs, name, sync_folder)
            if code == _OK and folder is not None and found is not None:
                self._trace.forget(found)
                self._trace.events.append(Name(folder, path.name, None))
            self._note_folders(self._trace.now)
            return code

    def _open_directory(self, name: bytes, out: int) -> int:
        self._synced_folders.append(Path(os.fsdecode(name)).parent)
        return self._real_open_directory(name, out)  # type: ignore[no-any-return]

    def _note_folders(self, covers: int) -> None:
        while self._synced_folders:
            node = self._trace.find(self._synced_folders.pop().stat())
            if node is not None:
                site = f"sqlite folder < {calling_site(4)}"
                self._trace.events.append(Sync(node, covers, site))

    def _folder(self, path: Path) -> int | None:
        with suppress(OSError):
            found = path.parent.stat()
            return self._trace.find(found) if stat.S_ISDIR(found.st_mode) else None
        return None

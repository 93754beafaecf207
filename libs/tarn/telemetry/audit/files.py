"""Files of the audit log: one set for each process, bounded in size, never written by two processes.

A process takes the first set of its service that no other process has locked: `gateway-0.jsonl`, `gateway-1.jsonl`, …
So a restarted process continues the file of the one before, and the number of files stays bounded. A full file is
renamed to `gateway-0.jsonl.1`, the earlier ones move on, and the last one is removed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

__all__ = ["AuditFile"]

_SETS_MAX: Final = 256


class AuditFile:
    """Appends to a set of files. Used by one thread at a time.

    Args:
        folder: made if it does not exist, for its owner only.
        service: first part of the names.
        size_max: bytes at which a file is full; one batch of lines may exceed it.
        files_max: files of the set, the current one included.

    Raises:
        OSError: the folder or file cannot be made or locked.
    """

    def __init__(self, folder: Path, service: str, size_max: int, files_max: int) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._size_max = size_max
        self._files_max = files_max
        self._lock, self.path = _free_set(folder, service)
        try:
            self._open()
        except BaseException:
            os.close(self._lock)
            raise

    def write(self, text: str) -> None:
        """Appends whole lines. After a failure the file has none or all of them.

        Raises:
            OSError: the lines are not written; a later call tries anew.
        """
        data = text.encode()
        if self._size and self._size + len(data) > self._size_max:
            self._rotate()
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        """Closes the file and releases the set."""
        os.close(self._file)
        os.close(self._lock)

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size
        # A process that was killed may have left half a line, which must not swallow the next one.
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            self._size += os.write(self._file, b"\n")

    def _rotate(self) -> None:
        for number in range(self._files_max - 1, 0, -1):
            older = self._numbered(number)
            newer = self._numbered(number - 1) if number > 1 else self.path
            if newer.exists():
                newer.replace(older)
        if self._files_max == 1:
            os.ftruncate(self._file, 0)
            self._size = 0
            return
        before = self._file
        self._open()
        os.close(before)

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _free_set(folder: Path, service: str) -> tuple[int, Path]:
    """Locks the first free set; returns the lock's file descriptor and the path of the current file."""
    for number in range(_SETS_MAX):
        name = f"{service}-{number}"
        lock = os.open(folder / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        except BaseException:
            os.close(lock)
            raise
        else:
            return lock, folder / f"{name}.jsonl"
    text = f"{folder}: {_SETS_MAX} processes of {service} write audit files here already; set another audit.folder"
    raise OSError(text)

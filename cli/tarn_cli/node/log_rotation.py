"""Rotates the log of a detached Tarn, by size and age.

All processes append to one open file, so a full log is copied and emptied, not renamed. Lines that are written between
the last look at the copied size and the truncation are lost: some microseconds' worth.
"""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path
from typing import Final

__all__ = ["LogRotation"]

_TIME: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_HEAD_BYTES: Final = 64 << 10
_COPY_BYTES: Final = 1 << 20


class LogRotation:
    """The limits of one log.

    Args:
        path: the log; earlier ones are `path.1`, `path.2` and so on, the latest first.
        size_max: bytes at which the log is rotated.
        age_max_s: age of its first line at which it is rotated, in seconds.
        files_max: files to keep, the current one included; at least 1.
    """

    def __init__(self, path: Path, size_max: int, age_max_s: float, files_max: int) -> None:
        self._path = path
        self._size_max = size_max
        self._age_max_s = age_max_s
        self._files_max = files_max

    def is_due(self, now_s: float) -> bool:
        """Whether the log is too large or too old.

        Raises:
            OSError: it cannot be read.
        """
        if not self._path.exists():
            return False
        if self._path.stat().st_size >= self._size_max:
            return True
        began_s = self._began_s()
        return began_s is not None and now_s - began_s >= self._age_max_s

    def rotate(self) -> None:
        """Moves the contents of the log to `path.1`, and earlier logs on; removes those beyond the bound.

        Raises:
            OSError: the log stays as it is, if it could not be copied.
        """
        for number in range(self._files_max - 1, 1, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        if self._files_max > 1:
            self._copy(self._numbered(1))
        os.truncate(self._path, 0)

    def _copy(self, target: Path) -> None:
        """Copies until all is copied that was written meanwhile. A failed copy is removed: the disk may be full."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            with (
                self._path.open("rb") as log,
                os.fdopen(os.open(target, flags, 0o600), "wb") as copy,
            ):
                while chunk := log.read(_COPY_BYTES):
                    copy.write(chunk)
        except OSError:
            target.unlink(missing_ok=True)
            raise

    def _began_s(self) -> float | None:
        """Returns the time of the first line that has one, in Unix seconds."""
        with self._path.open("rb") as log:
            found = _TIME.search(log.read(_HEAD_BYTES))
        return None if found is None else datetime.fromisoformat(found[0].decode()).timestamp()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

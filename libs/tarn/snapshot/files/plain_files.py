"""Reads files of a folder that a stranger may have filled: a dump or a backup that was copied here."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["read_plain"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_plain(root: Path, name: str, most: int) -> bytes:
    """Returns a file below a folder. Follows no symbolic link below it, and reads no device, pipe or socket.

    Args:
        root: the folder; it may itself be a link.
        name: relative to it, with slashes.
        most: greatest number of bytes.

    Raises:
        FileNotFoundError: there is none.
        TarnError: CORRUPT: it is longer, or no plain file.
        OSError: it cannot be read.
    """
    *folders, last = name.split("/")
    if not last or any(each in ("", ".", "..") for each in (*folders, last)):
        raise _refused(f"{name!r} names no file below {root}")
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            inner = _open(root, name, folder, _FOLDER, at)
            os.close(at)
            at = inner
        file = _open(root, name, last, _FILE, at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _refused(f"{root / name} is not a plain file")
    with os.fdopen(file, "rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise _refused(f"{root / name} has more than {most} bytes, so Tarn did not write it")
    return data


def _open(root: Path, name: str, segment: str, flags: int, at: int) -> int:
    try:
        return os.open(segment, flags, dir_fd=at)
    except FileNotFoundError:
        raise
    except (NotADirectoryError, IsADirectoryError) as error:
        raise _refused(f"{root / name} is not a plain file in plain folders") from error
    except OSError as error:
        if stat.S_ISLNK(os.stat(segment, dir_fd=at, follow_symlinks=False).st_mode):
            raise _refused(f"{root / name} is or lies behind a symbolic link") from error
        raise


def _refused(text: str) -> TarnError:
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)

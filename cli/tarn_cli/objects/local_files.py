"""The local files of transfers: which ones can be uploaded, and files that are written below a folder.

Paths of objects come from other users. Nothing is written through a symbolic link below the folder, nor over anything
but a regular file: each part of a path is opened relative to the folder before it, and none is followed.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ["FileRefusedError", "files_below", "new_file", "refusal_of", "why"]

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_STOP: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EROFS}
)
"""Errors that every other file would meet, too."""

_KINDS: Final = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class FileRefusedError(Exception):
    """This file cannot be read or written; others can. The text says why."""


def refusal_of(mode: int) -> str:
    """Why a file with this mode is not transferred; empty for a regular file."""
    return next((f"is {name}" for is_kind, name in _KINDS if is_kind(mode)), "")


# ---- reading


def files_below(folder: Path) -> Iterator[tuple[Path, int | str]]:
    """Yields every file below a folder, in order, with its size in bytes, or why it cannot be uploaded.

    A link to a file is its file. A link to a folder is not followed: it may lead in a circle.
    """
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        try:
            if path is folder or stat.S_ISDIR(path.lstat().st_mode):
                waiting += sorted(path.iterdir(), reverse=True)
                continue
            found = path.stat()
        except OSError as error:
            yield path, why(error)
            continue
        refusal = refusal_of(found.st_mode)
        if refusal and path.is_symlink():
            refusal = f"is a symbolic link to {refusal.removeprefix('is ')}"
        yield path, refusal or found.st_size


# ---- writing


@contextmanager
def new_file(folder: Path, parts: list[str]) -> Iterator[BinaryIO]:
    """Opens a file for writing at a path below a folder, whose folders are made; it appears at the end of the block.

    After an error in the block, what was at the path is there as before.

    Args:
        folder: exists, or is made; it may be a symbolic link.
        parts: names of the folders, and of the file.

    Raises:
        FileRefusedError: the file system cannot hold a file of this path, or something else is there.
        OSError: the disk is full, or cannot be written at all.
    """
    if not all(map(_is_name, parts)):
        raise FileRefusedError("has an empty part, `.`, `..` or a zero byte")
    folder.mkdir(parents=True, exist_ok=True)
    partial = f".tarn-{secrets.token_hex(8)}.part"
    with ExitStack() as stack:
        with _refused():
            at = _folder_of(folder, parts[:-1])
            stack.callback(os.close, at)
            _check(parts[-1], at)
            file = os.fdopen(os.open(partial, _NEW, 0o666, dir_fd=at), "wb")
        try:
            with file:
                yield file
            with _refused():
                _check(parts[-1], at)
                os.replace(partial, parts[-1], src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            os.unlink(partial, dir_fd=at)
            raise


def _is_name(part: str) -> bool:
    return part not in {"", ".", ".."} and "/" not in part and "\0" not in part


def _folder_of(folder: Path, names: list[str]) -> int:
    """Opens the folder of a file, and makes those on the way."""
    at = os.open(folder, _FOLDER & ~os.O_NOFOLLOW)
    for name in names:
        try:
            below = _entered(name, at)
        finally:
            os.close(at)
        at = below
    return at


def _entered(name: str, at: int) -> int:
    """Opens a folder in the folder `at`, and makes it if there is none."""
    try:
        os.mkdir(name, dir_fd=at)
    except FileExistsError:
        mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode):
            raise FileRefusedError(
                f"{name} {refusal_of(mode) or 'is a file'}, not a folder"
            ) from None
    return os.open(name, _FOLDER, dir_fd=at)


def _check(name: str, at: int) -> None:
    """Refuses a name at which something else than a regular file is."""
    try:
        refusal = refusal_of(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return
    if refusal:
        raise FileRefusedError(f"there {refusal} in its place")


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _STOP:
            raise
        raise FileRefusedError(why(error)) from error


def why(error: OSError) -> str:
    """The reason of an error of one file, for people."""
    if error.errno == errno.ELOOP:
        return "is a symbolic link in a circle"
    if error.errno == errno.ENOENT:
        return "leads nowhere, or was removed"
    return (error.strerror or str(error)).lower()

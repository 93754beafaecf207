"""Where snapshots are kept. A target holds files by name; each is written once, whole and durable.

Files of one name always have the same content, except for the marks (`marks.py`), whose names are unique.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from tarn.core.errors import Kind, Reason, TarnError
from tarn.snapshot.files.plain_files import read_plain

__all__ = ["FolderTarget", "Target", "missing_error", "new_folder"]

_DRAFT: Final = ".draft-"


def missing_error(name: str, about: str) -> TarnError:
    """The error for a file that a target does not hold."""
    text = f"{name} is missing in {about}"
    return TarnError(Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, text)


class Target(Protocol):
    """A place for snapshots. Errors are `TarnError`s of the store, or `OSError`."""

    @property
    def about(self) -> str:
        """The place, for people; without secrets."""
        ...

    async def put(self, name: str, data: bytes) -> None:
        """Writes a file. It is whole and durable on return, and never visible in part."""
        ...

    async def read(self, name: str, most: int) -> bytes:
        """Returns a file. Raises `TarnError` NOT_FOUND if there is none, CORRUPT if it has more bytes than `most`."""
        ...

    async def has(self, name: str) -> bool:
        """Whether there is a file of this name with at least one byte."""
        ...

    def files(self, folder: str) -> AsyncIterator[str]:
        """Yields the names of all files below a folder, which has no slash at its end; in no order."""
        ...

    async def delete(self, names: Sequence[str]) -> None:
        """Removes files; absent ones are no error."""
        ...

    async def close(self) -> None:
        """Releases the target. Idempotent."""
        ...


class FolderTarget:
    """Snapshots in a folder of a file system. Files have mode 0600, folders 0700."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def about(self) -> str:
        """See `Target`."""
        return str(self._path)

    async def put(self, name: str, data: bytes) -> None:
        """See `Target`."""
        await asyncio.to_thread(self._put, name, data)

    async def read(self, name: str, most: int) -> bytes:
        """See `Target`. CORRUPT also if it is no plain file, or lies behind a symbolic link."""
        try:
            return await asyncio.to_thread(read_plain, self._path, name, most)
        except FileNotFoundError:
            raise missing_error(name, self.about) from None

    async def has(self, name: str) -> bool:
        """See `Target`."""
        return await asyncio.to_thread(_is_filled, self._path / name)

    async def files(self, folder: str) -> AsyncIterator[str]:
        """See `Target`. Leaves out drafts that a crash left behind."""
        for name in await asyncio.to_thread(self._names, folder):
            yield name

    async def delete(self, names: Sequence[str]) -> None:
        """See `Target`. Removes folders that are empty then, too."""
        await asyncio.to_thread(self._delete, names)

    async def close(self) -> None:
        """See `Target`."""

    def _put(self, name: str, data: bytes) -> None:
        path = self._path / name
        _make_folders(path.parent)
        draft = path.with_name(f"{_DRAFT}{os.getpid()}-{path.name}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
        _sync(path.parent)

    def _names(self, folder: str) -> list[str]:
        root = self._path / folder
        return [
            path.relative_to(self._path).as_posix()
            for path in root.rglob("*")
            if not path.is_symlink() and path.is_file() and not path.name.startswith(_DRAFT)
        ]

    def _delete(self, names: Sequence[str]) -> None:
        for name in names:
            path = self._path / name
            path.unlink(missing_ok=True)
            try:
                path.parent.rmdir()
            except OSError:
                continue  # it holds other files


_OURS: Final = frozenset(("content", "prunes", "installation", "store", "repository"))
"""What lies in a folder of snapshots."""


def new_folder(path: Path) -> FolderTarget:
    """Returns the target of a snapshot that a user asked for by its place, which may have snapshots already.

    Raises:
        TarnError: FAILED_PRECONDITION: the folder holds something else.
        OSError: the folder cannot be read.
    """
    try:
        others = sorted(each.name for each in path.iterdir() if each.name not in _OURS)
    except FileNotFoundError:
        others = []
    if others:
        text = f"{path} is not empty: it holds {others[0]!r}, which Tarn did not write; name another folder"
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
    return FolderTarget(path)


def _is_filled(path: Path) -> bool:
    try:
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and found.st_size > 0
    except FileNotFoundError:
        return False


def _make_folders(folder: Path) -> None:
    """Makes a folder and its parents, each durable in its parent."""
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Translates errors of the file system and of sqlite into `TarnError`s."""

from __future__ import annotations

import errno
import sqlite3
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["Faults", "from_os", "from_sqlite"]

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_TOO_MANY: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_IN_THE_WAY: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR})


def from_os(error: OSError, doing: str) -> TarnError:
    """Returns the error for callers; `doing` names the failed action and its block path."""
    code = errno.errorcode.get(error.errno or 0, "unknown")
    if error.errno in _FULL:
        text = f"{doing}: the disk is full ({code})"
        return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text, errno=code)
    if error.errno in _TOO_MANY:
        text = f"{doing}: out of descriptors or memory ({code})"
        return TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text, errno=code)
    if error.errno in _FORBIDDEN:
        text = f"{doing}: the process has no permission in the store's directory ({code})"
        return TarnError(Kind.INTERNAL, Reason.INTERNAL, text, errno=code)
    if error.errno in _IN_THE_WAY:
        text = f"{doing}: a symbolic link, file or directory is in the way ({code})"
        return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, errno=code)
    text = f"{doing}: {error.strerror or error} ({code})"
    return TarnError(Kind.INTERNAL, Reason.INTERNAL, text, errno=code)


def from_sqlite(error: sqlite3.Error, doing: str) -> TarnError:
    """Like `from_os`, for the sqlite file. A failed transaction was rolled back: it was not applied."""
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
    name: str = getattr(error, "sqlite_errorname", type(error).__name__)
    text = f"{doing}: {error} ({name})"
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, sqlite=name)
    if code in {sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}:
        return TarnError(Kind.INTERNAL, Reason.INTERNAL, text, sqlite=name)
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text, sqlite=name)


class Faults:
    """A context manager that turns system errors into `TarnError`s.

    Args:
        doing: completes the sentence "cannot ...", e.g. `write block data/x`.
    """

    __slots__ = ("_doing",)

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise from_os(error, f"cannot {self._doing}") from error
        if isinstance(error, sqlite3.Error):
            raise from_sqlite(error, f"cannot {self._doing}") from error

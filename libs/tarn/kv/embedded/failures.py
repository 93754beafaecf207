"""The meaning of a sqlite error for the caller: not applied, unknown outcome, or a damaged file.

A transaction that fails before its COMMIT is rolled back: the error is UNAVAILABLE and the write may be
sent again. COMMIT itself may fail after its frames have reached the log. The transaction is then invisible,
but a crash before the next transaction in the log would bring it back, because recovery accepts any
complete frame with a valid checksum. Only two failures of COMMIT exclude that: no space (the frame that
marks the end of the transaction is written last) and a lock that was not acquired. All others are
`OutcomeUnknownError`, and the writer fences (see transaction_writer.py).
"""

from __future__ import annotations

import sqlite3

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import OutcomeUnknownError

__all__ = ["commit_error", "is_damage", "not_begun_error", "read_error", "rolled_back_error"]

_PRIMARY = 0xFF  # the low byte of an extended error code is its primary code
_DAMAGE = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT))
_SURELY_NOT_COMMITTED = frozenset(
    (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY)
)


def _primary_code(error: sqlite3.Error) -> int:
    # Errors that the Python module raises itself carry no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY


def _text(error: sqlite3.Error) -> str:
    return f"{error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file's bytes are damaged or are not a sqlite file."""
    return _primary_code(error) in _DAMAGE


def read_error(error: sqlite3.Error) -> TarnError:
    """The error for a failed read: CORRUPT if the file is damaged, else UNAVAILABLE."""
    return _failed("read", error)


def rolled_back_error(error: sqlite3.Error) -> TarnError:
    """The error for a transaction that failed before its COMMIT; nothing of it was applied."""
    return _failed("write (rolled back)", error)


def not_begun_error(why: str) -> TarnError:
    """The error (UNAVAILABLE) for a write whose transaction has not begun and never will."""
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, f"not written: {why}")


def commit_error(error: sqlite3.Error) -> TarnError:
    """The error for a failed COMMIT: `OutcomeUnknownError`, unless sqlite's code rules out that it landed."""
    if _primary_code(error) in _SURELY_NOT_COMMITTED:
        return rolled_back_error(error)
    return OutcomeUnknownError(f"COMMIT failed: {_text(error)}")


def _failed(what: str, error: sqlite3.Error) -> TarnError:
    if is_damage(error):
        text = f"the store's file is damaged, {what} failed: {_text(error)}"
        return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    text = f"{what} failed: {_text(error)}"
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)

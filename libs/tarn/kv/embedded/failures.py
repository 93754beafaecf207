"""What a sqlite error means for the caller: surely not applied, unknown, or damage.

A transaction that failed before its COMMIT is rolled back: UNAVAILABLE, sent again at will. A COMMIT
itself may fail after its frames have reached the log: then the transaction is invisible now, but a
crash before the log's next commit would bring it back (recovery believes any complete, checksummed
frame). Only two COMMIT failures exclude that: no space (the frame that commits is the last one
written) and a lock that was not had. All others are `OutcomeUnknownError`, and the writer fences.
"""

from __future__ import annotations

import sqlite3

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import OutcomeUnknownError

__all__ = ["commit_error", "is_damage", "not_begun_error", "read_error", "rolled_back_error"]

_PRIMARY = 0xFF  # an extended code keeps its primary code in the low byte
_DAMAGE = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT))
_SURELY_NOT_COMMITTED = frozenset(
    (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY)
)


def _primary_code(error: sqlite3.Error) -> int:
    # Errors that the Python module raises by itself carry no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY


def _text(error: sqlite3.Error) -> str:
    return f"{error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file's bytes are broken or are no sqlite file at all."""
    return _primary_code(error) in _DAMAGE


def read_error(error: sqlite3.Error) -> TarnError:
    """A read failed: CORRUPT if the file is damaged, else UNAVAILABLE."""
    return _failed("read", error)


def rolled_back_error(error: sqlite3.Error) -> TarnError:
    """A transaction failed before its COMMIT: nothing of it was applied."""
    return _failed("write (rolled back)", error)


def not_begun_error(why: str) -> TarnError:
    """A write was given up before its transaction began: UNAVAILABLE."""
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, f"not written: {why}")


def commit_error(error: sqlite3.Error) -> TarnError:
    """A COMMIT failed: `OutcomeUnknownError`, unless sqlite's answer rules out that it landed."""
    if _primary_code(error) in _SURELY_NOT_COMMITTED:
        return rolled_back_error(error)
    return OutcomeUnknownError(f"commit failed: {_text(error)}")


def _failed(what: str, error: sqlite3.Error) -> TarnError:
    if is_damage(error):
        text = f"the store's file is damaged, {what} failed: {_text(error)}"
        return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    text = f"{what} failed: {_text(error)}"
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)

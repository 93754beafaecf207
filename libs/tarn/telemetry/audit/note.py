"""The facts about a call that the code inside of it notes for the audit log.

The server of a call makes the note before it runs the handler and reads it afterwards. Checks of permissions note who
the caller is and which resource was checked. Without an audit log, and for calls within the process, there is no
note, and noting costs one look at a context variable.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from tarn.core.errors import TarnError

__all__ = ["NOTE", "AuditNote", "note_item", "note_principal", "note_resource"]

NOTE: Final[ContextVar[AuditNote | None]] = ContextVar("tarn_audit_note", default=None)
"""The note of the call that this task works for; None: it is not recorded."""


class AuditNote:
    """Facts about one call.

    Attributes:
        principal: the verified user; empty if unknown.
        resource: the last resource on which the caller was allowed something; empty if none was checked.
        items: of a call about several resources: each with its error, or None.
    """

    __slots__ = ("items", "principal", "resource")

    def __init__(self) -> None:
        self.principal = ""
        self.resource = ""
        self.items: list[tuple[str, TarnError | None]] = []


def note_principal(user_id: str) -> None:
    """Notes the caller; only after its identity was verified."""
    if (note := NOTE.get()) is not None:
        note.principal = user_id


def note_resource(resource: str) -> None:
    """Notes a resource on which the caller was allowed something."""
    if (note := NOTE.get()) is not None:
        note.resource = resource


def note_item(resource: str, error: TarnError | None) -> None:
    """Notes one of several resources of a call, and its error; each becomes a record of its own."""
    if (note := NOTE.get()) is not None:
        note.items.append((resource, error))

"""The condition of a write: HTTP's If-None-Match and If-Match, as S3 applies them to writes.

A condition is decided together with the write (docs/design/protocol.md, rule 3), never before it: between a
separate check and the write, another write could change the object.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.entry import etag_of, is_tombstone
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["ANY", "UNCONDITIONAL", "WriteCondition"]

ANY = "*"
"""The If-Match that is true for any existing object."""


@dataclass(frozen=True, slots=True)
class WriteCondition:
    """A condition on a path for a write to happen; at most one of the two is set.

    Attributes:
        if_none_match: the path must hold no object.
        if_match: the path's object must have this ETag (without quotes); `ANY` accepts any object.
    """

    if_none_match: bool = False
    if_match: str = ""

    def __bool__(self) -> bool:
        return self.if_none_match or bool(self.if_match)

    def check(self, path: str, newest: bytes | None) -> None:
        """Raises an error unless the newest row of the path satisfies the condition.

        Args:
            path: for the error's text.
            newest: packed entry of the newest row; a tombstone or None if there is no object.

        Raises:
            TarnError: FAILED_PRECONDITION/PRECONDITION_FAILED, with the object's ETag.
                NOT_FOUND/ENTRY_NOT_FOUND, as in S3, if an ETag is required and there is no object.
        """
        if newest is None or is_tombstone(newest):
            if self.if_match:
                text = f"{path} does not exist, so no If-Match can hold"
                raise TarnError(Kind.NOT_FOUND, Reason.ENTRY_NOT_FOUND, text, path=path)
            return
        etag = etag_of(newest)
        if self.if_match in (ANY, etag):
            return
        wanted = "not to exist" if self.if_none_match else f"to have the ETag {self.if_match[:80]}"
        text = f"{path} was expected {wanted}"
        reason = Reason.PRECONDITION_FAILED
        raise TarnError(Kind.FAILED_PRECONDITION, reason, text, path=path, etag=etag)


UNCONDITIONAL = WriteCondition()

"""The condition of a write: HTTP's If-None-Match and If-Match, as S3 reads them for writes.

A condition is decided together with the write (docs/design/protocol.md, rule 3), never before it: between a look and a
write of its own somebody else's write would fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.entry import etag_of, is_tombstone
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["ANY", "UNCONDITIONAL", "WriteCondition"]

ANY = "*"
"""The If-Match that any object satisfies."""


@dataclass(frozen=True, slots=True)
class WriteCondition:
    """What must be true of a path for a write to happen; at most one of the two is set.

    Attributes:
        if_none_match: only if there is no object.
        if_match: only if the object has this ETag (without quotes), or `ANY`.
    """

    if_none_match: bool = False
    if_match: str = ""

    def __bool__(self) -> bool:
        return self.if_none_match or bool(self.if_match)

    def check(self, path: str, newest: bytes | None) -> None:
        """Decides by the newest row of the path.

        Args:
            path: for the error's text.
            newest: its packed entry; a tombstone or None if there is no object.

        Raises:
            TarnError: FAILED_PRECONDITION/PRECONDITION_FAILED with the ETag that is there;
                NOT_FOUND/ENTRY_NOT_FOUND if an ETag is asked for and there is no object, as S3 answers.
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

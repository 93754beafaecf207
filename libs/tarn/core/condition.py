"""The condition of a write or a delete: HTTP's If-None-Match and If-Match, as S3 applies them, and those that S3 adds
for deletes.

A condition is decided together with the write (docs/design/protocol.md, rule 3), never before it: between a
separate check and the write, another write could change the object.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.entry import etag_of, identity_of, is_tombstone, shown_time_us, unpack_head
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["ANY", "UNCONDITIONAL", "WriteCondition", "identity_match"]

ANY = "*"
"""The If-Match that is true for any existing object."""
_IDENTITY = "identity:"
"""How the If-Match of an identity begins. No ETag has a colon."""


def identity_match(packed: bytes) -> str:
    """Returns the If-Match that is true for a packed entry and all others of its identity.

    An ETag does not tell an object from one of the same bytes with other metadata or tags. It is a form of If-Match,
    and no condition of its own, because a server that does not know it must refuse the write, not ignore the condition.
    """
    return _IDENTITY + identity_of(packed).hex()


@dataclass(frozen=True, slots=True)
class WriteCondition:
    """A condition on a path for a write to happen. All that are set must hold; `if_none_match` stands alone.

    Attributes:
        if_none_match: the path must hold no object.
        if_match: the path's object must have this ETag (without quotes), or the identity of `identity_match`; `ANY`
            accepts any object.
        size_bytes: of a delete: an object of the path must have this size.
        mtime_s: of a delete: an object of the path must have this modification time, in whole seconds since the
            epoch, as Last-Modified shows it.
    """

    if_none_match: bool = False
    if_match: str = ""
    size_bytes: int | None = None
    mtime_s: int | None = None

    def __bool__(self) -> bool:
        if self is UNCONDITIONAL:  # nearly always
            return False
        return self.if_none_match or bool(self.if_match) or self.is_for_deletes

    @property
    def is_for_deletes(self) -> bool:
        """Whether it asks for what only deletes may ask for."""
        return self.size_bytes is not None or self.mtime_s is not None

    @property
    def names_identity(self) -> bool:
        """Whether it asks for an object of one identity, and not only of one ETag."""
        return self.if_match.startswith(_IDENTITY)

    def check(self, path: str, newest: bytes | None) -> None:
        """Raises an error unless the newest row of the path satisfies the condition.

        Without an object, If-Match fails; a size or a time alone does not, as in S3: there is nothing that the delete
        could wrongly remove.

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
        wanted = self._wanted(newest, etag)
        if wanted:
            text = f"{path} was expected {wanted}"
            reason = Reason.PRECONDITION_FAILED
            raise TarnError(Kind.FAILED_PRECONDITION, reason, text, path=path, etag=etag)

    def _wanted(self, newest: bytes, etag: str) -> str:
        """Returns which condition an object breaks; empty if it satisfies all of them."""
        if self.if_none_match:
            return "not to exist"
        if self.names_identity:
            if self.if_match != identity_match(newest):
                return f"to have the {self.if_match[:80]}"
        elif self.if_match not in ("", ANY, etag):
            return f"to have the ETag {self.if_match[:80]}"
        _, _, size, mtime_us, *_ = unpack_head(newest)
        if self.size_bytes not in (None, size):
            return f"to have {self.size_bytes} bytes"
        if self.mtime_s not in (None, shown_time_us(mtime_us) // 1_000_000):
            return f"to be of {self.mtime_s} seconds since 1970"
        return ""


UNCONDITIONAL = WriteCondition()

"""What a file of events says of itself: the pass, and for each branch its record and tokens.

It is JSON in the metadata of the Parquet file. Readers ignore fields that they do not know.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

__all__ = [
    "DAMAGE_MAX",
    "FOOTER_BYTES_MAX",
    "FOOTER_KEY",
    "BranchFooter",
    "Footer",
    "PartFooter",
    "TokenFooter",
    "decode_footer",
]

FOOTER_KEY: Final = b"tarn.journal"
FOOTER_BYTES_MAX: Final = 512 << 10
"""Bytes of the JSON; some 3,000 branches. A drain writes a pass over more of them as several passes."""
DAMAGE_MAX: Final = 200
"""Characters of `BranchFooter.damage`."""
_INT_MAX: Final = (1 << 63) - 1

_Count = Annotated[int, msgspec.Meta(ge=0, le=_INT_MAX)]
_Number = Annotated[int, msgspec.Meta(ge=1, le=9_999_999_999)]
_Hex32 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class TokenFooter(msgspec.Struct, frozen=True):
    """A token in a pass.

    Attributes:
        token_id: of the token.
        events: rows of it in the files of this pass.
        drained: rows of it in all files of this holder so far, with this pass, and with repetitions.
        is_over: it was over when the pass began: this was its last scan.
    """

    token_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    events: _Count
    drained: _Count
    is_over: bool = False


class BranchFooter(msgspec.Struct, frozen=True):
    """A branch in a pass.

    Attributes:
        branch: its name.
        order: of the newest record that the pass saw, also if its event is in an earlier file; 0: it saw none.
        tokens: that the record names, newest first; those that it named earlier in the pass; those that are over.
        is_unsettled: the record changed in each of 16 passes: a rebuild may show rows that another row hid.
        damage: why its record or one of its events cannot be read: later changes of it may be in no file. Absent
            from the JSON of other branches.
    """

    branch: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    order: _Count
    tokens: tuple[TokenFooter, ...] = ()
    is_unsettled: bool = False
    damage: (
        Annotated[str, msgspec.Meta(min_length=1, max_length=DAMAGE_MAX)] | msgspec.UnsetType
    ) = msgspec.UNSET


class PartFooter(msgspec.Struct, frozen=True):
    """An earlier file of the same pass."""

    number: _Number
    sha256: _Sha256


class Footer(msgspec.Struct, frozen=True):
    """A file of events. The fields from `parts` on are those of the whole pass, and are in its last file only.

    Attributes:
        format: always "tarn journal".
        version: of the format.
        epoch: number of the epoch.
        holder: 32 hex digits.
        number: of the file.
        sha256: of this JSON with an empty `sha256`, and of the rows (`tarn.journal.files.digest_of`).
        begin_time_us: when the pass began: what was acknowledged before, of the branches here, is in this file or in
            an earlier one. Microseconds since the epoch.
        is_last: whether this file ends its pass. Others count only when the last one names them.
        parts: the other files of the pass.
        records: rows of records in the files of this pass.
        drained_records: rows of records in all files of this holder so far, with this pass.
        is_full: the pass read all events of all tokens, also those of ten minutes before the last pass and earlier.
        branches: each branch of the pass, sorted by its name.
        until_us: what was acknowledged before, of the whole repository, is in this file or in an earlier one;
            microseconds since the epoch. 0: the pass read some branches only, as the last scan of a token does.
    """

    format: Annotated[str, msgspec.Meta(pattern="^tarn journal$")]
    version: Annotated[int, msgspec.Meta(ge=1, le=1)]
    epoch: _Number
    holder: _Hex32
    number: _Number
    sha256: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""
    begin_time_us: _Count = 0
    is_last: bool = True
    parts: tuple[PartFooter, ...] = ()
    records: _Count = 0
    drained_records: _Count = 0
    is_full: bool = False
    branches: tuple[BranchFooter, ...] = ()
    until_us: _Count = 0

    def encoded(self) -> bytes:
        """Returns its JSON; the same for equal footers."""
        return msgspec.json.encode(self, order="deterministic")


def decode_footer(body: bytes) -> Footer:
    """Returns what a file says of itself.

    Raises:
        ValueError: it cannot be read.
    """
    if len(body) > FOOTER_BYTES_MAX:
        raise ValueError(
            f"what it says of itself has {len(body)} bytes, more than {FOOTER_BYTES_MAX}"
        )
    try:
        return msgspec.json.decode(body, type=Footer)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"what it says of itself: {error}") from error

"""Parts of a branch record: staging tokens and pins (`tarn.core.branch`).

`unknown_fields`: see `tarn.kv.unknown_fields`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tarn.core.ids import MetarangeId, TokenId

__all__ = ["Pin", "Token", "TokenKind"]


class TokenKind(enum.Enum):
    """How the rows of a staging token are written."""

    PLAIN = "plain"
    CONDITIONAL = "conditional"


@dataclass(frozen=True, slots=True)
class Token:
    """A staging token: the partition that takes, or took, a branch's writes. Its id is never reused."""

    token_id: TokenId
    kind: TokenKind
    buckets: int
    create_time_us: int
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pin:
    """A compacted listing that is about to be published: a root of collections (rule 13).

    Attributes:
        pin_id: a new one for each build: two may make the same listing, which may be unpinned in between.
        metarange_id: the listing.
    """

    pin_id: bytes
    metarange_id: MetarangeId
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

"""Strategies of a merge that refuse no conflict."""

from __future__ import annotations

from typing import Final

from tarn.core.listing.choice import Choice, Side

__all__ = ["DEST_WINS", "SOURCE_WINS"]

SOURCE_WINS: Final = Choice(Side.SOURCE)
DEST_WINS: Final = Choice(Side.DEST)

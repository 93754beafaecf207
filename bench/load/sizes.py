"""Sizes that several modules share, in bytes."""

from __future__ import annotations

from typing import Final

__all__ = ["BULK_BYTES", "GIB", "KIB", "MIB"]

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
BULK_BYTES: Final = 64 * MIB
"""A large object."""

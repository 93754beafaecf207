"""Numbers of bytes as texts for people, the same on the terminal, on pages and in reports."""

from __future__ import annotations

from typing import Final

__all__ = ["shown_size"]

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def shown_size(size_bytes: int) -> str:
    """Returns a number of bytes with a binary unit, and one decimal above 1023 bytes: `1.5 KiB`."""
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{size_bytes} B"

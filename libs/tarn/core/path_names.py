"""Names paths in the text of an error: few enough, short enough and printable, because clients choose them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["NAMED_PATHS_MAX", "named_paths"]

NAMED_PATHS_MAX = 10
"""Most paths that one text names."""
_PATH_CHARS_MAX = 400
_BYTES_MAX = 2000
"""Bytes after which no further path is named: an error crosses the wire whole up to 4 KiB (`tarn.rpc.wire.errors`)."""


def named_paths(paths: Sequence[str], count: int) -> str:
    """Returns the first paths with commas between them, and `…` at the end if there are more.

    A path with characters that cannot be printed is quoted and escaped; a very long one is cut.

    Args:
        paths: the first paths, at least one.
        count: number of all paths.
    """
    shown: list[str] = []
    size = 0
    for path in paths[:NAMED_PATHS_MAX]:
        text = path if len(path) <= _PATH_CHARS_MAX else path[:_PATH_CHARS_MAX] + "…"
        text = text if text.isprintable() else repr(text)
        size += len(text.encode())
        if shown and size > _BYTES_MAX:
            break
        shown.append(text)
    return ", ".join(shown) + (", …" if count > len(shown) else "")

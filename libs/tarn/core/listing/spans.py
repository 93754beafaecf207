"""Intervals of paths, in the order of listings: by code points, which is the order of UTF-8 bytes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PathSpan", "path_after", "prefix_end"]

_LAST = chr(0x10FFFF)


def prefix_end(prefix: str) -> str | None:
    """The smallest string greater than every string that starts with `prefix`; None if there is none.

    Compares by code points, which is the order of UTF-8 bytes. Surrogates cannot occur in a path.
    """
    text = prefix.rstrip(_LAST)
    if not text:
        return None
    last = ord(text[-1]) + 1
    return text[:-1] + chr(0xE000 if last == 0xD800 else last)


def path_after(path: str) -> str:
    """The smallest string greater than `path`."""
    return path + "\0"


@dataclass(frozen=True, slots=True)
class PathSpan:
    """The paths from `start` (inclusive) to `end` (exclusive; None: no bound), in byte order."""

    start: str
    end: str | None

    @classmethod
    def of_prefix(cls, prefix: str) -> PathSpan:
        """The paths that start with a prefix."""
        return cls(prefix, prefix_end(prefix))

    @classmethod
    def of_path(cls, path: str) -> PathSpan:
        """One path."""
        return cls(path, path_after(path))

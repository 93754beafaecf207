"""Minimises inputs that fail."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["minimised"]


def minimised(data: bytes, fails: Callable[[bytes], bool], tries_max: int) -> bytes:
    """Removes pieces, halves first, while the rest still fails; then replaces bytes by plain ones.

    Args:
        data: an input that fails.
        fails: whether an input fails in the same way.
        tries_max: greatest number of calls of `fails`.
    """
    tries = 0
    size = max(1, len(data) // 2)
    while tries < tries_max:
        at, shrunk = 0, False
        while at < len(data) and tries < tries_max:
            smaller = data[:at] + data[at + size :]
            tries += 1
            if fails(smaller):
                data, shrunk = smaller, True
            else:
                at += size
        if size == 1 and not shrunk:
            break
        size = max(1, size // 2) if not shrunk or size > len(data) // 2 else size
    at = 0
    while at < len(data) and tries < tries_max:
        if data[at] != ord("0"):
            plainer = data[:at] + b"0" + data[at + 1 :]
            tries += 1
            if fails(plainer):
                data = plainer
        at += 1
    return data

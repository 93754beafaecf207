r"""Texts of other users for people's eyes: on a terminal and on pages.

Paths, messages, metadata and texts of errors come from other users. A line break in one would forge a line of output,
an escape sequence would drive the reader's terminal, and a mark of direction would show another name than the one that
is there. So they are shown as escapes: `\n`, `\x1b`, `\u202e`.
"""

from __future__ import annotations

import re

__all__ = ["printable"]

_UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters: C0, DEL and C1
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # direction, invisible characters, line separators
    "\ufff9-\ufffb\U000e0000-\U000e007f"  # annotations, tags
    "\ud800-\udfff"  # lone surrogates have no encoding
    "]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """Returns the text on one line: what drives a terminal, or changes the direction or order of what a reader sees, is
    shown as an escape."""
    if text.isascii() and text.isprintable():
        return text  # none of the characters is among them, which a look at each takes eight times as long to say
    return _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    code = ord(char)
    wide = f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return _SHORT.get(char) or (f"\\x{code:02x}" if code <= 0xFF else wide)

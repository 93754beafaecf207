"""RFC 2047 encoded words in user metadata.

S3 keeps Unicode in metadata, takes it as encoded words, and returns it in that form. What only looks like an
encoded word (an unknown charset, bytes that the charset does not have, a word glued to other text) is plain
text, and comes back as it was sent.
"""

from __future__ import annotations

import base64
import re
from itertools import groupby
from operator import itemgetter
from typing import Final
from urllib.parse import unquote_to_bytes

__all__ = ["decode_words", "encode_words"]

_WORD: Final = re.compile(r"=\?([^?\s]+)\?([bBqQ])\?([^?\s]*)\?=", re.ASCII)
_RUN: Final = re.compile(rf"(?<!\S){_WORD.pattern}(?:[ \t]+{_WORD.pattern})*(?!\S)", re.ASCII)
"""Blanks between words are not part of the text (RFC 2047 §6.2)."""
_QUOTED: Final = re.compile(r"(?:[!-<>-~]|=[0-9A-Fa-f]{2})*", re.ASCII)
_PRINTABLE: Final = re.compile(r"(?:[!-~](?:[ -~\t]*[!-~])?)?", re.ASCII)
"""Blanks at the ends are not part of a header's value, so they need a word."""
_DECODED_CHARACTERS_MAX: Final = 8 * 1024
"""More than metadata may have in any form."""
_NO_CHARSETS: Final = frozenset({"punycode", "idna"})
"""Python's codecs for names of hosts: no charsets, and slow."""


def decode_words(text: str) -> str:
    """Returns a text with its encoded words decoded; a word that cannot be decoded stays as it is."""
    if "=?" not in text or len(text) > _DECODED_CHARACTERS_MAX:
        return text
    return _RUN.sub(lambda run: _decoded(run.group()), text)


def encode_words(text: str) -> str:
    """Returns a header value that `decode_words` turns into the text: the text itself if that is possible."""
    if _PRINTABLE.fullmatch(text) and decode_words(text) == text:
        return text
    return f"=?UTF-8?B?{base64.b64encode(text.encode()).decode('ascii')}?="


def _decoded(run: str) -> str:
    words = [
        (charset.lower().partition("*")[0], _bytes(form, data))
        for charset, form, data in _WORD.findall(run)
    ]
    if any(data is None or charset in _NO_CHARSETS for charset, data in words):
        return run
    try:
        # A character may be cut in two between words of one charset: clients cut at a number of bytes.
        text = "".join(
            b"".join(data or b"" for _, data in group).decode(charset)
            for charset, group in groupby(words, key=itemgetter(0))
        )
        text.encode()  # UTF-7 and others can spell lone surrogates
    except (LookupError, ValueError):
        return run
    return text


def _bytes(form: str, data: str) -> bytes | None:
    """Returns the bytes of a word; None if they are not well-formed."""
    if form in "qQ":
        if not _QUOTED.fullmatch(data):
            return None
        return unquote_to_bytes(data.replace("%", "%25").replace("=", "%").replace("_", " "))
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return None

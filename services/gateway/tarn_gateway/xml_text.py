"""Text in XML 1.0 documents.

XML 1.0 cannot hold most control characters at all, not even as references. S3 writes them as character
references anyway, which strict parsers refuse; its way out for clients is `encoding-type=url`. Here they
become U+FFFD: a listing that holds one odd key stays readable to everybody, and the key itself is had
with `encoding-type=url`. CR is written as a reference, because a parser would turn it into LF.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["escape", "escape_all", "url_encode", "url_encode_all"]

_SPECIAL: Final = re.compile("[&<>\"'\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_NAMED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "\r": "&#13;"}


def _replace(match: re.Match[str]) -> str:
    return _NAMED.get(match.group(), "\ufffd")


def escape(text: str) -> str:
    """Element content or attribute value that stands for `text`."""
    # Most text is plain, and seven scans in C cost half of one search with a regular expression.
    if (
        text.isascii()
        and text.isprintable()
        and "&" not in text
        and "<" not in text
        and ">" not in text
        and '"' not in text
        and "'" not in text
    ):
        return text
    return _SPECIAL.sub(_replace, text)


_PLAIN: Final = bytes(byte for byte in range(0x20, 0x7F) if chr(byte) not in _NAMED)


def escape_all(texts: Sequence[str]) -> Sequence[str]:
    """`escape` of each text; plain ones are looked at all at once."""
    together = "".join(texts)
    if together.isascii() and not together.encode().translate(None, _PLAIN):
        return texts
    return [escape(text) for text in texts]


_CODES: Final = tuple(f"%{byte:02X}" for byte in range(256))
_ODD: Final = re.compile(r"[^A-Za-z0-9\-._~/*]+")


def _percent(match: re.Match[str]) -> str:
    return "".join([_CODES[byte] for byte in match.group().encode("utf-8", "surrogatepass")])


def url_encode(text: str) -> str:
    """A key as `encoding-type=url` wants it, `/` and `*` kept.

    A space is `%20` and a plus `%2B`, which reads the same to clients that take `+` for a space (as
    S3 writes it) and to those that do not.
    """
    return _ODD.sub(_percent, text)


_KEPT: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/*"


def url_encode_all(texts: Sequence[str]) -> Sequence[str]:
    """`url_encode` of each text; in a page of ASCII each character that is not kept is replaced in all
    of them at once."""
    together = "\n".join(texts)
    if not together.isascii() or together.count("\n") != len(texts) - 1:
        return [url_encode(text) for text in texts]
    odd = set(together.encode().translate(None, _KEPT + b"\n%"))
    # The percent sign before those that put one in.
    for byte in (ord("%"), *odd):
        together = together.replace(chr(byte), _CODES[byte])
    return together.split("\n")

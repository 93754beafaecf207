"""Text in XML 1.0 documents.

XML 1.0 cannot hold most control characters at all, not even as references. S3 writes them as character
references anyway, which strict parsers refuse; its way out for clients is `encoding-type=url`. Here they
become U+FFFD: a listing that holds one odd key stays readable to everybody, and the key itself is had
with `encoding-type=url`. CR is written as a reference, because a parser would turn it into LF.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["escape", "url_encode"]

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

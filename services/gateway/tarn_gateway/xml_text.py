"""Escapes text for XML 1.0 documents.

XML 1.0 cannot contain most control characters, not even as references. S3 writes them as character
references anyway, which strict parsers refuse; clients can avoid them with `encoding-type=url`. Here they
become U+FFFD, so a listing with such a key stays readable for all clients, and `encoding-type=url` returns
the exact key. CR is written as a reference, because a parser would turn it into LF.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["escape", "escape_all", "url_encode", "url_encode_all"]

_NAMED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "\r": "&#13;"}
_CONTROLS: Final = bytes(
    0 if byte < 0x20 and byte not in b"\t\n\r" else byte for byte in range(256)
)
_SURROGATES: Final = re.compile("[\ud800-\udfff]+")


def _replacements(match: re.Match[str]) -> str:
    return "\ufffd" * len(match.group())


def escape(text: str) -> str:
    """Returns element content or an attribute value that represents `text`."""
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
    # Passes in C, so that a text full of special characters takes little longer than another one.
    text = (
        text.encode("utf-8", "surrogatepass").translate(_CONTROLS).decode("utf-8", "surrogatepass")
    )
    for unshown in "\0\ufffe\uffff":
        text = text.replace(unshown, "\ufffd")
    for special, named in _NAMED.items():  # `&` first
        text = text.replace(special, named)
    return text if text.isascii() else _SURROGATES.sub(_replacements, text)


_PLAIN: Final = bytes(byte for byte in range(0x20, 0x7F) if chr(byte) not in _NAMED)


def escape_all(texts: Sequence[str]) -> Sequence[str]:
    """Applies `escape` to each text; checks all texts together whether they are plain."""
    together = "".join(texts)
    if together.isascii() and not together.encode().translate(None, _PLAIN):
        return texts
    return [escape(text) for text in texts]


_CODES: Final = tuple(f"%{byte:02X}" for byte in range(256))
_ODD: Final = re.compile(r"[^A-Za-z0-9\-._~/*]+")


def _percent(match: re.Match[str]) -> str:
    return "".join([_CODES[byte] for byte in match.group().encode("utf-8", "surrogatepass")])


def url_encode(text: str) -> str:
    """Encodes a key for `encoding-type=url`; `/` and `*` are kept.

    A space becomes `%20` and a plus `%2B`. Both clients that decode `+` as a space (as S3 writes it) and
    clients that do not read the same key.
    """
    return _ODD.sub(_percent, text)


_KEPT: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/*"


def url_encode_all(texts: Sequence[str]) -> Sequence[str]:
    """Applies `url_encode` to each text. In a page of ASCII, each character to escape is replaced in all
    texts together."""
    together = "\n".join(texts)
    if not together.isascii() or together.count("\n") != len(texts) - 1:
        return [url_encode(text) for text in texts]
    odd = set(together.encode().translate(None, _KEPT + b"\n%"))
    # The percent sign first, because the other replacements insert percent signs.
    for byte in (ord("%"), *odd):
        together = together.replace(chr(byte), _CODES[byte])
    return together.split("\n")

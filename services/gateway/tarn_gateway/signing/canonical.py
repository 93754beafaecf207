"""The canonical request of SigV4, as S3 builds it.

S3 encodes the path once and does not normalise it (`..` and `//` are parts of keys). Clients sign the path
and query as they send them, so in nearly every request the received bytes already are the canonical form.
A client that sends `+`, lower-case escapes or unescaped characters but signs AWS's own encoding needs the
other form. Both forms encode the same decoded request, so a signature of either is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from tarn_gateway.http import Headers

__all__ = ["encoded_form", "received_form", "tail_of"]

_BLANKS: Final = re.compile(r"[ \t]+")
# The characters that AWS leaves unescaped, and the separators.
_PLAIN_PATH: Final = re.compile(rb"[A-Za-z0-9\-._~/]*")
_PLAIN_QUERY: Final = re.compile(rb"[A-Za-z0-9\-._~&=]*")


def tail_of(headers: Headers, signed_headers: Iterable[str], payload_hash: str) -> bytes:
    """Returns what follows the query in a canonical request.

    Args:
        headers: as received.
        signed_headers: names in the order signed.
        payload_hash: the last line.
    """
    names = list(signed_headers)
    values = map(headers.get, names, repeat(""))
    lines = "".join(map("%s:%s\n".__mod__, zip(names, values, strict=False)))
    if "  " in lines or "\t" in lines:
        lines = "".join([f"{name}:{_folded(headers.text(name))}\n" for name in names])
    return f"\n{lines}\n{';'.join(names)}\n{payload_hash}".encode("latin-1")


def received_form(method: str, raw_path: bytes, raw_query: bytes, tail: bytes) -> bytes:
    """Returns the canonical form of a request as it was received: in nearly all requests, what was signed.

    Args:
        method: the HTTP method.
        raw_path: as received.
        raw_query: as received; X-Amz-Signature is omitted here.
        tail: as `tail_of`.
    """
    query = _sorted(_pairs(raw_query)) if raw_query else b""
    return b"%b\n%b\n%b%b" % (method.encode("ascii"), raw_path or b"/", query, tail)


def encoded_form(method: str, raw_path: bytes, raw_query: bytes, tail: bytes) -> bytes | None:
    """As `received_form`, for clients that sign AWS's own encoding of what they send; None if it is the same."""
    path = raw_path or b"/"
    if _PLAIN_PATH.fullmatch(path) and _PLAIN_QUERY.fullmatch(raw_query):
        return None
    encoded_path = _encode(path, safe="/-._~")
    encoded = _sorted(
        (_encode(name.replace(b"+", b" ")), _encode(value.replace(b"+", b" ")))
        for name, value in _pairs(raw_query)
    )
    form = b"%b\n%b\n%b%b" % (method.encode("ascii"), encoded_path, encoded, tail)
    return None if form == received_form(method, raw_path, raw_query, tail) else form


def _folded(value: str) -> str:
    # Not str.split: Latin-1 has blanks (0xA0, 0x85) that are halves of UTF-8 characters here.
    return _BLANKS.sub(" ", value)


def _pairs(raw_query: bytes) -> Iterator[tuple[bytes, bytes]]:
    for piece in raw_query.split(b"&"):
        name, _, value = piece.partition(b"=")
        if piece and name != b"X-Amz-Signature":
            yield name, value


def _sorted(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    # By name, then value; sorting joined pairs would put `a-b=` before `a=`.
    return b"&".join([name + b"=" + value for name, value in sorted(pairs)])


def _encode(raw: bytes, safe: str = "-._~") -> bytes:
    return quote_from_bytes(unquote_to_bytes(raw), safe).encode("ascii")

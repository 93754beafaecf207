"""Page tokens and page sizes, the same for every list rpc (AIP-158).

A token is base64url of `version u8, hash u64, last key`. The hash covers the other arguments, so that
a token of one listing is refused by another one instead of giving a page that makes no sense. It is
a bookmark, never a permission: whoever lists is authorised again for every page.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["Argument", "decode", "encode", "page_size"]

Argument = str | int | bool | bytes

_VERSION = 1
_HASH_BYTES = 8
_TOKEN_CHARS_MAX = 8192


def encode(last_key: str, **arguments: Argument) -> str:
    """The token of the page that begins after `last_key`.

    Args:
        last_key: the last key of this page, not empty; may be any text that is UTF-8.
        arguments: every other argument of the listing (not page size or token), by name.
    """
    packed = bytes([_VERSION]) + _hash(arguments) + last_key.encode()
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def decode(token: str, **arguments: Argument) -> str:
    """The key after which the page begins; empty for an empty token, the first page.

    Raises:
        TarnError: INVALID INVALID_PAGE_TOKEN if the token is damaged, of another version, or was made
            for other arguments.
    """
    if not token:
        return ""
    if len(token) > _TOKEN_CHARS_MAX:
        raise _invalid("is too long")
    try:
        raw = token.encode("ascii")
        packed = base64.b64decode(raw + b"=" * (-len(raw) % 4), b"-_", validate=True)
        last_key = packed[1 + _HASH_BYTES :].decode()
    except (binascii.Error, UnicodeError) as error:
        raise _invalid("is damaged") from error
    if len(packed) <= 1 + _HASH_BYTES or packed[0] != _VERSION:
        raise _invalid("is damaged or of another version")
    if packed[1 : 1 + _HASH_BYTES] != _hash(arguments):
        raise _invalid("belongs to a request with other arguments")
    return last_key


def page_size(requested: int, default: int, maximum: int) -> int:
    """How many to give: 0 means the default, more than the maximum means the maximum.

    Raises:
        TarnError: INVALID INVALID_ARGUMENT for a negative number.
    """
    if requested < 0:
        text = f"page_size must not be negative, not {requested}"
        raise TarnError(
            Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="page_size", value=str(requested)
        )
    return min(requested or default, maximum)


def _hash(arguments: dict[str, Argument]) -> bytes:
    hashed = hashlib.blake2b(digest_size=_HASH_BYTES)
    for name in sorted(arguments):
        # repr tells types apart and quotes, so that no two lists of arguments look the same.
        hashed.update(f"{name}={arguments[name]!r};".encode("utf-8", "backslashreplace"))
    return hashed.digest()


def _invalid(what: str) -> TarnError:
    text = f"page_token {what}; begin again without one"
    return TarnError(Kind.INVALID, Reason.INVALID_PAGE_TOKEN, text, field="page_token")

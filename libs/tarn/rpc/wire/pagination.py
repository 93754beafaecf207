"""Page tokens and page sizes, the same for every list rpc (AIP-158).

A token is base64url of `version u8, MAC 16 bytes, last key`. The MAC (HMAC-SHA256, cut to 16 bytes) covers
the caller, the rpc, all other arguments and the last key. So a token serves only the caller that it was
made for, and only to go on with the listing that it came from; nobody can make one or change it. A last key
may therefore name what the caller was found to be allowed to read, such as the commits at which a page of
history stopped. Whoever lists is authorised again for every page all the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["PAGE_KEY_BYTES", "Argument", "PageTokens", "page_size"]

Argument = str | int | bool | bytes

PAGE_KEY_BYTES = 32
"""Of the key that an installation signs its page tokens with."""

_VERSION = 2
_MAC_BYTES = 16
_TOKEN_CHARS_MAX = 8192
_PURPOSE = b"tarn page token v2\n"


class PageTokens:
    """The tokens of one listing: of one caller, one rpc and one list of arguments.

    Args:
        key: secret, of `PAGE_KEY_BYTES`; the same in all replicas of the service that lists.
        caller: who lists; a user's id or uid.
        listing: what is listed, such as `CommitService.ListCommits`.
        arguments: every other argument of the listing (not page size or token), by name.
    """

    __slots__ = ("_key", "_listing")

    def __init__(self, key: bytes, caller: str, listing: str, **arguments: Argument) -> None:
        assert len(key) == PAGE_KEY_BYTES, "a page key was cut off"
        self._key = key
        # repr tells types apart and quotes, so that no two lists of arguments look the same.
        parts = [repr(caller), repr(listing)]
        parts += [f"{name}={arguments[name]!r}" for name in sorted(arguments)]
        self._listing = _PURPOSE + ";".join(parts).encode("utf-8", "backslashreplace") + b"\n"

    def encode(self, last_key: str) -> str:
        """The token of the page that begins after `last_key`, which is not empty and is UTF-8."""
        last = last_key.encode()
        packed = bytes([_VERSION]) + self._mac(last) + last
        return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()

    def decode(self, token: str) -> str:
        """The key after which the page begins; empty for an empty token, the first page.

        Raises:
            TarnError: INVALID INVALID_PAGE_TOKEN if the token is damaged or of another version, or was
                not made for this caller, rpc and arguments.
        """
        if not token:
            return ""
        if len(token) > _TOKEN_CHARS_MAX:
            raise _invalid("is too long")
        try:
            raw = token.encode("ascii")
            packed = base64.b64decode(raw + b"=" * (-len(raw) % 4), b"-_", validate=True)
        except (binascii.Error, UnicodeError) as error:
            raise _invalid("is damaged") from error
        mac, last = packed[1 : 1 + _MAC_BYTES], packed[1 + _MAC_BYTES :]
        if not last or packed[0] != _VERSION:
            raise _invalid("is damaged or of another version")
        if not hmac.compare_digest(mac, self._mac(last)):
            raise _invalid("was not made for this caller and these arguments")
        try:
            return last.decode()
        except UnicodeError as error:  # not possible without the key
            raise _invalid("is damaged") from error

    def _mac(self, last: bytes) -> bytes:
        return hmac.digest(self._key, self._listing + last, hashlib.sha256)[:_MAC_BYTES]


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


def _invalid(what: str) -> TarnError:
    text = f"page_token {what}; begin again without one"
    return TarnError(Kind.INVALID, Reason.INVALID_PAGE_TOKEN, text, field="page_token")

"""Page tokens and page sizes, the same for every list rpc (AIP-158).

A token is base64url of `version u8, MAC 16 bytes, last key`. The MAC (HMAC-SHA256, cut to 16 bytes) covers
the caller, the rpc, all other arguments and the last key. So a token works only for the caller that received
it, and only to continue the same listing; clients can neither make nor change one. A last key may therefore
contain facts that an earlier page authorised, such as the commits at which a page of history stopped.
Every page is nevertheless authorised again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["PAGE_KEY_BYTES", "Argument", "PageTokens", "page_size"]

Argument = str | int | bool | bytes

PAGE_KEY_BYTES = 32
"""Size of the key with which an installation signs its page tokens."""

_VERSION = 2
_MAC_BYTES = 16
_TOKEN_CHARS_MAX = 8192
_PURPOSE = b"tarn page token v2\n"


class PageTokens:
    """The tokens of one listing: of one caller, one rpc and one list of arguments.

    Args:
        keys: secret, of `PAGE_KEY_BYTES` each; the same in all replicas of the listing service. The first one signs,
            and all of them verify.
        caller: a user's id or uid.
        listing: the rpc, such as `CommitService.ListCommits`.
        arguments: every other argument of the listing (not page size or token), by name.
    """

    __slots__ = ("_keys", "_listing")

    def __init__(
        self, keys: Sequence[bytes], caller: str, listing: str, **arguments: Argument
    ) -> None:
        assert {len(key) for key in keys} == {PAGE_KEY_BYTES}, "a page key has the wrong length"
        self._keys = keys
        # repr distinguishes types and quotes strings, so that no two lists of arguments look the same.
        parts = [repr(caller), repr(listing)]
        parts += [f"{name}={arguments[name]!r}" for name in sorted(arguments)]
        self._listing = _PURPOSE + ";".join(parts).encode("utf-8", "backslashreplace") + b"\n"

    def encode(self, last_key: str) -> str:
        """Returns the token of the page that begins after `last_key`, which is not empty and is UTF-8."""
        last = last_key.encode()
        packed = bytes([_VERSION]) + self._mac(self._keys[0], last) + last
        return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()

    def decode(self, token: str) -> str:
        """Returns the key after which the page begins; empty for an empty token, the first page.

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
        if not any(hmac.compare_digest(mac, self._mac(key, last)) for key in self._keys):
            raise _invalid("was not made for this caller and these arguments")
        try:
            return last.decode()
        except UnicodeError as error:  # not possible without the key
            raise _invalid("is damaged") from error

    def _mac(self, key: bytes, last: bytes) -> bytes:
        return hmac.digest(key, self._listing + last, hashlib.sha256)[:_MAC_BYTES]


def page_size(requested: int, default: int, maximum: int) -> int:
    """Returns the page size: `requested`, or `default` for 0; at most `maximum`.

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

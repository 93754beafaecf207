"""Caller tokens: short-lived proofs of the caller's identity, issued by auth.

Format: `t1.<payload>.<mac>`, both parts in base64url without padding; `t2` if the token was issued for a session key.
The payload holds the fields in fixed order, each text preceded by its length, so that its bytes can be read in only one
way; the kind of use is the last field, which release 0.9.0 neither writes nor reads. The MAC is HMAC-SHA256 over
everything before the last dot, including the version. Only auth has the key; to every other service a token is opaque.

A token contains the user's uid, so it is not valid for a later user of the same name. It also contains the access key
that it was issued for, so it becomes invalid together with that key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from dataclasses import dataclass

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import AccessKeyId, UserId

__all__ = ["TOKEN_LENGTH_MAX", "CallerToken", "issue", "verify"]

TOKEN_LENGTH_MAX = 1024
"""Longer texts are refused before they are decoded."""

_OF_KEY_PAIRS = "t1"
_OF_SESSIONS = "t2"
"""A version of its own, so that release 0.9.0 refuses the token and does not look for a key pair of this id."""
_TIMES = struct.Struct(">qq")
_FIELD_MAX = 255


@dataclass(frozen=True, slots=True)
class CallerToken:
    """The contents of a token; trustworthy only if `verify` returned it.

    Attributes:
        user_uid: the user's uid, unique to one life of the user.
        access_key_id: the key pair, or the session key, for which the token was issued.
        issue_time_us: Unix microseconds, as is `expire_time_us`.
    """

    user_id: UserId
    user_uid: bytes
    access_key_id: AccessKeyId
    issue_time_us: int
    expire_time_us: int
    is_session: bool = False
    """The token was issued for a session key, whose rights it has."""
    use: str = ""
    """What its bearer proved the key for (`tarn.core.access.key_use`); empty if the token does not tell."""


def issue(
    key: bytes,
    user_id: UserId,
    user_uid: bytes,
    access_key_id: AccessKeyId,
    issue_time_us: int,
    expire_time_us: int,
    *,
    is_session: bool = False,
    use: str = "",
) -> str:
    """Encodes and signs a token. `key` has 32 bytes, which only auth knows."""
    fields = [user_id.encode(), user_uid, access_key_id.encode()]
    if use:
        fields.append(use.encode())
    assert all(len(field) <= _FIELD_MAX for field in fields), "an id is longer than its limit"
    payload = _TIMES.pack(issue_time_us, expire_time_us)
    payload += b"".join(bytes((len(field),)) + field for field in fields)
    signed = f"{_OF_SESSIONS if is_session else _OF_KEY_PAIRS}.{_encode(payload)}"
    return f"{signed}.{_encode(_mac(key, signed))}"


def verify(key: bytes, token: str, now_us: int) -> CallerToken:
    """Checks a token and returns its contents.

    Raises:
        TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID: the token was not made with this key, was altered,
            or has expired. The text distinguishes these cases and never contains the token.
    """
    signed, _, mac = token.rpartition(".")
    if len(token) > TOKEN_LENGTH_MAX or not token.isascii():
        raise _invalid("is not a token of auth")
    # Compared as text, because base64url has several spellings of some bytes.
    if not hmac.compare_digest(_encode(_mac(key, signed)), mac):
        raise _invalid("was not made by this installation's auth")
    version, _, payload = signed.partition(".")
    if version not in (_OF_KEY_PAIRS, _OF_SESSIONS):
        raise _invalid(f"has version {version[:8]!r}, not {_OF_KEY_PAIRS!r} or {_OF_SESSIONS!r}")
    found = _parse(_decode(payload), is_session=version == _OF_SESSIONS)
    if now_us >= found.expire_time_us:
        late_s = (now_us - found.expire_time_us) // 1_000_000
        raise _invalid(f"expired {late_s} s ago")
    return found


def _parse(payload: bytes, *, is_session: bool) -> CallerToken:
    issue_time_us, expire_time_us = _TIMES.unpack_from(payload)
    fields = []
    start = _TIMES.size
    while start < len(payload):
        end = start + 1 + payload[start]
        fields.append(payload[start + 1 : end])
        start = end
    # What comes after the fields of this release is of a later one.
    user_id, user_uid, access_key_id, use, *_ = [*fields, b""]
    return CallerToken(
        UserId(user_id.decode()),
        user_uid,
        AccessKeyId(access_key_id.decode()),
        issue_time_us,
        expire_time_us,
        is_session,
        use.decode(),
    )


def _mac(key: bytes, signed: str) -> bytes:
    return hmac.new(key, signed.encode(), hashlib.sha256).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise _invalid("is not base64url") from None


def _invalid(rule: str) -> TarnError:
    return TarnError(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, f"the caller token {rule}")

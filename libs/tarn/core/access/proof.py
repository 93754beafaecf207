"""Proofs that a caller holds a secret. Clients make them and auth checks them with the same functions.

HMAC-SHA256 over a text that names its purpose, so that a proof for one purpose is not valid for another.
"""

from __future__ import annotations

import hashlib
import hmac

__all__ = ["NONCE_BYTES", "log_in_proof", "set_up_proof"]

NONCE_BYTES = 16


def set_up_proof(installation_secret: bytes) -> str:
    """Hex proof that the caller of SetUp holds the installation's secret."""
    return hmac.new(installation_secret, b"tarn-setup", hashlib.sha256).hexdigest()


def log_in_proof(secret_access_key: str, access_key_id: str, sign_time_s: int, nonce: str) -> str:
    """Hex proof that the caller of LogIn holds a key pair's secret.

    `sign_time_s` is in Unix seconds, `nonce` is `NONCE_BYTES` random bytes in lower-case hex, new for each
    proof.
    """
    text = f"tarn-login\n{access_key_id}\n{sign_time_s}\n{nonce}"
    return hmac.new(secret_access_key.encode(), text.encode(), hashlib.sha256).hexdigest()

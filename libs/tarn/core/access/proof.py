"""Proofs that a caller holds a secret. Clients make them and auth checks them with the same functions.

HMAC-SHA256 over a text that names its purpose, so that a proof for one purpose is not valid for another.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field

__all__ = ["NONCE_BYTES", "ServiceProof", "log_in_proof", "service_proof", "set_up_proof"]

NONCE_BYTES = 16

_SERVICE_PROOF = re.compile(r"service\.([a-z]{1,32})\.([0-9]{1,12})\.([0-9a-f]{64})", re.ASCII)


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


def service_proof(installation_secret: bytes, service: str, time_s: int) -> str:
    """Proof that a process holds the installation's secret and acts as a service.

    Args:
        installation_secret: at least 32 bytes.
        service: name of the service.
        time_s: now, in Unix seconds. Auth accepts the proof for some minutes around it.
    """
    return f"service.{service}.{time_s}.{_service_mac(installation_secret, service, time_s)}"


@dataclass(frozen=True, slots=True)
class ServiceProof:
    """A service proof as it was sent, not verified yet.

    Attributes:
        service: the name that the sender claims.
        time_s: when the proof was made, in Unix seconds.
    """

    service: str
    time_s: int
    _mac: str = field(repr=False)

    @staticmethod
    def parse(text: str) -> ServiceProof | None:
        """Returns the proof in a text; None if the text is something else."""
        found = _SERVICE_PROOF.fullmatch(text)
        return None if found is None else ServiceProof(found[1], int(found[2]), found[3])

    def is_by(self, installation_secret: bytes) -> bool:
        """Whether the proof was made with this secret. Takes the same time for each wrong proof."""
        expected = _service_mac(installation_secret, self.service, self.time_s)
        return hmac.compare_digest(expected, self._mac)


def _service_mac(installation_secret: bytes, service: str, time_s: int) -> str:
    text = f"tarn-service\n{service}\n{time_s}"
    return hmac.new(installation_secret, text.encode(), hashlib.sha256).hexdigest()

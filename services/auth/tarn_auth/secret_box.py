"""Encryption of secrets at rest: AES-256-GCM, with the access key id as associated data.

Keys are derived from the installation's secret by HKDF, each for one purpose. A sealed secret is 12 bytes of
nonce, ciphertext, tag. The associated data binds it to its row: after swapping two rows, neither opens.
Rotation: give the new secret first and the old ones after it. Data sealed with an old secret still opens;
new data is sealed with the new one. Random nonces are safe for 2^32 secrets under one key
(NIST SP 800-38D §8.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import AccessKeyId

__all__ = ["INSTALLATION_SECRET_BYTES_MIN", "RandomBytes", "SecretBox", "derive_key"]

INSTALLATION_SECRET_BYTES_MIN = 32

RandomBytes = Callable[[int], bytes]
"""Unpredictable bytes, such as `os.urandom`."""

_NONCE_BYTES = 12
_KEY_ID_BYTES = 8


def derive_key(installation_secret: bytes, purpose: str, length: int = 32) -> bytes:
    """Derives the installation's key for one purpose (RFC 5869)."""
    if len(installation_secret) < INSTALLATION_SECRET_BYTES_MIN:
        raise ValueError(
            f"the installation's secret has {len(installation_secret)} bytes, "
            f"it needs {INSTALLATION_SECRET_BYTES_MIN}"
        )
    info = b"tarn " + purpose.encode()
    return HKDF(SHA256(), length, salt=None, info=info).derive(installation_secret)


class SecretBox:
    """Seals and opens secret access keys. Its repr shows no secret.

    Args:
        installation_secrets: the current one, then earlier ones.
        random_bytes: source of nonces.
    """

    def __init__(self, installation_secrets: Sequence[bytes], random_bytes: RandomBytes) -> None:
        self._random_bytes = random_bytes
        self._ciphers: dict[str, AESGCM] = {}
        self._current = ""
        self.change(installation_secrets)

    def change(self, installation_secrets: Sequence[bytes]) -> None:
        """Takes other secrets into use: the current one, then earlier ones."""
        # The first key seals; dicts keep their order.
        self._ciphers = {
            derive_key(secret, "secret box key id v1", _KEY_ID_BYTES).hex(): AESGCM(
                derive_key(secret, "secret box key v1")
            )
            for secret in installation_secrets
        }
        self._current = next(iter(self._ciphers))

    @property
    def key_ids(self) -> list[str]:
        """Ids of the keys, which reveal nothing about the secrets; the sealing key is first."""
        return list(self._ciphers)

    def seal(self, access_key_id: AccessKeyId, secret: str) -> tuple[bytes, str]:
        """Returns the sealed secret and the id of the key that sealed it."""
        nonce = self._random_bytes(_NONCE_BYTES)
        cipher = self._ciphers[self._current]
        sealed = cipher.encrypt(nonce, secret.encode(), access_key_id.encode())
        return nonce + sealed, self._current

    def open(self, access_key_id: AccessKeyId, sealed: bytes, encryption_key_id: str) -> str:
        """Decrypts a sealed secret.

        Raises:
            TarnError: CORRUPT if it was sealed with a key that is not configured or for another access
                key, or was altered.
        """
        cipher = self._ciphers.get(encryption_key_id)
        if cipher is None:
            text = (
                f"access key {access_key_id} is sealed with an unknown key, {encryption_key_id}; add its secret as "
                "installation.previous_secret"
            )
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, access_key_id=access_key_id)
        nonce, sealed = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return cipher.decrypt(nonce, sealed, access_key_id.encode()).decode()
        except (InvalidTag, ValueError) as error:
            text = f"the sealed secret of access key {access_key_id} is damaged; create another key pair"
            raise TarnError(
                Kind.CORRUPT, Reason.DATA_CORRUPT, text, access_key_id=access_key_id
            ) from error

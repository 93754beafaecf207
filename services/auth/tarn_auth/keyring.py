"""Auth's keys, all derived from the installation's secrets.

The first secret encrypts and signs. The others still decrypt and verify, so that a rotation makes no key pair, session
or page token invalid. `Keyring.change` replaces all keys at once while auth serves.
"""

from __future__ import annotations

from collections.abc import Sequence

from tarn.rpc.wire.pagination import PAGE_KEY_BYTES
from tarn_auth.secret_box import RandomBytes, SecretBox, derive_key

__all__ = ["Keyring"]


class Keyring:
    """The keys in use; its repr shows none.

    Args:
        secrets: the installation's secrets, the current one first.
        random_bytes: source of nonces.

    Attributes:
        box: seals and opens secret access keys.
    """

    def __init__(self, secrets: Sequence[bytes], random_bytes: RandomBytes) -> None:
        self.box = SecretBox(secrets, random_bytes)
        self._secrets: tuple[bytes, ...] = ()
        self._token_keys: tuple[bytes, ...] = ()
        self._page_keys: tuple[bytes, ...] = ()
        self.change(secrets)

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """The installation's secrets, the current one first."""
        return self._secrets

    @property
    def token_keys(self) -> tuple[bytes, ...]:
        """Keys of caller tokens, 32 bytes each: the first signs, all verify."""
        return self._token_keys

    @property
    def page_keys(self) -> tuple[bytes, ...]:
        """Keys of page tokens: the first signs, all verify."""
        return self._page_keys

    def change(self, secrets: Sequence[bytes]) -> None:
        """Takes other secrets into use, the current one first."""
        self.box.change(secrets)
        self._secrets = tuple(secrets)
        self._token_keys = tuple(derive_key(each, "caller token v1") for each in secrets)
        self._page_keys = tuple(
            derive_key(each, "page token v1", PAGE_KEY_BYTES) for each in secrets
        )

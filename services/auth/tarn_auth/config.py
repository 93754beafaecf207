"""Auth's settings, from the configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

from tarn.config import Config, installation_secret

__all__ = ["AuthConfig"]


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Settings of auth, ready for use; its repr shows no secret.

    Attributes:
        installation_secret: at least 32 bytes.
        previous_secrets: earlier secrets, during a rotation.
    """

    installation_id: str
    installation_secret: bytes = field(repr=False)
    previous_secrets: tuple[bytes, ...] = field(repr=False)

    @staticmethod
    def of(config: Config) -> AuthConfig:
        """Returns auth's settings.

        Raises:
            ConfigError: the installation's secret is missing. Auth does not generate one, because its
                replicas must share it.
        """
        previous = config.installation.previous_secret
        return AuthConfig(
            installation_id=config.installation.id,
            installation_secret=installation_secret(config),
            previous_secrets=() if previous is None else (bytes.fromhex(previous.reveal()),),
        )

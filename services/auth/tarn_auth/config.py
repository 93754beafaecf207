"""Auth's settings, from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tarn.config import Config, installation_secrets
from tarn.core.access.service import Service

__all__ = ["AuthConfig"]


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Settings of auth, ready for use; its repr shows no secret.

    Attributes:
        installation_secret: at least 32 bytes.
        previous_secrets: earlier secrets, during a rotation.
        certificates: the DNS name in the certificates of each service.
        keeps_events: whether changes of records leave events.
    """

    installation_id: str
    installation_secret: bytes = field(repr=False)
    previous_secrets: tuple[bytes, ...] = field(repr=False)
    certificates: Mapping[Service, str]
    keeps_events: bool = False

    @staticmethod
    def of(config: Config) -> AuthConfig:
        """Returns auth's settings.

        Raises:
            ConfigError: the installation's secret is missing. Auth does not generate one, because its
                replicas must share it.
        """
        secret, *previous = installation_secrets(config)
        return AuthConfig(
            installation_id=config.installation.id,
            installation_secret=secret,
            previous_secrets=tuple(previous),
            certificates={
                Service.API: config.rpc.tls.api_name,
                Service.COMPACTOR: config.rpc.tls.compactor_name,
                Service.GATEWAY: config.rpc.tls.gateway_name,
                Service.GRAVELER: config.rpc.tls.graveler_name,
            },
            keeps_events=config.journal.enabled,
        )

    @property
    def shared(self) -> dict[str, str]:
        """Settings that must be equal in all processes of the installation (`tarn.kv.agreement`)."""
        return {"journal.enabled": str(self.keeps_events).lower()}

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """All secrets, the current one first."""
        return (self.installation_secret, *self.previous_secrets)

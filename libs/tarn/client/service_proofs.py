"""The proofs by which a process shows auth that it is a service (`tarn_auth.service_callers`).

A process with the installation's secret proves that it holds it. A process without one, as on Kubernetes, has a
certificate whose name tells the service; its proofs are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tarn.config import Config, ConfigError, installation_secrets
from tarn.core.access.proof import service_proof
from tarn.core.access.service import Service
from tarn.core.clock import Clock
from tarn.rpc.process.serve import Runtime

__all__ = ["ServiceProofs", "service_proofs"]

_NEW_SECONDS = 60
"""Age at which a proof is replaced; auth accepts it for longer."""


class ServiceProofs:
    """Makes the proofs of one service; its repr shows no secret.

    Args:
        service: what this process is.
        secret: the installation's secret; None if a certificate tells the service.
        clock: the time of the proofs.
    """

    def __init__(self, service: Service, secret: bytes | None, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._secret = secret
        self._made_s = 0
        self._proof = ""

    def __call__(self) -> str:
        """Returns a proof of now; empty without a secret."""
        if self._secret is None:
            return ""
        now_s = self._clock.now_us() // 1_000_000
        if not self._proof or abs(now_s - self._made_s) >= _NEW_SECONDS:
            self._made_s = now_s
            self._proof = service_proof(self._secret, self._service, now_s)
        return self._proof

    def use(self, secret: bytes | None) -> None:
        """Takes another installation secret into use."""
        self._secret = secret
        self._proof = ""


def service_proofs(service: Service, config: Config, runtime: Runtime) -> Callable[[], str]:
    """Returns the proofs of a process, which follow a rotation of the installation's secret.

    Raises:
        ConfigError: the process has neither a certificate nor the secret, so auth would refuse it.
    """
    secret = _secret(config)
    if secret is None and config.rpc.tls.cert is None:
        text = f"{service} cannot prove to auth that it is a service: set rpc.tls, or installation.secret"
        raise ConfigError([text])
    proofs = ServiceProofs(service, secret, runtime.clock)

    async def use(changed: Config) -> None:
        proofs.use(_secret(changed))

    runtime.secrets.subscribe(use)
    return proofs


def _secret(config: Config) -> bytes | None:
    if config.installation.secret is None:
        return None
    secrets: Sequence[bytes] = installation_secrets(config)
    return secrets[0]

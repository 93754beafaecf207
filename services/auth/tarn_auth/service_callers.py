"""Which service makes a call, and whether it may: the guard of the rpcs that are for services only.

Reaching a port proves nothing. A caller is a service if its certificate says so, or if it proves that it holds the
installation's secret (`tarn.core.access.proof.service_proof`); a caller without either is none, whatever certificate
of a user it has. Which services an operation admits is stated in its proto (`tarn.rpc.rules`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from tarn.core.access.proof import ServiceProof
from tarn.core.access.service import Service
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.rules import Rule
from tarn.rpc.wire.call import Call
from tarn.telemetry.audit.note import note_principal
from tarn_auth.keyring import Keyring

__all__ = ["PROOF_SKEW_S_MAX", "Callers", "RemoteServices", "SameProcess"]

PROOF_SKEW_S_MAX = 300
"""Time between a proof and its check, in seconds; also how far the clocks of services may differ."""


class Callers(Protocol):
    """Decides which services may make a call."""

    def require(self, call: Call, rule: Rule) -> frozenset[Service]:
        """Returns the services that the caller is, and that the rule of the operation admits; at least one.

        Raises:
            TarnError: DENIED, SERVICE_REQUIRED.
        """
        ...


class SameProcess:
    """Callers within this process, which are all services of one worker. No port may serve their endpoint."""

    def require(self, call: Call, rule: Rule) -> frozenset[Service]:  # noqa: ARG002 - the process is trusted
        """Returns all services that the rule admits."""
        return rule.services


class RemoteServices:
    """Callers in other processes.

    Args:
        keyring: knows the installation's secrets, with which proofs are made.
        clock: decides whether a proof is too old.
        names: the DNS name in the certificates of each service.
        admitted: services that run as processes of their own; others are refused, even with a proof.
    """

    def __init__(
        self,
        keyring: Keyring,
        clock: Clock,
        names: Mapping[Service, str],
        admitted: Collection[Service],
    ) -> None:
        self._keyring = keyring
        self._clock = clock
        self._names = names
        self._admitted = frozenset(admitted)

    def require(self, call: Call, rule: Rule) -> frozenset[Service]:
        """See `Callers.require`."""
        found = self._proven(call)
        admitted = found & rule.services & self._admitted
        if found:
            note_principal(min(found).user_id)
        if not admitted:
            wanted = ", ".join(sorted(rule.services & self._admitted)) or "callers in this process"
            text = (
                f"{rule.name} is for {wanted} only, and the caller did not prove to be one: a service needs a "
                "certificate with its name, or the installation's secret"
            )
            raise TarnError(Kind.DENIED, Reason.SERVICE_REQUIRED, text, operation=rule.name)
        return admitted

    def _proven(self, call: Call) -> frozenset[Service]:
        """Returns the services that the caller has proved to be: by its certificate, or by its proof."""
        found = {each for each, name in self._names.items() if name in call.certificate_names}
        proof = ServiceProof.parse(call.caller_token)
        if proof is not None and proof.service in set(Service) and self._is_valid(proof):
            found.add(Service(proof.service))
        return frozenset(found)

    def _is_valid(self, proof: ServiceProof) -> bool:
        skew_s = abs(self._clock.now_us() // 1_000_000 - proof.time_s)
        return skew_s <= PROOF_SKEW_S_MAX and any(
            proof.is_by(secret) for secret in self._keyring.secrets
        )

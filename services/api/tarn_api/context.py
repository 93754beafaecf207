"""What handlers get: graveler and auth as the caller, and the facts of the installation. They keep no state."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.core.access.policy import Grant
from tarn.core.clock import Clock
from tarn.gate.sign_in import SignIn
from tarn.rpc.wire.call import Call
from tarn_api.rpcs import CHANGE_S, READ_S, Rpcs

__all__ = ["CHANGE_S", "READ_S", "Backend", "Context"]


@dataclass(frozen=True, slots=True)
class Backend:
    """Shared by all requests.

    Attributes:
        graveler: metadata.
        auth: users and key pairs.
        rpcs: both, for calls that are passed on as they are.
        sign_in: exchanges key pairs for tokens.
        clock: time.
        version: of Tarn.
        namespace_prefix: begins the storage namespace of each repository, such as `local://`.
    """

    graveler: GravelerClient
    auth: AuthClient
    rpcs: Rpcs
    sign_in: SignIn
    clock: Clock
    version: str
    namespace_prefix: str

    def call(self, request_id: str, caller_token: str, timeout_s: float) -> Call:
        """Returns the context of a call that begins now."""
        return Call(request_id, caller_token, self.clock.monotonic() + timeout_s)


@dataclass(frozen=True, slots=True)
class Context:
    """One request.

    Attributes:
        backend: see `Backend`.
        request: as Starlette has it: headers, and the body of an operation that reads it itself.
        request_id: in every log line and answer.
        grant: of its caller; None for an operation without one.
    """

    backend: Backend
    request: Request
    request_id: str
    grant: Grant | None

    @property
    def graveler(self) -> GravelerClient:
        """Metadata."""
        return self.backend.graveler

    def read(self) -> Call:
        """Returns a call that reads, as the caller."""
        return self._call(READ_S)

    def change(self) -> Call:
        """Returns a call that changes something, as the caller."""
        return self._call(CHANGE_S)

    def _call(self, timeout_s: float) -> Call:
        token = "" if self.grant is None else self.grant.caller_token
        return self.backend.call(self.request_id, token, timeout_s)

"""The context that travels with every call, over gRPC and in process."""

from __future__ import annotations

from dataclasses import field

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.value import hot_value

__all__ = ["Call"]


@hot_value
class Call:
    """The context of one call: the request that it serves, its caller and its deadline.

    Attributes:
        request_id: identifies one client request in every service and every log line; plain
            ASCII without spaces, as it travels in headers.
        caller_token: short-lived proof of the caller's identity, issued by auth; empty for an unauthenticated
            caller. Not in the repr, because it is a secret.
        deadline: on `Clock.monotonic()` of this process, in seconds.
        certificate_names: the DNS names in the client's certificate, which mutual TLS has verified. Empty without TLS,
            and for calls that this process makes.
        service_token: proof of the service that makes a user's call, its own caller token; empty if a rule does not
            need it (`Rule.through`) and its handler does not ask for it.
        bucket: the bucket view through which the request was made, and the version that its caller resolved:
            `<bucket>:<uid>:<generation>`. Graveler confirms it. Empty for a request that names a repository.
    """

    request_id: str
    caller_token: str = field(repr=False)
    deadline: float
    certificate_names: frozenset[str] = frozenset()
    service_token: str = field(default="", repr=False)
    bucket: str = ""

    def remaining(self, clock: Clock) -> float:
        """Returns the seconds until the deadline.

        Raises:
            TarnError: DEADLINE if the deadline has passed: no work starts without a waiting caller.
        """
        left = self.deadline - clock.monotonic()
        if left <= 0:
            text = f"request {self.request_id} ran out of time"
            raise TarnError(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED, text)
        return left

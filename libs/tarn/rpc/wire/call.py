"""What travels with every call, over gRPC and in process alike."""

from __future__ import annotations

from dataclasses import field

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.value import hot_value

__all__ = ["Call"]


@hot_value
class Call:
    """The context of one call: whose request it serves, and how long anybody waits for it.

    Attributes:
        request_id: follows one client request through every service and every log line; plain
            ASCII without spaces, as it travels in headers.
        caller_token: short-lived proof of who asks, made by auth; empty for nobody. Not in the repr: it opens doors.
        deadline: on `Clock.monotonic()` of this process, in seconds.
    """

    request_id: str
    caller_token: str = field(repr=False)
    deadline: float

    def remaining(self, clock: Clock) -> float:
        """Seconds until the deadline.

        Raises:
            TarnError: DEADLINE when none are left: nothing is begun that nobody waits for.
        """
        left = self.deadline - clock.monotonic()
        if left <= 0:
            text = f"request {self.request_id} ran out of time"
            raise TarnError(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED, text)
        return left

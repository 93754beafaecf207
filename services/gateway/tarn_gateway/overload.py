"""What the gateway answers to a request that has waited too long for its turn (`tarn.gate.request_queue`)."""

from __future__ import annotations

from tarn.core.clock import Clock
from tarn.gate.request_queue import RequestQueue
from tarn.telemetry.meters import Meters
from tarn_gateway.s3error import S3Error

__all__ = ["OverloadedError", "request_queue"]


class OverloadedError(S3Error):
    """SlowDown: nothing was done."""

    def __init__(self) -> None:
        text = "The gateway has more requests than it can answer. Please reduce your request rate."
        super().__init__("SlowDown", text)


def request_queue(clock: Clock, meters: Meters) -> RequestQueue:
    """Returns the queue of a gateway, with its metrics."""
    queue = RequestQueue(clock, OverloadedError, meters.counter("gateway.shed"))
    meters.sample("gateway.queue", lambda: queue.length)
    return queue

"""The compactors that watch this replica, and what they told it last: in memory, because each tells every replica."""

from __future__ import annotations

from typing import Final

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn_graveler.handlers.requests import timestamp
from tarn_proto.graveler.v1 import compaction_service_pb2 as pb
from tarn_proto.graveler.v1 import staging_event_service_pb2 as event_pb

__all__ = ["WatchingCompactors"]

_COMPACTORS_MAX: Final = 64
_REPORT_BYTES_MAX: Final = 8 << 10
_FORGET_US: Final = 60_000_000
"""A compactor asks again after 20 seconds at most."""


class WatchingCompactors:
    """Keeps the newest report of each compactor."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Invariant: in the order in which they were told, at most _COMPACTORS_MAX.
        self._told: dict[str, tuple[int, event_pb.CompactorReport]] = {}

    def tell(self, report: event_pb.CompactorReport) -> None:
        """Keeps a report in place of the last one of the same compactor. The oldest one makes room if there are many.

        Raises:
            TarnError: INVALID_ARGUMENT: it is too large, or does not say whose it is.
        """
        if not report.compactor_id or report.ByteSize() > _REPORT_BYTES_MAX:
            text = f"a report of a compactor has an id, and at most {_REPORT_BYTES_MAX} bytes"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="report")
        self._told.pop(report.compactor_id, None)
        if len(self._told) >= _COMPACTORS_MAX:
            del self._told[next(iter(self._told))]
        self._told[report.compactor_id] = (self._clock.now_us(), report)

    def watching(self) -> list[pb.WatchingCompactor]:
        """Returns the compactors that told something within the last minute, by their ids."""
        since_us = self._clock.now_us() - _FORGET_US
        return [
            pb.WatchingCompactor(report=report, report_time=timestamp(told_us))
            for _, (told_us, report) in sorted(self._told.items())
            if told_us >= since_us
        ]

"""The pause of all compactors, as this one knows it. Graveler keeps it (`GetCompactionPause`).

It is read before each compaction: that read decides. It is also read every few seconds, so that a paused compactor
measures nothing, and works again soon after the end of the pause.
"""

from __future__ import annotations

import structlog

from tarn.client.compactions import CompactionClient
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.gate.service_calls import ServiceCalls
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import compaction_service_pb2 as pb

__all__ = ["REFRESH_SECONDS", "Pauses"]

REFRESH_SECONDS = 5.0
_TIMEOUT_SECONDS = 10.0

_log = structlog.get_logger()


class Pauses:
    """Reads the pause of all compactors, and lets users change it.

    Args:
        client: reaches any replica of graveler.
        calls: contexts of calls without a user.
        clock: time.

    Attributes:
        is_believed: compactors were paused at the last read.
    """

    def __init__(self, client: CompactionClient, calls: ServiceCalls, clock: Clock) -> None:
        self._client = client
        self._calls = calls
        self._clock = clock
        self.is_believed = False

    async def run(self) -> None:
        """Reads the pause every few seconds, until it is cancelled. After an error, the last answer stays."""
        is_failing = False
        while True:
            try:
                await self.holds()
            except TarnError as error:
                self._calls.failed(error)
                if not is_failing:
                    _log.info("cannot read the pause of compactions", error=error.message)
                is_failing = True
            else:
                is_failing = False
            await self._clock.sleep(REFRESH_SECONDS)

    async def holds(self) -> bool:
        """Returns whether compactors are paused, by a read that is sent now.

        Raises:
            TarnError: graveler or auth does not answer.
        """
        return await self.read(await self._calls.call(_TIMEOUT_SECONDS)) is not None

    async def read(self, call: Call) -> pb.CompactionPause | None:
        """Returns the pause that holds now; None: there is none. Raises `TarnError` as `holds`."""
        return self._believe(await self._client.get_compaction_pause(call))

    async def begin(self, call: Call, duration_s: int) -> pb.CompactionPause:
        """Pauses all compactors as the user of a call; 0 seconds: until `end`. Raises the errors of graveler."""
        begun = await self._client.begin_compaction_pause(call, duration_s)
        self._believe(begun)
        return begun

    async def end(self, call: Call) -> None:
        """Ends the pause as the user of a call. Raises the errors of graveler."""
        await self._client.end_compaction_pause(call)
        self._believe(None)

    def _believe(self, pause: pb.CompactionPause | None) -> pb.CompactionPause | None:
        if self.is_believed != (pause is not None):
            _log.info("compactions are paused" if pause is not None else "compactions go on")
        self.is_believed = pause is not None
        return pause

"""Client of a compactor."""

from __future__ import annotations

from tarn.rpc.client.transport import Transport, expect
from tarn.rpc.wire.call import Call
from tarn_proto.compactor.v1 import compactor_service_pb2 as pb

__all__ = ["CompactorClient"]

_SERVICE = pb.DESCRIPTOR.services_by_name["CompactorService"]


class CompactorClient:
    """Calls one compactor. Methods raise the `TarnError` that it raised."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def status(self, call: Call, *, page_size: int = 0) -> pb.GetCompactorStatusResponse:
        """Returns the state of the compactor: its replicas, its branches and its work."""
        request = pb.GetCompactorStatusRequest(page_size=page_size)
        answer = await self._transport.unary(_SERVICE, "GetCompactorStatus", request, call)
        return expect(answer, pb.GetCompactorStatusResponse)

    async def pause(
        self, call: Call, duration_s: int = 0, *, until_resumed: bool = False
    ) -> pb.PauseCompactorResponse:
        """Pauses all compactors of the installation for some seconds (0: an hour); returns the end of the pause."""
        request = pb.PauseCompactorRequest(duration_s=duration_s, until_resumed=until_resumed)
        answer = await self._transport.unary(_SERVICE, "PauseCompactor", request, call)
        return expect(answer, pb.PauseCompactorResponse)

    async def resume(self, call: Call) -> None:
        """Ends the pause of all compactors."""
        answer = await self._transport.unary(
            _SERVICE, "ResumeCompactor", pb.ResumeCompactorRequest(), call
        )
        expect(answer, pb.ResumeCompactorResponse)

"""Client of a compactor."""

from __future__ import annotations

from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.compactor.v1 import compactor_service_pb2 as pb
from tarn_proto.compactor.v1.compactor_service_rpc import CompactorServiceClient

__all__ = ["CompactorClient"]


class CompactorClient:
    """Calls one compactor. Methods raise the `TarnError` that it raised."""

    def __init__(self, transport: Transport) -> None:
        self._compactor_service = CompactorServiceClient(transport)

    async def status(self, call: Call, *, page_size: int = 0) -> pb.GetCompactorStatusResponse:
        """Returns the state of the compactor: its replicas, its branches and its work."""
        request = pb.GetCompactorStatusRequest(page_size=page_size)
        return await self._compactor_service.GetCompactorStatus(request, call)

    async def pause(
        self, call: Call, duration_s: int = 0, *, until_resumed: bool = False
    ) -> pb.PauseCompactorResponse:
        """Pauses all compactors of the installation for some seconds (0: an hour); returns the end of the pause."""
        request = pb.PauseCompactorRequest(duration_s=duration_s, until_resumed=until_resumed)
        return await self._compactor_service.PauseCompactor(request, call)

    async def resume(self, call: Call) -> None:
        """Ends the pause of all compactors."""
        await self._compactor_service.ResumeCompactor(pb.ResumeCompactorRequest(), call)

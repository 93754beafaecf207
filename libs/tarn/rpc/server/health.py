"""`grpc.health.v1.Health`: which services of a process serve.

The servicer of grpcio-health-checking is not used: it sends to a watcher while it holds the lock that a change of
status takes, so a watcher that does not read keeps a server from stopping.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.server.refusing import end_with
from tarn.rpc.server.slots import Slot, Slots

__all__ = ["SERVICE", "Health"]

SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

_REQUEST_BYTES_MAX = 4096

Context = grpc.aio.ServicerContext[bytes, HealthCheckResponse]


class Health:
    """The status of each service, and the rpcs that tell it. Belongs to one event loop.

    Args:
        slots: bound the rpcs; a watch needs no token, and is counted apart.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._statuses: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._is_stopping = False

    def set(self, service: str, *, is_serving: bool) -> None:
        """Sets the status of a service; the empty name stands for the process."""
        status = HealthCheckResponse
        self._statuses[service] = (
            status.SERVING if is_serving and not self._is_stopping else status.NOT_SERVING
        )
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def stop(self) -> None:
        """Sets all services to not serving, for good."""
        self._is_stopping = True
        for service in [*self._statuses]:
            self.set(service, is_serving=False)

    def handlers(self) -> Mapping[str, grpc.RpcMethodHandler[bytes, HealthCheckResponse]]:
        """Returns the handlers of its rpcs, by their names."""
        return {
            name: grpc.stream_stream_rpc_method_handler(
                behave, response_serializer=HealthCheckResponse.SerializeToString
            )
            for name, behave in (("Check", self._check), ("Watch", self._watch))
        }

    async def _check(self, _requests: object, context: Context) -> None:
        try:
            with await self._slots.enter(context.peer(), "", None) as slot:
                service = await self._service(slot, context)
                status = self._statuses.get(service)
                if status is None:
                    text = f"there is no service {service!r}"
                    raise TarnError(Kind.NOT_FOUND, Reason.INVALID_ARGUMENT, text)
                answer = HealthCheckResponse(status=status)
                await slot.wait(context.write(answer), self._slots.limits.message_s)
        except TarnError as error:
            await end_with(context, error)

    async def _watch(self, _requests: object, context: Context) -> None:
        try:
            with self._slots.enter_watch(context.peer()) as slot:
                service = await self._service(slot, context)
                told = None
                while True:
                    changed = self._changed
                    status = self._statuses.get(service, HealthCheckResponse.SERVICE_UNKNOWN)
                    if status != told:
                        answer = HealthCheckResponse(status=status)
                        await slot.wait(context.write(answer), self._slots.limits.message_s)
                    told = status
                    await changed.wait()
        except TarnError as error:
            await end_with(context, error)

    async def _service(self, slot: Slot, context: Context) -> str:
        encoded: object = await slot.wait(context.read(), self._slots.limits.message_s)
        try:
            if isinstance(encoded, bytes) and len(encoded) <= _REQUEST_BYTES_MAX:
                return HealthCheckRequest.FromString(encoded).service
        except DecodeError:
            pass
        text = f"the request is no HealthCheckRequest of at most {_REQUEST_BYTES_MAX} bytes"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)

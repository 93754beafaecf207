"""A service as the transports see it: a proto service and the object that answers it."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.descriptor import ServiceDescriptor

__all__ = ["OPERATE", "Endpoint"]

OPERATE = "Operate"
"""The name of the one streaming rpc: a coalesced stream of operations (docs/design/hot-path.md)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One proto service and its handler.

    The handler has, for each unary rpc of the service, a method of the rpc's name
    `async (request, call: Call) -> response`; for the streaming rpc `Operate`, a method
    `async operate(operation, call: Call) -> result` that answers one operation (the transport moves,
    coalesces and matches them). Both raise `TarnError` for failures that the caller shall see.

    Attributes:
        descriptor: e.g. `branch_service_pb2.DESCRIPTOR.services_by_name["BranchService"]`.
        handler: checked against the descriptor when it is registered.
    """

    descriptor: ServiceDescriptor
    handler: object

    @property
    def name(self) -> str:
        """Full proto name, e.g. `tarn.graveler.v1.BranchService`."""
        return self.descriptor.full_name

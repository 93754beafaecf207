"""An endpoint: a proto service and the object that implements it, as transports and servers need them."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.descriptor import ServiceDescriptor

__all__ = ["OPERATE", "Endpoint"]

OPERATE = "Operate"
"""The name of the one streaming rpc: a coalesced stream of operations (docs/design/hot-path.md)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One proto service and its handler.

    For each unary rpc of the service, the handler has a method with the rpc's name,
    `async (request, call: Call) -> response`. For the streaming rpc `Operate` it has
    `async operate(operation, call: Call) -> result`, which answers one operation (the transport moves,
    coalesces and matches them). Both raise `TarnError` for failures that the caller must see.

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

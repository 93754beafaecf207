"""The base of the clients of nouns, which a client of a whole service combines: the end of their `super().__init__`."""

from __future__ import annotations

from tarn.rpc.client.transport import Transport

__all__ = ["RpcClient"]


class RpcClient:
    """Calls over one transport. Each subclass makes the typed clients that it needs, after `super().__init__`."""

    def __init__(self, transport: Transport) -> None:
        """Keeps nothing: the typed clients have the transport."""

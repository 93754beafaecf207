"""The ports of a node: chosen once by the supervisor, shared and re-used by its workers.

The supervisor keeps a socket bound to each port, on which it never listens. So no other program can get
the port while a worker is restarted, and a free port (0) stays the same for all workers and their
restarts. Linux lets workers bind to the same port because both sides set SO_REUSEADDR and SO_REUSEPORT.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from tarn_cli.exits import CliError, Exit

__all__ = ["Port", "hold_port", "with_port"]


@dataclass(slots=True)
class Port:
    """A port held for workers.

    Attributes:
        address: `host:port`; the port is never 0.
    """

    address: str
    _socket: socket.socket

    def close(self) -> None:
        """Releases the port."""
        self._socket.close()


def hold_port(address: str) -> Port:
    """Holds the port of `host:port`, or a free one for port 0.

    Raises:
        CliError: CONFLICT, another program listens there; USAGE, no such host.
    """
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise CliError(Exit.USAGE, f"cannot listen on {address}: {error.strerror}") from error
    if int(port):
        _refuse_listener(family, where, address)
    holder = socket.socket(family, kind, protocol)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(where)
    except OSError as error:
        holder.close()
        raise CliError(Exit.CONFLICT, f"cannot listen on {address}: {error.strerror}") from error
    return Port(with_port(address, holder.getsockname()[1]), holder)


def _refuse_listener(family: int, where: tuple[object, ...], address: str) -> None:
    """Fails if another program listens on the address.

    The probe binds without SO_REUSEPORT, so it also detects another Tarn, which would otherwise get a
    share of the connections.

    Raises:
        CliError: CONFLICT, the address is in use.
    """
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except OSError as error:
            text = f"cannot listen on {address}: {error.strerror}"
            raise CliError(Exit.CONFLICT, text, "--port and --rpc-port choose others") from error


def with_port(address: str, port: int) -> str:
    """The same host with another port."""
    return f"{address.rpartition(':')[0]}:{port}"

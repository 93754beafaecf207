"""Exchanges of HTTP without a connection, for tests that compare ours with uvicorn's."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

__all__ = ["KeptSocket", "exchange_of"]


class KeptSocket:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def exchange_of(
    to: KeptSocket,
    kind: type[RequestResponseCycle],
    method: str,
    *,
    keep_alive: bool,
    ended: list[bool],
) -> Any:
    """Returns the exchange of one request over a socket; `ended` is told its end."""
    given: dict[str, Any] = {
        "scope": {"type": "http", "method": method},
        "transport": to,
        "flow": FlowControl(to),  # type: ignore[arg-type]
        "expect_100_continue": False,
        "keep_alive": keep_alive,
        "on_response": lambda: ended.append(True),
    }
    if kind is RequestResponseCycle:
        given |= {
            "logger": logging.getLogger("uvicorn.error"),
            "access_logger": logging.getLogger("uvicorn.access"),
            "access_log": False,
            "default_headers": [],
            "message_event": asyncio.Event(),
        }
    return kind(**given)

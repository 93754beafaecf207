"""Errors of request bodies that end early: truncated, stalled or malformed."""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError

__all__ = [
    "BodyError",
    "BodyMalformedError",
    "BodySlowError",
    "BodyStalledError",
    "BodyTruncatedError",
]


class BodyError(TarnError):
    """The rest of a body will not arrive."""


class BodyTruncatedError(BodyError):
    """The client disconnected before the end of its body."""

    def __init__(self, received: int) -> None:
        text = f"the connection was lost after {received} bytes of the body"
        super().__init__(Kind.INVALID, Reason.INVALID_ARGUMENT, text, received=str(received))


class BodyStalledError(BodyError):
    """The client sent no byte of its body within the time limit."""

    def __init__(self, received: int, seconds: float) -> None:
        text = f"received no byte of the body for {seconds:g} s after {received} bytes"
        super().__init__(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED, text, received=str(received))


class BodySlowError(BodyError):
    """The client sends its body more slowly than the server allows."""

    def __init__(self, received: int, rate: float, rate_min: int) -> None:
        text = f"the body arrived at {rate:.0f} bytes/s after {received} bytes; at least {rate_min} are needed"
        super().__init__(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED, text, received=str(received))


class BodyMalformedError(BodyError):
    """The chunked coding of a body is broken.

    Attributes:
        detail: how, without the name of the coding.
    """

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(Kind.INVALID, Reason.INVALID_ARGUMENT, f"chunked body: {detail}")

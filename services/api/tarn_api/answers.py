"""Answers in one piece whose heads are encoded already: JSON, and the bytes of small objects.

They are the fast path of `tarn_api.endpoint`: `Exchange.send_whole` sends one without the events of ASGI. Where more is
to decide (a client that does not take its answers, the last request of a connection), `response` is sent instead, as
every other answer is. A property test compares both.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

__all__ = ["JSON_LINES", "Whole"]

JSON_LINES: Final = b"content-type: application/json\r\n"


class Whole:
    """An answer in one piece.

    Attributes:
        status: of HTTP; one with a body.
        lines: of its head, each with its end: names in lower case, values without control characters. Not among them
            are the length of the body and the headers of every answer.
        body: its bytes.
    """

    __slots__ = ("body", "lines", "status")

    def __init__(self, status: int, lines: bytes, body: bytes) -> None:
        self.status = status
        self.lines = lines
        self.body = body

    def response(self) -> Response:
        """Returns the same answer for ASGI."""
        response = Response(self.body, self.status)
        for line in self.lines.split(b"\r\n")[:-1]:
            name, _, value = line.partition(b": ")
            response.raw_headers.append((name, value))
        return response

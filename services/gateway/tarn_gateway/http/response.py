"""The response of a handler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from tarn.block.port import FileSlice

__all__ = ["Response"]


class Response:
    """Status, headers and a body.

    The server adds Date, Connection, x-amz-request-id, Server-Timing and the length (or chunked coding). For HEAD, 204
    and 304 it sends no body, whatever `body` is, and closes the unsent body.

    Args:
        status: three digits.
        headers: `(name, value)` in the order to be sent; values may contain any Latin-1 character except
            CR, LF and NUL.
        body: bytes; or an async iterator of bytes-like pieces that are not changed after they were
            yielded (always closed at the end); or a `FileSlice`.
        length: the length of an iterator's body; None sends it chunked. For HEAD, the length to
            announce if the body is not given. The connection is aborted if the iterator yields
            another number of bytes or raises: the client then sees a truncated answer, never a
            shorter correct one.
    """

    __slots__ = ("body", "headers", "length", "status")

    def __init__(
        self,
        status: int,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes | AsyncIterator[bytes | memoryview] | FileSlice = b"",
        length: int | None = None,
    ) -> None:
        self.status = status
        self.headers = list(headers)
        self.body = body
        self.length = length
        if isinstance(body, FileSlice):
            self.length = body.count

    def __repr__(self) -> str:
        return f"<Response {self.status}>"

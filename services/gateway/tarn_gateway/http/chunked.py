"""Chunk framing without I/O: HTTP's chunked coding, and S3's aws-chunked, which has the same form.

    chunk   = hex-size [";" extension] CRLF data CRLF
    end     = "0" [";" extension] CRLF *( trailer CRLF ) CRLF

The decoder receives memoryviews and returns slices of them: only the short lines are copied.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

from tarn_gateway.http.body_error import BodyMalformedError

__all__ = ["EVENTS_MAX", "ChunkHead", "ChunkedDecoder", "Event"]

_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;(.*))?", re.DOTALL)


class ChunkHead(NamedTuple):
    """The start of a chunk; size 0 marks the last one, which the trailers follow."""

    size: int
    extension: bytes


EVENTS_MAX: Final = 256
"""Events of one call: they take 2 ms. A client may send 87,000 chunks of one byte in one piece of a body."""

Event = ChunkHead | memoryview
"""Output of a decoder: heads, each followed by the slices of its data."""


class _State(enum.Enum):
    SIZE = "size"
    DATA = "data"
    DATA_END = "data end"
    TRAILER = "trailer"
    DONE = "done"


class ChunkedDecoder:
    """Decodes one chunked body.

    Args:
        line_bytes_max: maximum length of a size line or trailer line.
        trailer_bytes_max: maximum length of all trailer lines together.
        chunk_bytes_max: maximum announced size of a chunk.
        last_trailer: if given, an empty line ends the body only after a trailer of this lower-case
            name, and lines may end with a bare LF. AWS's own example puts an empty line between the
            trailers and their signature.

    Attributes:
        trailers: lines between the last chunk and the end, without line ends, in order.
    """

    __slots__ = (
        "_chunk_bytes_max",
        "_last_trailer",
        "_left",
        "_line",
        "_line_bytes_max",
        "_state",
        "_trailer_bytes_left",
        "trailers",
    )

    def __init__(
        self,
        *,
        line_bytes_max: int = 1024,
        trailer_bytes_max: int = 8192,
        chunk_bytes_max: int = 1 << 40,
        last_trailer: bytes | None = None,
    ) -> None:
        self._line_bytes_max = line_bytes_max
        self._trailer_bytes_left = trailer_bytes_max
        self._chunk_bytes_max = chunk_bytes_max
        self._last_trailer = last_trailer
        self._state = _State.SIZE
        self._left = 0
        self._line = bytearray()
        self.trailers: list[bytes] = []

    @property
    def done(self) -> bool:
        """Whether the end of the body was reached."""
        return self._state is _State.DONE

    @property
    def in_trailers(self) -> bool:
        """Whether the last chunk was read, but not the end of the body."""
        return self._state is _State.TRAILER

    def feed(self, data: memoryview) -> tuple[list[Event], int]:
        """Decodes the next bytes, up to `EVENTS_MAX` events; returns the events and how many of the bytes were
        decoded. If there are more and the body did not end, call it again with them, after others had a turn.

        Raises:
            BodyMalformedError: the framing is broken or a limit is exceeded.
        """
        events: list[Event] = []
        at, end = 0, len(data)
        while at < end and self._state is not _State.DONE and len(events) < EVENTS_MAX:
            if self._state is _State.DATA:
                size = min(self._left, end - at)
                events.append(data[at : at + size])
                at += size
                self._left -= size
                if self._left == 0:
                    self._state = _State.DATA_END
                continue
            line, at = self._take_line(data, at)
            if line is not None:
                self._on_line(line, events)
        return events, at

    def _take_line(self, data: memoryview, at: int) -> tuple[bytes | None, int]:
        """Returns the next line without its end, if it is complete, and the position after the bytes used."""
        window = bytes(data[at : at + self._line_bytes_max + 2])
        newline = window.find(b"\n")
        part = window if newline < 0 else window[: newline + 1]
        self._line += part
        if len(self._line) > self._line_bytes_max + 2:
            raise BodyMalformedError(f"a line is longer than {self._line_bytes_max} bytes")
        if newline < 0:
            return None, at + len(part)
        line = bytes(self._line)
        self._line.clear()
        if line.endswith(b"\r\n"):
            line = line[:-2]
        elif self._last_trailer is not None and self._state is _State.TRAILER:
            line = line[:-1]
        else:
            raise BodyMalformedError("a line does not end with CR LF")
        return line, at + len(part)

    def _on_line(self, line: bytes, events: list[Event]) -> None:
        match self._state:
            case _State.SIZE:
                self._on_size(line, events)
            case _State.DATA_END:
                if line:
                    raise BodyMalformedError("a chunk is longer than its size says")
                self._state = _State.SIZE
            case _:
                self._on_trailer(line)

    def _on_size(self, line: bytes, events: list[Event]) -> None:
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise BodyMalformedError("a chunk does not begin with its size")
        size = int(match[1], 16)
        if size > self._chunk_bytes_max:
            raise BodyMalformedError(f"a chunk of {size} bytes, more than {self._chunk_bytes_max}")
        events.append(ChunkHead(size, match[2] or b""))
        self._left = size
        self._state = _State.DATA if size else _State.TRAILER

    def _on_trailer(self, line: bytes) -> None:
        if not line and (self._last_trailer is None or self._saw_last_trailer()):
            self._state = _State.DONE
            return
        # An empty line counts too: an endless sequence of them is not a body.
        self._trailer_bytes_left -= len(line) + 2
        if self._trailer_bytes_left < 0:
            raise BodyMalformedError("the trailers are too long")
        if line:
            self.trailers.append(line)

    def _saw_last_trailer(self) -> bool:
        if not self.trailers:
            return False
        name = self.trailers[-1].partition(b":")[0]
        return name.strip().lower() == self._last_trailer

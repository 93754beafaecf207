"""A minimal HTTP/1.1 parser that finds the end of an answer.

It does no I/O: it takes received bytes, keeps the status, and keeps the body only on request.
"""

from __future__ import annotations

__all__ = ["Answer"]

_HEAD_MAX = 64 << 10


class Answer:
    """One answer that is being received.

    Attributes:
        status: 0 until the head is complete.
        left: outstanding bytes of a body with a content length; a receiver may discard them and report
            them by `skip`.
        body: the kept part of the body.

    Args:
        is_head: whether it answers a HEAD request.
        keep: whether to keep the body of a success; that of a failure is always kept.
    """

    __slots__ = ("_chunked", "_data", "_head_done", "_is_head", "_keep", "body", "left", "status")

    def __init__(self, *, is_head: bool = False, keep: bool = False) -> None:
        self._is_head = is_head
        self._keep = keep
        self._data = bytearray()
        self._head_done = False
        self._chunked = False
        self.status = 0
        self.left = 0
        self.body = bytearray()

    def feed(self, data: bytes | memoryview) -> bool:
        """Takes received bytes; returns whether the answer is complete.

        Raises:
            ValueError: the bytes are not an HTTP answer, or more than one.
        """
        if self._head_done and not self._chunked:
            return self._take(data)
        self._data += data
        if not self._head_done and not self._read_head():
            return False
        if self._chunked:
            return self._read_chunks()
        rest = bytes(self._data)
        self._data.clear()
        return self._take(rest)

    def skip(self, count: int) -> bool:
        """Counts bytes of the body that the receiver discarded; returns whether the answer is complete."""
        self.left -= count
        return self.left == 0

    @property
    def may_skip(self) -> bool:
        """Whether the rest of the body may be discarded."""
        return self.left > 0 and not self._keep and self.status < 300

    def _take(self, data: bytes | memoryview) -> bool:
        if len(data) > self.left:
            raise ValueError(f"{len(data) - self.left} bytes behind the end of an answer")
        if self._keep or self.status >= 300:
            self.body += data
        return self.skip(len(data))

    def _read_head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > _HEAD_MAX:
                raise ValueError("the head of an answer has no end")
            return False
        head = bytes(self._data[:end]).lower()
        del self._data[: end + 4]
        if not head.startswith(b"http/1.1 "):
            raise ValueError(f"no HTTP answer: {head[:40]!r}")
        self.status = int(head[9:12])
        self._head_done = True
        if self._is_head or self.status in (204, 304):
            return True
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name == b"content-length":
                self.left = int(value)
            elif name == b"transfer-encoding":
                self._chunked = value.strip() == b"chunked"
        return True

    def _read_chunks(self) -> bool:
        while (end := self._data.find(b"\r\n")) >= 0:
            size = int(self._data[:end].split(b";")[0], 16)
            until = end + 2 + size
            if len(self._data) < until + 2:
                return False
            if self._keep or self.status >= 300:
                self.body += self._data[end + 2 : until]
            del self._data[: until + 2]
            if size == 0:
                if self._data:
                    raise ValueError(f"{len(self._data)} bytes behind the end of an answer")
                return True
        return False

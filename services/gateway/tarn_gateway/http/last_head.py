"""Heads of one connection, which repeat: a client's next request differs from its last one in the target, the
signature, the time, perhaps a range.

A head of the same lines but a few is not parsed again. A line may differ only in a value, of characters that can only
be a value, and only if its name means nothing to HTTP's framing (`_FREE`). So the grammar that llhttp has accepted
for the last head is that of this one, and what else `parse_head` checks depends on lines that are the same. All other
heads are parsed in general. A property test (tests/unit/gateway/http/test_last_head.py) says that both agree.
"""

from __future__ import annotations

import re
from itertools import compress
from operator import ne
from typing import Final

from tarn_gateway.http.head import Head, parse_head
from tarn_gateway.http.headers import Headers
from tarn_gateway.http.limits import HttpLimits

__all__ = ["LastHead"]

_BYTES_MAX: Final = 2048
"""Of a head that is remembered: each connection holds one."""
_FREE: Final = frozenset(
    {
        *("authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "range"),
        *("if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range"),
        *("amz-sdk-invocation-id", "amz-sdk-request", "x-amzn-trace-id", "traceparent"),
        *("content-md5", "x-amz-user-agent", "user-agent", "referer", "date"),
    }
)
"""Headers whose values change from one request to the next, and say nothing about its framing."""
_PLACES: Final = range(_BYTES_MAX)
_is_value = re.compile(rb"[!-~](?:[ -~]*[!-~])?").fullmatch
_first_line_of = re.compile(
    rb"(GET|HEAD|PUT|POST|DELETE) (/[A-Za-z0-9\-._~/%!$&'()*+,;=:@]*)"
    rb"(?:\?([A-Za-z0-9\-._~/%!$&'()*+,;=:@?]*))? HTTP/1\.1"
).fullmatch

Parsed = tuple[Head, str, bytes, bytes, Headers]
"""A head, of which only what does not change counts (its framing); then method, path, query and headers."""


class LastHead:
    """Parses the heads of one connection."""

    __slots__ = ("_begins", "_head", "_lines")

    def __init__(self) -> None:
        # The lines of the last head that can repeat, the request line first; without one, none.
        self._lines: list[bytes] = []

    def parse(self, data: bytes, limits: HttpLimits) -> Parsed:
        """Parses a head that ends with its empty line. Raises as `parse_head`."""
        lines = data.split(b"\r\n")
        if len(lines) == len(self._lines):
            found = self._again(lines, limits)
            if found is not None:
                return found
        head = parse_head(data, limits)
        self._remember(data, lines, head)
        return head, head.method, head.raw_path, head.raw_query, head.headers

    def _again(self, lines: list[bytes], limits: HttpLimits) -> Parsed | None:
        """Returns a head like the last one; None if it may be another one."""
        first = _first_line_of(lines[0])
        if first is None or len(lines[0]) > limits.url_bytes_max:
            return None
        begins, changed = self._begins, {}
        for at in compress(_PLACES, map(ne, lines, self._lines)):
            if at:
                begin, size, name = begins[at]
                line = lines[at]
                value = line[size:]
                if not (size and line.startswith(begin) and _is_value(value)):
                    return None
                changed[name] = value.decode()
        method, path, query = first.groups(b"")
        headers = self._head.headers
        return (
            self._head,
            method.decode(),
            path,
            query,
            headers.changed(changed) if changed else headers,
        )

    def _remember(self, data: bytes, lines: list[bytes], head: Head) -> None:
        """Remembers a head, if it can repeat."""
        self._lines = []
        headers = head.headers
        is_each_a_line = (
            len(headers) == len(lines) - 3
        )  # those of request and end, and what is behind it
        if len(data) > _BYTES_MAX or not is_each_a_line or not _first_line_of(lines[0]):
            return
        begins = [(b"", 0, "")]
        for line in lines[1:-2]:
            begin, blank, value = line.partition(b": ")
            name = begin.decode("latin-1").lower()
            if blank and name in _FREE and headers.get(name) == value.decode("latin-1"):
                begins.append((begin + blank, len(begin + blank), name))
            else:
                begins.append((b"", 0, ""))
        self._head, self._begins, self._lines = head, begins, lines

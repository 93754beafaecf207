"""Writes one file to the bucket by presigned URLs, past the S3 endpoint of Tarn (docs/design/links.md)."""

from __future__ import annotations

import hashlib
import html
import http.client
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urlsplit

from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.transfer import Advance, run_all
from tarn_proto.graveler.v1 import link_service_pb2 as pb

__all__ = ["PART_BYTES", "BucketObject", "part_count_of", "write"]

PART_BYTES: Final = 64 << 20
"""Files up to this size are written by one PUT, larger ones in parts of at least this size."""

_PARTS_MAX: Final = 1000
_TRIES: Final = 4
_PAUSE_S: Final = 0.5
_TIMEOUT_S: Final = 120.0
_ANSWER_BYTES_MAX: Final = 1 << 20
_ETAG = re.compile(r"<ETag>([^<]{1,200})</ETag>")


@dataclass(frozen=True, slots=True)
class BucketObject:
    """The object that the bucket holds now.

    Attributes:
        size: bytes.
        etag: the bucket's, without quotes.
    """

    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    etag: str
    text: str


class _Span:
    """A part of a file as a body: counts and digests the bytes that are read."""

    def __init__(self, file: BinaryIO, size: int, advance: Advance) -> None:
        self._file = file
        self._left = size
        self._advance = advance
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.sent = 0

    @property
    def md5(self) -> str:
        """Of the bytes that were read, in hex."""
        return self._md5.hexdigest()

    def read(self, count: int = -1) -> bytes:
        """Returns the next bytes of the part."""
        chunk = self._file.read(self._left if count < 0 else min(count, self._left))
        self._left -= len(chunk)
        self.sent += len(chunk)
        self._md5.update(chunk)
        self._advance(len(chunk))
        return chunk


def part_count_of(size: int) -> int:
    """Returns the number of parts for a file of `size` bytes; 0 for one PUT."""
    return 0 if size <= PART_BYTES else min(-(-size // PART_BYTES), _PARTS_MAX)


def write(
    source: Path, issued: pb.GetPhysicalAddressResponse, workers: int, advance: Advance
) -> BucketObject:
    """Writes a file to an issued address; parts in parallel.

    Args:
        source: the file; it must not change meanwhile.
        issued: the address, with as many parts as `part_count_of` says.
        workers: concurrent parts.
        advance: is called with numbers of bytes that were sent.

    Raises:
        CliError: the bucket refuses the write, or does not answer; nothing was linked.
    """
    size = source.stat().st_size
    if not issued.part_urls:
        return BucketObject(size, _put(source, 0, size, issued.put_url, issued.headers, advance))
    part = -(-size // len(issued.part_urls))
    etags: dict[int, str] = {}

    def work_of(number: int) -> Callable[[], int]:
        def work() -> int:
            start = (number - 1) * part
            length = min(part, size - start)
            etags[number] = _put(source, start, length, issued.part_urls[number - 1], {}, advance)
            return 1

        return work

    run_all((work_of(number + 1) for number in range(len(issued.part_urls))), workers)
    listed = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{etags[number]}&quot;</ETag></Part>"
        for number in sorted(etags)
    )
    body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    headers = {**issued.headers, "Content-Type": "application/xml"}
    answer = _send("POST", issued.complete_url, body, len(body), headers)
    found = _ETAG.search(answer.text)
    if answer.status != http.HTTPStatus.OK or found is None:
        raise _refused(answer)
    return BucketObject(size, html.unescape(found[1]).strip('"'))


def _put(
    source: Path, start: int, size: int, url: str, headers: Mapping[str, str], advance: Advance
) -> str:
    """Puts a part of a file; returns the ETag. Repeats the request after failures that may pass."""
    for attempt in range(1, _TRIES + 1):
        with source.open("rb") as file:
            file.seek(start)
            span = _Span(file, size, advance)
            try:
                answer = _send("PUT", url, span, size, headers)
            except OSError as error:
                if attempt == _TRIES:
                    text = f"the bucket does not answer: {error}; nothing was linked"
                    raise CliError(Exit.UNAVAILABLE, text) from error
            else:
                if answer.status == http.HTTPStatus.OK and answer.etag:
                    return answer.etag
                if answer.status == http.HTTPStatus.PRECONDITION_FAILED and attempt > 1:
                    # An earlier try arrived. The ETag of one PUT is its MD5, and the link compares it.
                    return span.md5
                if answer.status < http.HTTPStatus.INTERNAL_SERVER_ERROR or attempt == _TRIES:
                    raise _refused(answer)
            advance(-span.sent)
        time.sleep(_PAUSE_S * attempt)
    raise AssertionError("the loop returns or raises")


def _send(
    method: str, url: str, body: _Span | bytes, size: int, headers: Mapping[str, str]
) -> _Answer:
    """Sends one request.

    Raises:
        OSError: no answer.
    """
    parts = urlsplit(url)
    where = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPSConnection(
            *where, timeout=_TIMEOUT_S, context=ssl.create_default_context()
        )
        if parts.scheme == "https"
        else http.client.HTTPConnection(*where, timeout=_TIMEOUT_S)
    )
    try:
        sent = {**headers, "Content-Length": str(size)}
        connection.request(method, f"{parts.path}?{parts.query}", body, sent)
        answer = connection.getresponse()
        text = answer.read(_ANSWER_BYTES_MAX).decode(errors="replace")
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()
    return _Answer(answer.status, (answer.getheader("ETag") or "").strip('"'), text)


def _refused(answer: _Answer) -> CliError:
    code = re.search(r"<Code>([^<]{1,80})</Code>", answer.text)
    text = f"the bucket answered {answer.status} {code[1] if code else ''}; nothing was linked"
    exits: dict[int, Exit] = {403: Exit.DENIED, 503: Exit.UNAVAILABLE}
    return CliError(exits.get(answer.status, Exit.FAILURE), text)

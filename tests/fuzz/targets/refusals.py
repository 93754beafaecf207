"""Checks of the gateway's refusals: each is the client's fault, and an answer that can be sent."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from lxml import etree
from tests.support.fuzz.target import PropertyError

from tarn.core.errors import Kind, TarnError
from tarn_gateway.http import Headers, Request, Response
from tarn_gateway.http.response_writer import Framing, render_head
from tarn_gateway.s3error import S3Error, error_response, from_tarn_error

__all__ = ["corrupt_only", "gateway", "headers_are_headers", "sendable"]

_T = TypeVar("_T")
_PARSER = etree.XMLParser(resolve_entities=False, no_network=True)


def gateway(request: Request, work: Callable[[], _T]) -> _T:
    """Runs a step of the gateway; a refusal must be a 4xx (or 501) that can be sent."""
    try:
        return work()
    except S3Error as error:
        _hold(request, error)
        raise
    except TarnError as error:
        _hold(request, from_tarn_error(error))
        raise


def _hold(request: Request, error: S3Error) -> None:
    if error.status >= 500 and error.status != 501:
        raise PropertyError(f"a request is answered {error.status}") from error
    answer = error_response(error, request)
    assert isinstance(answer.body, bytes)
    try:
        etree.fromstring(answer.body, _PARSER)
    except etree.XMLSyntaxError as broken:
        raise PropertyError(f"an error document is not XML: {answer.body!r}") from broken
    sendable(answer)


def sendable(answer: Response) -> None:
    """Checks that the head of an answer can be written and has valid headers."""
    try:
        framing = Framing(0, chunked=False, connection="")
        render_head(answer, "", "0" * 20, framing, "total;dur=0.0")
    except ValueError as error:
        raise PropertyError(f"an answer has no head: {answer.headers}") from error


def headers_are_headers(headers: Headers) -> None:
    """Checks that no name and no value contains the end of a line."""
    for name, value in headers.pairs:
        for text in (name, value):
            text.encode("latin-1")
            if any(letter in text for letter in "\r\n\0"):
                raise PropertyError(f"no header: {name!r}: {value!r}")


_ARROW_BYTES_MAX = 16 << 31
"""Memory of the largest page of a Parquet file: the greatest number of values, 16 bytes each."""


def _is_one_page(error: BaseException) -> bool:
    requested = re.search(r"(?:malloc|realloc) of size (\d+) failed", str(error))
    return requested is not None and int(requested[1]) <= _ARROW_BYTES_MAX


def corrupt_only(work: Callable[[], _T]) -> _T:
    """Runs a decoder of stored bytes, which may refuse them only as damaged.

    Running out of memory is not damage: the code was made to request too much. The exception is one page of a
    Parquet file: Arrow trusts the sizes in its head, bytes and values, each up to 31 bits. It allocates that
    much and fills only what exists.
    """
    try:
        return work()
    except TarnError as error:
        if error.kind is not Kind.CORRUPT:
            raise PropertyError(f"damage is reported as {error!r}") from error
        try:
            error.message.encode()
        except UnicodeEncodeError:
            raise PropertyError(f"a refusal that no log can hold: {error!r}") from error
        if isinstance(error.__cause__, MemoryError) and not _is_one_page(error.__cause__):
            raise PropertyError(f"memory was asked for without a bound: {error!r}") from error
        raise

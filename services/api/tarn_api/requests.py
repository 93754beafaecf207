"""Reads requests: finds the operation of a path, and checks parameters and body against the document's types.

All is bounded before work is done: paths and queries by the head (`tarn_api.http`), a body by its own bound, by the
time in which it must come, and together with all other bodies by `BodyBudget`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from operator import methodcaller
from typing import Any, Final, TypeVar, overload
from urllib.parse import unquote_plus, unquote_to_bytes

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from tarn_api.errors import ApiError
from tarn_rest.operations import Operation

__all__ = [
    "BODY_BYTES_MAX",
    "ApiRequest",
    "BodyBudget",
    "HeaderIndex",
    "Routes",
    "announced_size",
    "decode_body",
    "decode_parameters",
    "query_fields",
    "read_body",
]

BODY_BYTES_MAX: Final = 2 * 1024 * 1024
"""A thousand paths of a kibibyte, as the largest documents have."""
_BODY_S: Final = 10.0
_BODY_RATE: Final = 16 * 1024
"""Bytes per second beyond `_BODY_S`."""
_QUERY_FIELDS_MAX: Final = 200
_KEPT_NAMES_MAX: Final = 256
"""Of headers."""
_KEPT_PATHS_MAX: Final = 1024
_KEPT_PATH_BYTES_MAX: Final = 256
"""What was found for a path is kept, as strangers may send paths: a megabyte in all."""

Segments = tuple[str, ...]
T = TypeVar("T")


class _Node:
    """A place in the tree of paths."""

    __slots__ = ("by_method", "literals", "parameter")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        # The operation, the names of the values in its path, and their segments.
        self.by_method: dict[str, tuple[Operation, Segments, Sequence[int]]] = {}


class Routes:
    """The paths of operations. A look-up takes one step for each segment."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        self._kept = lru_cache(_KEPT_PATHS_MAX)(self._find)
        for operation in operations:
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        node, names, places = self._root, [], []
        for place, segment in enumerate(operation.path.strip("/").split("/")):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                places.append(place)
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.literals.setdefault(segment, _Node())
        node.by_method[operation.method] = operation, tuple(names), tuple(places)

    def find(self, method: str, raw_path: bytes) -> tuple[Operation, Mapping[str, str]]:
        """Returns the operation of a path below the base path, and the values in it.

        Raises:
            ApiError: 404, 405; 400: a segment is not UTF-8.
        """
        # The paths of objects are in queries, so nearly all requests have one of a few paths.
        is_short = len(raw_path) <= _KEPT_PATH_BYTES_MAX
        return (self._kept if is_short else self._find)(method, raw_path)

    def _find(self, method: str, raw_path: bytes) -> tuple[Operation, Mapping[str, str]]:
        segments = [_text(each) for each in raw_path.strip(b"/").split(b"/")]
        node = _found(self._root, segments)
        if node is None:
            raise ApiError(404, "there is no such path in this interface", reason="NO_SUCH_PATH")
        if method not in node.by_method:
            allowed = ", ".join(sorted(node.by_method))
            text = f"this path takes {allowed}, not {method}"
            raise ApiError(405, text, reason="METHOD_NOT_ALLOWED", headers={"Allow": allowed})
        operation, names, places = node.by_method[method]
        return operation, {name: segments[at] for name, at in zip(names, places, strict=True)}


def _text(segment: bytes) -> str:
    try:
        return (unquote_to_bytes(segment) if b"%" in segment else segment).decode()
    except UnicodeDecodeError as error:
        raise ApiError(400, "the path is not UTF-8", reason="MALFORMED") from error


def _found(node: _Node, segments: Sequence[str]) -> _Node | None:
    """Returns the node of a path: a literal segment precedes a parameter, unless the rest does not fit."""
    at = 0
    others: list[tuple[_Node, int]] = []
    while True:
        if at == len(segments):
            if node.by_method:
                return node
        else:
            segment, parameter = segments[at], node.parameter
            at += 1
            if (literal := node.literals.get(segment)) is not None:
                if parameter is not None:
                    others.append((parameter, at))
                node = literal
                continue
            if parameter is not None and segment:
                node = parameter
                continue
        if not others:
            return None
        node, at = others.pop()


def decode_parameters(
    operation: Operation, in_path: Mapping[str, str], request: Request
) -> msgspec.Struct:
    """Returns the parameters of a request; unknown ones are ignored, as lakeFS does.

    Raises:
        ApiError: 400; names the parameter.
    """
    values: dict[str, object] = {}
    for name, value in query_fields(request.scope["query_string"]):
        if name in operation.lists:
            many = values.setdefault(name, [])
            assert isinstance(many, list)
            many.append(value)
        else:
            values.setdefault(name, value)
    for name in operation.headers:
        if (value_of := request.headers.get(name)) is not None:
            values[name] = value_of
    values |= in_path
    try:
        return msgspec.convert(values, operation.parameters, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid("parameter", error) from error


def query_fields(query: bytes) -> list[tuple[str, str]]:
    """Returns the names and values of a query, as `urllib.parse.parse_qsl` does in three times the time.

    Raises:
        ApiError: 400.
    """
    fields = []
    try:
        pairs = query.decode("ascii").split("&")
        if len(pairs) > _QUERY_FIELDS_MAX:
            raise ValueError(f"{len(pairs)} fields")
        for pair in filter(None, pairs):
            # Most values are paths. No escape begins within another one, or at its end.
            pair = pair.replace("%2F", "/")  # noqa: PLW2901
            name, _, value = pair.partition("=")
            if "%" in pair or "+" in pair:
                name, value = (
                    unquote_plus(name, errors="strict"),
                    unquote_plus(value, errors="strict"),
                )
            fields.append((name, value))
    except ValueError as error:
        text = f"the query has more than {_QUERY_FIELDS_MAX} parameters, or is not UTF-8"
        raise ApiError(400, text, reason="MALFORMED") from error
    return fields


def decode_body(operation: Operation, body: bytes) -> object:
    """Returns the JSON of a body as the operation's type; None if there is none, and none is needed.

    Raises:
        ApiError: 400; names the field.
    """
    if not body and not operation.is_body_required:
        return None
    try:
        return msgspec.json.decode(body, type=operation.body)
    except msgspec.ValidationError as error:
        raise _invalid("body", error) from error
    except (ValueError, RecursionError) as error:  # also what is not UTF-8
        text = f"the body is not JSON: {error}" if body else "the body is missing"
        raise ApiError(400, text, reason="MALFORMED") from error


def _invalid(what: str, error: msgspec.ValidationError) -> ApiError:
    return ApiError(400, f"{what}: {error}".replace("`$.", "`"), reason="INVALID_ARGUMENT")


_DECODED: Final = methodcaller("decode", "latin-1")


@lru_cache(_KEPT_NAMES_MAX)  # code and the document name them
def _encoded(name: str) -> bytes:
    return name.lower().encode("latin-1")


class HeaderIndex(Headers):
    """Starlette's headers, with one look-up for a name instead of a walk over all."""

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        super().__init__(raw=raw)
        # Of several values the first one, as there.
        self._values = dict(reversed(raw))

    def __getitem__(self, key: str) -> str:
        return self._values[_encoded(key)].decode("latin-1")

    def __iter__(self) -> Iterator[Any]:
        return map(_DECODED, self._values)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and _encoded(key) in self._values

    @overload
    def get(self, key: str, /) -> str | None: ...
    @overload
    def get(self, key: str, default: str, /) -> str: ...
    @overload
    def get(self, key: str, default: T, /) -> str | T: ...
    def get(self, key: str, default: object = None, /) -> object:
        """Returns the first value of a name."""
        found = self._values.get(_encoded(key))
        return default if found is None else found.decode("latin-1")


class ApiRequest(Request):
    """Starlette's request, which is asked for many headers.

    Args:
        scope, receive: of ASGI.
        rest: takes what is left of the body, if all of it has come; None: wait for it.

    Attributes:
        headers: instead of Starlette's property, which looks at each use whether it has made them.
    """

    headers: HeaderIndex = None  # type: ignore[assignment]

    def __init__(self, scope: Scope, receive: Receive, rest: Callable[[], bytes | None]) -> None:
        super().__init__(scope, receive)
        self.rest = rest
        self.headers = HeaderIndex(scope["headers"])


class BodyBudget:
    """Bytes of bodies that this process receives at once.

    Args:
        bytes_max: of all bodies, by their announced sizes; one without a size counts as the largest.
    """

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max

    @asynccontextmanager
    async def held(self, size: int) -> AsyncIterator[None]:
        """Holds the bytes of a body until the block ends.

        Raises:
            ApiError: 503: too many are being received.
        """
        if size > self._left:
            raise ApiError(
                503, "too many bodies are being received; try again", reason="OVERLOADED"
            )
        self._left -= size
        try:
            yield
        finally:
            self._left += size


def announced_size(request: Request) -> int | None:
    """Returns the announced bytes of a body, 0 without one; None if it comes in chunks."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal():
        return int(announced)
    return None if "transfer-encoding" in request.headers else 0


async def read_body(
    request: ApiRequest, budget: BodyBudget, bytes_max: int = BODY_BYTES_MAX
) -> bytes:
    """Returns the body of a request.

    Raises:
        ApiError: 413; 408: it comes too slowly; 400: it ends too early; 503.
    """
    announced = announced_size(request)
    if announced == 0:
        return b""
    size = bytes_max if announced is None else announced
    if size > bytes_max:
        raise _too_large(bytes_max)
    if (
        rest := request.rest()
    ) is not None:  # it is in memory already, within the bound of its connection
        if len(rest) > bytes_max:
            raise _too_large(bytes_max)
        return rest
    pieces = bytearray()
    async with budget.held(size):
        try:
            async with asyncio.timeout(_BODY_S + size / _BODY_RATE):
                async for piece in request.stream():
                    pieces += piece
                    if len(pieces) > bytes_max:
                        raise _too_large(bytes_max)
        except TimeoutError:
            text = "the body came too slowly; send it again"
            raise ApiError(408, text, reason="TOO_SLOW") from None
        except ClientDisconnect:
            text = "the connection ended within the body"
            raise ApiError(400, text, reason="DISCONNECTED") from None
    return bytes(pieces)


def _too_large(bytes_max: int) -> ApiError:
    return ApiError(413, f"the body has more than {bytes_max} bytes", reason="TOO_LARGE")

"""CORS: the document of rules, their form in JSON, and what browsers are told by them.

An input is a document, a zero byte, and headers of a request of a browser, a line for each.
"""

from __future__ import annotations

import random
import re
from collections.abc import Coroutine
from typing import Any, cast

from tests.fuzz.targets.refusals import gateway, headers_are_headers, sendable
from tests.fuzz.targets.xml import deep, document_type, named, other_reader, within
from tests.support.fuzz.target import PropertyError, Target

from tarn.core.cors import CORS_BYTES_MAX, CORS_RULES_MAX, CorsRule, cors_to_json, parse_cors
from tarn.core.errors import Kind, TarnError
from tarn_gateway.cors import CorsCache, cors_headers, preflight
from tarn_gateway.documents.cors import cors_document, cors_parser
from tarn_gateway.http import BodyReader, Headers, Request, Response
from tarn_gateway.s3error import S3Error

__all__ = ["TARGET"]

Rules = tuple[CorsRule, ...]

_LISTS = ("AllowedOrigin", "AllowedMethod", "AllowedHeader", "ExposeHeader")


class _Known:
    """The rules of every bucket."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    async def rules(self, bucket: str) -> Rules:
        return self._rules


def _check(data: bytes) -> str:
    document, _, head = data.partition(b"\0")
    request = _request(head)
    rules: Rules = ()
    words = []
    for read in (_read_document, _read_json):
        try:
            rules = gateway(request, lambda read=read: read(document)) or rules  # type: ignore[misc]  # a default
            words.append("taken")
        except S3Error as error:
            words.append(error.code)
        except TarnError as error:
            words.append(error.reason)
    cache = cast("CorsCache", _Known(rules))
    for answer in (_preflight, _answer):
        try:
            words.append(gateway(request, lambda answer=answer: answer(cache, request, rules)))  # type: ignore[misc]  # a default
        except S3Error as error:
            words.append(error.code)
    return " ".join(words)


def _request(head: bytes) -> Request:
    pairs = []
    for line in head.decode("latin-1").split("\n"):
        name, colon, value = line.partition(":")
        if colon and not re.search(r"[\r\0]", line):
            pairs.append((name.strip().lower(), value.strip(" \t")))
    return Request("GET", b"/lake/k", b"", Headers(pairs), BodyReader(0), request_id="0" * 20)


def _parsed(pieces: list[bytes]) -> Rules:
    parser = cors_parser()
    for piece in pieces:
        parser.feed(piece)
    return parser.finish()


def _read_document(data: bytes) -> Rules:
    rules = _parsed([data])
    if rules != _parsed([data[at : at + 1] for at in range(len(data))]):
        raise PropertyError("the pieces of a document change what it says")
    if not 1 <= len(rules) <= CORS_RULES_MAX:
        raise PropertyError(f"{len(rules)} rules")
    if _parsed([cors_document(rules)]) != rules:
        raise PropertyError(f"other rules come back than {rules}")
    _is_stored(rules)
    if (other := other_reader(data)) is not None:
        said = [[_texts(each, name) for name in _LISTS] for each in named(other, "CORSRule")]
        found = [
            [each.allowed_origins, each.allowed_methods, each.allowed_headers, each.expose_headers]
            for each in rules
        ]
        if said != found:
            raise PropertyError(f"rules {found}, by another parser {said}")
    return rules


def _texts(element: Any, name: str) -> tuple[str, ...]:
    return tuple("".join(each.itertext()).strip() for each in named(element, name))


def _read_json(data: bytes) -> Rules:
    rules = parse_cors(data.decode("utf-8", "replace"))
    _is_stored(rules)
    return rules


def _is_stored(rules: Rules) -> None:
    """Rules come back from the row that holds them, which is bounded."""
    try:
        text = cors_to_json(rules)
    except TarnError as error:
        if error.kind is not Kind.INVALID:
            raise PropertyError(f"rules are answered {error!r}") from error
        return
    if parse_cors(text) != rules or len(text.encode()) > CORS_BYTES_MAX:
        raise PropertyError(f"other rules come back than {rules}")


def _preflight(cache: CorsCache, request: Request, rules: Rules) -> str:
    answer: Response = _done(preflight(cache, request, "lake", is_key=True))
    sendable(answer)
    found = Headers([(name.lower(), value) for name, value in answer.headers])
    headers_are_headers(found)
    method = request.headers.text("access-control-request-method")
    names = request.headers.text("access-control-request-headers").lower().split(",")
    _is_allowed(rules, request, found, method, [name.strip() for name in names if name.strip()])
    return "allowed"


def _answer(cache: CorsCache, request: Request, rules: Rules) -> str:
    found = Headers([(n.lower(), v) for n, v in _done(cors_headers(cache, request, "lake"))])
    headers_are_headers(found)
    sendable(Response(200, [*found.pairs]))
    if not found.text("access-control-allow-origin"):
        return "hidden"
    _is_allowed(rules, request, found, request.method, [])
    return "shown"


def _is_allowed(
    rules: Rules, request: Request, found: Headers, method: str, names: list[str]
) -> None:
    """A rule allows what a browser is told, and the rule of all origins tells nothing about credentials."""
    origin, told = request.headers.text("origin"), found.text("access-control-allow-origin")
    if told not in ("*", origin):
        raise PropertyError(f"{origin} is told that {told} is allowed")
    if told == "*" and found.text("access-control-allow-credentials"):
        raise PropertyError("pages of all origins may use credentials")
    if not any(
        _fits(rule.allowed_origins, origin)
        and method in rule.allowed_methods
        and all(_fits([each.lower() for each in rule.allowed_headers], name) for name in names)
        for rule in rules
    ):
        raise PropertyError(f"no rule of {rules} allows {origin} {method} {names}")


def _fits(patterns: Any, text: str) -> bool:
    forms = (".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns)
    return any(re.fullmatch(form, text, re.DOTALL) for form in forms)


def _done(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of work that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


_ORIGINS = (b"*", b"https://a.example", b"https://*.example", b"http*://a:8", b"null", b"a*b*", b"")
_NAMES = (b"*", b"x-amz-*", b"content-type", b"X-Amz-Date", b"a b", b"")
_METHODS = (b"GET", b"PUT", b"HEAD", b"OPTIONS", b"get")


def _rule(rng: random.Random) -> bytes:
    """Returns a rule of the document, mostly a valid one."""
    fields = [b"<AllowedOrigin>%b</AllowedOrigin>" % rng.choice(_ORIGINS)]
    fields += [b"<AllowedMethod>%b</AllowedMethod>" % rng.choice(_METHODS)]
    fields += [b"<AllowedHeader>%b</AllowedHeader>" % rng.choice(_NAMES)] * rng.randrange(2)
    fields += [b"<ExposeHeader>%b</ExposeHeader>" % rng.choice(_NAMES)] * rng.randrange(2)
    age = rng.choice((b"0", b"600", b"-1", b"9" * 10, b"9" * 11, b"\xd9\xa3"))
    fields += [b"<MaxAgeSeconds>%b</MaxAgeSeconds>" % age] * rng.randrange(2)
    return b"<CORSRule>%b</CORSRule>" % b"".join(fields) * rng.choice((1, 1, 2, 101))


def _asked(rng: random.Random, data: bytes) -> bytes:
    """Asks as a browser would, about the rules of the input."""
    document = data.partition(b"\0")[0]
    origin = rng.choice((*_ORIGINS, b"https://x.example", b"https://.example"))
    lines = [b"origin: " + origin]
    lines += [b"access-control-request-method: " + rng.choice(_METHODS)]
    names = b",".join(rng.choice(_NAMES) for _ in range(rng.choice((0, 1, 2, 120))))
    lines += [b"access-control-request-headers: " + names]
    return document + b"\0" + b"\n".join(rng.sample(lines, rng.choice((2, 3, 3))))


TARGET = Target(
    "cors",
    _check,
    refusals=(S3Error, TarnError),
    traced=("tarn_gateway.documents.cors", "tarn_gateway.cors", "tarn.core.cors"),
    mutations=(within(_rule), within(deep), within(document_type), _asked),
    tokens=(
        b"\0", b"<CORSConfiguration>", b"</CORSConfiguration>", b"<ID>", b"</ID>", b'{"CORSRules": [',
        b'{"AllowedOrigins": ["*"], "AllowedMethods": ["GET"]}', b'"MaxAgeSeconds": 1', b'"\\ud800"',
        b"]}", b"origin: ", b"access-control-request-method: GET", b"access-control-request-headers: ",
    ),
    input_bytes_max=8192,
    share=0.5,
)  # fmt: skip

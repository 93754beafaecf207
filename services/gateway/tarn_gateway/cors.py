"""What browsers are told about buckets: preflights, and the CORS headers of answers (docs/user/browsers.md).

A preflight has no credentials. So it learns nothing but what the rules allow: the refusal is the same for a bucket
without such a rule, without rules, and for none. Rules are policy of browsers and no permission, so they may be some
seconds old. Names that this gateway has not seen rules of are looked up at a limited rate, all together.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tarn.aio.bounded_map import BoundedMap
from tarn.aio.single_flight import SingleFlight
from tarn.aio.ttl_cache import TtlCache
from tarn.client.graveler import GravelerClient
from tarn.core.clock import Clock, IdSource
from tarn.core.cors import CORS_METHODS, CorsRule, match_cors, parse_cors
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_repository_id
from tarn.core.quota import TokenBucket
from tarn.rpc.wire.call import Call
from tarn_gateway.http import Headers, Request, Response
from tarn_gateway.s3error import S3Error

__all__ = ["CorsCache", "cors_headers", "preflight"]

_TTL_S: Final = 5.0
_CALL_S: Final = 5.0
_KNOWN_MAX: Final = 1024
_ABSENT_MAX: Final = 4096
_LOOKUPS_PER_SECOND: Final = 50.0
"""Of names without known rules, by all callers of this gateway. Anonymous ones can ask for any name."""

_ORIGIN: Final = re.compile(r"[!-~]{1,512}", re.ASCII)
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]{1,128}", re.ASCII)
_METHOD: Final = "access-control-request-method"
_HEADERS: Final = "access-control-request-headers"
_VARY: Final = "Vary"

Rules = tuple[CorsRule, ...]
Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Known:
    rules: Rules
    end: float


class CorsCache:
    """The CORS rules of buckets, at most five seconds old.

    Args:
        graveler: knows the rules.
        clock: time.
        ids: names the calls.
        own_token: returns the caller token of this gateway as a service.
    """

    def __init__(
        self,
        graveler: GravelerClient,
        clock: Clock,
        ids: IdSource,
        own_token: Callable[[Call], Awaitable[str]],
    ) -> None:
        self._graveler = graveler
        self._clock = clock
        self._ids = ids
        self._own_token = own_token
        # Names that had rules stay after their time, so that strangers cannot keep them from being looked up again.
        self._known: BoundedMap[str, _Known] = BoundedMap(_KNOWN_MAX)
        self._absent: TtlCache[str, Rules] = TtlCache(clock, _ABSENT_MAX)
        # A failure is shared: otherwise those who wait would try one after the other.
        self._flights: SingleFlight[str, Rules] = SingleFlight(
            lambda _: S3Error("ServiceUnavailable", "The CORS rules of the bucket cannot be read.")
        )
        self._lookups = TokenBucket(_LOOKUPS_PER_SECOND, clock.monotonic())

    async def rules(self, bucket: str) -> Rules:
        """Returns the rules of a bucket; none for a name of nothing, also for one that nothing can have.

        Raises:
            S3Error: SlowDown: too many unknown names are asked for.
            TarnError: graveler or auth gives no answer.
        """
        now = self._clock.monotonic()
        known = self._known.get(bucket)
        if known is not None and now < known.end:
            return known.rules
        if known is None:
            if self._absent.get(bucket) is not None:
                return ()
            try:
                parse_repository_id(bucket)
            except TarnError:
                return ()
        return await self._flights.run(bucket, lambda: self._read(bucket, is_new=known is None))

    async def _read(self, bucket: str, *, is_new: bool) -> Rules:
        begin = self._clock.monotonic()
        if is_new:
            if self._lookups.wait_seconds(begin, 1):
                text = "Too many buckets are asked for their CORS rules at once; try again."
                raise S3Error("SlowDown", text)
            self._lookups.take(begin, 1)
        call = Call(self._ids.nonce().hex(), "", begin + _CALL_S)
        call = replace(call, caller_token=await self._own_token(call))
        try:
            found = (await self._graveler.get_bucket_cors(call, bucket)).rules_json
        except TarnError as error:
            # A replica of the last release has no rules.
            if error.reason is not Reason.BUCKET_NOT_FOUND and error.kind is not Kind.UNIMPLEMENTED:
                raise
            found = ""
        rules = parse_cors(found)
        if rules:
            self._known.put(bucket, _Known(rules, begin + _TTL_S))
        else:
            self._known.pop(bucket)
            self._absent.put(bucket, (), begin + _TTL_S)
        return rules

    def forget(self, bucket: str) -> None:
        """Drops the rules of a bucket, which were changed."""
        self._known.pop(bucket)
        self._absent.pop(bucket)


def _answer(rule: CorsRule, allowed: str) -> Pairs:
    pairs = [
        ("Access-Control-Allow-Origin", allowed),
        ("Access-Control-Allow-Methods", ", ".join(rule.allowed_methods)),
    ]
    if rule.expose_headers:
        pairs.append(("Access-Control-Expose-Headers", ", ".join(rule.expose_headers)))
    if rule.max_age_s is not None:
        pairs.append(("Access-Control-Max-Age", str(rule.max_age_s)))
    if allowed != "*":
        pairs.append(("Access-Control-Allow-Credentials", "true"))
    return pairs


async def cors_headers(cache: CorsCache, request: Request, bucket: str) -> Pairs:
    """Returns the headers that every answer of a request gets, also an error: none without an `Origin`.

    If the rules cannot be read, the answer has none: then the browser hides it from the page.
    """
    origin = request.headers.get("origin")
    if origin is None or not bucket:
        return []
    try:
        rules = await cache.rules(bucket)
    except (TarnError, S3Error):
        return [(_VARY, "Origin")]
    if not rules:
        return []
    found = match_cors(rules, origin, request.method) if _ORIGIN.fullmatch(origin) else None
    return [*(_answer(*found) if found else ()), (_VARY, "Origin")]


async def preflight(cache: CorsCache, request: Request, bucket: str, *, is_key: bool) -> Response:
    """Answers `OPTIONS`: what a page of an origin may do.

    Raises:
        S3Error: BadRequest without an origin or a method of CORS, or for a name that no header has; AccessForbidden: no
            rule allows it, or there is no such bucket; SlowDown: see `CorsCache.rules`.
        TarnError: graveler or auth gives no answer.
    """
    headers = request.headers
    origin, method = headers.get("origin"), headers.text(_METHOD)
    if not origin:
        raise S3Error("BadRequest", "Insufficient information. Origin request header needed.")
    if method not in CORS_METHODS:
        text = f"Invalid Access-Control-Request-Method: {method[:20] or 'null'}"
        raise S3Error("BadRequest", text)
    names = _requested(headers)
    rules = await cache.rules(bucket) if bucket else ()
    found = None
    if _ORIGIN.fullmatch(origin):
        found = match_cors(rules, origin, method, frozenset(names))
    if found is None:
        kind = "OBJECT" if is_key else "BUCKET" if bucket else "SERVICE"
        raise S3Error("AccessForbidden", Method=method, ResourceType=kind)
    pairs = _answer(*found)
    if names:
        pairs.append(("Access-Control-Allow-Headers", ", ".join(names)))
    pairs.append((_VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method"))
    return Response(200, pairs)


def _requested(headers: Headers) -> Sequence[str]:
    """Returns the names of the headers that a page wants to send, in lower case; raises S3Error BadRequest."""
    names: dict[str, None] = {}
    for each in headers.text(_HEADERS).split(","):
        name = each.strip().lower()
        if name and not _NAME.fullmatch(name):
            text = f'Access-Control-Request-Headers "{each[:80]}" contains invalid character.'
            raise S3Error("BadRequest", text)
        if name:
            names[name] = None
    return list(names)

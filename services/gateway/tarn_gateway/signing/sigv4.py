"""Verifies AWS Signature Version 4 for S3.

Requests of version 2 are read before, where they are accepted (`signing.sigv2`), and anonymous ones are told apart by
`is_anonymous`. For all others, `parse_authorization` alone decides whether and how a request is signed, and checks
everything that can be checked without the key. `verify` compares the signature. Between the two calls the caller
obtains the signing key of (access key, day, region, service), which it may cache: the gateway never sees a secret.
Each rule prevents a known attack: docs/design/security.md, "Signatures".
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn

from tarn.core.value import hot_value
from tarn_gateway.http import Headers, Request
from tarn_gateway.requests.query import Query, parse_query
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.canonical import encoded_form, received_form, tail_of

__all__ = [
    "HIDDEN",
    "SERVICE",
    "UNSIGNED_PAYLOAD",
    "PAYLOAD_MODES",
    "SigV4Policy",
    "SignedRequest",
    "anonymous_refusal",
    "is_anonymous",
    "parse_authorization",
    "unsigned",
    "verify",
]

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "s3"
TERMINATOR: Final = "aws4_request"
EXPIRES_S_MAX: Final = 604_800
"""The maximum life of a presigned URL: a week."""

UNSIGNED_PAYLOAD: Final = "UNSIGNED-PAYLOAD"
PAYLOAD_MODES: Final = frozenset(
    {
        UNSIGNED_PAYLOAD,
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    }
)
"""Values of x-amz-content-sha256 other than 64 hex digits."""

_TIMESTAMP: Final = re.compile(r"\d{8}T\d{6}Z", re.ASCII)
SIGNATURE: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_HASH: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
# RFC 9110 §5.1 and §5.5; names are in lower case here, values Latin-1.
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+", re.ASCII)
_NO_HEADER_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_QUERY_MARKS: Final = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature")
_QUERY_MARKS_V2: Final = ("AWSAccessKeyId",)
_DATE: Final = re.compile(r"[0-9]{8}")
_QUERY_NEEDS: Final = (
    "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, "
    "X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters."
)
_SESSION_TOKEN: Final = "x-amz-security-token"  # noqa: S105 - the name of a header
_COMPONENTS: Final = ("Credential", "SignedHeaders", "Signature")
_ACCESS_KEY_MAX: Final = 128
_SIGNATURE_DIGITS: Final = 64
_SIGNATURE_SHOWN: Final = 256
_HEX_BYTES_MAX: Final = 8192
HIDDEN: Final = "not shown, because it holds a session token"
"""What errors say in the place of a text with a session token, because errors are logged."""
# Unauthenticated callers also choose these texts: texts longer than any client sends are read, but not cached.
_REMEMBERED_CHARACTERS_MAX: Final = 512


@dataclass(frozen=True, slots=True)
class SigV4Policy:
    """Requirements on a signature besides being correct.

    Attributes:
        region: the only region accepted in scopes; None accepts any (a client must name one, and
            an installation of ours may have none).
        service: the only service accepted in scopes: `s3`, or `sts`, whose requests have no header with the hash of
            their bodies.
        skew_s: maximum difference between a client's clock and ours, seconds.
    """

    region: str | None = None
    service: str = SERVICE
    skew_s: int = 900


@hot_value
class _Known:
    """What `parse_authorization` and `verify` have found in a request whose signature was right. Of another one with
    the same claim and the same `values` and `amz_names` they find the same: these are all that they look at, but for
    the target and the time.

    Attributes:
        values: of the claim's signed headers, which include the time and the hash of the body.
        amz_names: see `Headers`.
        timestamp, signed_headers, payload_hash: see `SignedRequest`.
        time_s: the timestamp in seconds since the epoch.
        begin: what precedes the digest in the string to sign.
        tail: see `canonical.tail_of`. As `values`, it may hold a session token, which is a secret.
    """

    values: tuple[str, ...] = field(repr=False)
    amz_names: list[str]
    timestamp: str
    signed_headers: tuple[str, ...]
    payload_hash: str
    time_s: int
    begin: str
    tail: bytes = field(repr=False)


class _Claim:
    """What an Authorization header says before its signature.

    Attributes:
        scope: access key id, date, region and service.
        names: of the signed headers, as written.
        known: of the last verified request; None before one. So only users with credentials fill it.
    """

    __slots__ = ("known", "names", "scope")

    def __init__(self, scope: _Scope, names: str) -> None:
        self.scope = scope
        self.names = names
        self.known: _Known | None = None


_ALWAYS_KNOWN: Final = frozenset({"host", "x-amz-date", "x-amz-content-sha256"})
"""Signed headers without which a request is not remembered: by other ones its time or its hash would be found."""
_KNOWN_BYTES_MAX: Final = 2048
"""Of the signed headers that are remembered with a claim."""


class SignedRequest(NamedTuple):
    """A request's authorization, checked except for the signature itself.

    Attributes:
        access_key_id: the claimed key; empty for an anonymous request.
        date: `YYYYMMDD` of the scope; with region and service it determines the signing key.
        region: of the scope.
        service: of the scope.
        timestamp: `YYYYMMDDTHHMMSSZ`.
        signed_headers: lower case, in the order signed.
        signature: 64 hex digits.
        payload_hash: the body's line in the canonical request: 64 hex digits or a mode name.
        request: the signed request.
        headers: its headers as received, before parameters were added to them.
        strings_to_sign: of Signature Version 2, which has no scope (`signing.sigv2`), most likely first; empty for
            version 4.
        claim: of its Authorization header; None for all other signatures.
        known: what such a request of the same claim, headers and time was verified with; None without one.
    """

    access_key_id: str
    date: str
    region: str
    service: str
    timestamp: str
    signed_headers: tuple[str, ...]
    signature: str
    payload_hash: str
    request: Request
    headers: Headers
    strings_to_sign: tuple[bytes, ...] = ()
    claim: _Claim | None = None
    known: _Known | None = None

    @property
    def scope(self) -> str:
        """`date/region/service/aws4_request`."""
        return f"{self.date}/{self.region}/{self.service}/{TERMINATOR}"


def parse_authorization(request: Request, now_us: int, policy: SigV4Policy) -> SignedRequest:
    """Reads the authorization of a request from its header or its query.

    For a presigned request, `x-amz-*` parameters that replace headers (SDKs move them into the URL) are
    added to `request.headers`.

    Raises:
        S3Error: AccessDenied (anonymous, expired, unsigned x-amz-* headers), RequestTimeTooSkewed,
            AuthorizationHeaderMalformed, AuthorizationQueryParametersError, InvalidArgument (two
            kinds of authentication in one request), InvalidRequest (SigV2, SigV4A, no payload hash),
            InvalidURI.
    """
    header = request.headers.get("authorization")
    query = signed_query(request) if request.raw_query else None
    now_s = now_us // 1_000_000
    if header is not None and query is not None:
        text = "The request is authenticated both by its query and by its Authorization header."
        raise S3Error("InvalidArgument", text, ArgumentName="Authorization")
    if header is not None:
        return _parse_header(request, header, now_s, policy)
    if query is not None:
        return _parse_presigned(request, query, now_s, policy)
    raise anonymous_refusal()


def signed_query(request: Request) -> Query | None:
    """Returns the query of a request that is authenticated by its query.

    Raises:
        S3Error: InvalidURI.
    """
    if b"Amz" in request.raw_query or b"AWS" in request.raw_query:
        # Decoding a query costs more than the rest of this; a listing's query has none of these names.
        parsed = parse_query(request.raw_query)
        if any(mark in parsed for mark in _QUERY_MARKS + _QUERY_MARKS_V2):
            return parsed
    return None


def is_anonymous(request: Request) -> bool:
    """Whether a request carries no authentication, nor a session token, which would be half of one.

    Raises:
        S3Error: InvalidURI.
    """
    headers = request.headers
    if "authorization" in headers or _SESSION_TOKEN in headers:
        return False
    return signed_query(request) is None


def anonymous_refusal() -> S3Error:
    """Returns the error for an anonymous request: one for what does not exist and for what is not public."""
    return S3Error("AccessDenied", "Anonymous requests are not allowed.")


def unsigned(request: Request) -> SignedRequest:
    """Returns the signature that an anonymous request does not have."""
    return SignedRequest(
        "", "", "", "", "", (), "", UNSIGNED_PAYLOAD, request=request, headers=request.headers
    )


# --- the Authorization header


def _malformed(detail: str) -> S3Error:
    return S3Error(
        "AuthorizationHeaderMalformed", f"The authorization header is malformed; {detail}"
    )


def _refuse_mechanism() -> NoReturn:
    text = (
        f"The authorization mechanism you have provided is not supported. Please use {ALGORITHM}."
    )
    raise S3Error("InvalidRequest", text)


def _refuse_kind(kind: str, header: str) -> NoReturn:
    """Refuses an Authorization header of another kind: none at all, one of AWS's other signatures, or anything."""
    if not header.strip():
        raise S3Error("AccessDenied", "The Authorization header is empty.")
    if kind.startswith("AWS4-") or (kind == "AWS" and ":" in header):
        _refuse_mechanism()
    value = f"{kind[:20]}…" if len(kind) > 20 else kind  # not what follows: it may be a secret
    raise S3Error(
        "InvalidArgument",
        "Unsupported Authorization Type",
        ArgumentName="Authorization",
        ArgumentValue=value,
    )


def _parse_header(request: Request, header: str, now_s: int, policy: SigV4Policy) -> SignedRequest:
    # Clients put the signature last; the text before it is the same in all their requests of a day.
    end = len(header) - _SIGNATURE_DIGITS
    if 0 < end <= _REMEMBERED_CHARACTERS_MAX and header.endswith("Signature=", 0, end):
        claim, _ = _remembered_claim(header[:end], policy.region, policy.service)
        signature = header[end:]
    else:
        claim, signature = _parse_claim(header, policy.region, policy.service)
    if not SIGNATURE.fullmatch(signature):
        raise _malformed("Signature is not 64 hex digits.")
    headers, known = request.headers, claim.known
    if (
        known is not None
        and known.amz_names == headers.amz_names
        and known.values == tuple(map(headers.get, known.signed_headers))
        and abs(now_s - known.time_s) <= policy.skew_s
    ):
        return SignedRequest(
            *claim.scope,
            known.timestamp,
            known.signed_headers,
            signature,
            known.payload_hash,
            request,
            headers,
            (),
            claim,
            known,
        )
    timestamp, time_s = _header_time(headers)
    if abs(now_s - time_s) > policy.skew_s:
        raise S3Error(
            "RequestTimeTooSkewed",
            RequestTime=timestamp,
            ServerTime=timestamp_of(now_s),
            MaxAllowedSkewMilliseconds=str(policy.skew_s * 1000),
        )
    access_key_id, date, region, service = claim.scope
    if date != timestamp[:8]:
        raise _malformed("Invalid credential date. Date is not the same as X-Amz-Date.")
    signed_headers = _checked_names(claim.names, headers, _malformed)
    payload_hash = headers.get("x-amz-content-sha256")
    if payload_hash is None and policy.service != SERVICE:
        payload_hash = UNSIGNED_PAYLOAD  # until the body is read
    if payload_hash is None:
        raise S3Error("InvalidRequest", "The header x-amz-content-sha256 is missing.")
    return SignedRequest(
        access_key_id,
        date,
        region,
        service,
        timestamp,
        signed_headers,
        signature,
        payload_hash if payload_hash in PAYLOAD_MODES else _checked_hash(payload_hash),
        request=request,
        headers=headers,
        claim=claim,
    )


_Scope = tuple[str, str, str, str]
"""Access key id, date, region and service."""


def _parse_claim(header: str, region: str | None, service: str) -> tuple[_Claim, str]:
    kind, _, text = header.partition(" ")
    if kind != ALGORITHM:
        _refuse_kind(kind, header)
    fields: dict[str, str] = {}
    for item in text.split(","):
        name, equals, value = item.strip().partition("=")
        if not equals or name in fields:
            raise _malformed(f'the authorization component "{item.strip()[:80]}" is malformed.')
        fields[name] = value
    if len(fields) != len(_COMPONENTS):
        needed = "Credential, SignedHeaders, and Signature."
        raise _malformed(f"the authorization header requires three components: {needed}")
    for name in _COMPONENTS:
        if name not in fields:
            raise _malformed(f"missing {name}.")
    scope = split_scope(fields["Credential"], region, service, _malformed)
    return _Claim(scope, fields["SignedHeaders"]), fields["Signature"]


_remembered_claim = lru_cache(maxsize=4096)(_parse_claim)


def _header_time(headers: Headers) -> tuple[str, int]:
    """Returns the request's time, as in the string to sign and in seconds since the epoch."""
    text = headers.get("x-amz-date")
    if text is not None:
        seconds = seconds_of(text)
        if seconds is not None:
            return text, seconds
    elif (date := headers.get("date")) is not None:
        seconds = seconds_of(date)
        if seconds is None:
            try:
                seconds = int(parsedate_to_datetime(date).timestamp())
                return timestamp_of(seconds), seconds  # with its zone it may leave the calendar
            except (ValueError, TypeError, IndexError, OverflowError):
                seconds = None
        if seconds is not None:
            return timestamp_of(seconds), seconds
    raise S3Error("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header.")


# --- the query


def _bad_query(text: str) -> S3Error:
    return S3Error("AuthorizationQueryParametersError", text)


def _bad_query_credential(detail: str) -> S3Error:
    return _bad_query(f"Error parsing the X-Amz-Credential parameter; {detail}")


def _parse_presigned(
    request: Request, query: Query, now_s: int, policy: SigV4Policy
) -> SignedRequest:
    if "X-Amz-Algorithm" not in query and any(mark in query for mark in _QUERY_MARKS_V2):
        _refuse_mechanism()
    names = (*_QUERY_MARKS, "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders")
    for name in names:
        if not query.text(name):
            raise _bad_query(_QUERY_NEEDS)
    if query.text("X-Amz-Algorithm") != ALGORITHM:
        _refuse_mechanism()
    credential = query.text("X-Amz-Credential")
    access_key_id, date, region, service = split_scope(
        credential, policy.region, policy.service, _bad_query_credential
    )
    timestamp = query.text("X-Amz-Date")
    time_s = seconds_of(timestamp)
    if time_s is None:
        raise _bad_query("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
    if date != timestamp[:8]:
        same = f'This date is not the same as X-Amz-Date: "{timestamp[:8]}".'
        raise _bad_query(f'Invalid credential date "{date}". {same}')
    _check_life(query.text("X-Amz-Expires"), time_s, now_s, policy)
    signature = query.text("X-Amz-Signature")
    if not SIGNATURE.fullmatch(signature):
        raise _bad_query("X-Amz-Signature is not 64 hex digits.")
    headers = request.headers
    signed_headers = _checked_names(query.text("X-Amz-SignedHeaders"), headers, _bad_query)
    payload_hash = query.get("X-Amz-Content-Sha256")
    if payload_hash is None:
        payload_hash = headers.get("x-amz-content-sha256", UNSIGNED_PAYLOAD)
        assert payload_hash is not None, "get was given a default"
    hoist(request, query)
    return SignedRequest(
        access_key_id,
        date,
        region,
        service,
        timestamp,
        signed_headers,
        signature,
        _checked_hash(payload_hash),
        request=request,
        headers=headers,
    )


def _check_life(expires: str, time_s: int, now_s: int, policy: SigV4Policy) -> None:
    if expires.startswith("-"):
        raise _bad_query("X-Amz-Expires must be non-negative")
    if not (expires.isascii() and expires.isdigit()):
        raise _bad_query("X-Amz-Expires should be a number")
    if len(expires) > 9 or int(expires) > EXPIRES_S_MAX:
        raise _bad_query(
            "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than "
            f"{EXPIRES_S_MAX} seconds"
        )
    if not int(expires):
        raise _bad_query("X-Amz-Expires must be at least 1.")
    if time_s - now_s > policy.skew_s:
        raise S3Error("AccessDenied", "Request is not valid yet", ServerTime=timestamp_of(now_s))
    if now_s > time_s + int(expires):
        ended = _iso(time_s + int(expires))
        error = S3Error(
            "AccessDenied", "Request has expired", Expires=ended, ServerTime=_iso(now_s)
        )
        error.extra["X-Amz-Expires"] = expires
        raise error


def hoist(request: Request, query: Query) -> None:
    """Adds parameters that replace headers; an existing header takes precedence.

    Not the checksums: SDKs sign the checksum of an empty body into the URL, because there is no body yet,
    and AWS ignores it there.

    Raises:
        S3Error: AuthorizationQueryParametersError for a value that no header could contain, such as a line
            end: stored as user metadata, it would break the head of every answer.
    """
    hoisted = [
        (lower, query.text(name).encode().decode("latin-1"))
        for name in query
        if (lower := name.lower()).startswith("x-amz-")
        and lower not in _AUTHORIZATION
        and not lower.startswith(("x-amz-checksum-", "x-amz-sdk-checksum-"))
        and lower not in request.headers
    ]
    for name, value in hoisted:
        if not _HEADER_NAME.fullmatch(name) or _NO_HEADER_VALUE.search(value):
            raise _bad_query(f"{name[:40]!r} replaces a header but is not a valid one")
    if hoisted:
        request.headers = Headers(request.headers.pairs + hoisted)


_AUTHORIZATION: Final = frozenset(
    {
        "x-amz-algorithm",
        "x-amz-content-sha256",
        "x-amz-credential",
        "x-amz-date",
        "x-amz-expires",
        "x-amz-signature",
        "x-amz-signedheaders",
        "x-amz-trailer",
        "x-amz-decoded-content-length",
    }
)


# --- shared by both


def split_scope(
    credential: str,
    region_wanted: str | None,
    service_wanted: str,
    malformed: Callable[[str], S3Error],
) -> _Scope:
    parts = credential.rsplit("/", 4)
    if len(parts) != 5 or not all(parts):
        form = f"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/{TERMINATOR}"
        raise malformed(f'the Credential is mal-formed; expecting "{form}".')
    access_key_id, date, region, service, terminator = parts
    if terminator != TERMINATOR:
        used = f'This endpoint uses "{TERMINATOR}".'
        raise malformed(f'incorrect terminal "{terminator[:40]}". {used}')
    if service != service_wanted:
        belongs = f'This endpoint belongs to "{service_wanted}".'
        raise malformed(f'incorrect service "{service[:40]}". {belongs}')
    if not _DATE.fullmatch(date):
        form = 'This date in the credential must be in the format "yyyyMMdd".'
        raise malformed(f'incorrect date format "{date[:40]}". {form}')
    if len(access_key_id) > _ACCESS_KEY_MAX:
        raise malformed("the access key id is too long.")
    if region_wanted is not None and region != region_wanted:
        text = f'the region "{region[:40]}" is wrong; expecting "{region_wanted}"'
        error = malformed(text)
        error.extra["Region"] = region_wanted
        raise error
    return access_key_id, date, region, service


_Names = tuple[tuple[str, ...], frozenset[str]]
"""The names of signed headers, in the order signed and as a set."""


def _checked_names(
    text: str, headers: Headers, malformed: Callable[[str], S3Error]
) -> tuple[str, ...]:
    """Returns the signed names, if they include all that must be signed.

    Content-Type may be absent, contrary to the documentation: AWS accepts presigned PUTs to which a browser
    added one.
    """
    split = _remembered_names if len(text) <= _REMEMBERED_CHARACTERS_MAX else _split_names
    names, signed = split(text, malformed)
    if not signed.issuperset(headers.amz_names):
        _refuse_unsigned(signed, headers)
    return names


def _split_names(text: str, malformed: Callable[[str], S3Error]) -> _Names:
    names = tuple(text.split(";"))
    if "host" not in names:
        raise malformed("host must be signed.")
    if not text.isascii():
        raise malformed("the names of signed headers must be ASCII.")
    if text != text.lower():
        raise malformed("the names of signed headers must be lower case.")
    return names, frozenset(names)


_remembered_names = lru_cache(maxsize=1024)(_split_names)


def _refuse_unsigned(signed: frozenset[str], headers: Headers) -> None:
    unsigned = [name for name in headers.amz_names if name not in signed]
    if unsigned == ["x-amz-content-sha256"] and headers.text(unsigned[0]) == UNSIGNED_PAYLOAD:
        return  # clients add it when they use a presigned URL; it claims nothing
    text = "There were headers present in the request which were not signed"
    raise S3Error("AccessDenied", text, HeadersNotSigned=", ".join(sorted(unsigned))[:1024])


def _checked_hash(value: str) -> str:
    if value in PAYLOAD_MODES or _HASH.fullmatch(value):
        return value
    raise S3Error(
        "InvalidArgument",
        f"x-amz-content-sha256 must be {', '.join(sorted(PAYLOAD_MODES))} or a valid sha256 value.",
        ArgumentName="x-amz-content-sha256",
        ArgumentValue=value[:80],
    )


@lru_cache(maxsize=512)  # the requests of one second share their time
def seconds_of(timestamp: str) -> int | None:
    """Returns seconds since the epoch of a `YYYYMMDDTHHMMSSZ`, None for anything else."""
    if not _TIMESTAMP.fullmatch(timestamp):
        return None
    year, month, day = int(timestamp[0:4]), int(timestamp[4:6]), int(timestamp[6:8])
    hour, minute, second = int(timestamp[9:11]), int(timestamp[11:13]), int(timestamp[13:15])
    try:
        at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return int(at.timestamp())


def timestamp_of(seconds: int) -> str:
    """Returns a time as `YYYYMMDDTHHMMSSZ`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=1024)
def _keyed(signing_key: bytes) -> hmac.HMAC:
    """Returns a keyed HMAC to be copied. `hmac.digest` processes the key in each call, and releases the
    interpreter lock for its two microseconds: while a commit runs, reacquiring the lock takes longer than that.

    OpenSSL's object, if there is one: the wrapper of `hmac` costs more than the hash of a short text."""
    made = hmac.new(signing_key, digestmod="sha256")
    return getattr(made, "_hmac", None) or made


def verify(signed: SignedRequest, signing_key: bytes) -> None:
    """Compares in constant time, for each canonical form that encodes the same request.

    Raises:
        S3Error: SignatureDoesNotMatch, with the text that we signed, so that the client can compare.
    """
    request, known = signed.request, signed.known
    if known is not None:
        begin, tail = known.begin, known.tail
    else:
        begin = f"{ALGORITHM}\n{signed.timestamp}\n{signed.scope}\n"
        tail = tail_of(signed.headers, signed.signed_headers, signed.payload_hash)
    canonical = received_form(request.method, request.raw_path, request.raw_query, tail)
    text = f"{begin}{hashlib.sha256(canonical).hexdigest()}".encode()
    code = _keyed(signing_key).copy()
    code.update(text)
    if hmac.compare_digest(code.hexdigest(), signed.signature):
        if known is None and signed.claim is not None:
            _remember(signed.claim, signed, begin, tail)
        return
    other = encoded_form(request.method, request.raw_path, request.raw_query, tail)
    if other is not None:
        code = _keyed(signing_key).copy()
        code.update(f"{begin}{hashlib.sha256(other).hexdigest()}".encode())
        if hmac.compare_digest(code.hexdigest(), signed.signature):
            return
    raise signature_mismatch(
        signed,
        StringToSign=text,
        CanonicalRequest=None if _SESSION_TOKEN.encode() in canonical.lower() else canonical,
    )


def _remember(claim: _Claim, signed: SignedRequest, begin: str, tail: bytes) -> None:
    """Remembers what was found in a verified request, for the next ones with the same claim."""
    headers, names, time_s = signed.headers, signed.signed_headers, seconds_of(signed.timestamp)
    if (
        time_s is not None
        and signed.service == SERVICE
        and _ALWAYS_KNOWN.issubset(names)
        and headers.keys() >= set(names)
        and len(tail) <= _KNOWN_BYTES_MAX
    ):
        values = tuple(headers[name] for name in names)
        claim.known = _Known(
            values,
            headers.amz_names,
            signed.timestamp,
            names,
            signed.payload_hash,
            time_s,
            begin,
            tail,
        )


def signature_mismatch(signed: SignedRequest, **texts: bytes | None) -> S3Error:
    """Returns SignatureDoesNotMatch with what was signed here, so that the client can compare. A short text is also
    given as bytes in hexadecimal digits, which show what a text hides.

    Args:
        signed: the refused request.
        texts: by element; None for one with a session token, which is a secret: errors are logged.
    """
    error = S3Error(
        "SignatureDoesNotMatch",
        AWSAccessKeyId=signed.access_key_id,
        SignatureProvided=signed.signature[:_SIGNATURE_SHOWN],
    )
    for name, text in texts.items():
        error.extra[name] = HIDDEN if text is None else text.decode("latin-1")
        if text is not None and len(text) <= _HEX_BYTES_MAX:
            error.extra[f"{name}Bytes"] = text.hex(" ")
    return error

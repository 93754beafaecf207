"""Form uploads: the signature of a policy, and whether a form is what the policy allows.

The signed text is the base64 policy as it was sent (S3 API, "Authenticating requests: browser-based uploads using
POST"). So the signature is checked before the policy is read. Every field must be named by a condition: what the
signer did not foresee is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from tarn_gateway.http import Request
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv4 import (
    ALGORITHM,
    EXPIRES_S_MAX,
    HIDDEN,
    UNSIGNED_PAYLOAD,
    SignedRequest,
    SigV4Policy,
    seconds_of,
    signature_mismatch,
    split_scope,
)

__all__ = ["SizeRange", "check_policy", "parse_post", "verify_post"]

Fields = Mapping[str, str]
"""Values of a form by lower-case name."""

_SIGNED: Final = ("policy", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature")
_SIGV2: Final = frozenset({"awsaccesskeyid", "signature"})
_UNCOVERED: Final = frozenset({"policy", "x-amz-signature"})
_TOKEN: Final = "x-amz-security-token"  # noqa: S105 - the name of a field
_IGNORED: Final = "x-ignore-"
_EXPIRATION: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z", re.ASCII)
_DIGITS: Final = re.compile(r"\d{1,15}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The sizes of a file that a policy allows, bytes; both ends are allowed."""

    least: int = 0
    most: int | None = None


def missing_field(name: str) -> S3Error:
    """Returns the error for a form without a field that it needs."""
    order = "If it is specified, please check the order of the fields."
    text = f"Bucket POST must contain a field named '{name}'.  {order}"
    return S3Error("InvalidArgument", text, ArgumentName=name, ArgumentValue="")


def parse_post(request: Request, fields: Fields, now_us: int, policy: SigV4Policy) -> SignedRequest:
    """Reads the authorization of a form; `verify_post` compares its signature.

    Raises:
        S3Error: AccessDenied (anonymous, too early, older than a week), InvalidRequest (other
            signatures), InvalidArgument (a missing or malformed field).
    """
    _check_presence(fields)
    credential = fields["x-amz-credential"]

    def malformed(detail: str) -> S3Error:
        return _unfit("x-amz-credential", credential, detail)

    access_key_id, date, region, service = split_scope(
        credential, policy.region, policy.service, malformed
    )
    timestamp, now_s = fields["x-amz-date"], now_us // 1_000_000
    time_s = seconds_of(timestamp)
    if time_s is None:
        text = "X-Amz-Date must be formated via ISO8601 Long format"  # S3's spelling
        raise _unfit("X-Amz-Date", timestamp, text)
    if date != timestamp[:8]:
        raise malformed(f"its date, {date[:20]}, is not that of X-Amz-Date")
    if time_s - now_s > policy.skew_s:
        raise S3Error("AccessDenied", "Request is not valid yet")
    if now_s > time_s + EXPIRES_S_MAX:
        raise _denied("Policy expired.")
    return SignedRequest(
        access_key_id,
        date,
        region,
        service,
        timestamp,
        (),
        fields["x-amz-signature"],
        UNSIGNED_PAYLOAD,
        request=request,
        headers=request.headers,
    )


def _check_presence(fields: Fields) -> None:
    """Refuses a form that is not signed, or not by Signature Version 4."""
    if not fields.keys().isdisjoint(_SIGV2):
        raise S3Error(
            "InvalidRequest",
            f"The authorization mechanism you have provided is not supported. Please use {ALGORITHM}.",
        )
    if fields.keys().isdisjoint(_SIGNED):
        raise S3Error("AccessDenied", "Anonymous requests are not allowed.")
    for name in _SIGNED:
        if name not in fields:
            raise missing_field(name)
    algorithm = fields["x-amz-algorithm"]
    if algorithm != ALGORITHM:
        raise _unfit("X-Amz-Algorithm", algorithm, f"Only {ALGORITHM} is supported")


def verify_post(signed: SignedRequest, fields: Fields, signing_key: bytes) -> None:
    """Compares the signature of the policy, in constant time.

    Raises:
        S3Error: SignatureDoesNotMatch.
    """
    computed = hmac.digest(signing_key, fields["policy"].encode(), hashlib.sha256).hex()
    if not hmac.compare_digest(computed.encode(), signed.signature.encode()):
        policy = None if _TOKEN in fields else fields["policy"].encode()
        raise signature_mismatch(signed, StringToSign=policy)


def _unfit(name: str, value: str, text: str) -> S3Error:
    return S3Error("InvalidArgument", text, ArgumentName=name, ArgumentValue=value[:256])


def _denied(detail: str) -> S3Error:
    return S3Error("AccessDenied", f"Invalid according to Policy: {detail}")


def _invalid(detail: str) -> S3Error:
    return S3Error("InvalidPolicyDocument", f"Invalid Policy: {detail}")


def _no_json() -> S3Error:
    """Returns the error for what is no JSON, or JSON of other types than a policy has."""
    return _invalid("Invalid JSON.")


def check_policy(fields: Fields, bucket: str, now_us: int) -> SizeRange:
    """Returns the sizes that the policy of a form allows, if it allows the form.

    Call it after `verify_post`, with the key that the file will have.

    Args:
        fields: of the form.
        bucket: that the request names.
        now_us: the time, microseconds since the epoch.

    Raises:
        S3Error: InvalidPolicyDocument; AccessDenied: the policy has expired, a condition does not hold, or there is no
            condition on a field or the bucket.
    """
    policy = _policy_of(fields["policy"])
    if now_us >= _expiration_us(policy):
        raise _denied("Policy expired.")
    if fields.get("bucket", bucket) != bucket:
        raise _denied("the field bucket is not the bucket of the request")
    values = {**fields, "bucket": bucket}
    covered: set[str] = set()
    sizes = SizeRange()
    conditions = policy.get("conditions")
    if conditions is None:
        raise _invalid("Policy missing conditions.")
    if not isinstance(conditions, list):
        raise _invalid("Invalid 'conditions' value: must be a List.")
    for condition in conditions:
        if _operator(condition) == "content-length-range":
            sizes = _narrowed(sizes, condition)
        else:
            covered.add(_check_condition(condition, values))
    names = values.keys() - covered - _UNCOVERED
    if extra := sorted(name for name in names if not name.startswith(_IGNORED)):
        raise _denied(f"Extra input fields: {', '.join(extra)}")
    return sizes


def _policy_of(text: str) -> dict[str, Any]:
    if not text:
        raise _invalid("Expecting '{' but found End-of-Input")
    try:
        document = base64.b64decode(text.encode(), validate=True)
    except binascii.Error:
        raise _invalid("invalid Base64 encoding.") from None
    try:
        policy = json.loads(document)
    except (ValueError, RecursionError):
        raise _no_json() from None
    if not isinstance(policy, dict):
        raise _no_json()
    if unknown := policy.keys() - {"expiration", "conditions"}:
        raise _invalid(f'Unexpected: "{min(unknown)[:80]}"')
    return policy


def _expiration_us(policy: Mapping[str, Any]) -> int:
    text = policy.get("expiration")
    if text is None:
        raise _invalid("Policy missing expiration.")
    if not isinstance(text, str):
        raise _no_json()
    try:
        if not _EXPIRATION.fullmatch(text):
            raise ValueError
        at = datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        raise _invalid(f"Invalid 'expiration' value: '{text[:80]}'") from None
    return int(at.timestamp()) * 1_000_000


def _operator(condition: object) -> str:
    """Returns the operator of a condition in lower case; empty for `{name: value}`."""
    if isinstance(condition, dict):
        return ""
    if not isinstance(condition, list):
        raise _invalid("Invalid condition test: must be a List or Object.")
    if not condition:
        raise _invalid("Invalid Condition: missing operation identifier.")
    if not isinstance(condition[0], str):
        raise _no_json()
    return condition[0].lower()


def _narrowed(sizes: SizeRange, condition: list[Any]) -> SizeRange:
    bounds = [_size(each) for each in condition[1:]]
    if len(bounds) != 2:
        raise _invalid("Invalid content-length-range: wrong number of arguments.")
    least, most = bounds
    return SizeRange(max(sizes.least, least), most if sizes.most is None else min(sizes.most, most))


def _size(value: object) -> int:
    text = str(value) if type(value) is int else value
    if not isinstance(text, str) or not _DIGITS.fullmatch(text):
        raise _no_json()
    return int(text)


def _check_condition(condition: Any, values: Fields) -> str:  # noqa: ANN401 - JSON
    """Checks a condition on a field; returns the name of the field."""
    shown = (",", ":")  # a list as it was sent; S3 writes another one for an object
    if isinstance(condition, dict):
        shown = (", ", ": ")
        if len(condition) != 1:
            text = "Invalid Simple-Condition: Simple-Conditions must have exactly one property specified."
            raise _invalid(text)
        ((name, wanted),) = condition.items()
        if not isinstance(wanted, str):
            raise _invalid("Invalid Simple-Condition: value must be a string.")
        condition = ["eq", f"${name}", wanted]
    operator = _operator(condition)
    if operator not in ("eq", "starts-with"):
        raise _invalid(f"Invalid Condition: unknown operation '{operator[:80]}'.")
    if len(condition) != 3:
        raise _invalid(f"Invalid {operator}: wrong number of arguments.")
    if not all(isinstance(each, str) for each in condition):
        raise _no_json()
    _, field, wanted = condition
    name = field[1:].lower()
    value = values.get(name)
    if not field.startswith("$") or value is None:
        _fail(condition, shown)
    # A list of content types meets the condition if each of them does (S3).
    items = value.split(",") if name == "content-type" and operator != "eq" else [value]
    if not (
        value == wanted
        if operator == "eq"
        else all(each.strip().startswith(wanted) for each in items)
    ):
        _fail(condition, shown)
    return str(name)


def _fail(condition: list[str], separators: tuple[str, str]) -> NoReturn:
    if condition[1].lower().removeprefix("$") == _TOKEN:
        condition = [*condition[:2], HIDDEN]
    text = json.dumps(condition, ensure_ascii=False, separators=separators)
    raise _denied(f"Policy Condition failed: {text}")

"""CORS rules of a bucket: which web pages of other origins a browser lets use it (docs/user/browsers.md).

    {"CORSRules": [{"AllowedOrigins": ["https://app.example.com"], "AllowedMethods": ["GET", "PUT"],
                    "AllowedHeaders": ["*"], "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 600}]}

The form is that of `aws s3api put-bucket-cors`, and the meaning that of the S3 user guide ("Elements of a CORS
configuration") and the Fetch standard. Rules grant nothing: they tell browsers what to show to a page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = [
    "CORS_BYTES_MAX",
    "CORS_METHODS",
    "CORS_RULES_MAX",
    "CorsRule",
    "cors_to_json",
    "match_cors",
    "parse_cors",
]

CORS_RULES_MAX: Final = 100
CORS_BYTES_MAX: Final = 8 << 10
"""Limit of all rules together, as JSON. S3 allows 64 KB; here they are part of a row that is read for requests."""
CORS_METHODS: Final = ("GET", "HEAD", "PUT", "POST", "DELETE")
REQUESTED_HEADERS_MAX: Final = 100
"""Header names of one preflight: its sender is anonymous, and each is compared with each pattern."""

_ID_CHARACTERS_MAX: Final = 255
_AGE_MAX: Final = 2**31 - 1
_VALUE_CHARACTERS_MAX: Final = 512
_ORIGIN: Final = re.compile(r"[!-~]+", re.ASCII)
_HEADER: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)


def _invalid(detail: str) -> TarnError:
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, f"CORS rules: {detail}", field="rules")


def _unfit(sentence: str) -> TarnError:
    """Returns the error for a value, in the sentence of S3."""
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, sentence, field="rules")


@dataclass(frozen=True, slots=True)
class CorsRule:
    """What pages of some origins may do.

    Attributes:
        allowed_origins: `*`, or `https://*.example.com`: at most one `*`, which stands for any characters.
        allowed_methods: of `CORS_METHODS`.
        allowed_headers: names of request headers, with at most one `*` each; upper and lower case are equal.
        expose_headers: names of response headers that a page may read.
        max_age_s: how long a browser may remember a preflight; None: its own default. As in S3, it may be
            negative, which browsers take for none.
        rule_id: a name for people; may be empty.
    """

    allowed_origins: tuple[str, ...]
    allowed_methods: tuple[str, ...]
    allowed_headers: tuple[str, ...] = ()
    expose_headers: tuple[str, ...] = ()
    max_age_s: int | None = None
    rule_id: str = ""

    def __post_init__(self) -> None:
        """Checks the rule.

        Raises:
            TarnError: INVALID, with what is wrong.
        """
        if not self.allowed_origins or not self.allowed_methods:
            raise _invalid("a rule needs AllowedOrigins and AllowedMethods")
        for method in self.allowed_methods:
            if method not in CORS_METHODS:
                text = "Found unsupported HTTP method in CORS config. Unsupported method is"
                raise _unfit(f"{text} {method[:80]}")
        for origin in self.allowed_origins:
            _check(origin, _ORIGIN, "AllowedOrigin", stars=1)
        for name in self.allowed_headers:
            _check(name, _HEADER, "AllowedHeader", stars=1)
        for name in self.expose_headers:
            _check(name, _HEADER, "ExposeHeader", stars=0)
        if self.max_age_s is not None and not -_AGE_MAX <= self.max_age_s <= _AGE_MAX:
            raise _invalid(f"MaxAgeSeconds must be {-_AGE_MAX} to {_AGE_MAX}")
        if len(self.rule_id) > _ID_CHARACTERS_MAX or not self.rule_id.isprintable():
            text = f"an ID is longer than {_ID_CHARACTERS_MAX} characters, or has some that cannot be printed"
            raise _invalid(text)

    def allowed_origin(self, origin: str) -> str:
        """Returns the value of Access-Control-Allow-Origin for an origin; empty if the rule is not about it."""
        if "*" in self.allowed_origins:
            return "*"
        return origin if any(_matches(each, origin) for each in self.allowed_origins) else ""

    def allows_headers(self, names: Iterable[str]) -> bool:
        """Whether a page may send all of these headers; names in lower case."""
        patterns = [each.lower() for each in self.allowed_headers]
        return all(any(_matches(each, name) for each in patterns) for name in names)


def _check(value: str, form: re.Pattern[str], what: str, *, stars: int) -> None:
    if not value or len(value) > _VALUE_CHARACTERS_MAX:
        raise _invalid(f"an {what} has 1 to {_VALUE_CHARACTERS_MAX} characters")
    if not form.fullmatch(value):
        raise _unfit(f'{what} "{value}" contains invalid character.')
    if value.count("*") > stars:
        more = "have more than one wildcard" if stars else "have a wildcard"
        raise _unfit(f'{what} "{value}" can not {more}.')


def _matches(pattern: str, value: str) -> bool:
    before, star, after = pattern.partition("*")
    if not star:
        return pattern == value
    return len(value) >= len(pattern) - 1 and value.startswith(before) and value.endswith(after)


def match_cors(
    rules: Iterable[CorsRule], origin: str, method: str, headers: frozenset[str] = frozenset()
) -> tuple[CorsRule, str] | None:
    """Returns the first rule that allows a request, and the value of Access-Control-Allow-Origin; None: none does.

    Args:
        rules: of the bucket.
        origin: of the page.
        method: of the request.
        headers: names in lower case of the headers that the page wants to send (of a preflight).
    """
    if len(headers) > REQUESTED_HEADERS_MAX:
        return None
    for rule in rules:
        allowed = rule.allowed_origin(origin)
        if allowed and method in rule.allowed_methods and rule.allows_headers(headers):
            return rule, allowed
    return None


def parse_cors(text: str) -> tuple[CorsRule, ...]:
    """Returns the rules of a JSON text; none for an empty text.

    Raises:
        TarnError: INVALID.
    """
    if not text:
        return ()
    if len(text.encode()) > CORS_BYTES_MAX:
        raise _invalid(f"they take more than {CORS_BYTES_MAX} bytes")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise _invalid("they are not JSON") from None
    if not isinstance(document, dict) or document.keys() != {"CORSRules"}:
        raise _invalid('they must have the form {"CORSRules": [...]}')
    found = document["CORSRules"]
    if not isinstance(found, list) or not 1 <= len(found) <= CORS_RULES_MAX:
        raise _invalid(f"there must be 1 to {CORS_RULES_MAX} of them")
    return tuple(_rule(each) for each in found)


_LISTS: Final = ("AllowedOrigins", "AllowedMethods", "AllowedHeaders", "ExposeHeaders")


def _rule(fields: object) -> CorsRule:
    if not isinstance(fields, dict):
        raise _invalid("a rule is not a JSON object")
    if unknown := fields.keys() - {*_LISTS, "MaxAgeSeconds", "ID"}:
        raise _invalid(f"unknown field {str(min(unknown))[:80]!r}")
    age, rule_id = fields.get("MaxAgeSeconds"), fields.get("ID", "")
    if not isinstance(rule_id, str) or (age is not None and type(age) is not int):
        raise _invalid("ID must be a string, and MaxAgeSeconds an integer")
    origins, methods, headers, exposed = (_strings(fields, name) for name in _LISTS)
    return CorsRule(origins, methods, headers, exposed, age, rule_id)


def _strings(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = fields.get(name, [])
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise _invalid(f"{name} is not a list of strings")
    return tuple(values)


def cors_to_json(rules: Iterable[CorsRule]) -> str:
    """Returns the rules as `parse_cors` reads them; an empty text for none.

    Raises:
        TarnError: INVALID: they are too many, or too long together.
    """
    found = [_fields(rule) for rule in rules]
    if not found:
        return ""
    text = json.dumps({"CORSRules": found}, separators=(",", ":"), ensure_ascii=False)
    if len(found) > CORS_RULES_MAX or len(text.encode()) > CORS_BYTES_MAX:
        text = f"at most {CORS_RULES_MAX}, of {CORS_BYTES_MAX} bytes together, can be stored"
        raise _invalid(text)
    return text


def _fields(rule: CorsRule) -> dict[str, object]:
    fields: dict[str, object] = {"ID": rule.rule_id} if rule.rule_id else {}
    lists = rule.allowed_origins, rule.allowed_methods, rule.allowed_headers, rule.expose_headers
    fields |= {name: values for name, values in zip(_LISTS, lists, strict=True) if values}
    if rule.max_age_s is not None:
        fields["MaxAgeSeconds"] = rule.max_age_s
    return fields

"""The document of CORS rules, `<CORSConfiguration>`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tarn.core.cors import CORS_RULES_MAX, CorsRule
from tarn.core.errors import TarnError
from tarn_gateway.documents.xml_in import DocumentParser, Schema, malformed
from tarn_gateway.documents.xml_out import HEAD, NS
from tarn_gateway.s3error import S3Error
from tarn_gateway.xml_text import escape

__all__ = ["CORS_DOCUMENT_BYTES_MAX", "cors_document", "cors_parser"]

CORS_DOCUMENT_BYTES_MAX: Final = 64 * 1024
"""S3's limit of the document. What is stored has a lower one (`CORS_BYTES_MAX`)."""

_LISTS: Final = ("AllowedOrigin", "AllowedMethod", "AllowedHeader", "ExposeHeader")
_AGE: Final = re.compile(r"-?\d{1,10}", re.ASCII)


class _Cors(Schema[tuple[CorsRule, ...]]):
    root = "CORSConfiguration"

    def __init__(self) -> None:
        super().__init__()
        self._rules: list[CorsRule] = []
        self._lists: dict[str, list[str]] = {}
        self._once: dict[str, str] = {}

    def item(self, name: str) -> None:
        if name != "CORSRule":
            raise malformed(f"{name} is not allowed in CORSConfiguration")
        if len(self._rules) == CORS_RULES_MAX:
            text = f"The number of CORS rules should not exceed allowed limit of {CORS_RULES_MAX} rules."
            raise S3Error("InvalidRequest", text)
        self._lists = {each: [] for each in _LISTS}
        self._once = {}

    def field(self, name: str, text: str) -> None:
        if name in self._lists:
            self._lists[name].append(text.strip())
        elif name in ("ID", "MaxAgeSeconds") and name not in self._once:
            self._once[name] = text.strip()
        else:
            raise malformed(f"{name} is not allowed in CORSRule, or only once")

    def item_end(self, _name: str, _text: str) -> None:
        origins, methods, headers, exposed = (tuple(self._lists[each]) for each in _LISTS)
        if not origins or not methods:
            raise malformed("a CORSRule needs an AllowedOrigin and an AllowedMethod")
        age = self._once.get("MaxAgeSeconds")
        if age is not None and not _AGE.fullmatch(age):
            raise malformed("MaxAgeSeconds is not a number of seconds")
        seconds = None if age is None else int(age)
        try:
            rule = CorsRule(origins, methods, headers, exposed, seconds, self._once.get("ID", ""))
        except TarnError as error:
            raise S3Error("InvalidRequest", error.message) from None
        self._rules.append(rule)

    def result(self) -> tuple[CorsRule, ...]:
        if not self._rules:
            raise malformed("there is no CORSRule")
        return tuple(self._rules)


def cors_parser() -> DocumentParser[tuple[CorsRule, ...]]:
    """Returns a parser of one `<CORSConfiguration>`: 1 to 100 rules.

    It refuses with S3Error MalformedXML what is not of the schema, and with InvalidRequest rules with values that they
    cannot have.
    """
    return DocumentParser(_Cors())


def cors_document(rules: Iterable[CorsRule]) -> bytes:
    """Renders rules for GetBucketCors."""
    return f"{HEAD}<CORSConfiguration{NS}>{''.join(map(_rule, rules))}</CORSConfiguration>".encode()


def _rule(rule: CorsRule) -> str:
    lists = rule.allowed_origins, rule.allowed_methods, rule.allowed_headers, rule.expose_headers
    fields = [(name, value) for name, values in zip(_LISTS, lists, strict=True) for value in values]
    if rule.rule_id:
        fields.insert(0, ("ID", rule.rule_id))
    if rule.max_age_s is not None:
        fields.append(("MaxAgeSeconds", str(rule.max_age_s)))
    return f"<CORSRule>{''.join(f'<{name}>{escape(value)}</{name}>' for name, value in fields)}</CORSRule>"

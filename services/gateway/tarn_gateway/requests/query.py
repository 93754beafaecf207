"""Decodes the query string of an S3 request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote_to_bytes

from tarn.core.entry_check import PARTS_MAX
from tarn_gateway.s3error import S3Error

__all__ = [
    "Query",
    "parse_integer",
    "parse_query",
    "part_number",
    "refuse_version",
    "url_encoding",
]

PARAMETERS_MAX = 64
_INTEGER_MAX = 2**31 - 1
"""The bound that S3 names, although it takes every number of ten digits."""


class Query:
    """Decoded parameters; of repeated names the first counts. `?uploads` and `?uploads=` are present
    and empty.

    Attributes:
        values: by name; must not be modified.
    """

    __slots__ = ("values",)

    def __init__(self, values: dict[str, str]) -> None:
        self.values: Mapping[str, str] = values

    def get(self, name: str, default: str | None = None) -> str | None:
        """Returns the value of a parameter."""
        return self.values.get(name, default)

    def text(self, name: str) -> str:
        """Returns the value of a parameter, empty if absent."""
        return self.values.get(name, "")

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        """Returns the number of a parameter, as `parse_integer`."""
        return parse_integer(name, self.values.get(name, ""), default, least=least, most=most)

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)


_EMPTY = Query({})


def parse_integer(name: str, text: str, default: int, *, least: int, most: int) -> int:
    """Returns a number; a value above `most` is lowered to `most` (S3A asks for max-keys=5000 and gets 1000).

    Args:
        name: of the parameter or header, for the error.
        text: its value; empty: absent.
        default: the number if it is absent.
        least: the smallest number that is accepted.
        most: the greatest number that is returned.

    Raises:
        S3Error: InvalidArgument if it is not an integer or is below `least`.
    """
    if not text:
        return default
    digits = text[1:] if text[0] == "-" else text
    told = ""
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
        told = f"Provided {name} not an integer or within integer range"
    elif int(text) < least:
        told = f"Argument {name} must be an integer between {least} and {_INTEGER_MAX}"
    if told:
        raise S3Error("InvalidArgument", told, ArgumentName=name, ArgumentValue=text[:80])
    return min(int(text), most)


def part_number(query: Query) -> int:
    """Returns the number of the parameter `partNumber`.

    Raises:
        S3Error: InvalidArgument if it is absent or not an integer from 1 to 10,000.
    """
    text = query.text("partNumber")
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    if not 1 <= number <= PARTS_MAX:
        raise S3Error(
            "InvalidArgument",
            f"Part number must be an integer between 1 and {PARTS_MAX}, inclusive.",
            ArgumentName="partNumber",
            ArgumentValue=text[:80],
        )
    return number


def _decode(raw: bytes) -> str:
    if b"+" in raw:
        raw = raw.replace(b"+", b" ")
    return (unquote_to_bytes(raw) if b"%" in raw else raw).decode()


def parse_query(raw: bytes) -> Query:
    """Decodes a query once: percent escapes, `+` as space, UTF-8.

    Raises:
        S3Error: InvalidURI for bytes that are not UTF-8; InvalidRequest for more than 64 parameters.
    """
    if not raw:
        return _EMPTY
    pieces = raw.split(b"&", PARAMETERS_MAX)
    if len(pieces) > PARAMETERS_MAX:
        raise S3Error("InvalidRequest", f"More than {PARAMETERS_MAX} query parameters.")
    values: dict[str, str] = {}
    try:
        for piece in pieces:
            if piece:
                name, _, value = piece.partition(b"=")
                values.setdefault(_decode(name), _decode(value))
    except UnicodeDecodeError:
        raise S3Error("InvalidURI", "The query string is not UTF-8.") from None
    return Query(values)


def url_encoding(query: Query) -> bool:
    """Returns whether keys in a listing must be URL-encoded.

    Raises:
        S3Error: InvalidArgument for an unknown `encoding-type`.
    """
    value = query.get("encoding-type")
    if value not in (None, "", "url"):
        raise S3Error(
            "InvalidArgument",
            "encoding-type must be url.",
            ArgumentName="encoding-type",
            ArgumentValue=str(value)[:80],
        )
    return value == "url"


def refuse_version(query: Query) -> None:
    """Refuses a version id of an object, except `null`, which is the version of every object.

    Raises:
        S3Error: NotImplemented for any other version id.
    """
    if query.values.get("versionId", "null") != "null":
        text = (
            "The parameter versionId is not implemented. Versions are commits: name one in the key."
        )
        raise S3Error("NotImplemented", text, Parameter="versionId")

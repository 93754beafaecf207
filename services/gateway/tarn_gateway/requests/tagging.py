"""Object tags as requests state them: the checks of S3, and the header `x-amz-tagging`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote_to_bytes

from tarn.core.object_tags import TAGS_MAX, Tags, is_reserved, is_tag_key, is_tag_value
from tarn_gateway.http import Headers
from tarn_gateway.s3error import S3Error

__all__ = ["TAGGING", "checked_tags", "parse_tagging", "too_many_tags"]

TAGGING: Final = "x-amz-tagging"
_SHOWN_MAX: Final = 256
"""Characters of a refused key or value that its error repeats."""


def too_many_tags() -> S3Error:
    """Returns the error of a request with more tags than an object can have."""
    return S3Error("BadRequest", f"Object tags cannot be greater than {TAGS_MAX}")


def checked_tags(pairs: Iterable[tuple[str, str]]) -> Tags:
    """Returns keys and values as an entry keeps them.

    Raises:
        S3Error: BadRequest for too many; InvalidTag for a text that is too long or has other characters than S3 allows,
            for a reserved key, and for two values of one key.
    """
    tags: dict[str, str] = {}
    for key, value in pairs:
        if len(tags) == TAGS_MAX:
            raise too_many_tags()
        shown = key[:_SHOWN_MAX]
        if not is_tag_key(key):
            raise S3Error("InvalidTag", "The TagKey you have provided is invalid", TagKey=shown)
        if not is_tag_value(value):
            text = "The TagValue you have provided is invalid"
            raise S3Error("InvalidTag", text, TagKey=shown, TagValue=value[:_SHOWN_MAX])
        if is_reserved(key):
            text = "Your TagKey cannot be prefixed with aws:"
            raise S3Error("InvalidTag", text, TagKey=shown)
        if key in tags:
            text = "Cannot provide multiple Tags with the same key"
            raise S3Error("InvalidTag", text, TagKey=shown)
        tags[key] = value
    return tuple(sorted(tags.items()))


def parse_tagging(headers: Headers) -> Tags:
    """Reads the tags that an object gets when it is written: `x-amz-tagging: key=value&key=value`, URL-encoded.

    Raises:
        S3Error: InvalidArgument for what is not of this form; errors of `checked_tags`.
    """
    text = headers.get(TAGGING)
    if not text:
        return ()
    items = [each.partition("=") for each in text.split("&") if each]
    if len(items) > TAGS_MAX:
        raise too_many_tags()
    try:
        pairs = [(_decoded(key), _decoded(value)) for key, _, value in items]
    except UnicodeDecodeError:
        raise _malformed(text) from None
    keys = {key for key, _ in pairs}
    if "" in keys or len(keys) < len(pairs):
        raise _malformed(text)
    return checked_tags(pairs)


def _decoded(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ").encode("latin-1")).decode()


def _malformed(text: str) -> S3Error:
    return S3Error(
        "InvalidArgument",
        f"The header '{TAGGING}' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name "
        "duplicates.",
        ArgumentName=TAGGING,
        ArgumentValue=text[:_SHOWN_MAX],
    )

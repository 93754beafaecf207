"""The document of object tags, `<Tagging>`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tarn.core.object_tags import TAGS_MAX, Tags
from tarn_gateway.documents.xml_in import DocumentParser, Schema, local_name, malformed, parse_whole
from tarn_gateway.documents.xml_out import HEAD, NS
from tarn_gateway.requests.tagging import checked_tags, too_many_tags
from tarn_gateway.xml_text import escape

__all__ = ["TAGGING_BYTES_MAX", "parse_tagging_document", "tagging_document", "tagging_parser"]

TAGGING_BYTES_MAX: Final = 64 * 1024
"""Size limit of a document: ten tags of the longest keys and values fit, with every character as a reference."""
_SET: Final = "TagSet"
_FIELDS: Final = ("Key", "Value")


class _Tagging(Schema[Tags]):
    """The items are in the one element of the root."""

    root = "Tagging"

    def __init__(self) -> None:
        super().__init__()
        self._has_set = self._in_set = False
        self._pairs: list[tuple[str, str]] = []
        self._tag: dict[str, str] = {}

    def start(self, tag: str | bytes, attributes: Mapping[str | bytes, str | bytes]) -> None:
        if self._depth != 1 or self._in_set:
            super().start(tag, attributes)
            return
        self.events += 1
        if local_name(tag) != _SET or self._has_set:
            raise malformed(f"Tagging holds something else than one {_SET}")
        self._has_set = self._in_set = True

    def end(self, tag: str | bytes) -> None:
        if self._depth != 1 or not self._in_set:
            super().end(tag)
            return
        self.events += 1
        self._in_set = False

    def item(self, name: str) -> None:
        if name != "Tag":
            raise malformed(f"{name} is not allowed in {_SET}")
        if len(self._pairs) == TAGS_MAX:
            raise too_many_tags()
        self._tag = {}

    def field(self, name: str, text: str) -> None:
        if name not in _FIELDS or name in self._tag:
            raise malformed(f"{name} is not allowed in Tag, or only once")
        self._tag[name] = text

    def item_end(self, _name: str, _text: str) -> None:
        if len(self._tag) != len(_FIELDS):
            raise malformed("a Tag needs a Key and a Value")
        self._pairs.append((self._tag["Key"], self._tag["Value"]))

    def result(self) -> Tags:
        if not self._has_set:
            raise malformed(f"Tagging has no {_SET}")
        return checked_tags(self._pairs)


def tagging_parser() -> DocumentParser[Tags]:
    """Returns a parser of one `<Tagging>`, which may have no tags.

    It refuses with S3Error MalformedXML what is not of the schema, with BadRequest more than ten tags, and with
    InvalidTag those that S3 does not allow.
    """
    return DocumentParser(_Tagging())


def parse_tagging_document(body: bytes) -> Tags:
    """Reads a whole `<Tagging>`.

    Raises:
        S3Error: as `tagging_parser`; MaxMessageLengthExceeded, MissingRequestBodyError.
    """
    return parse_whole(tagging_parser(), body, TAGGING_BYTES_MAX)


def tagging_document(tags: Tags) -> bytes:
    """Renders tags for GetObjectTagging."""
    shown = "".join(
        f"<Tag><Key>{escape(key)}</Key><Value>{escape(value)}</Value></Tag>" for key, value in tags
    )
    return f"{HEAD}<Tagging{NS}><TagSet>{shown}</TagSet></Tagging>".encode()

"""Parses the XML documents that clients send: CreateBucket, DeleteObjects, CompleteMultipartUpload, and settings of
buckets.

lxml runs with every feature off that reads beyond the document: no DTD, no entities, no network, no huge
trees. This module adds limits on size and number of items (docs/design/security.md). Depth needs no limit:
unknown elements are refused, so no document is deeper than the schema. No tree is built, and a document is parsed
in pieces, between which the caller may do other work. Element names are compared without their namespace: clients
send S3's, another one, or none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from lxml import etree

from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.entry_check import PARTS_MAX
from tarn.objects.checksums import Algorithm
from tarn.objects.conditions import parse_http_date
from tarn_gateway.requests.address import KEY_BYTES_MAX
from tarn_gateway.requests.condition_headers import size_in_bytes
from tarn_gateway.s3error import S3Error

__all__ = [
    "COMPLETE_BYTES_MAX",
    "CREATE_BYTES_MAX",
    "CompletedPart",
    "DELETE_BYTES_MAX",
    "DELETE_KEYS_MAX",
    "DeleteRequest",
    "DocumentParser",
    "PARTS_MAX",
    "PIECE_BYTES",
    "Schema",
    "SETTINGS_BYTES_MAX",
    "Settings",
    "complete_parser",
    "create_parser",
    "delete_parser",
    "local_name",
    "malformed",
    "parse_complete",
    "parse_create",
    "parse_delete",
    "parse_settings",
    "parse_whole",
    "settings_parser",
]

DELETE_BYTES_MAX: Final = 2 * 1024**2
"""Size limit of a DeleteObjects document: 1,000 keys of 1,153 bytes with their elements fit."""
COMPLETE_BYTES_MAX: Final = 8 * 1024**2
"""Size limit of a CompleteMultipartUpload document: 10,000 indented parts with ETag and all checksums fit."""
SETTINGS_BYTES_MAX: Final = 64 * 1024
"""Size limit of a document of settings: an ACL of 100 grants, the most that S3 allows, fits."""
DELETE_KEYS_MAX: Final = 1000
CREATE_BYTES_MAX: Final = 4096
"""Size limit of a CreateBucket document: a region, and room for elements that are refused by name."""
_SETTINGS_MAX: Final = 512

_ETAG_CHARS_MAX: Final = 128
"""Longer than any ETag: 32 digits and a number of parts."""

PIECE_BYTES: Final = 16 * 1024
"""Bytes that are parsed in one go: at most about 1 ms, also of a hostile document."""
_SILENT_BYTES_MAX: Final = 64 * 1024
"""Bytes without an element, its end or text. The parser keeps a tag until its end, and 2 MiB of attributes then take it
0.1 s; no tag of these documents is that long."""

Parsed = TypeVar("Parsed")
PartT = TypeVar("PartT", str, int)


def malformed(detail: str) -> S3Error:
    """Returns MalformedXML with what is wrong."""
    return S3Error("MalformedXML", f"The XML is not acceptable: {detail}.")


class Schema(Generic[Parsed]):
    """A root that holds items, which hold fields, which hold text. lxml calls it while it parses.

    Nothing is kept of an element after its end, and the first one that is not in the schema ends the parse: an
    element costs more memory than its four bytes of a hostile document.
    """

    root = ""

    def __init__(self) -> None:
        self.events = 0
        self._depth = 0
        self._text: list[str] = []

    def item(self, name: str) -> None:
        """Called at the start of an element in the root."""
        raise NotImplementedError

    def field(self, name: str, text: str) -> None:
        """Called at the end of an element in an item."""
        raise NotImplementedError

    def item_end(self, name: str, text: str) -> None:
        """Called at the end of an item, with its own text."""
        raise NotImplementedError

    def result(self) -> Parsed:
        """Returns what the document says, after its end."""
        raise NotImplementedError

    # --- called by lxml

    def doctype(self, *_: object) -> None:
        """Refuses a document type."""
        raise malformed("a document type is not allowed")

    def start(self, tag: str | bytes, _: Mapping[str | bytes, str | bytes]) -> None:
        """Takes the start of an element."""
        self.events += 1
        self._depth += 1
        name = local_name(tag)
        if self._depth == 1:
            if name != self.root:
                raise malformed(f"the root is not {self.root}")
        elif self._depth == 2:
            self._text.clear()
            self.item(name)
        elif self._depth == 3:
            self._text.clear()
        else:
            raise malformed(f"an element of a field, {name}, holds elements")

    def data(self, data: str | bytes) -> None:
        """Takes text."""
        self.events += 1
        if self._depth > 1:
            self._text.append(str(data))

    def end(self, tag: str | bytes) -> None:
        """Takes the end of an element."""
        self.events += 1
        self._depth -= 1
        if self._depth == 0:
            return
        text = "".join(self._text)
        self._text.clear()
        if self._depth == 2:
            self.field(local_name(tag), text)
        else:
            self.item_end(local_name(tag), text)

    def comment(self, _: str | bytes) -> None:
        """Ignores a comment: the text before and after it is one."""

    def close(self) -> None:
        """Called at the end of the document."""


def local_name(tag: str | bytes) -> str:
    """Returns the name of an element without its namespace."""
    return str(tag).rpartition("}")[2]


class DocumentParser(Generic[Parsed]):
    """Parses one document, piece by piece.

    Args:
        schema: receives its elements.
    """

    def __init__(self, schema: Schema[Parsed]) -> None:
        self._schema = schema
        self._silent_bytes = 0
        self._is_empty = True
        self._parser = etree.XMLParser(
            target=schema,
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            dtd_validation=False,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
            collect_ids=False,
        )

    def feed(self, piece: bytes) -> None:
        """Parses the next bytes; pieces should be of `PIECE_BYTES`.

        Raises:
            S3Error: MalformedXML; the errors of the document's schema.
        """
        before = self._schema.events
        self._is_empty &= not piece
        self._well_formed(lambda: self._parser.feed(piece))
        self._silent_bytes += len(piece)
        if self._schema.events != before:
            self._silent_bytes = 0
        elif self._silent_bytes > _SILENT_BYTES_MAX:
            raise malformed(f"a tag or comment is longer than {_SILENT_BYTES_MAX} bytes")

    def finish(self) -> Parsed:
        """Returns what the document says, after all of its bytes.

        Raises:
            S3Error: as `feed`; MissingRequestBodyError for an empty document.
        """
        if self._is_empty:
            raise S3Error("MissingRequestBodyError")
        self._well_formed(self._parser.close)
        return self._schema.result()

    @staticmethod
    def _well_formed(parse: Callable[[], object]) -> None:
        try:
            parse()
        except etree.XMLSyntaxError as error:
            raise malformed(f"not well-formed at line {error.lineno}") from None
        except ValueError:
            raise malformed("not well-formed") from None


def parse_whole(parser: DocumentParser[Parsed], body: bytes, bytes_max: int) -> Parsed:
    """Returns what a document says.

    Raises:
        S3Error: MaxMessageLengthExceeded above `bytes_max`; the errors of the parser.
    """
    if len(body) > bytes_max:
        raise S3Error("MaxMessageLengthExceeded", MaxMessageLengthBytes=str(bytes_max))
    for at in range(0, len(body), PIECE_BYTES):
        parser.feed(body[at : at + PIECE_BYTES])
    return parser.finish()


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """A DeleteObjects body.

    Attributes:
        keys: 1 to 1,000 non-empty keys, in the order sent, including duplicates.
        quiet: whether the answer lists only failures.
        conditions: of the keys that have one.
    """

    keys: tuple[str, ...]
    quiet: bool
    conditions: Mapping[str, WriteCondition] = field(default_factory=dict)


class _Delete(Schema[DeleteRequest]):
    root = "Delete"

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[str] = []
        self._key = ""
        self._conditions: dict[str, WriteCondition] = {}
        self._condition = UNCONDITIONAL
        self._quiet = False

    def item(self, name: str) -> None:
        match name:
            case "Object":
                self._key, self._condition = "", UNCONDITIONAL
                if len(self._keys) == DELETE_KEYS_MAX:
                    raise malformed(f"more than {DELETE_KEYS_MAX} keys")
            case "Quiet":
                pass
            case _:
                raise malformed(f"{name} is not allowed in Delete")

    def field(self, name: str, text: str) -> None:
        match name:
            case "Key":
                # The answer repeats each key that fails.
                if len(text.encode()) > KEY_BYTES_MAX:
                    raise S3Error("KeyTooLongError")
                self._key = text
            case "VersionId":
                if text not in ("", "null"):
                    raise S3Error(
                        "NotImplemented", "VersionId in DeleteObjects is not implemented."
                    )
            case "ETag":
                tag = text.strip().removeprefix("W/").strip('"')
                is_one = 0 < len(tag) <= _ETAG_CHARS_MAX and "," not in tag
                tag = _part(name, self._condition.if_match or None, tag if is_one else None)
                self._condition = replace(self._condition, if_match=tag)
            case "Size":
                size = _part(name, self._condition.size_bytes, size_in_bytes(text.strip()))
                self._condition = replace(self._condition, size_bytes=size)
            case "LastModifiedTime":
                mtime_s = _part(name, self._condition.mtime_s, parse_http_date(text.strip()))
                self._condition = replace(self._condition, mtime_s=mtime_s)
            case _:
                raise malformed(f"{name} is not allowed in Object")

    def item_end(self, name: str, text: str) -> None:
        if name == "Quiet":
            self._quiet = text.strip().lower() == "true"
            return
        if not self._key:
            raise malformed("an Object has no Key")
        if self._conditions.setdefault(self._key, self._condition) != self._condition:
            raise malformed("a Key is listed twice with different conditions")
        self._keys.append(self._key)

    def result(self) -> DeleteRequest:
        if not self._keys:
            raise malformed(f"0 keys are not 1 to {DELETE_KEYS_MAX}")
        conditions = {key: each for key, each in self._conditions.items() if each}
        return DeleteRequest(tuple(self._keys), self._quiet, conditions)


def _part(name: str, before: PartT | None, value: PartT | None) -> PartT:
    """Returns a part of the condition of a key. One that is not understood must not be ignored."""
    if value is None:
        raise malformed(f"{name} has a value that no object can have")
    if before is not None:
        raise malformed(f"an Object has {name} twice")
    return value


def delete_parser() -> DocumentParser[DeleteRequest]:
    """Returns a parser of one `<Delete>`.

    It refuses with S3Error NotImplemented a version id, which would otherwise be ignored.
    """
    return DocumentParser(_Delete())


def parse_delete(body: bytes) -> DeleteRequest:
    """Reads a whole `<Delete>`.

    Raises:
        S3Error: MalformedXML, MaxMessageLengthExceeded, MissingRequestBodyError, NotImplemented.
    """
    return parse_whole(delete_parser(), body, DELETE_BYTES_MAX)


class _Create(Schema[str]):
    root = "CreateBucketConfiguration"

    def __init__(self) -> None:
        super().__init__()
        self._location = ""

    def item(self, name: str) -> None:
        if name != "LocationConstraint":
            text = f"{name} in CreateBucketConfiguration is not implemented."
            raise S3Error("NotImplemented", text)

    def field(self, name: str, _text: str) -> None:
        raise malformed(f"{name} is not allowed in LocationConstraint")

    def item_end(self, _name: str, text: str) -> None:
        self._location = text.strip()

    def result(self) -> str:
        return self._location


def create_parser() -> DocumentParser[str]:
    """Returns a parser of one `<CreateBucketConfiguration>`: the region that it asks for, which may be empty.

    It refuses with S3Error NotImplemented what Tarn's buckets do not have: tags, and the places of directory buckets.
    """
    return DocumentParser(_Create())


def parse_create(body: bytes) -> str:
    """Reads a whole `<CreateBucketConfiguration>`.

    Raises:
        S3Error: MalformedXML, MaxMessageLengthExceeded, MissingRequestBodyError, NotImplemented.
    """
    return parse_whole(create_parser(), body, CREATE_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class CompletedPart:
    """A part as the client lists it.

    Attributes:
        number: 1 to 10,000.
        etag: without quotes.
        checksums: `(algorithm, base64 value)`.
    """

    number: int
    etag: str
    checksums: tuple[tuple[Algorithm, str], ...] = ()


_TOO_LOW: Final = re.compile(r"-\d{1,10}|0{1,10}", re.ASCII)
_CHECKSUMS: Final = {f"Checksum{each}": each for each in Algorithm}


class _Complete(Schema[tuple[CompletedPart, ...]]):
    root = "CompleteMultipartUpload"

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[CompletedPart] = []
        self._number = self._etag = ""
        self._checksums: list[tuple[Algorithm, str]] = []

    def item(self, name: str) -> None:
        if name != "Part":
            raise malformed("only Part is allowed in CompleteMultipartUpload")
        self._number = self._etag = ""
        self._checksums = []

    def field(self, name: str, text: str) -> None:
        if name == "PartNumber":
            self._number = text.strip()
        elif name == "ETag":
            self._etag = text.strip().strip('"')
        elif name in _CHECKSUMS:
            if len(self._checksums) == len(_CHECKSUMS):
                raise malformed("a Part has a checksum twice")
            self._checksums.append((_CHECKSUMS[name], text.strip()))
        else:
            raise malformed(f"{name} is not allowed in Part")

    def item_end(self, _name: str, _text: str) -> None:
        number = self._number
        if _TOO_LOW.fullmatch(number):
            raise S3Error(
                "InvalidArgument",
                "PartNumber must be >= 1",
                ArgumentName="PartNumber",
                ArgumentValue=number,
            )
        if not (number.isascii() and number.isdigit() and self._etag):
            raise malformed("a Part needs a PartNumber and an ETag")
        if len(number) > 5 or not 1 <= int(number) <= PARTS_MAX:
            raise S3Error("InvalidPart", f"The part number {number[:20]} is not 1 to {PARTS_MAX}.")
        if self._parts and int(number) <= self._parts[-1].number:
            raise S3Error("InvalidPartOrder")
        self._parts.append(CompletedPart(int(number), self._etag, tuple(self._checksums)))

    def result(self) -> tuple[CompletedPart, ...]:
        if not self._parts:
            raise malformed(f"0 parts are not 1 to {PARTS_MAX}")
        return tuple(self._parts)


def complete_parser() -> DocumentParser[tuple[CompletedPart, ...]]:
    """Returns a parser of one `<CompleteMultipartUpload>`: parts by ascending number.

    It refuses with S3Error InvalidPartOrder, and InvalidPart for a number out of range.
    """
    return DocumentParser(_Complete())


def parse_complete(body: bytes) -> tuple[CompletedPart, ...]:
    """Reads a whole `<CompleteMultipartUpload>`.

    Raises:
        S3Error: MalformedXML (also for zero parts), InvalidPartOrder, InvalidPart, MaxMessageLengthExceeded,
            MissingRequestBodyError.
    """
    return parse_whole(complete_parser(), body, COMPLETE_BYTES_MAX)


Settings = tuple[tuple[str, str], ...]
"""The elements that hold text: the names below the root, joined by `/`, and the text; in the order of the document."""


class _Settings(Schema[Settings]):
    """Elements in elements, at places that are known; text counts where no element can be."""

    def __init__(self, root: str, places: frozenset[str]) -> None:
        super().__init__()
        self.root = root
        self._places = places
        self._above = {
            place[:at] for place in places for at in range(len(place)) if place[at] == "/"
        }
        self._names: list[str] = []
        self._found: list[tuple[str, str]] = []

    def start(self, tag: str | bytes, _: Mapping[str | bytes, str | bytes]) -> None:
        self.events += 1
        self._depth += 1
        self._text.clear()
        name = local_name(tag)
        if self._depth == 1:
            if name != self.root:
                raise malformed(f"the root is not {self.root}")
            return
        self._names.append(name)
        place = "/".join(self._names)
        if place not in self._places and place not in self._above:
            raise malformed(f"{place} is not allowed in {self.root}")

    def end(self, _: str | bytes) -> None:
        self.events += 1
        self._depth -= 1
        if self._depth == 0:
            return
        place = "/".join(self._names)
        self._names.pop()
        if place in self._places:
            if len(self._found) == _SETTINGS_MAX:
                raise malformed(f"{self.root} has more than {_SETTINGS_MAX} elements")
            self._found.append((place, "".join(self._text).strip()))
        self._text.clear()

    def result(self) -> Settings:
        return tuple(self._found)


def settings_parser(root: str, places: frozenset[str]) -> DocumentParser[Settings]:
    """Returns a parser of a document that names some settings, with its texts stripped.

    Args:
        root: the name of its root.
        places: the elements that may hold text, as in `Settings`. Others are refused.
    """
    return DocumentParser(_Settings(root, places))


def parse_settings(root: str, places: frozenset[str], body: bytes) -> Settings:
    """Reads a whole document of settings; the arguments as in `settings_parser`.

    Raises:
        S3Error: MalformedXML, MaxMessageLengthExceeded, MissingRequestBodyError.
    """
    return parse_whole(settings_parser(root, places), body, SETTINGS_BYTES_MAX)

"""Parses the XML documents that clients send: DeleteObjects and CompleteMultipartUpload.

lxml runs with every feature off that reads beyond the document: no DTD, no entities, no network, no huge
trees. This module adds limits on size and number of items (docs/design/security.md). Depth needs no limit:
unknown elements are refused, so no document is deeper than the schema. Element names are compared without
their namespace: clients send S3's, another one, or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lxml import etree

from tarn.core.entry_check import PARTS_MAX
from tarn_gateway.bodies.checksums import Algorithm
from tarn_gateway.s3error import S3Error

__all__ = [
    "COMPLETE_BYTES_MAX",
    "CompletedPart",
    "DELETE_BYTES_MAX",
    "DELETE_KEYS_MAX",
    "DeleteRequest",
    "PARTS_MAX",
    "parse_complete",
    "parse_delete",
]

DELETE_BYTES_MAX: Final = 2 * 1024**2
"""Size limit of a DeleteObjects document: 1,000 keys of 1,153 bytes with their elements fit."""
COMPLETE_BYTES_MAX: Final = 8 * 1024**2
"""Size limit of a CompleteMultipartUpload document: 10,000 indented parts with ETag and all checksums fit."""
DELETE_KEYS_MAX: Final = 1000


def _malformed(detail: str) -> S3Error:
    return S3Error("MalformedXML", f"The XML is not acceptable: {detail}.")


def _name(element: etree._Element) -> str:
    tag = element.tag
    if not isinstance(tag, str):
        return ""  # a comment or a processing instruction
    return tag.rpartition("}")[2]


def _parse(body: bytes, root_name: str, bytes_max: int) -> etree._Element:
    if len(body) > bytes_max:
        raise S3Error("MaxMessageLengthExceeded", MaxMessageLengthBytes=str(bytes_max))
    if not body:
        raise S3Error("MissingRequestBodyError")
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        collect_ids=False,
    )
    try:
        root = etree.fromstring(body, parser)
    except etree.XMLSyntaxError as error:
        raise _malformed(f"not well-formed at line {error.lineno}") from None
    except ValueError:
        raise _malformed("not well-formed") from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise _malformed("a document type is not allowed")
    if _name(root) != root_name:
        raise _malformed(f"the root is not {root_name}")
    return root


def _children(element: etree._Element) -> Iterator[tuple[str, str]]:
    """Yields `(name, text)` of the child elements."""
    for child in element:
        name = _name(child)
        if not name:
            raise _malformed("an entity is not allowed")
        if len(child):
            raise _malformed(f"{name} holds elements")
        yield name, child.text or ""


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """A DeleteObjects body.

    Attributes:
        keys: 1 to 1,000 non-empty keys, in the order sent, including duplicates.
        quiet: whether the answer lists only failures.
    """

    keys: tuple[str, ...]
    quiet: bool


def parse_delete(body: bytes) -> DeleteRequest:
    """Reads `<Delete>`.

    Raises:
        S3Error: MalformedXML, MaxMessageLengthExceeded, MissingRequestBodyError; NotImplemented for
            a version id or a condition, which would otherwise be ignored.
    """
    root = _parse(body, "Delete", DELETE_BYTES_MAX)
    keys: list[str] = []
    quiet = False
    for child in root:
        match _name(child):
            case "Object":
                keys.append(_deleted_key(child))
            case "Quiet":
                quiet = (child.text or "").strip().lower() == "true"
            case other:
                raise _malformed(f"{other or 'an entity'} is not allowed in Delete")
    if not 1 <= len(keys) <= DELETE_KEYS_MAX:
        raise _malformed(f"{len(keys)} keys are not 1 to {DELETE_KEYS_MAX}")
    return DeleteRequest(tuple(keys), quiet)


def _deleted_key(element: etree._Element) -> str:
    key = ""
    for name, text in _children(element):
        match name:
            case "Key":
                key = text
            case "VersionId":
                if text not in ("", "null"):
                    raise S3Error(
                        "NotImplemented", "VersionId in DeleteObjects is not implemented."
                    )
            case "ETag" | "LastModifiedTime" | "Size":
                refusal = f"The condition {name} in DeleteObjects is not implemented."
                raise S3Error("NotImplemented", refusal)
            case _:
                raise _malformed(f"{name} is not allowed in Object")
    if not key:
        raise _malformed("an Object has no Key")
    return key


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


_CHECKSUMS: Final = {f"Checksum{each}": each for each in Algorithm}


def parse_complete(body: bytes) -> tuple[CompletedPart, ...]:
    """Reads `<CompleteMultipartUpload>`: parts by ascending number.

    Raises:
        S3Error: MalformedXML (also for zero parts), InvalidPartOrder, InvalidPart (number out of
            range), MaxMessageLengthExceeded, MissingRequestBodyError.
    """
    root = _parse(body, "CompleteMultipartUpload", COMPLETE_BYTES_MAX)
    if not 1 <= len(root) <= PARTS_MAX:
        raise _malformed(f"{len(root)} parts are not 1 to {PARTS_MAX}")
    parts = []
    last = 0
    for child in root:
        if _name(child) != "Part":
            raise _malformed("only Part is allowed in CompleteMultipartUpload")
        part = _completed_part(child)
        if part.number <= last:
            raise S3Error("InvalidPartOrder")
        last = part.number
        parts.append(part)
    return tuple(parts)


def _completed_part(element: etree._Element) -> CompletedPart:
    number, etag = "", ""
    checksums = []
    for name, text in _children(element):
        if name == "PartNumber":
            number = text.strip()
        elif name == "ETag":
            etag = text.strip().strip('"')
        elif name in _CHECKSUMS:
            checksums.append((_CHECKSUMS[name], text.strip()))
        else:
            raise _malformed(f"{name} is not allowed in Part")
    if not (number.isascii() and number.isdigit() and etag):
        raise _malformed("a Part needs a PartNumber and an ETag")
    if len(number) > 5 or not 1 <= int(number) <= PARTS_MAX:
        raise S3Error("InvalidPart", f"The part number {number[:20]} is not 1 to {PARTS_MAX}.")
    return CompletedPart(int(number), etag, tuple(checksums))

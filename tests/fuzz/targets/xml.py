"""XML documents: each of the five parsers either refuses an input or reads it as any XML parser does."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from xml.etree import ElementTree as ET

from tests.fuzz.targets.refusals import gateway
from tests.support.fuzz.target import PropertyError, Target

from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.object_tags import TAGS_MAX, is_tag_key, is_tag_value
from tarn_gateway.documents.tagging import parse_tagging_document, tagging_document
from tarn_gateway.documents.xml_in import (
    DELETE_KEYS_MAX,
    PARTS_MAX,
    DeleteRequest,
    parse_complete,
    parse_create,
    parse_delete,
    parse_settings,
)
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.operations import acls
from tarn_gateway.s3error import S3Error

__all__ = ["TARGET", "deep", "document_type", "named", "other_reader", "within"]

_NAME_BEYOND_ASCII = re.compile(rb"<[^<>]*[\x80-\xff]")
_PLACES = acls._PLACES
_REQUEST = Request("POST", b"/lake", b"", Headers([]), BodyReader(0))


def _check(data: bytes) -> str:
    words: list[str] = []
    for parse in (_delete, _complete, _create, _settings, _tagging):
        try:
            gateway(_REQUEST, lambda parse=parse: parse(data))  # type: ignore[misc]  # a default
        except S3Error as error:
            words.append(error.code)
        else:
            words.append("taken")
    return " ".join(words)


def other_reader(data: bytes) -> ET.Element | None:
    """Returns the document as expat reads it; None unless it is UTF-8: expat supports few other encodings."""
    if b"\0" in data or b"encoding" in data[:100].replace(b'encoding="UTF-8"', b""):
        return None
    try:
        data.decode()
        return ET.fromstring(data)
    except (LookupError, ValueError):
        return None
    except ET.ParseError as error:
        if error.code in (18, 19):  # unknown or wrong encoding
            return None
        if error.code == 27:  # a prefix without a namespace, which is well-formed XML
            return None
        if error.code == 4 and _NAME_BEYOND_ASCII.search(data):
            return None  # expat follows the fourth edition of XML; the fifth allows more letters in names
        raise PropertyError(f"libxml2 takes what expat refuses: {error}") from error


def named(element: ET.Element, name: str) -> list[ET.Element]:
    """Returns the children of a name, in any namespace."""
    return [child for child in element if child.tag.rpartition("}")[2] == name]


def _delete(data: bytes) -> None:
    found: DeleteRequest = parse_delete(data)
    if not 1 <= len(found.keys) <= DELETE_KEYS_MAX:
        raise PropertyError(f"{len(found.keys)} keys")
    other = other_reader(data)
    if other is None:
        return
    # If an Object has two Keys, both readers take the last one.
    keys = [named(each, "Key")[-1].text for each in named(other, "Object")]
    if list(found.keys) != keys:
        raise PropertyError(f"keys {found.keys}, by another parser {keys}")
    for key, each in zip(found.keys, named(other, "Object"), strict=True):
        _has_condition(found.conditions.get(key, UNCONDITIONAL), each)


def _has_condition(found: WriteCondition, read: ET.Element) -> None:
    """No condition is ignored, and none is made up."""
    sizes = [int(each.text or "") for each in named(read, "Size")]
    if sizes != [each for each in (found.size_bytes,) if each is not None]:
        raise PropertyError(f"size {found.size_bytes}, by another parser {sizes}")
    etags = ["".join(each.itertext()) for each in named(read, "ETag")]
    if len(etags) != bool(found.if_match) or any(found.if_match not in each for each in etags):
        raise PropertyError(f"ETag {found.if_match!r}, by another parser {etags}")
    if len(named(read, "LastModifiedTime")) != (found.mtime_s is not None):
        raise PropertyError(f"time {found.mtime_s}")


def _complete(data: bytes) -> None:
    parts = parse_complete(data)
    numbers = [part.number for part in parts]
    if numbers != sorted(set(numbers)) or not 1 <= numbers[0] <= numbers[-1] <= PARTS_MAX:
        raise PropertyError(f"part numbers {numbers}")
    other = other_reader(data)
    if other is None:
        return
    read = [int(named(each, "PartNumber")[-1].text or "") for each in named(other, "Part")]
    if numbers != read:
        raise PropertyError(f"part numbers {numbers}, by another parser {read}")


def _create(data: bytes) -> None:
    region = parse_create(data)
    other = other_reader(data)
    if other is None:
        return
    asked_for = [each.text or "" for each in named(other, "LocationConstraint")]
    if region != (asked_for[-1].strip() if asked_for else ""):
        raise PropertyError(f"region {region!r}, by another parser {asked_for}")


def _settings(data: bytes) -> None:
    found = parse_settings("AccessControlPolicy", _PLACES, data)
    if len(found) > 512 or not _PLACES.issuperset(place for place, _ in found):
        raise PropertyError(f"settings {found}")
    other = other_reader(data)
    if other is None:
        return
    read = [each for each in _leaves(other, "") if each[0] in _PLACES]
    if list(found) != read:
        raise PropertyError(f"settings {found}, by another parser {read}")


def _tagging(data: bytes) -> None:
    tags = parse_tagging_document(data)
    if len(tags) > TAGS_MAX or parse_tagging_document(tagging_document(tags)) != tags:
        raise PropertyError(f"tags {tags} do not come back")
    if not all(is_tag_key(key) and is_tag_value(value) for key, value in tags):
        raise PropertyError(f"tags {tags}")
    other = other_reader(data)
    if other is None:
        return
    pairs = [
        tuple("".join(named(each, name)[0].itertext()) for name in ("Key", "Value"))
        for each in named(named(other, "TagSet")[0], "Tag")
    ]
    if list(tags) != sorted(pairs):
        raise PropertyError(f"tags {tags}, by another parser {pairs}")


def _leaves(element: ET.Element, place: str) -> Iterator[tuple[str, str]]:
    for child in element:
        below = f"{place}/{child.tag.rpartition('}')[2]}".lstrip("/")
        if below in _PLACES:
            yield below, (child.text or "").strip()
        else:
            yield from _leaves(child, below)


def within(make: Callable[[random.Random], bytes]) -> Callable[[random.Random, bytes], bytes]:
    """Inserts a piece between two tags, or before the first."""

    def mutation(rng: random.Random, data: bytes) -> bytes:
        places = [at for at in range(len(data)) if data[at : at + 1] == b"<"]
        at = rng.choice(places) if places else 0
        return data[:at] + make(rng) + data[at:]

    return mutation


def deep(rng: random.Random) -> bytes:
    """Returns many elements, one inside the other."""
    depth = rng.choice((10, 255, 256, 257, 1000, 4000))
    name = rng.choice((b"a", b"Object", b"Part", b"Delete"))
    closed = rng.random() < 0.5
    return (b"<%b>" % name) * depth + (b"</%b>" % name) * (depth if closed else 0)


def document_type(rng: random.Random) -> bytes:
    """Returns a document type with entities or attributes that grow, or that come from elsewhere."""
    kind = rng.randrange(5)
    if kind == 0:
        lines = [b'<!ENTITY e0 "%b">' % (b"e" * 50)]
        lines += [
            b'<!ENTITY e%d "%b">' % (level, b"&e%d;" % (level - 1) * 10)
            for level in range(1, rng.choice((3, 9, 20)))
        ]
    elif kind == 1:
        lines = [b'<!ENTITY x SYSTEM "file:///etc/passwd">']
    elif kind == 2:
        lines = [b'<!ENTITY %% p SYSTEM "http://127.0.0.1:9/"> %%p;']
    elif kind == 3:
        lines = [b'<!ENTITY a "%b">' % (b"a" * rng.choice((10, 5000)))]
    else:
        lines = [b'<!ATTLIST Object k CDATA "%b">' % (b"a" * rng.choice((10, 5000)))]
    return b"<!DOCTYPE Delete [%b]>" % b"".join(lines)


def _conditions(rng: random.Random) -> bytes:
    """Returns some conditions of a key, mostly valid ones."""
    made = (
        b"<ETag>%b</ETag>" % rng.choice((b"*", b'"e"', b"&quot;e&quot;", b"", b"e,f", b"e" * 129)),
        b"<Size>%b</Size>" % rng.choice((b"0", b" 7 ", b"-1", b"1_0", b"9" * 19, b"\xd9\xa3")),
        b"<LastModifiedTime>%b</LastModifiedTime>"
        % rng.choice((b"Sun, 06 Nov 1994 08:49:37 GMT", b"1994-11-06T08:49:37Z", b"0", b"")),
    )
    return b"".join(rng.sample(made, rng.choice((0, 1, 1, 2, 3))))


def _items(rng: random.Random) -> bytes:
    count = rng.choice((1, 2, 999, 1000, 1001))
    kind = rng.random()
    if kind < 0.4:
        return b"<Object><Key>k</Key>%b</Object>" % _conditions(rng) * min(count, 500)
    if kind < 0.6:
        tags = [b"<Tag><Key>%d</Key><Value> </Value></Tag>" % n for n in range(rng.choice((2, 10)))]
        return b"".join(tags)
    parts = [b"<Part><PartNumber>%d</PartNumber><ETag>e</ETag></Part>" % (n + 1) for n in range(30)]
    return b"".join(parts)


def _declared(rng: random.Random, data: bytes) -> bytes:
    """Encodes the text in another encoding."""
    name = rng.choice(("utf-8", "utf-16", "utf-16-le", "latin-1", "utf-7", "utf-32", "cp037"))
    said = rng.choice((name, "utf-8", "UTF-16", "ISO-8859-1", "nonsense", "EBCDIC-CP-US", "GBK"))
    start = data.find(b"?>") + 2 if data.startswith(b"<?xml") else 0
    text = f'<?xml version="1.0" encoding="{said}"?>' + data[start:].decode("utf-8", "replace")
    return text.encode(name, "replace")


TARGET = Target(
    "xml",
    _check,
    refusals=(S3Error,),
    traced=(
        "tarn_gateway.documents.xml_in", "tarn_gateway.documents.tagging", "tarn_gateway.requests.tagging",
        "tarn_gateway.xml_text",
    ),
    mutations=(
        within(deep), within(document_type), within(_items), within(_conditions), _declared,
    ),
    tokens=(
        b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?pi ", b"?>", b"&e1;", b"&a;", b"&lt;", b"&#0;",
        b"&#x10FFFF;", b"&#xD800;", b'xmlns="', b'xmlns:a="u"', b"a:", b"</", b"/>", b"<Object>",
        b"<Key>", b"</Key>", b"<Quiet>true</Quiet>", b"<VersionId>null</VersionId>",
        b"<ETag>e</ETag>", b"<Size>7</Size>",
        b"<ChecksumCRC32>", b"<ID>", b"</Grant>", b"<AccessControlPolicy>",
        b"<Tagging>", b"<TagSet>", b"<TagSet/>", b"<Tag>", b"<Value>", b"aws:",
        b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b'xml:space="preserve"',
        b'xml:base="http://h/"',
    ),
    share=1.0,
)  # fmt: skip

from __future__ import annotations

from typing import Any

import pytest

from tarn.core.condition import WriteCondition
from tarn.objects.checksums import Algorithm
from tarn_gateway.documents.xml_in import (
    COMPLETE_BYTES_MAX,
    DELETE_BYTES_MAX,
    PIECE_BYTES,
    SETTINGS_BYTES_MAX,
    CompletedPart,
    DeleteRequest,
    DocumentParser,
    complete_parser,
    delete_parser,
    parse_complete,
    parse_create,
    parse_delete,
    parse_settings,
)
from tarn_gateway.s3error import S3Error

NS = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def delete(*objects: str, ns: str = NS, quiet: str = "") -> bytes:
    return f"<?xml version='1.0'?>\n<Delete{ns}>{''.join(objects)}{quiet}</Delete>".encode()


def obj(key: str, more: str = "") -> str:
    return f"<Object><Key>{key}</Key>{more}</Object>"


def code(parse: object, body: bytes) -> str:
    assert callable(parse)
    with pytest.raises(S3Error) as caught:
        parse(body)
    return caught.value.code


def test_deletes() -> None:
    body = delete(
        obj("a&amp;b"), " \n ", obj("é"), "<!-- c -->", obj("a&amp;b"), quiet="<Quiet> true</Quiet>"
    )
    assert parse_delete(body) == DeleteRequest(("a&b", "é", "a&b"), quiet=True)
    assert parse_delete(delete(obj(" a "), ns="")) == DeleteRequest((" a ",), quiet=False)
    assert parse_delete(delete(obj("a", "<VersionId>null</VersionId>"))).keys == ("a",)
    assert parse_delete(delete(obj("cr&#13;lf&#10;"))).keys == ("cr\rlf\n",)


def test_creates() -> None:
    body = "<CreateBucketConfiguration{}><LocationConstraint> eu-1 </LocationConstraint></CreateBucketConfiguration>"
    assert (
        parse_create(body.format(NS).encode()) == parse_create(body.format("").encode()) == "eu-1"
    )
    assert parse_create(b"<CreateBucketConfiguration/>") == ""
    assert code(
        parse_create, b"<CreateBucketConfiguration><Bucket/></CreateBucketConfiguration>"
    ) == ("NotImplemented")


def test_delete_limits() -> None:
    assert len(parse_delete(delete(*[obj("k")] * 1000)).keys) == 1000
    assert code(parse_delete, delete(*[obj("k")] * 1001)) == "MalformedXML"
    assert code(parse_delete, delete()) == "MalformedXML"
    assert code(parse_delete, b" " * (DELETE_BYTES_MAX + 1)) == "MaxMessageLengthExceeded"
    assert code(parse_delete, b"") == "MissingRequestBodyError"
    assert code(parse_delete, delete(obj("a"), obj("'" * 1154))) == "KeyTooLongError"
    assert code(parse_delete, delete(obj("é" * 577))) == "KeyTooLongError"
    assert parse_delete(delete(obj("é" * 576))).keys == ("é" * 576,)
    longest = [obj("&amp;" * 200 + "k" * 800)] * 1000
    assert len(parse_delete(delete(*longest)).keys) == 1000


def pieces_read(parser: DocumentParser[Any], body: bytes, expected: str = "MalformedXML") -> int:
    """Returns how many pieces of a document are parsed before it is refused."""
    count = 0

    def feed_all() -> None:
        nonlocal count
        for at in range(0, len(body), PIECE_BYTES):
            count += 1
            parser.feed(body[at : at + PIECE_BYTES])

    with pytest.raises(S3Error) as caught:
        feed_all()
    assert caught.value.code == expected
    return count


@pytest.mark.parametrize(
    ("body", "pieces"),
    [
        (delete("<a/>" * 400_000), 1),
        (delete("<Object>" + "<a/>" * 400_000 + "</Object>"), 1),
        (delete("<Quiet>" * 200_000), 1),
        (delete(obj("k") * 60_000), 2),
        # One tag, one comment: the parser would keep all of it.
        (delete(ns="".join(f" a{n}=''" for n in range(150_000))), 5),
        (delete(ns="".join(f" xmlns:a{n}='{n}'" for n in range(90_000))), 5),
        (delete(f"<!--{'c' * 2_000_000}-->"), 6),
    ],
)
def test_a_hostile_document_ends_at_its_first_pieces(body: bytes, pieces: int) -> None:
    """What is not parsed takes neither time nor memory."""
    assert len(body) < DELETE_BYTES_MAX
    assert pieces_read(delete_parser(), body) <= pieces
    assert code(parse_delete, body) == "MalformedXML"


def test_a_document_of_ten_thousand_equal_parts_ends_at_the_second() -> None:
    body = complete(*[part(1)] * 10_000)
    assert pieces_read(complete_parser(), body, "InvalidPartOrder") == 1


def test_a_long_text_is_no_long_tag() -> None:
    assert code(parse_delete, delete(obj("k" * 500_000))) == "KeyTooLongError"
    assert parse_delete(delete(obj("k"), quiet=f"<Quiet>{' ' * 500_000}</Quiet>")).keys == ("k",)


def test_text_around_a_comment_is_one_text() -> None:
    assert parse_delete(delete(obj("a<!-- x -->b<?pi?>c"))).keys == ("abc",)


def test_versions_in_deletes_are_refused() -> None:
    body = delete(obj("a", "<VersionId>7</VersionId>"))
    assert code(parse_delete, body) == "NotImplemented"


def test_a_key_has_the_condition_of_its_own_object() -> None:
    time = "Sun, 06 Nov 1994 08:49:37 GMT"
    body = delete(
        obj("a", '<ETag> W/"7" </ETag><Size>0</Size>'),
        obj("b"),
        obj("c", f"<LastModifiedTime>{time}</LastModifiedTime><VersionId>null</VersionId>"),
        obj("a", "<Size>0</Size><ETag>7</ETag>"),
    )
    wanted = parse_delete(body)
    assert wanted.keys == ("a", "b", "c", "a")
    assert wanted.conditions == {
        "a": WriteCondition(if_match="7", size_bytes=0),
        "c": WriteCondition(mtime_s=784_111_777),
    }


BOMB = (
    b'<!DOCTYPE Delete [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    b"<Delete><Object><Key>&b;</Key></Object></Delete>"
)
EXTERNAL = (
    b'<!DOCTYPE Delete [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
    b"<Delete><Object><Key>&x;</Key></Object></Delete>"
)


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        b"<Delete>",
        b"<Other/>",
        delete("<Object/>"),
        delete("<Object><Key></Key></Object>"),
        delete("<Object><Key>a<b/></Key></Object>"),
        delete(obj("a", "<Extra/>")),
        delete("<Extra/>", obj("a")),
        BOMB,
        EXTERNAL,
        b"<!DOCTYPE Delete SYSTEM 'http://127.0.0.1:1/x.dtd'><Delete><Object><Key>a</Key></Object></Delete>",
        b"<!DOCTYPE Delete><Delete><Object><Key>a</Key></Object></Delete>",
        b"<Delete>" + b"<a>" * 300 + b"</a>" * 300 + b"</Delete>",
        b"<Delete>" + b"<a>" * 9 + b"</a>" * 9 + b"</Delete>",
        b"\xff\xfe\x00",
        b"<Delete><Object><Key>\xff</Key></Object></Delete>",
        b"<Delete><Object><Key>&#0;</Key></Object></Delete>",
        b"<?xml version='1.0' encoding='no-such'?><Delete/>",
    ],
)
def test_bad_documents_are_malformed(body: bytes) -> None:
    assert code(parse_delete, body) == "MalformedXML"


def part(number: object, etag: str = '"e"', more: str = "") -> str:
    return f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{more}</Part>"


def complete(*parts: str) -> bytes:
    return f"<CompleteMultipartUpload{NS}>{''.join(parts)}</CompleteMultipartUpload>".encode()


def test_complete() -> None:
    body = complete(
        part(1, "&quot;e1&quot;"), part(3, "e3", "<ChecksumCRC32C>AAAAAA==</ChecksumCRC32C>")
    )
    assert parse_complete(body) == (
        CompletedPart(1, "e1"),
        CompletedPart(3, "e3", ((Algorithm.CRC32C, "AAAAAA=="),)),
    )


def test_ten_thousand_parts_with_a_checksum_fit() -> None:
    more = "\n      <ChecksumSHA256>" + "A" * 43 + "=</ChecksumSHA256>\n    "
    body = complete(*[part(n, f'"{"e" * 32}"', more) for n in range(1, 10_001)])
    assert len(body) < COMPLETE_BYTES_MAX
    assert len(parse_complete(body)) == 10_000


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (complete(), "MalformedXML"),
        (complete(*[part(1)] * 10_001), "InvalidPartOrder"),
        (complete(part(2), part(1)), "InvalidPartOrder"),
        (complete(part(1), part(1)), "InvalidPartOrder"),
        (complete(part(0)), "InvalidArgument"),
        (complete(part(10_001)), "InvalidPart"),
        (complete(part(999_999_999)), "InvalidPart"),
        (complete(part("x")), "MalformedXML"),
        (complete(part("-1")), "InvalidArgument"),
        (complete(part(1, "")), "MalformedXML"),
        (complete("<Part><ETag>e</ETag></Part>"), "MalformedXML"),
        (complete(part(1, more="<Extra/>")), "MalformedXML"),
        (complete("<Other/>"), "MalformedXML"),
    ],
)
def test_bad_completes(body: bytes, expected: str) -> None:
    assert code(parse_complete, body) == expected


PLACES = frozenset({"Rule/Name", "Rule/Filter/Prefix", "Status"})


def settings(inner: str) -> bytes:
    return f"<?xml version='1.0'?><Settings{NS}>{inner}</Settings>".encode()


def parse_rules(body: bytes) -> tuple[tuple[str, str], ...]:
    return parse_settings("Settings", PLACES, body)


def test_settings_are_texts_by_their_place() -> None:
    body = settings(
        "\n<Rule a='1'> x <Name> a<!-- c -->&amp;b\n</Name><Filter><Prefix/></Filter></Rule>"
        "<Status>on</Status><Rule><Name>é</Name></Rule><Rule/>"
    )
    assert parse_rules(body) == (
        ("Rule/Name", "a&b"),
        ("Rule/Filter/Prefix", ""),
        ("Status", "on"),
        ("Rule/Name", "é"),
    )
    assert parse_rules(settings("")) == ()


@pytest.mark.parametrize(
    "inner",
    [
        "<Name>a</Name>",
        "<Rule><Status>on</Status></Rule>",
        "<Rule><Filter><Prefix>a<b/></Prefix></Filter></Rule>",
        "<Settings/>",
        "<Rule/Name>a</Rule/Name>",
        "<Status/>" * 513,
        "<Rule>",
    ],
)
def test_settings_at_other_places_are_malformed(inner: str) -> None:
    assert code(parse_rules, settings(inner)) == "MalformedXML"


def test_limits_of_settings() -> None:
    assert len(parse_rules(settings("<Status>on</Status>" * 512))) == 512
    assert code(parse_rules, b"") == "MissingRequestBodyError"
    assert code(parse_rules, b" " * (SETTINGS_BYTES_MAX + 1)) == "MaxMessageLengthExceeded"
    assert code(parse_rules, b"<!DOCTYPE Settings []>" + settings("")) == "MalformedXML"
    assert code(parse_rules, b"<Rule/>") == "MalformedXML"

"""The objects of a listing's document are read past botocore's parser; it says the same of each."""

from datetime import datetime
from typing import Any
from xml.sax.saxutils import escape

import botocore.session
import pytest
from botocore.parsers import create_parser
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.entry import Entry, listed_of, pack
from tarn_cli.objects.store import _contents, _plain_contents, _take_contents
from tarn_gateway.documents.xml_out import Listing, list_objects_v2

OBJECT = (
    "<Contents><Key>{key}</Key><LastModified>{time}</LastModified><ETag>&quot;{etag}&quot;</ETag>"
    "<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
KEYS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")))
SHAPE = botocore.session.get_session().get_service_model("s3").operation_model("ListObjectsV2")


def document(objects: list[str], *, root: str = "ListBucketResult") -> dict[str, Any]:
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><{root} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>lake</Name><KeyCount>{len(objects)}</KeyCount><IsTruncated>true</IsTruncated>"
        f"<NextContinuationToken>a&amp;b</NextContinuationToken>{''.join(objects)}"
        f"<CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes></{root}>"
    )
    return {"status_code": 200, "headers": {}, "body": body.encode()}


def parsed(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = create_parser("rest-xml").parse(answer, SHAPE.output_shape)
    return found


def shown(answer: dict[str, Any]) -> list[tuple[str, int, datetime, str]]:
    return [
        (
            each["Key"],
            int(each["Size"]),
            datetime.fromisoformat(str(each["LastModified"])),
            each["ETag"],
        )
        for each in answer.get("Contents", [])
    ]


@given(st.lists(st.tuples(KEYS, st.integers(0, 2**62)), max_size=4))
def test_the_objects_are_those_that_botocore_reads(objects: list[tuple[str, int]]) -> None:
    made = [
        OBJECT.format(
            key=escape(key), time="2026-11-29T20:56:55.562Z", etag=f"{size:032x}", size=size
        )
        for key, size in objects
    ]
    plain = parsed(document(made))
    response, customized = document(made), dict[str, Any]()
    _take_contents(response, customized)
    taken = parsed(response)
    assert "Contents" not in taken
    taken.update(customized)
    assert shown(taken) == shown(plain)
    assert len(shown(taken)) == len(objects)
    rest = ("Name", "KeyCount", "IsTruncated", "NextContinuationToken", "CommonPrefixes")
    assert {name: taken[name] for name in rest} == {name: plain[name] for name in rest}


@given(
    st.lists(st.tuples(KEYS, st.integers(0, 2**62)), min_size=1, max_size=4),
    st.lists(KEYS, max_size=2),
    st.booleans(),
)
def test_objects_as_the_endpoint_writes_them_are_read_without_a_parser_of_xml(
    objects: list[tuple[str, int]], prefixes: list[str], url_encoded: bool
) -> None:
    listing = Listing(
        "lake",
        [key for key, _ in objects],
        listed_of(
            pack(Entry(size, size % 10**15, bytes(16), size.to_bytes(16, "big")))
            for _, size in objects
        ),
        prefixes,
        truncated=True,
        url_encoded=url_encoded,
    )
    body = list_objects_v2(listing, next_continuation_token="a&b")
    plain, general = _plain_contents(body), _contents(body)
    assert general is not None
    if plain is None:
        assert not url_encoded or not all(key for key, _ in objects)
        return
    for each in general[0]:
        assert each.pop("StorageClass") == "STANDARD"
    assert plain[0] == general[0]
    rest = [
        parsed({"status_code": 200, "headers": {}, "body": each}) for each in (plain[1], general[1])
    ]
    assert rest[0] == rest[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<Key>a", "<Key>&lt;a"),
        ("<Key>a", "<Key>ä"),
        ("<Key>a", "<Key>\ta"),
        ("<Key>a", "<Key>>a"),
        ("<Key>a", "<Key><![CDATA[a]]>"),
        ("<Contents>", "<!-- <Contents> --><Contents>"),
        ("<Contents>", "<Contents >"),
        ("<Contents>", "<Contents><Owner>x</Owner>"),
        ("</Contents>", "</Contents> "),
        ("STANDARD", "GLACIER"),
        ("<Size>1</Size>", "<Size>1</Size><Size>2</Size>"),
    ],
)
def test_objects_in_another_form_are_left_to_a_parser_of_xml(old: str, new: str) -> None:
    both = [OBJECT.format(key=key, time="T", etag="e", size=1) for key in ("a", "ab")]
    body = document(both)["body"]
    assert _plain_contents(body) is not None
    assert _plain_contents(body.decode().replace(old, new).encode()) is None


@pytest.mark.parametrize("body", [b"", b"<ListBucketResult><Contents>", b"no document"])
def test_a_broken_document_is_left_to_botocore(body: bytes) -> None:
    response, customized = {"status_code": 200, "headers": {}, "body": body}, dict[str, Any]()
    _take_contents(response, customized)
    assert response["body"] == body
    assert not customized


def test_an_error_in_place_of_a_listing_stays_one() -> None:
    response, customized = document([], root="Error"), dict[str, Any]()
    before = response["body"]
    _take_contents(response, customized)
    assert response["body"] == before
    assert not customized

"""The objects of a listing's document are read past botocore's parser; it says the same of each."""

from datetime import datetime
from typing import Any
from xml.sax.saxutils import escape

import botocore.session
import pytest
from botocore.parsers import create_parser
from hypothesis import given
from hypothesis import strategies as st

from tarn_cli.objects.store import _take_contents

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

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, unquote_plus

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.parsers import RestXMLParser
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from tarn.core.entry import Checksum, Entry, listed_of, pack, shown_time_us
from tarn.objects.conditions import Verdict, http_date, parse_http_date
from tarn_gateway.documents import xml_out
from tarn_gateway.documents.xml_out import (
    DeletedKey,
    FailedKey,
    ListedBucket,
    ListedPart,
    ListedUpload,
    Listing,
    UploadListing,
)
from tarn_gateway.http import Headers
from tarn_gateway.requests.condition_headers import read_conditions
from tarn_gateway.xml_text import escape, escape_all, url_encode, url_encode_all

TIME_US = 1_255_369_830_999_999
ISO = "2009-10-12T17:50:30.000Z"
MODEL = ServiceModel(Loader().load_service_model("s3", "service-2"))


def parsed(operation: str, body: bytes) -> Any:
    """Returns the document as botocore reads it, without decoding keys."""
    shape = MODEL.operation_model(operation).output_shape
    answer = {"body": body, "headers": {}, "status_code": 200}
    result = RestXMLParser().parse(answer, shape)
    result.pop("ResponseMetadata")
    return result


def iso(value: Any) -> str:
    return str(value.strftime("%Y-%m-%dT%H:%M:%S.000Z"))


KEYS = ["a", "a&b <c> \"d\" 'e'", "é/日本", "tab\there", "cr\rlf\n", "plus+ %41"]


@pytest.mark.parametrize("url_encoded", [False, True])
def test_listings_give_back_every_key(url_encoded: bool) -> None:
    listing = Listing(
        "repo",
        KEYS,
        listed_of(pack(Entry(i, TIME_US, bytes(16), bytes([i] * 16))) for i in range(len(KEYS))),
        ["p&/", "q/"],
        prefix="p<",
        delimiter="/",
        max_keys=7,
        truncated=True,
        url_encoded=url_encoded,
        owner="me",
    )
    decode = unquote_plus if url_encoded else str
    v1 = parsed("ListObjects", xml_out.list_objects_v1(listing, marker="m&", next_marker="n&"))
    v2 = parsed(
        "ListObjectsV2",
        xml_out.list_objects_v2(
            listing, continuation_token="t&", next_continuation_token="u", start_after="s&"
        ),
    )
    for result in (v1, v2):
        assert [decode(row["Key"]) for row in result["Contents"]] == KEYS
        assert [row["Size"] for row in result["Contents"]] == list(range(len(KEYS)))
        assert result["Contents"][0]["ETag"] == f'"{"00" * 16}"'
        assert iso(result["Contents"][0]["LastModified"]) == ISO
        assert result["Contents"][0]["Owner"]["ID"] == "me"
        assert [decode(each["Prefix"]) for each in result["CommonPrefixes"]] == ["p&/", "q/"]
        assert decode(result["Prefix"]) == "p<"
        assert (result["MaxKeys"], result["IsTruncated"], result["Delimiter"]) == (7, True, "/")
        assert ("EncodingType" in result) == url_encoded
    assert (decode(v1["Marker"]), decode(v1["NextMarker"])) == ("m&", "n&")
    assert v2["KeyCount"] == len(KEYS) + 2
    assert (v2["ContinuationToken"], v2["NextContinuationToken"]) == ("t&", "u")
    assert decode(v2["StartAfter"]) == "s&"


@pytest.mark.parametrize(
    ("time_us", "shown"),
    [
        (2**63 - 1, "9999-12-30T23:59:59.000Z"),
        (-(2**63), "1970-01-01T00:00:00.000Z"),
        (-1, "1970-01-01T00:00:00.000Z"),
    ],
)
def test_times_that_no_calendar_has_are_shown_as_the_nearest_one(time_us: int, shown: str) -> None:
    """An older release stored them; one such object must not hide all others of its page."""
    made = Entry(1, time_us, bytes(16), bytes(16))
    listing = Listing("repo", ["a"], listed_of([pack(made)]))
    for document in (xml_out.list_objects_v1(listing), xml_out.list_objects_v2(listing)):
        assert f"<LastModified>{shown}</LastModified>".encode() in document
    assert xml_out.iso_date(time_us) == shown
    assert parse_http_date(http_date(time_us)) == shown_time_us(time_us) // 1_000_000
    conditions = read_conditions(Headers([("if-modified-since", http_date(time_us))]))
    assert conditions.judge("e", time_us) is Verdict.NOT_MODIFIED


def test_an_empty_listing() -> None:
    result = parsed("ListObjectsV2", xml_out.list_objects_v2(Listing("repo", [], [])))
    assert result["KeyCount"] == 0
    assert result["IsTruncated"] is False
    assert "Contents" not in result


@given(st.text())
def test_url_encoding_is_undone_by_either_decoder(key: str) -> None:
    try:
        key.encode()
    except UnicodeEncodeError:
        return
    assert unquote(url_encode(key)) == key
    assert unquote_plus(url_encode(key)) == key


@given(
    st.lists(st.one_of(st.text("ab/%=+ ~\n&é", max_size=6), st.text(st.characters())), max_size=6)
)
def test_many_texts_are_written_as_each_by_itself(texts: list[str]) -> None:
    assert escape_all(texts) == [escape(text) for text in texts]
    assert url_encode_all(texts) == [url_encode(text) for text in texts]


@given(st.text(st.characters()))
def test_any_text_makes_a_well_formed_document(text: str) -> None:
    root = etree.fromstring(f"<a b='{escape(text)}'>{escape(text)}</a>".encode())
    kept = "".join(
        char if char in "\t\n\r" or (ord(char) >= 32 and ord(char) not in (0xFFFE, 0xFFFF)
                                     and not 0xD800 <= ord(char) < 0xE000) else "\ufffd"
        for char in text
    )  # fmt: skip
    assert (root.text or "") == kept


def test_buckets() -> None:
    body = xml_out.list_buckets([ListedBucket("a", TIME_US)], "me", continuation_token="t")
    result = parsed("ListBuckets", body)
    assert [bucket["Name"] for bucket in result["Buckets"]] == ["a"]
    assert iso(result["Buckets"][0]["CreationDate"]) == ISO
    assert result["Owner"] == {"ID": "me", "DisplayName": "me"}
    assert result["ContinuationToken"] == "t"


def test_bucket_properties() -> None:
    location = etree.fromstring(xml_out.location_constraint("eu-west-1"))
    assert location.tag.endswith("}LocationConstraint")
    assert location.text == "eu-west-1"
    assert parsed("GetBucketVersioning", xml_out.versioning_configuration()) == {}


def test_deletes_quiet_and_not() -> None:
    outcomes: list[DeletedKey | FailedKey] = [
        DeletedKey("a&"),
        FailedKey("b", "AccessDenied", "no & no"),
    ]
    loud = parsed("DeleteObjects", xml_out.delete_result(outcomes, quiet=False))
    assert loud["Deleted"] == [{"Key": "a&"}]
    assert loud["Errors"] == [{"Key": "b", "Code": "AccessDenied", "Message": "no & no"}]
    quiet = parsed("DeleteObjects", xml_out.delete_result(outcomes, quiet=True))
    assert "Deleted" not in quiet
    assert len(quiet["Errors"]) == 1


def test_copies() -> None:
    checksum = Checksum("CRC32", "AAAAAA==")
    result = parsed("CopyObject", xml_out.copy_object_result("e", TIME_US, [checksum]))
    assert result["CopyObjectResult"]["ETag"] == '"e"'
    assert result["CopyObjectResult"]["ChecksumCRC32"] == "AAAAAA=="
    assert result["CopyObjectResult"]["ChecksumType"] == "FULL_OBJECT"
    result = parsed("UploadPartCopy", xml_out.copy_part_result("e", TIME_US, [checksum]))
    assert result["CopyPartResult"]["ChecksumCRC32"] == "AAAAAA=="
    assert iso(result["CopyPartResult"]["LastModified"]) == ISO


def test_multipart() -> None:
    begun = parsed("CreateMultipartUpload", xml_out.initiate_result("b", "k&", "u"))
    assert (begun["Bucket"], begun["Key"], begun["UploadId"]) == ("b", "k&", "u")
    composite = Checksum("SHA256", "x-2", composite=True)
    done = parsed(
        "CompleteMultipartUpload",
        xml_out.complete_result("http://h/k", "b", "k", "e-2", [composite]),
    )
    assert done["ETag"] == '"e-2"'
    assert (done["ChecksumSHA256"], done["ChecksumType"]) == ("x-2", "COMPOSITE")
    parts = [ListedPart(n, n * 10, f"e{n}", TIME_US, (Checksum("CRC32C", "A="),)) for n in (1, 3)]
    listed = parsed(
        "ListParts",
        xml_out.list_parts(
            "b", "k&", "u", parts, part_number_marker=0, max_parts=2, truncated=True, owner="me",
            checksum_algorithm="CRC32C",
        ),
    )  # fmt: skip
    assert [part["PartNumber"] for part in listed["Parts"]] == [1, 3]
    assert [part["ChecksumCRC32C"] for part in listed["Parts"]] == ["A=", "A="]
    assert (listed["NextPartNumberMarker"], listed["IsTruncated"]) == (3, True)
    assert (listed["Key"], listed["ChecksumAlgorithm"]) == ("k&", "CRC32C")


def test_uploads() -> None:
    listing = UploadListing(
        "b", [ListedUpload("k&", "u1", TIME_US, "me")], ["p/"], prefix="p", delimiter="/",
        truncated=True, next_key_marker="k&", next_upload_id_marker="u1",
    )  # fmt: skip
    result = parsed("ListMultipartUploads", xml_out.list_uploads(listing))
    assert [(each["Key"], each["UploadId"]) for each in result["Uploads"]] == [("k&", "u1")]
    assert (result["NextKeyMarker"], result["NextUploadIdMarker"]) == ("k&", "u1")
    assert result["CommonPrefixes"] == [{"Prefix": "p/"}]
    assert iso(result["Uploads"][0]["Initiated"]) == ISO

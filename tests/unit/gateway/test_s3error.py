from __future__ import annotations

import typing

import pytest
from lxml import etree

from tarn.core.errors import Kind, Reason, TarnError
from tarn_gateway.http import (
    BodyMalformedError,
    BodyReader,
    BodyStalledError,
    BodyTruncatedError,
    Headers,
    Request,
)
from tarn_gateway.s3error import (
    CODES,
    S3Code,
    S3Error,
    error_response,
    from_tarn_error,
    head_refusal,
)


def request(method: str = "GET") -> Request:
    return Request(method, b"/repo/main/%C3%A9&", b"", Headers([]), BodyReader(0), request_id="R1")


def test_every_code_has_a_status_and_a_message() -> None:
    assert set(CODES) == set(typing.get_args(S3Code))
    assert all(400 <= status <= 599 and text for status, text in CODES.values())


def test_the_document_is_well_formed_whatever_the_texts_hold() -> None:
    error = S3Error("InvalidArgument", "a <b> & \x00 \ud800 é", ArgumentName='"x"')
    response = error_response(error, request())
    assert isinstance(response.body, bytes)
    root = etree.fromstring(response.body)
    assert [(child.tag, child.text) for child in root] == [
        ("Code", "InvalidArgument"),
        ("Message", "a <b> & \ufffd \ufffd é"),
        ("ArgumentName", '"x"'),
        ("Resource", "/repo/main/%C3%A9&"),
        ("RequestId", "R1"),
        ("HostId", "tarn"),
    ]
    assert response.status == 400
    assert response.headers == [("Content-Type", "application/xml")]


@pytest.mark.parametrize(
    ("code", "message", "told"),
    [
        ("NoSuchKey", None, "The specified key does not exist."),
        ("NoSuchKey", "path a of lake", "The specified key does not exist. path a of lake"),
        ("AccessDenied", "ann may not", "Access Denied. ann may not"),
        ("AccessDenied", "Invalid according to Policy: x", "Invalid according to Policy: x"),
        ("AccessDenied", "Request has expired", "Request has expired"),
        ("InvalidArgument", "n must be 1", "n must be 1"),
        ("QuotaExceeded", "lake has 5 objects", "lake has 5 objects"),
    ],
)
def test_a_message_begins_with_the_sentence_of_s3(
    code: S3Code, message: str | None, told: str
) -> None:
    assert S3Error(code, message).message == told


@pytest.mark.parametrize("status", [400, 405, 408, 414, 431, 501, 505])
def test_a_head_that_cannot_be_parsed_has_a_document(status: int) -> None:
    response = head_refusal(status, "a <b>", "R1")
    assert isinstance(response.body, bytes)
    root = etree.fromstring(response.body)
    assert (response.status, root.findtext("RequestId")) == (status, "R1")
    assert root.findtext("Code") in CODES
    assert "a <b>" in (root.findtext("Message") or "")


def test_a_503_says_when_to_try_again() -> None:
    assert ("Retry-After", "1") in error_response(S3Error("SlowDown"), request()).headers
    custom = S3Error("SlowDown", headers={"Retry-After": "9"})
    assert ("Retry-After", "9") in error_response(custom, request()).headers


@pytest.mark.parametrize(
    ("kind", "reason", "read", "write"),
    [
        (Kind.NOT_FOUND, Reason.REPOSITORY_NOT_FOUND, "NoSuchBucket", "NoSuchBucket"),
        (Kind.NOT_FOUND, Reason.BRANCH_NOT_FOUND, "NoSuchKey", "NoSuchBucket"),
        (Kind.NOT_FOUND, Reason.REF_NOT_FOUND, "NoSuchKey", "NoSuchBucket"),
        (Kind.NOT_FOUND, Reason.ENTRY_NOT_FOUND, "NoSuchKey", "NoSuchKey"),
        (Kind.FAILED_PRECONDITION, Reason.EXPIRED_COMMIT, "ExpiredCommit", "ExpiredCommit"),
        (Kind.NOT_FOUND, Reason.UPLOAD_NOT_FOUND, "NoSuchUpload", "NoSuchUpload"),
        (Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, "NoSuchVersion", "NoSuchVersion"),
        (Kind.FAILED_PRECONDITION, Reason.REF_NOT_WRITABLE, "MethodNotAllowed", "MethodNotAllowed"),
        (Kind.INVALID, Reason.KEY_TOO_LONG, "KeyTooLongError", "KeyTooLongError"),
        (Kind.INVALID, Reason.UPLOAD_PART_TOO_SMALL, "EntityTooSmall", "EntityTooSmall"),
        (Kind.CONFLICT, Reason.REF_MOVED, "ServiceUnavailable", "ServiceUnavailable"),
        (Kind.CONFLICT, Reason.UPLOAD_BUSY, "ServiceUnavailable", "ServiceUnavailable"),
        (Kind.EXHAUSTED, Reason.OVERLOADED, "SlowDown", "SlowDown"),
        (Kind.EXHAUSTED, Reason.QUOTA_EXCEEDED, "QuotaExceeded", "QuotaExceeded"),
        (Kind.EXHAUSTED, Reason.JOURNAL_BEHIND, "SlowDown", "SlowDown"),
        (Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "ServiceUnavailable", "ServiceUnavailable"),
        (Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, "NotImplemented", "NotImplemented"),
        (Kind.CORRUPT, Reason.DATA_CORRUPT, "InternalError", "InternalError"),
    ],
)
def test_failures_of_ours(kind: Kind, reason: Reason, read: str, write: str) -> None:
    error = TarnError(kind, reason, "detail")
    assert from_tarn_error(error).code == read
    assert from_tarn_error(error, write=True).code == write


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("reason", Reason)
def test_no_failure_that_may_have_been_applied_is_a_4xx(kind: Kind, reason: Reason) -> None:
    status = from_tarn_error(TarnError(kind, reason, "x"), write=True).status
    if kind in (Kind.UNKNOWN_OUTCOME, Kind.UNAVAILABLE, Kind.DEADLINE, Kind.CONFLICT):
        assert status == 503


def test_internal_failures_are_not_described() -> None:
    for kind in (Kind.CORRUPT, Kind.INTERNAL):
        assert "secret" not in from_tarn_error(TarnError(kind, Reason.INTERNAL, "secret")).message


def test_body_errors() -> None:
    assert from_tarn_error(BodyTruncatedError(3)).code == "IncompleteBody"
    assert from_tarn_error(BodyStalledError(3, 1.0)).code == "RequestTimeout"
    assert from_tarn_error(BodyMalformedError("x")).code == "InvalidRequest"


def test_what_tarn_adds_to_a_sentence_that_programs_compare_is_an_element_of_its_own() -> None:
    error = from_tarn_error(TarnError(Kind.NOT_FOUND, Reason.UPLOAD_NOT_FOUND, "upload <7> ended"))
    assert error.message == CODES["NoSuchUpload"][1]
    assert b"<Detail>upload &lt;7&gt; ended</Detail>" in error.xml("/lake", "id")
    other = S3Error("AccessDenied", "branch main is protected")
    assert other.message == "Access Denied. branch main is protected"
    assert b"<Detail>" not in other.xml("/lake", "id")

import json

import boto3.exceptions
import botocore.exceptions
import botocore.parsers
import pytest
import s3transfer.exceptions  # type: ignore[import-untyped]

from tarn.core.errors import Kind, Reason, TarnError
from tarn_cli.exits import CliError, Exit
from tarn_cli.failures import failure_of
from tarn_cli.s3_failures import about


@pytest.mark.parametrize(
    ("kind", "reason", "expected"),
    [
        (Kind.NOT_FOUND, Reason.BRANCH_NOT_FOUND, Exit.NOT_FOUND),
        (Kind.INVALID, Reason.INVALID_ARGUMENT, Exit.USAGE),
        (Kind.DENIED, Reason.ACCESS_DENIED, Exit.DENIED),
        (Kind.UNAUTHENTICATED, Reason.SIGNATURE_MISMATCH, Exit.DENIED),
        (Kind.ALREADY_EXISTS, Reason.BRANCH_EXISTS, Exit.CONFLICT),
        (Kind.CONFLICT, Reason.REF_MOVED, Exit.CONFLICT),
        (Kind.FAILED_PRECONDITION, Reason.NOTHING_TO_COMMIT, Exit.CONFLICT),
        (Kind.UNAVAILABLE, Reason.UNAVAILABLE, Exit.UNAVAILABLE),
        (Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, Exit.UNAVAILABLE),
        (Kind.CORRUPT, Reason.DATA_CORRUPT, Exit.FAILURE),
    ],
)
def test_each_kind_has_its_exit_code(kind: Kind, reason: Reason, expected: Exit) -> None:
    failure = failure_of(TarnError(kind, reason, "no such thing"))
    assert failure is not None
    assert failure.exit_code is expected
    assert failure.line().startswith("no such thing")


def s3_error(status: int, code: str) -> botocore.exceptions.ClientError:
    return botocore.exceptions.ClientError(
        {
            "Error": {"Code": code, "Message": "a sentence"},
            "ResponseMetadata": {
                "HTTPStatusCode": status,
                "RequestId": "1",
                "HostId": "",
                "HTTPHeaders": {},
                "RetryAttempts": 0,
            },
        },
        "GetObject",
    )


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "NoSuchKey", Exit.NOT_FOUND),
        (403, "AccessDenied", Exit.DENIED),
        (412, "PreconditionFailed", Exit.CONFLICT),
        (503, "SlowDown", Exit.UNAVAILABLE),
        (500, "InternalError", Exit.FAILURE),
        (404, "404", Exit.NOT_FOUND),  # a HEAD has no body
        (503, "503", Exit.UNAVAILABLE),
        (405, "MethodNotAllowed", Exit.USAGE),
        (403, "QuotaExceeded", Exit.UNAVAILABLE),
        (400, "RequestTimeout", Exit.UNAVAILABLE),
        (410, "ExpiredCommit", Exit.NOT_FOUND),
    ],
)
def test_each_s3_status_has_its_exit_code(status: int, code: str, expected: Exit) -> None:
    failure = failure_of(s3_error(status, code))
    assert failure is not None
    assert failure.exit_code is expected


def test_a_failure_is_found_inside_groups() -> None:
    inner = CliError(Exit.CONFLICT, "taken", "wait")
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [inner])])
    failure = failure_of(group)
    assert failure is not None
    assert failure.line() == "taken (wait)"


def test_a_failure_is_json_for_programs() -> None:
    failure = failure_of(TarnError(Kind.NOT_FOUND, Reason.TAG_NOT_FOUND, "no tag v1"))
    assert failure is not None
    told = json.loads(failure.json())
    assert told["error"] == "TAG_NOT_FOUND"
    assert told["exit_code"] == 3


@pytest.mark.parametrize(
    ("reason", "command"),
    [
        (Reason.BRANCH_DIRTY, "tarn branch reset"),
        (Reason.BRANCH_RESET, "tarn diff"),
        (Reason.BRANCH_RESET, "tarn log"),
        (Reason.MERGE_CONFLICT, "--take source:PATTERN"),
        (Reason.NOTHING_TO_MERGE, "--allow-empty"),
        (Reason.NOT_FAST_FORWARD, "--ff-only"),
        (Reason.REF_MOVED, "tarn log"),
    ],
)
def test_a_refused_merge_or_move_says_how_to_go_on(reason: Reason, command: str) -> None:
    failure = failure_of(TarnError(Kind.FAILED_PRECONDITION, reason, "refused", branch="main"))
    assert failure is not None
    assert command in failure.hint


def test_a_change_of_the_store_during_a_transfer_is_no_moved_branch() -> None:
    failure = failure_of(TarnError(Kind.CONFLICT, Reason.REF_MOVED, "another process opened it"))
    assert failure is not None
    assert failure.hint == ""


def test_a_bug_is_not_taken_for_a_known_failure() -> None:
    assert failure_of(ZeroDivisionError()) is None


def wrapped(inner: Exception) -> BaseException:
    """Returns the error of an upload, as boto3 raises it."""
    error: BaseException = boto3.exceptions.S3UploadFailedError(f"Failed to upload x: {inner}")
    error.__context__ = inner
    return error


DOWN = botocore.exceptions.EndpointConnectionError(endpoint_url="http://127.0.0.1:9/")


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (wrapped(s3_error(405, "MethodNotAllowed")), Exit.USAGE, "MethodNotAllowed"),
        (wrapped(s3_error(404, "NoSuchBucket")), Exit.NOT_FOUND, "NoSuchBucket"),
        (wrapped(s3_error(403, "AccessDenied")), Exit.DENIED, "AccessDenied"),
        (wrapped(s3_error(403, "QuotaExceeded")), Exit.UNAVAILABLE, "QuotaExceeded"),
        (wrapped(s3_error(503, "ServiceUnavailable")), Exit.UNAVAILABLE, "ServiceUnavailable"),
        (wrapped(DOWN), Exit.UNAVAILABLE, "UNAVAILABLE"),
        (DOWN, Exit.UNAVAILABLE, "UNAVAILABLE"),
        (boto3.exceptions.RetriesExceededError(DOWN), Exit.UNAVAILABLE, "UNAVAILABLE"),
        (
            s3transfer.exceptions.RetriesExceededError(OSError("reset")),
            Exit.UNAVAILABLE,
            "UNAVAILABLE",
        ),
        (
            botocore.exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2),
            Exit.UNAVAILABLE,
            "UNAVAILABLE",
        ),
        (botocore.parsers.ResponseParserError("<html>"), Exit.FAILURE, "NOT_S3"),
        (botocore.exceptions.NoRegionError(), Exit.FAILURE, "S3_CLIENT"),
    ],
)
def test_an_error_that_boto_wraps_is_told_as_itself(
    error: BaseException, code: Exit, reason: str
) -> None:
    found = failure_of(error)
    assert found is not None
    assert (found.exit_code, found.reason) == (code, reason)
    assert "Failed to upload" not in found.message
    with pytest.raises(CliError) as caught, about("lake/main/a"):
        raise error
    told = failure_of(caught.value)
    assert told is not None
    assert told.message == f"lake/main/a: {found.message}"
    assert (told.exit_code, told.reason, told.hint) == (code, reason, found.hint)


def test_other_errors_pass_a_call_to_s3_as_they_are() -> None:
    with pytest.raises(ZeroDivisionError), about("lake/main/a"):
        raise ZeroDivisionError


def test_a_listing_of_a_missing_ref_points_at_the_refs() -> None:
    listing = s3_error(404, "NoSuchKey")
    listing.operation_name = "ListObjectsV2"
    for error, command in ((listing, "tarn refs list"), (s3_error(404, "NoSuchKey"), "tarn fs ls")):
        found = failure_of(error)
        assert found is not None
        assert command in found.hint


def test_an_endpoint_that_is_not_trusted_is_told_with_the_setting_that_helps() -> None:
    refused = botocore.exceptions.SSLError(endpoint_url="https://lake", error="verify failed")
    with pytest.raises(CliError, match="no trusted connection") as caught, about("lake/main/a"):
        raise refused
    assert caught.value.exit_code is Exit.UNAVAILABLE
    assert "TARN_ENDPOINT_CA" in str(caught.value.hint)

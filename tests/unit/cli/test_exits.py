import json

import botocore.exceptions
import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn_cli.exits import CliError, Exit, failure_of


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

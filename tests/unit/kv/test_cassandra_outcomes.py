"""The meaning of each failure of the driver."""

from __future__ import annotations

import pytest
from cassandra import (
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    WriteFailure,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException, ConnectionShutdown
from cassandra.protocol import (
    ErrorMessage,
    IsBootstrappingErrorMessage,
    OverloadedErrorMessage,
    ServerError,
)

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.cluster.outcomes import (
    Fate,
    fate_of,
    is_answered,
    is_transient,
    read_error,
    write_error,
)
from tarn.kv.port import OutcomeUnknownError

CAS_WRITE_UNKNOWN = ErrorMessage(0x1700, "CAS operation result is unknown", None)

NOT_APPLIED = [
    NoHostAvailable("none", {}),
    Unavailable("too few replicas"),
    IsBootstrappingErrorMessage(0x1002, "bootstrapping", None),
    InvalidRequest("syntax"),
    Unauthorized("no"),
    TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, "our own queue"),
]
UNKNOWN = [
    CAS_WRITE_UNKNOWN,
    WriteTimeout("slow", write_type=5),
    WriteFailure("failed", write_type=5),
    OperationTimedOut(),
    ConnectionException("cut"),
    ConnectionShutdown("cut"),
    OverloadedErrorMessage(0x1001, "overloaded", None),
    ServerError(0x0000, "bug", None),
    ReadTimeout("in the middle of a compare-and-set"),
    ReadFailure("the same", error_code_map={}),
    ErrorMessage(0x7777, "of a later version", None),
    OutcomeUnknownError("already"),
]


@pytest.mark.parametrize("error", NOT_APPLIED, ids=lambda error: type(error).__name__)
def test_errors_after_which_a_write_was_surely_not_applied(error: Exception) -> None:
    assert fate_of(error) is Fate.NOT_APPLIED
    assert write_error(error).kind in (Kind.UNAVAILABLE, Kind.INTERNAL, Kind.EXHAUSTED)


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda error: type(error).__name__)
def test_every_other_error_leaves_the_outcome_unknown(error: Exception) -> None:
    assert fate_of(error) is Fate.UNKNOWN
    assert isinstance(write_error(error), OutcomeUnknownError)


@pytest.mark.parametrize("error", [*NOT_APPLIED[:3], *UNKNOWN[:2], *UNKNOWN[3:9]])
def test_errors_after_which_a_request_may_be_repeated(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error", [InvalidRequest(""), ReadFailure("", error_code_map={}), NOT_APPLIED[-1]]
)
def test_errors_that_a_repetition_would_meet_again(error: Exception) -> None:
    assert not is_transient(error)


def test_whether_a_node_has_answered() -> None:
    assert is_answered(CAS_WRITE_UNKNOWN)
    assert is_answered(WriteTimeout("slow", write_type=5))
    assert not is_answered(OperationTimedOut())
    assert not is_answered(ConnectionShutdown("cut"))


def test_errors_say_what_happened() -> None:
    assert "code 0x1700" in str(write_error(CAS_WRITE_UNKNOWN))
    assert "tombstones" in str(read_error(ReadFailure("failed", error_code_map={})))
    assert read_error(InvalidRequest("x")).kind is Kind.INTERNAL
    assert read_error(Unavailable("x")).kind is Kind.UNAVAILABLE

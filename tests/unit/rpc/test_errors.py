from __future__ import annotations

import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.errors import (
    ERROR_TRAILER,
    code_of,
    error_from_operation,
    error_from_trailers,
    error_to_operation,
    kind_of,
    trailers_of,
)
from tarn_proto.common.v1.operation_pb2 import OperationError


def test_every_kind_has_a_status_code_of_its_own() -> None:
    assert len({code_of(kind) for kind in Kind}) == len(Kind)


@pytest.mark.parametrize("kind", Kind)
def test_kind_comes_back_from_its_status_code(kind: Kind) -> None:
    assert kind_of(code_of(kind)) is kind


@pytest.mark.parametrize("kind", Kind)
def test_error_comes_back_from_an_operation(kind: Kind) -> None:
    raised = TarnError(kind, Reason.REF_MOVED, "moved on", branch="main", found="c1")

    back = error_from_operation(error_to_operation(raised))

    assert type(back) is TarnError
    assert (back.kind, back.reason, back.message) == (kind, Reason.REF_MOVED, "moved on")
    assert back.metadata == {"branch": "main", "found": "c1"}


def test_metadata_may_be_named_like_an_argument_of_the_error() -> None:
    raised = TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, "bad")
    raised.metadata = {"kind": "a", "reason": "b", "message": "c", "self": "d"}

    assert error_from_operation(error_to_operation(raised)).metadata == raised.metadata


def test_reason_and_kind_of_a_newer_peer_are_kept_in_the_metadata() -> None:
    back = error_from_operation(OperationError(kind="haunted", reason="GHOST", message="boo"))

    assert (back.kind, back.reason) == (Kind.INTERNAL, Reason.INTERNAL)
    assert back.metadata == {"peer_kind": "haunted", "peer_reason": "GHOST"}


def test_text_that_is_not_unicode_does_not_hide_the_error() -> None:
    raised = TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, "path \udcff", path="\udcff")

    assert error_to_operation(raised).message == "path ?"


def test_long_error_still_fits_into_the_trailer() -> None:
    raised = TarnError(Kind.INVALID, Reason.KEY_TOO_LONG, "x" * 100_000, value="y" * 100_000)

    trailers = trailers_of(raised)

    assert len(trailers[0][1]) < 8192
    back = error_from_trailers(trailers)
    assert back is not None
    assert back.reason is Reason.KEY_TOO_LONG
    assert back.message == "x" * 1024


def test_trailers_without_an_error_are_not_a_handlers_word() -> None:
    assert error_from_trailers([("other", "text")]) is None
    assert error_from_trailers([(ERROR_TRAILER, b"\xff\xff\xff")]) is None

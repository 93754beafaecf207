from __future__ import annotations

from typing import Any

import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.errors import (
    ERROR_TRAILER,
    code_of,
    error_from_operation,
    error_from_trailers,
    error_to_operation,
    kind_of,
    status_text,
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

    raised.metadata |= {f"v{n}": "z" * 100 for n in range(50)}
    trailers = trailers_of(raised, {"repository": "lake", "ref": "main"})

    assert len(trailers[0][1]) < 4096
    back = error_from_trailers(trailers)
    assert back is not None
    assert (
        back.metadata.items()
        >= {
            "repository": "lake",
            "ref": "main",
            "truncated": "metadata",
        }.items()
    )
    assert len(back.metadata) == 7
    assert back.reason is Reason.KEY_TOO_LONG
    assert back.message == "x" * 1024


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("text", ["moved on", "x" * 1000, "ref \udcff"])
def test_error_comes_back_from_the_trailers(kind: Kind, text: str) -> None:
    raised = TarnError(kind, Reason.REF_MOVED, text, branch="main", path="a/\udcff")

    back = error_from_trailers(trailers_of(raised, {"path": "other", "ref": "main"}))

    assert back is not None
    expected = text.replace("\udcff", "?")
    assert (back.kind, back.reason, back.message) == (kind, Reason.REF_MOVED, expected)
    assert back.metadata == {"branch": "main", "path": "a/?", "ref": "main"}


def test_details_are_those_of_google() -> None:
    """Decoded with the field numbers and type names of `google/rpc/status.proto` and `error_details.proto`."""
    raised = TarnError(Kind.CONFLICT, Reason.REF_MOVED, "m" * 300, ref="main")
    ((name, packed),) = trailers_of(raised)
    assert name == "grpc-status-details-bin"
    status = decode(packed)
    assert status[1] == [10]  # ABORTED
    # The Python library of gRPC raises an error unless this is the text beside the code.
    assert status[2] == [status_text(raised).encode()] == [b"m" * 200]
    info, text = (decode(each) for each in status[3])
    assert info[1] == [b"type.googleapis.com/google.rpc.ErrorInfo"]
    fields = decode(info[2][0])
    assert (fields[1], fields[2]) == ([b"REF_MOVED"], [b"tarn"])
    assert decode(fields[3][0]) == {1: [b"ref"], 2: [b"main"]}
    assert text[1] == [b"type.googleapis.com/google.rpc.LocalizedMessage"]
    assert decode(text[2][0]) == {1: [b"en"], 2: [b"m" * 300]}


def decode(packed: bytes) -> dict[int, list[Any]]:
    """Decodes a message of varints and strings by hand: its values by the numbers of their fields."""
    found: dict[int, list[Any]] = {}
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = packed[place]
            place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while place < len(packed):
        tag = varint()
        number = varint()
        value: object = number
        if tag & 7:
            value = packed[place : place + number]
            place += number
        found.setdefault(tag >> 3, []).append(value)
    return found


def test_reason_of_a_newer_peer_is_kept_in_the_trailers() -> None:
    ((name, packed),) = trailers_of(TarnError(Kind.CONFLICT, Reason.REF_MOVED, "boo"))
    newer = packed.replace(b"REF_MOVED", b"REF_GHOST")
    back = error_from_trailers([(name, newer)])
    assert back is not None
    assert (back.kind, back.reason) == (Kind.CONFLICT, Reason.INTERNAL)
    assert back.metadata == {"peer_reason": "REF_GHOST"}


def test_details_of_a_proxy_are_not_a_handlers_word() -> None:
    ((name, packed),) = trailers_of(TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no"))
    assert error_from_trailers([(name, packed.replace(b"tarn", b"mesh"))]) is None


def test_trailers_without_an_error_are_not_a_handlers_word() -> None:
    assert error_from_trailers([("other", "text")]) is None
    assert error_from_trailers([(ERROR_TRAILER, b"\xff\xff\xff")]) is None

"""Names of blocks."""

import posixpath
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarn.block.keys import check_listing, check_path, parse_namespace
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import physical_path

# Random strings with many parts that attacks use; surrogates are bytes that were not UTF-8.
RAW = st.one_of(
    st.text(alphabet=st.sampled_from("./\\\0ab~%:\n\ud800é"), max_size=40),
    st.text(max_size=300),
    st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)


def _refusal(check: Callable[[], object]) -> TarnError | None:
    try:
        check()
    except TarnError as error:
        return error
    return None


@settings(deadline=None)
@given(RAW)
def test_accepted_paths_stay_below_any_directory(path: str) -> None:
    if error := _refusal(lambda: check_path(path)):
        assert error.kind is Kind.INVALID
        error.message.encode()  # can be logged and sent
        return
    assert posixpath.normpath(path) == path
    assert posixpath.commonpath(["/root", posixpath.join("/root", path)]) == "/root"
    assert "\0" not in path
    assert len(path.encode()) <= 1024
    assert all(len(name.encode()) <= 255 for name in path.split("/"))


@settings(deadline=None)
@given(RAW)
def test_accepted_namespaces_are_plain_directories(name: str) -> None:
    if error := _refusal(lambda: parse_namespace(f"local://{name}", "local")):
        assert error.kind is Kind.INVALID
        return
    names = parse_namespace(f"local://{name}", "local")
    assert "/".join(names) == name == posixpath.normpath(name)
    assert all(part.isascii() and not part.startswith((".", "-")) for part in names)


@settings(deadline=None)
@given(st.binary(min_size=16, max_size=16).map(lambda raw: b"\x01" + raw[1:]))
def test_physical_paths_are_accepted(address: bytes) -> None:
    path = physical_path(address)
    assert check_path(path) == path


def test_segment_of_255_bytes_is_the_longest() -> None:
    check_path("data/" + "é" * 127 + "x")
    with pytest.raises(TarnError):
        check_path("data/" + "é" * 128)


@settings(deadline=None)
@given(RAW, RAW)
def test_any_prefix_and_start_is_answered(prefix: str, after: str) -> None:
    error = _refusal(lambda: check_listing(prefix, after, 1))
    assert error is None or error.kind is Kind.INVALID

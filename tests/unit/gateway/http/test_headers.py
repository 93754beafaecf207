from __future__ import annotations

from tarn_gateway.http import Headers

HEADERS = Headers([("a", "1"), ("x-amz-meta-b", "2"), ("a", "3"), ("c", "")])


def test_duplicates_are_joined_in_order_and_kept() -> None:
    assert HEADERS.get("a") == "1,3"
    assert [value for name, value in HEADERS.pairs if name == "a"] == ["1", "3"]
    assert list(HEADERS) == ["a", "x-amz-meta-b", "c"]
    assert len(HEADERS) == 3


def test_absent_and_empty_differ() -> None:
    assert HEADERS.get("d") is None
    assert HEADERS.get("c") == ""
    assert HEADERS.text("d") == ""
    assert "c" in HEADERS
    assert "d" not in HEADERS


def test_a_prefix_selects() -> None:
    assert list(HEADERS.with_prefix("x-amz-meta-")) == [("x-amz-meta-b", "2")]


def test_values_are_not_in_the_repr() -> None:
    secret = Headers([("authorization", "AWS4 secret")])
    assert "secret" not in repr(secret)

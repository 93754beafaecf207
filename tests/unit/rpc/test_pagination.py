from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.errors import Reason, TarnError
from tarn.rpc.pagination import decode, encode, page_size

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(KEYS, st.text(), st.integers(), st.booleans(), st.binary())
def test_last_key_comes_back_for_the_same_arguments(
    key: str, prefix: str, number: int, flag: bool, raw: bytes
) -> None:
    token = encode(key, prefix=prefix, number=number, flag=flag, raw=raw)

    assert decode(token, raw=raw, flag=flag, number=number, prefix=prefix) == key


@pytest.mark.parametrize(
    "arguments",
    [{"prefix": "b"}, {"prefix": "a", "ref": "main"}, {}, {"other": "a"}, {"prefix": b"a"}],
)
def test_token_of_another_listing_is_refused(arguments: dict[str, str]) -> None:
    token = encode("key", prefix="a")

    with pytest.raises(TarnError) as caught:
        decode(token, **arguments)
    assert caught.value.reason is Reason.INVALID_PAGE_TOKEN


@pytest.mark.parametrize(
    "token",
    [
        "?",
        "a",
        "ä",
        "AAAA",
        base64.urlsafe_b64encode(bytes([1, *bytes(8)])).decode(),
        base64.urlsafe_b64encode(bytes([2, *bytes(8)]) + b"key").decode(),
        base64.urlsafe_b64encode(bytes([1, *bytes(8)]) + b"\xff").decode(),
        "A" * 10_000,
    ],
)
def test_damaged_token_is_refused(token: str) -> None:
    with pytest.raises(TarnError) as caught:
        decode(token)
    assert caught.value.reason is Reason.INVALID_PAGE_TOKEN


def test_empty_token_is_the_first_page() -> None:
    assert decode("", prefix="a") == ""


def test_token_is_safe_in_a_url() -> None:
    token = encode("\U0010ffff?&/+" * 9)
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_page_size_is_defaulted_and_capped() -> None:
    assert page_size(0, 100, 1000) == 100
    assert page_size(7, 100, 1000) == 7
    assert page_size(5000, 100, 1000) == 1000


def test_negative_page_size_is_refused() -> None:
    with pytest.raises(TarnError) as caught:
        page_size(-1, 100, 1000)
    assert caught.value.reason is Reason.INVALID_ARGUMENT

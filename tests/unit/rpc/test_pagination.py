from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.pagination import Argument, PageTokens, page_size

KEY = bytes(range(32))
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def tokens(caller: str = "ann", listing: str = "Entries", /, **arguments: Argument) -> PageTokens:
    return PageTokens((KEY,), caller, listing, **arguments)


def refused(of: PageTokens, token: str) -> bool:
    with pytest.raises(TarnError) as caught:
        of.decode(token)
    return caught.value.reason is Reason.INVALID_PAGE_TOKEN and caught.value.kind is Kind.INVALID


@given(KEYS, st.text(), st.integers(), st.booleans(), st.binary())
def test_last_key_comes_back_for_the_same_arguments(
    key: str, prefix: str, number: int, flag: bool, raw: bytes
) -> None:
    token = tokens(prefix=prefix, number=number, flag=flag, raw=raw).encode(key)

    assert tokens(raw=raw, flag=flag, number=number, prefix=prefix).decode(token) == key


@pytest.mark.parametrize(
    "arguments",
    [{"prefix": "b"}, {"prefix": "a", "ref": "main"}, {}, {"other": "a"}, {"prefix": b"a"}],
)
def test_token_of_another_listing_is_refused(arguments: dict[str, Argument]) -> None:
    assert refused(tokens(**arguments), tokens(prefix="a").encode("key"))


def test_token_of_another_caller_rpc_or_installation_is_refused() -> None:
    token = tokens(prefix="a").encode("key")
    assert refused(tokens("eve", prefix="a"), token)
    assert refused(tokens("ann", "Commits", prefix="a"), token)
    assert refused(PageTokens((bytes(32),), "ann", "Entries", prefix="a"), token)


def test_no_byte_of_a_token_can_be_changed() -> None:
    token = tokens().encode("key")
    packed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    for at in range(len(packed)):
        changed = packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1 :]
        assert refused(tokens(), base64.urlsafe_b64encode(changed).decode())


def test_names_and_values_cannot_be_moved_between_arguments() -> None:
    """Quotes and separators inside a value do not make two lists of arguments one."""
    token = tokens(a="x';b='y").encode("key")
    assert refused(tokens(a="x", b="y"), token)
    assert refused(tokens("ann';'Entries", ""), tokens("ann", "Entries").encode("key"))


@pytest.mark.parametrize(
    "token",
    [
        "?",
        "a",
        "ä",
        "AAAA",
        base64.urlsafe_b64encode(bytes([2, *bytes(16)])).decode(),
        base64.urlsafe_b64encode(bytes([1, *bytes(16)]) + b"key").decode(),
        base64.urlsafe_b64encode(bytes([2, *bytes(16)]) + b"key").decode(),
        base64.urlsafe_b64encode(bytes([2, *bytes(16)]) + b"\xff").decode(),
        "A" * 10_000,
    ],
)
def test_damaged_token_is_refused(token: str) -> None:
    assert refused(tokens(), token)


def test_empty_token_is_the_first_page() -> None:
    assert tokens(prefix="a").decode("") == ""


def test_token_is_safe_in_a_url() -> None:
    token = tokens().encode("\U0010ffff?&/+" * 9)
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_page_size_is_defaulted_and_capped() -> None:
    assert page_size(0, 100, 1000) == 100
    assert page_size(7, 100, 1000) == 7
    assert page_size(5000, 100, 1000) == 1000


def test_negative_page_size_is_refused() -> None:
    with pytest.raises(TarnError) as caught:
        page_size(-1, 100, 1000)
    assert caught.value.reason is Reason.INVALID_ARGUMENT

"""Caller tokens hold the fields that they were issued with, and no other text is accepted."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.access.caller_token import TOKEN_LENGTH_MAX, CallerToken, issue, verify
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import AccessKeyId, UserId

KEY = bytes(range(32))
CLAIMS = CallerToken(UserId("bob"), b"u" * 16, AccessKeyId("TARNKEY"), 1_000, 2_000)


def made(key: bytes = KEY, claims: CallerToken = CLAIMS) -> str:
    return issue(
        key,
        claims.user_id,
        claims.user_uid,
        claims.access_key_id,
        claims.issue_time_us,
        claims.expire_time_us,
        use=claims.use,
    )


def refused(token: str, key: bytes = KEY, now_us: int = 1_500) -> str:
    with pytest.raises(TarnError) as caught:
        verify(key, token, now_us)
    assert (caught.value.kind, caught.value.reason) == (
        Kind.UNAUTHENTICATED,
        Reason.CALLER_TOKEN_INVALID,
    )
    return caught.value.message


def test_the_token_has_this_form() -> None:
    # Golden: replicas of two versions run side by side during an upgrade.
    assert made() == (
        "t1.AAAAAAAAA-gAAAAAAAAH0ANib2IQdXV1dXV1dXV1dXV1dXV1dQdUQVJOS0VZ"
        ".aQbuA-2YbxCYOLlXFdGQJuMMA1NHbFIBplcxCAN8wkU"
    )


@given(
    st.text("abcXYZ019_.@+-", min_size=1, max_size=128),
    st.binary(max_size=32),
    st.text("ABCXYZ019_", max_size=128),
    st.integers(0, 2**62),
)
def test_a_token_returns_the_fields_it_was_issued_with(
    user_id: str, uid: bytes, access_key_id: str, end: int
) -> None:
    claims = CallerToken(UserId(user_id), uid, AccessKeyId(access_key_id), 5, end + 1)
    token = made(claims=claims)
    assert len(token) <= TOKEN_LENGTH_MAX
    assert verify(KEY, token, end) == claims


@pytest.mark.parametrize("use", ["s3", "rest", "rpc", "web"])
def test_a_token_tells_what_its_key_was_used_for_at_its_end(use: str) -> None:
    claims = replace(CLAIMS, use=use)
    token = made(claims=claims)
    assert verify(KEY, token, 1_500) == claims
    # Release 0.9.0 reads the fields before it, and leaves out what follows.
    payload, plain = (
        base64.urlsafe_b64decode(each.split(".")[1] + "==") for each in (token, made())
    )
    assert payload == plain + bytes((len(use),)) + use.encode()


def test_a_token_ends() -> None:
    assert verify(KEY, made(), 1_999) == CLAIMS
    assert "expired" in refused(made(), now_us=2_000)


def test_another_key_makes_other_tokens() -> None:
    refused(made(key=bytes(32)))


@given(st.data())
def test_no_altered_token_passes(data: st.DataObject) -> None:
    token = made()
    at = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.characters(codec="ascii").filter(lambda c: c != token[at]))
    refused(token[:at] + letter + token[at + 1 :])


@given(st.text(max_size=80))
def test_an_invalid_token_is_refused(text: str) -> None:
    refused(text)


def test_a_long_text_is_refused_before_it_is_read() -> None:
    assert "not a token" in refused(made() + "." + "a" * TOKEN_LENGTH_MAX)


def test_a_refusal_never_shows_the_token() -> None:
    token = made(key=bytes(32))
    assert token.split(".")[1] not in refused(token)

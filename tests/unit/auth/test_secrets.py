"""Secrets are stored only sealed, and never shown (lakeFS GHSA-4rgc-5g6r-2rjf)."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.errors import Kind, TarnError
from tarn.core.ids import AccessKeyId, UserId
from tarn.kv.auth_records import Credential
from tarn_auth.config import AuthConfig
from tarn_auth.secret_box import SecretBox, derive_key
from tarn_auth.set_up import FirstAdmin

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

OLD, NEW = b"o" * 32, b"n" * 32
KEY = AccessKeyId("TARNKEY")


def box(*secrets: bytes, nonce: int = 0) -> SecretBox:
    return SecretBox(secrets, lambda count: bytes([nonce]) * count)


@given(st.text(max_size=200))
def test_a_sealed_secret_opens(secret: str) -> None:
    made = box(NEW)
    sealed, key_id = made.seal(KEY, secret)
    assert made.open(KEY, sealed, key_id) == secret
    assert not secret or secret.encode() not in sealed or len(secret) < 3


def corrupt(made: SecretBox, access_key_id: AccessKeyId, sealed: bytes, key_id: str) -> None:
    with pytest.raises(TarnError) as caught:
        made.open(access_key_id, sealed, key_id)
    assert caught.value.kind is Kind.CORRUPT


def test_a_sealed_secret_opens_only_in_its_row_and_unaltered() -> None:
    made = box(NEW)
    sealed, key_id = made.seal(KEY, "secret")
    corrupt(made, AccessKeyId("TARNOTHER"), sealed, key_id)
    for at in range(len(sealed)):
        altered = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        corrupt(made, KEY, altered, key_id)
    corrupt(made, KEY, b"", key_id)
    corrupt(made, KEY, sealed, "unknown")


def test_after_a_rotation_old_secrets_open_and_new_ones_use_the_new_key() -> None:
    sealed, old_id = box(OLD).seal(KEY, "secret")
    rotated = box(NEW, OLD)
    assert rotated.open(KEY, sealed, old_id) == "secret"
    _, new_id = rotated.seal(KEY, "secret")
    assert new_id != old_id
    corrupt(box(NEW), KEY, sealed, old_id)


async def test_key_pairs_outlive_a_rotation(ready: World) -> None:
    bob = await ready.user("bob", "Analyst")
    rotated = ready.replica(secret=b"n" * 32, previous=(ready.secret,))
    assert await ready.log_in(bob, rotated)


def test_every_purpose_has_its_own_key() -> None:
    assert derive_key(NEW, "a") != derive_key(NEW, "b") != derive_key(OLD, "b")
    with pytest.raises(ValueError, match="32"):
        derive_key(b"short", "a")


async def test_no_secret_is_stored_in_clear(ready: World) -> None:
    bob = await ready.user("bob", "Analyst")
    stored = b"".join(key + value for key, value in await ready.rows())
    for secret in (bob.secret_access_key.encode(), ready.secret, ready.admin.encode()):
        assert secret not in stored


async def test_no_secret_is_logged_or_shown(ready: World) -> None:
    lines, before = io.StringIO(), structlog.get_config()
    structlog.reset_defaults()  # its tracebacks say more than those of the tests
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(lines))
    handler = logging.StreamHandler(lines)
    logging.getLogger().addHandler(handler)
    shown: list[object] = []
    try:
        bob = await ready.user("bob", "Analyst")
        token = await ready.log_in(bob)
        scope = (bob.credential.access_key_id, ready.day(), "us-east-1", "s3")
        signing = await ready.auth.authorize_key(ready.call(), *scope)
        shown += [bob, signing, signing.grant, ready.application, await ready.rows()]
        for work in (
            ready.auth.log_in(
                ready.call(), scope[0], "wrong" * 8, now_us=ready.clock.now_us(), nonce=b"n" * 16
            ),
            ready.auth.delete_user(ready.call(token), "root"),
            ready.auth.authorize_token(ready.call(), token + "x"),
            # A client that swaps the halves sends the secret as the access key id.
            ready.auth.delete_credential(ready.call(token), bob.secret_access_key + "/"),
        ):
            with pytest.raises(TarnError) as caught:
                await work
            shown += [caught.value, caught.value.message, json.dumps(caught.value.metadata)]
        async with ready.application:
            pass
    finally:
        logging.getLogger().removeHandler(handler)
        structlog.configure(**before)
    text = lines.getvalue() + "".join(map(repr, shown))
    for secret in (bob.secret_access_key, token, signing.signing_key.hex(), "wrong" * 8):
        assert secret not in text
    assert repr(signing.signing_key)[2:-1] not in text


def test_reprs_show_no_secret() -> None:
    config = AuthConfig("test", b"topsecret" * 4, (b"oldsecret" * 4,), {})
    assert "secret'" not in repr(config)
    assert "topsecret" not in repr(config)
    assert "topsecret" not in repr(box(b"topsecret" * 4))
    assert "hidden" not in repr(
        FirstAdmin(Credential(KEY, UserId("bob"), b"", "", 0, b"sealed", ""), "hidden")
    )

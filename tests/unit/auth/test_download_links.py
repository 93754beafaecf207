"""Links by which a browser downloads one object: as the gateway verifies them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tarn.core.errors import Reason, TarnError
from tarn_auth.download_links import LIFE_S
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv4 import SigV4Policy, parse_authorization, verify
from tarn_proto.auth.v1.session_key_service_pb2 import CreateSessionKeyRequest

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

PLACE = {
    "host": "s3.example:8000",
    "region": "eu-west-1",
    "repository": "lake",
    "ref": "main",
    "path": "a/b c+ü&.csv",
    "file_name": 'ü"; x.csv',
}


async def link(world: World, token: str = "", **place: str) -> str:
    call = world.call(token or world.admin)
    wanted: Any = {**PLACE, **place}
    return await world.auth.sign_download(call, **wanted)


def follow(target: str, host: str = PLACE["host"], method: str = "GET") -> Request:
    """Returns the request of a browser."""
    raw_path, _, raw_query = target.partition("?")
    headers = Headers([("host", host)])
    return Request(method, raw_path.encode(), raw_query.encode(), headers, BodyReader(0))


async def check(world: World, request: Request) -> str:
    """Verifies a request as the gateway does; returns the user."""
    signed = parse_authorization(request, world.clock.now_us(), SigV4Policy(region="eu-west-1"))
    granted = await world.auth.authorize_key(
        world.call(), signed.access_key_id, signed.date, signed.region, signed.service
    )
    verify(signed, granted.signing_key)
    return granted.grant.user_id


async def test_the_gateway_takes_a_link_as_a_request_of_its_user(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    target = await link(ready, await ready.log_in(made))
    assert await check(ready, follow(target)) == "ada"
    assert unquote(urlsplit(target).path) == "/lake/main/a/b c+ü&.csv"
    query = parse_qs(urlsplit(target).query)
    assert query["response-content-type"] == ["application/octet-stream"]
    assert query["response-content-disposition"] == [
        "attachment; filename*=UTF-8''%C3%BC%22%3B%20x.csv"
    ]
    assert query["X-Amz-Expires"] == [str(LIFE_S)]
    assert made.secret_access_key not in target


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/lake/main/a/", "/lake/main/b/"),
        ("/lake/", "/other/"),
        ("attachment", "inline"),
        ("octet-stream", "html"),
        (f"Expires={LIFE_S}", "Expires=604800"),
        ("&X-Amz-Signature", "&versionId=1&X-Amz-Signature"),
    ],
)
async def test_a_link_is_for_one_object_as_a_file_for_a_minute(
    ready: World, old: str, new: str
) -> None:
    target = await link(ready)
    assert old in target
    with pytest.raises(S3Error, match="SignatureDoesNotMatch"):
        await check(ready, follow(target.replace(old, new)))


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "POST"])
async def test_a_link_only_reads(ready: World, method: str) -> None:
    target = await link(ready)
    with pytest.raises(S3Error, match="SignatureDoesNotMatch"):
        await check(ready, follow(target, method=method))
    with pytest.raises(S3Error, match="SignatureDoesNotMatch"):
        await check(ready, follow(target, host="other.example"))


async def test_a_download_link_expires(ready: World) -> None:
    target = await link(ready)
    ready.clock.advance(LIFE_S)
    assert await check(ready, follow(target)) == "root"
    ready.clock.advance(2)
    with pytest.raises(S3Error, match="expired"):
        await check(ready, follow(target))


async def test_the_link_of_a_deleted_key_pair_ends_with_it(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    token = await ready.log_in(made)
    target = await link(ready, token)
    call = ready.call(ready.admin)
    await ready.auth.delete_credential(call, made.credential.access_key_id)
    with pytest.raises(TarnError) as caught:
        await check(ready, follow(target))
    assert caught.value.reason is Reason.CREDENTIAL_NOT_FOUND
    with pytest.raises(TarnError) as caught:
        await link(ready, token)
    assert caught.value.reason is Reason.CALLER_TOKEN_INVALID


async def test_a_session_key_gets_no_link(ready: World) -> None:
    call = ready.call(ready.admin)
    made = await ready.auth.create_session_key(call, CreateSessionKeyRequest())
    session = await ready.auth.log_in(
        ready.call(),
        made.session_key.access_key_id,
        made.secret_access_key,
        now_us=ready.clock.now_us(),
        nonce=ready.ids.nonce(),
        session_token=made.session_token,
    )
    with pytest.raises(TarnError) as caught:
        await link(ready, session.grant.caller_token)
    assert caught.value.reason is Reason.ACCESS_DENIED


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("host", ""),
        ("host", "a\nhost:b"),
        ("host", "a/b"),
        ("region", "a/b"),
        ("region", ""),
        ("repository", "../x"),
        ("ref", "a/b"),
        ("ref", "a\nb"),
        ("path", ""),
        ("file_name", "x" * 1025),
    ],
)
async def test_what_is_no_name_is_not_signed(ready: World, field: str, value: str) -> None:
    with pytest.raises(TarnError) as caught:
        await link(ready, **{field: value})
    assert caught.value.reason is Reason.INVALID_ARGUMENT

"""Conditional deletes as their clients see them; graveler decides which of several wins."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from gateway_lake import GatewayLake

from tarn.core.errors import Kind, Reason, TarnError
from tarn.objects.conditions import http_date
from tarn.rpc.wire.call import Call

BODY = b"hello, lake\n"
ETAG = hashlib.md5(BODY).hexdigest()
OTHER = "0" * 32
_SIZE, _TIME = "x-amz-if-match-size", "x-amz-if-match-last-modified-time"


async def put(lake: GatewayLake, key: str = "main/a") -> str:
    """Puts an object; returns its Last-Modified."""
    assert (await lake.ask("PUT", f"/lake/{key}", body=BODY)).status == 200
    head = await lake.ask("HEAD", f"/lake/{key}")
    return str(head.headers["last-modified"])


async def delete(
    lake: GatewayLake, headers: dict[str, str], path: str = "main/a", **more: Any
) -> Any:
    return await lake.ask("DELETE", f"/lake/{path}", headers=headers, **more)


async def is_there(lake: GatewayLake, key: str = "main/a") -> bool:
    return bool((await lake.ask("HEAD", f"/lake/{key}")).status == 200)


async def test_deletes_are_conditional(lake: GatewayLake) -> None:
    for tag in ("*", f'"{ETAG}"'):
        absent = await delete(lake, {"If-Match": tag})
        assert (absent.status, absent.code) == (404, "NoSuchKey")
    await put(lake)
    refused = await delete(lake, {"If-Match": OTHER})
    assert (refused.status, refused.code) == (412, "PreconditionFailed")
    assert await is_there(lake)
    assert (await delete(lake, {"If-Match": f'"{ETAG}"'})).status == 204
    assert not await is_there(lake)
    await put(lake)
    assert (await delete(lake, {"If-Match": "*"})).status == 204
    assert not await is_there(lake)


async def test_size_and_time_are_conditions_alone_and_together(lake: GatewayLake) -> None:
    time = await put(lake)
    another = http_date(lake.clock.now_us() + 86_400_000_000)
    size = str(len(BODY))
    for wrong in (
        {_SIZE: "0"},
        {_TIME: another},
        {_SIZE: size, _TIME: another},
        {_SIZE: "1", _TIME: time},
        {"If-Match": ETAG, _SIZE: "1"},
        {"If-Match": "*", _TIME: another},
        {"If-Match": OTHER, _SIZE: size, _TIME: time},
    ):
        reply = await delete(lake, wrong)
        assert (reply.status, reply.code) == (412, "PreconditionFailed"), wrong
    assert await is_there(lake)
    assert (await delete(lake, {"If-Match": ETAG, _SIZE: size, _TIME: time})).status == 204
    assert not await is_there(lake)


async def test_a_size_or_a_time_alone_needs_no_object(lake: GatewayLake) -> None:
    assert (await delete(lake, {_SIZE: "7"})).status == 204
    assert (await delete(lake, {_TIME: http_date(0)})).status == 204
    assert (await delete(lake, {_SIZE: "7", "If-Match": "*"})).status == 404


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({_SIZE: "many"}, "InvalidArgument"),
        ({_SIZE: "-1"}, "InvalidArgument"),
        ({_SIZE: "1_0"}, "InvalidArgument"),
        ({_SIZE: ""}, "InvalidArgument"),
        ({_SIZE: "9" * 19}, "InvalidArgument"),
        ({_TIME: "yesterday"}, "InvalidArgument"),
        ({"If-Match": f'"{ETAG}", "{OTHER}"'}, "NotImplemented"),
        ({"If-Match": '""'}, "NotImplemented"),
        ({"If-None-Match": "*"}, "NotImplemented"),
        ({"If-Unmodified-Since": http_date(0)}, "NotImplemented"),
        ({"x-amz-if-match-initiated-time": http_date(0)}, "NotImplemented"),
    ],
)
async def test_no_condition_is_ignored(
    lake: GatewayLake, headers: dict[str, str], code: str
) -> None:
    await put(lake)
    assert (await delete(lake, headers)).code == code
    assert await is_there(lake)


async def test_who_may_not_read_may_not_ask_for_a_condition(lake: GatewayLake) -> None:
    await put(lake)
    for headers in ({"If-Match": "*"}, {_SIZE: "12"}, {_TIME: http_date(0)}):
        reply = await delete(lake, headers, key="AKIAWRITER")
        assert reply.code == "AccessDenied", headers
    assert await is_there(lake)
    assert (await delete(lake, {}, key="AKIAWRITER")).status == 204


async def test_the_root_of_a_branch_is_an_empty_object(lake: GatewayLake) -> None:
    for wrong in ({"If-Match": OTHER}, {_SIZE: "1"}, {_TIME: http_date(0)}):
        assert (await delete(lake, wrong, "main/")).code == "PreconditionFailed"
    for right in ({"If-Match": "*"}, {"If-Match": hashlib.md5().hexdigest()}, {_SIZE: "0"}):
        assert (await delete(lake, right, "main/")).status == 204


# ---- repeated requests


async def test_a_client_that_repeats_a_conditional_delete_gets_its_first_answer(
    lake: GatewayLake,
) -> None:
    await put(lake)
    headers = {"If-Match": ETAG, "amz-sdk-invocation-id": "0a1b2c3d-0000"}
    assert (await delete(lake, headers)).status == 204
    assert (await delete(lake, headers)).status == 204
    other = headers | {"amz-sdk-invocation-id": "ffffffff-0000"}
    assert (await delete(lake, other)).code == "NoSuchKey"


@pytest.mark.parametrize(
    "attempt", ["attempt=2", "attempt=2; max=3", "ttl=20261129T010000Z; attempt=3; max=5"]
)
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_repeated_delete_whose_tombstone_is_gone_is_unknown(
    lake: GatewayLake, attempt: str, replaced: bool
) -> None:
    """A commit takes tombstones. The first attempt may have succeeded, so a refusal could be wrong."""
    if replaced:
        await put(lake)
    wanted = {"If-Match": OTHER, "amz-sdk-invocation-id": "0a1b2c3d-0000"}
    first = await delete(lake, wanted | {"amz-sdk-request": "attempt=1; max=3"})
    assert first.status == (412 if replaced else 404)
    again = await delete(lake, wanted | {"amz-sdk-request": attempt})
    assert (again.status, again.code) == (503, "ServiceUnavailable")
    assert await is_there(lake) is replaced


async def test_a_lost_answer_is_503(lake: GatewayLake, failure: Any) -> None:
    await put(lake)
    lake.graveler.fail["stage"] = [failure(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN)]
    assert (await delete(lake, {"If-Match": ETAG})).status == 503


async def test_a_replica_that_does_not_know_conditional_deletes_is_501(
    lake: GatewayLake, failure: Any
) -> None:
    """Never 412: that would say that the object is another one."""
    await put(lake)
    lake.graveler.fail["stage"] = [
        failure(Kind.FAILED_PRECONDITION, Reason.FEATURE_LEVEL, level="1", needed="2"),
        failure(Kind.INVALID, Reason.INVALID_ARGUMENT, field="entry.flags"),
    ]
    for _ in range(2):
        reply = await delete(lake, {"If-Match": ETAG})
        assert (reply.status, reply.code) == (501, "NotImplemented")
    assert await is_there(lake)


async def test_a_repository_that_was_made_again_is_tried_again(
    lake: GatewayLake, failure: Any
) -> None:
    await put(lake)
    lake.graveler.repos["lake"].instance_uid = "another"
    assert (await delete(lake, {"If-Match": ETAG})).status == 503
    assert (await delete(lake, {"If-Match": ETAG})).status == 204


# ---- DeleteObjects


def document(*objects: str, more: str = "") -> bytes:
    items = "".join(f"<Object>{each}</Object>" for each in objects)
    return f"<Delete>{items}{more}</Delete>".encode()


def item(key: str, **conditions: object) -> str:
    return f"<Key>{key}</Key>" + "".join(
        f"<{name}>{value}</{name}>" for name, value in conditions.items()
    )


async def delete_many(lake: GatewayLake, *objects: str, **more: Any) -> Any:
    headers = more.pop("headers", {})
    return await lake.ask(
        "POST", "/lake", "delete", body=document(*objects), headers=headers, **more
    )


async def test_each_key_of_a_document_has_its_own_condition_and_outcome(lake: GatewayLake) -> None:
    keys = ("plain", "etag", "wrong", "size", "time", "late", "any")
    times = {key: await put(lake, f"main/{key}") for key in keys}
    reply = await delete_many(
        lake,
        item("main/plain"),
        item("main/etag", ETag=f"&quot;{ETAG}&quot;"),
        item("main/wrong", ETag=OTHER),
        item("main/size", Size=len(BODY)),
        item("main/time", LastModifiedTime=times["time"], Size=len(BODY)),
        item("main/late", LastModifiedTime=http_date(0)),
        item("main/any", ETag="*"),
        item("main/absent", ETag="*"),
        item("main/gone", Size=1),
    )
    assert reply.status == 200
    text = reply.body.decode()
    deleted = ("plain", "etag", "size", "time", "any", "gone")
    assert [f"<Deleted><Key>main/{key}</Key></Deleted>" in text for key in deleted] == [True] * 6
    for key, code in (
        ("wrong", "PreconditionFailed"),
        ("late", "PreconditionFailed"),
        ("absent", "NoSuchKey"),
    ):
        assert f"<Error><Key>main/{key}</Key><Code>{code}</Code>" in text
    left = [key for key in keys if await is_there(lake, f"main/{key}")]
    assert left == ["wrong", "late"]


async def test_a_key_with_a_condition_needs_the_permission_to_read(lake: GatewayLake) -> None:
    await put(lake, "main/a")
    await put(lake, "main/b")
    reply = await delete_many(
        lake, item("main/a", ETag=ETAG), item("main/b"), item("main/c", Size=1), key="AKIAWRITER"
    )
    text = reply.body.decode()
    assert "<Error><Key>main/a</Key><Code>AccessDenied</Code>" in text
    assert "<Error><Key>main/c</Key><Code>AccessDenied</Code>" in text
    assert [await is_there(lake, f"main/{key}") for key in "ab"] == [True, False]


async def test_a_repeated_document_gets_its_first_outcomes(lake: GatewayLake) -> None:
    await put(lake)
    headers = {"amz-sdk-invocation-id": "0a1b2c3d-0000"}
    for _ in range(2):
        reply = await delete_many(lake, item("main/a", ETag=ETAG), headers=headers)
        assert b"<Deleted><Key>main/a</Key></Deleted>" in reply.body
    repeated = headers | {"amz-sdk-request": "attempt=2"}
    reply = await delete_many(
        lake, item("main/a", ETag=ETAG), item("main/b", ETag=ETAG), headers=repeated
    )
    assert b"<Error><Key>main/b</Key><Code>ServiceUnavailable</Code>" in reply.body


async def test_a_thousand_conditions_in_one_document(lake: GatewayLake) -> None:
    await put(lake)
    keys = [item(f"main/{number}", ETag=ETAG) for number in range(999)]
    reply = await delete_many(lake, *keys, item("main/a", ETag=ETAG))
    assert (reply.body.count(b"NoSuchKey"), reply.body.count(b"<Deleted>")) == (999, 1)


async def test_a_graveler_that_hangs_does_not_hold_a_request_for_all_of_its_keys(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(call: Call, *_: object) -> bool:
        await asyncio.sleep(0)
        lake.clock.advance(max(0.0, call.deadline - lake.clock.monotonic()))
        raise TarnError(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED, "too slow")

    monkeypatch.setattr(lake.client, "stage", hang)
    started = lake.clock.monotonic()
    keys = [item(f"main/{number}", ETag=ETAG) for number in range(1000)]
    reply = await delete_many(lake, *keys)
    assert reply.status == 503
    assert lake.clock.monotonic() - started <= lake.backend.bounds.delete_timeout_s + 1


@pytest.mark.parametrize(
    "objects",
    [
        [item("main/a", ETag="")],
        [item("main/a", ETag=f"{ETAG},{OTHER}")],
        [item("main/a", ETag="x" * 129)],
        [item("main/a", Size="many")],
        [item("main/a", Size="")],
        [item("main/a", LastModifiedTime="2026-01-01T00:00:00Z")],
        [item("main/a", Size=1) + "<Size>1</Size>"],
        [item("main/a", ETag="*") + f"<ETag>{ETAG}</ETag>"],
        [item("main/a", ETag=ETAG), item("main/a")],
        [item("main/a", ETag=ETAG), item("main/a", ETag="*")],
    ],
)
async def test_a_document_whose_conditions_are_not_clear_deletes_nothing(
    lake: GatewayLake, objects: list[str]
) -> None:
    await put(lake, "main/a")
    await put(lake, "main/b")
    reply = await delete_many(lake, item("main/b"), *objects)
    assert (reply.status, reply.code) == (400, "MalformedXML")
    assert await is_there(lake, "main/a")
    assert await is_there(lake, "main/b")


async def test_the_header_of_a_whole_document_is_refused(lake: GatewayLake) -> None:
    await put(lake)
    reply = await delete_many(lake, item("main/a"), headers={"If-Match": ETAG})
    assert reply.code == "NotImplemented"
    assert await is_there(lake)

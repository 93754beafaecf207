"""The S3 store when answers are lost, connections are cut, or the server is overloaded."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from s3_stores import PATIENT, opened, unfinished
from tests.support.faults.http_fault_proxy import Answer, Fault, Request, any_request
from tests.support.servers.s3_server import S3Server

from tarn.block.port import CHUNK_BYTES, BlockExistsError, BlockKey, BlockNotFoundError
from tarn.block.s3 import S3BlockStore, S3Limits
from tarn.core.errors import Kind, Reason, TarnError
from tarn.testing.contract.block_samples import collect, data_path, fill, sample

MIB = 1 << 20
PART = PATIENT.part_bytes


@pytest.fixture
async def store(server: S3Server, namespace: str) -> AsyncIterator[S3BlockStore]:
    async with opened(server, namespace) as store:
        server.proxy.clear()
        yield store
    server.proxy.clear()
    assert unfinished(server, namespace.removeprefix("s3://tarn/")) == []


def is_put(request: Request) -> bool:
    return request.method == "PUT" and "partNumber" not in request.query


def is_part(request: Request) -> bool:
    return "partNumber=" in request.query


def is_begin(request: Request) -> bool:
    return request.method == "POST" and request.query.startswith("uploads")


def is_complete(request: Request) -> bool:
    return request.method == "POST" and request.query.startswith("uploadId=")


def is_get(request: Request) -> bool:
    return request.method == "GET" and "list-type" not in request.query


CUT = [Fault.SLOW_DOWN, Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.HALF_REQUEST]


@pytest.mark.parametrize("path", [data_path(1), "_tarn/ranges/ab"])
@pytest.mark.parametrize("fault", CUT)
async def test_put_whose_exchange_fails_is_written_once(
    store: S3BlockStore, server: S3Server, namespace: str, fault: Fault, path: str
) -> None:
    """After a lost answer, an existing block is not taken for another writer's block."""
    key = BlockKey(namespace, path)
    server.proxy.plan(fault, is_put)
    await store.put(key, sample(1000))
    assert await store.read(key) == sample(1000)
    assert [fault for _, _, fault in server.proxy.seen if fault] == [fault]


@pytest.mark.parametrize("match", [is_begin, is_part, is_complete])
@pytest.mark.parametrize("fault", CUT)
async def test_large_write_whose_exchange_fails_is_written_once(
    store: S3BlockStore, server: S3Server, namespace: str, fault: Fault, match: object
) -> None:
    key, body = BlockKey(namespace, data_path(1)), sample(PART + 1000)
    server.proxy.plan(fault, match)  # type: ignore[arg-type]  # one of the functions above
    async with await store.open_write(key) as writer:
        await fill(writer, body)
        await writer.finish()
    assert await store.read(key) == body
    assert [info.path for info in await store.list_page(namespace, "", "", 10)] == [key.path]


@pytest.mark.parametrize("fault", CUT)
async def test_completion_whose_exchange_fails_is_done_once(
    store: S3BlockStore, server: S3Server, namespace: str, fault: Fault
) -> None:
    key, body = BlockKey(namespace, data_path(1)), sample(PART + 1000)
    await store.uploads.begin(key, "u")
    parts = []
    for number, piece in enumerate((body[:PART], body[PART:]), 1):
        async with await store.uploads.open_part(key, "u", number, "a") as writer:
            await fill(writer, piece)
            await writer.finish()
        parts.append((number, writer.receipt))
    server.proxy.plan(fault, is_complete)
    assert (await store.uploads.complete(key, "u", parts)).size == len(body)
    assert await store.read(key) == body
    await store.uploads.discard(key, "u")


@pytest.mark.parametrize("fault", [*CUT, Fault.HALF_REPLY])
async def test_read_resumes_where_it_was_cut(
    store: S3BlockStore, server: S3Server, namespace: str, fault: Fault
) -> None:
    key, body = BlockKey(namespace, data_path(1)), sample(12 * MIB)
    await store.put(key, body)
    server.proxy.plan(fault, is_get, times=2)
    assert await collect(store, key, 3, len(body) - 3) == body[3:]


async def test_another_block_is_not_mistaken_for_ours(
    store: S3BlockStore, server: S3Server, namespace: str
) -> None:
    """This also holds if the answer to the refused write is lost, and if the bytes are the same."""
    key = BlockKey(namespace, data_path(1))
    await store.put(key, sample(1000))
    for fault in (Fault.LOST_REPLY, Fault.SLOW_DOWN):
        server.proxy.plan(fault, any_request)
        with pytest.raises(BlockExistsError):
            await store.put(key, sample(1000))


async def test_busy_server_is_asked_a_bounded_number_of_times(
    server: S3Server, namespace: str
) -> None:
    limits = S3Limits(attempts=4, pause_seconds=0.01, pause_seconds_max=0.02)
    async with opened(server, namespace, limits) as store:
        server.proxy.clear()
        server.proxy.plan(Fault.SLOW_DOWN, any_request, times=1000)
        with pytest.raises(TarnError, match=r"tried 4 times.*SlowDown") as caught:
            await store.put(BlockKey(namespace, data_path(1)), b"x")
        assert (caught.value.kind, caught.value.reason) == (Kind.UNAVAILABLE, Reason.UNAVAILABLE)
        assert len(server.proxy.seen) == 4
        server.proxy.clear()


async def test_failed_large_write_leaves_nothing(
    server: S3Server, store: S3BlockStore, namespace: str
) -> None:
    key = BlockKey(namespace, data_path(1))
    async with await store.open_write(key) as writer:
        await fill(writer, sample(PART + 1))
        server.proxy.plan(Fault.LOST_REQUEST, is_part, times=1000)
        with pytest.raises(TarnError, match="tried"):
            await writer.finish()
    server.proxy.clear()
    assert await store.list_page(namespace, "", "", 10) == []


async def test_parts_of_a_client_are_sent_once(
    store: S3BlockStore, server: S3Server, namespace: str
) -> None:
    """Completing an upload transfers none of their bytes."""
    key, body = BlockKey(namespace, data_path(1)), sample(2 * PART)
    await store.uploads.begin(key, "u")
    parts = []
    for number in (1, 2):
        async with await store.uploads.open_part(key, "u", number, "a") as writer:
            await fill(writer, body[(number - 1) * PART : number * PART])
            await writer.finish()
        parts.append((number, writer.receipt))
    server.proxy.clear()
    assert (await store.uploads.complete(key, "u", parts)).size == len(body)
    assert [method for method, _, _ in server.proxy.seen if method not in ("HEAD", "GET")] == [
        "POST"
    ]
    assert await store.read(key) == body
    await store.uploads.discard(key, "u")


async def test_part_that_another_attempt_replaced_is_refused(
    store: S3BlockStore, namespace: str
) -> None:
    """The refusal is a client error, so the client uploads the part again."""
    key = BlockKey(namespace, data_path(1))
    await store.uploads.begin(key, "u")
    receipts = {}
    # Send the last part first: the test server keeps it, and may replace it, until the first part arrives.
    for number, attempt in ((2, "early"), (2, "late"), (1, "only")):
        async with await store.uploads.open_part(key, "u", number, attempt) as writer:
            await fill(writer, sample(PART, len(attempt)))
            await writer.finish()
        receipts[attempt] = writer.receipt
    with pytest.raises(TarnError, match="upload the part again") as caught:
        await store.uploads.complete(key, "u", [(1, receipts["only"]), (2, receipts["early"])])
    assert (caught.value.kind, caught.value.reason) == (Kind.INVALID, Reason.UPLOAD_PART_INVALID)
    await store.uploads.discard(key, "u")


async def test_small_part_before_a_large_one_is_refused(
    store: S3BlockStore, namespace: str
) -> None:
    key = BlockKey(namespace, data_path(1))
    await store.uploads.begin(key, "u")
    parts = []
    for number, size in ((1, 1000), (2, PART)):
        async with await store.uploads.open_part(key, "u", number, "a") as writer:
            await fill(writer, sample(size))
            await writer.finish()
        parts.append((number, writer.receipt))
    with pytest.raises(TarnError) as caught:
        await store.uploads.complete(key, "u", parts)
    assert caught.value.reason is Reason.UPLOAD_PART_TOO_SMALL
    await store.uploads.discard(key, "u")


async def test_small_part_that_vanishes_during_the_join_leaves_no_short_block(
    store: S3BlockStore, server: S3Server, namespace: str
) -> None:
    key = BlockKey(namespace, data_path(1))
    await store.uploads.begin(key, "u")
    parts = []
    for number in (1, 2):
        async with await store.uploads.open_part(key, "u", number, "a") as writer:
            await writer.write(sample(1000))
            await writer.finish()
        parts.append((number, writer.receipt))
    before = server.proxy.before

    def gone(request: Request) -> Answer | None:
        if is_get(request) and request.path.endswith("/00002-a"):
            server.file(*request.path.removeprefix("/").split("/", 1)).unlink(missing_ok=True)
            return Answer("404 Not Found", (), b"<Error><Code>NoSuchKey</Code></Error>")
        return before(request) if before is not None else None

    server.proxy.before = gone
    try:
        with pytest.raises(BlockNotFoundError):
            await store.uploads.complete(key, "u", parts)
    finally:
        server.proxy.before = before
    assert await store.list_page(namespace, "", "", 10) == []
    await store.uploads.discard(key, "u")


async def test_part_larger_than_a_request_is_joined(store: S3BlockStore, namespace: str) -> None:
    """It is kept in a file until it is complete."""
    key, body = BlockKey(namespace, data_path(1)), sample(2 * PART + 1000)
    await store.uploads.begin(key, "u")
    parts = []
    for number, piece in enumerate((body[: 2 * PART], body[2 * PART :]), 1):
        async with await store.uploads.open_part(key, "u", number, "a") as writer:
            await fill(writer, piece)
            await writer.finish()
        parts.append((number, writer.receipt))
    assert (await store.uploads.complete(key, "u", parts)).size == len(body)
    assert await store.read(key) == body
    await store.uploads.discard(key, "u")


@pytest.mark.parametrize("size", [1000, PART])
async def test_late_part_of_an_upload_that_another_process_ended_is_refused(
    server: S3Server, namespace: str, size: int
) -> None:
    key = BlockKey(namespace, data_path(1))
    limits = S3Limits(attempts=2, pause_seconds=0.01)
    async with opened(server, namespace, limits) as store, opened(server, namespace) as other:
        await store.uploads.begin(key, "u")
        writer = await store.uploads.open_part(key, "u", 1, "a")
        await fill(writer, sample(size))
        await other.uploads.discard(key, "u")
        with pytest.raises(BlockNotFoundError):
            await writer.finish()
    left = server.folder / "data" / "tarn" / namespace.removeprefix("s3://tarn/") / ".tarn/uploads"
    assert [path for path in left.rglob("*") if path.is_file()] == []


async def test_large_bodies_wait_for_room_then_fail(server: S3Server, namespace: str) -> None:
    limits = S3Limits(large_writes=1, deadline_seconds=5)
    async with opened(server, namespace, limits) as store:
        one = await store.open_write(BlockKey(namespace, data_path(1)))
        two = await store.open_write(BlockKey(namespace, data_path(2)))
        await one.write(bytes(CHUNK_BYTES + 1))
        await two.write(bytes(CHUNK_BYTES))
        store._large._seconds = 0.05
        with pytest.raises(TarnError) as caught:
            await two.write(b"x")
        assert (caught.value.kind, caught.value.reason) == (Kind.EXHAUSTED, Reason.OVERLOADED)
        await one.abort()
        await two.write(b"x")
        await two.abort()


async def test_64_mib_pass_in_bounded_memory(store: S3BlockStore, namespace: str) -> None:
    """Memory holds one part when writing and one window when reading."""
    key, chunk = BlockKey(namespace, data_path(1)), bytearray(CHUNK_BYTES)
    async with await store.open_write(key) as writer:
        await writer.write(chunk)
        for _ in range(63):
            await writer.write(chunk)
            assert len(writer._held) <= PART
        await writer.finish()
    tracemalloc.start()
    try:
        size = 0
        async for piece in store.stream(key, 0, 64 * MIB):
            size += len(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size == 64 * MIB
    assert peak < 40 * MIB  # the proxy, which runs in this process, uses most of it


# Opening


@pytest.mark.parametrize(
    ("namespace", "changes", "said"),
    [
        ("s3://absent/lake", {}, r"no such bucket.*default_namespace_prefix"),
        ("s3://tarn/lake", {"access_key_id": "ANOTHERKEY"}, r"InvalidAccessKeyId.*credentials"),
        ("s3://tarn/lake", {"secret_access_key": "wrong"}, r"SignatureDoesNotMatch.*credentials"),
        ("s3://tarn/lake", {"endpoint": "http://127.0.0.1:9"}, r"tried 2 times.*s3\.endpoint"),
        ("local://tarn/lake", {}, r"must begin with s3://"),
        ("s3://tarn/data", {}, r"must not have a segment 'data'"),
    ],
)
async def test_store_that_cannot_work_does_not_open(
    server: S3Server, namespace: str, changes: dict[str, str], said: str
) -> None:
    limits = S3Limits(attempts=2, pause_seconds=0.01)
    with pytest.raises(TarnError, match=said) as caught:
        async with opened(server, namespace, limits, **changes):
            pass
    assert "tarn-test-secret" not in repr(caught.value)


async def test_bucket_of_another_region_is_named_at_opening(
    server: S3Server, namespace: str
) -> None:
    said = (
        b"<Error><Code>AuthorizationHeaderMalformed</Code>"
        b"<Message>the region 'us-east-1' is wrong; expecting 'eu-west-1'</Message></Error>"
    )
    before = server.proxy.before
    server.proxy.before = lambda _: Answer("400 Bad Request", (), said)
    try:
        with pytest.raises(TarnError, match=r"expecting 'eu-west-1'.*blockstore\.s3\.region"):
            async with opened(server, namespace):
                pass
    finally:
        server.proxy.before = before


async def test_credentials_may_come_from_the_environment(
    server: S3Server, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "TARNTESTKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tarn-test-secret")
    key = BlockKey(namespace, data_path(1))
    async with opened(server, namespace, access_key_id=None, secret_access_key=None) as store:
        await store.put(key, b"x")
        assert await store.read(key) == b"x"


async def test_credentials_may_come_from_a_profile_of_a_file(
    server: S3Server, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "credentials"
    text = "[lake]\naws_access_key_id=TARNTESTKEY\naws_secret_access_key=tarn-test-secret\n"
    file.write_text(text)
    own: dict[str, Any] = {"access_key_id": None, "secret_access_key": None}
    async with opened(server, namespace, profile="lake", credentials_file=file, **own) as store:
        assert await store.list_page(namespace, "", "", 1) == []
    with pytest.raises(TarnError, match="other"):
        async with opened(server, namespace, profile="other", credentials_file=file, **own):
            pass

"""What the S3 store does beside its caller: it fetches the next window of a stream, and sends parts of a body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from s3_stores import PATIENT, opened, unfinished
from tests.support.faults.http_fault_proxy import Fault, Request
from tests.support.servers.s3_server import S3Server

from tarn.block.port import CHUNK_BYTES, Append, BlockKey
from tarn.block.s3 import S3BlockStore, S3Limits
from tarn.block.s3.names import ObjectKey
from tarn.block.s3.wire import Wire
from tarn.core.errors import Kind, TarnError
from tarn.testing.contract.block_samples import data_path, sample

MIB = 1 << 20
PART = PATIENT.part_bytes
LARGE = 20 * MIB
"""Six windows: of 1, four times 4 and 3 MiB."""
QUICK = S3Limits(attempts=2, pause_seconds=0.01, pause_seconds_max=0.02)


@pytest.fixture
async def key(server: S3Server, namespace: str) -> BlockKey:
    """A block of `LARGE` bytes."""
    key = BlockKey(namespace, data_path(1))
    async with opened(server, namespace) as store:
        await store.put(key, sample(LARGE))
    server.proxy.clear()
    return key


@pytest.fixture
async def store(server: S3Server, namespace: str, key: BlockKey) -> AsyncIterator[S3BlockStore]:
    async with opened(server, namespace, QUICK) as store:
        server.proxy.clear()
        yield store
    server.proxy.clear()
    assert unfinished(server, namespace.removeprefix("s3://tarn/")) == []


def gets(server: S3Server) -> int:
    return sum(method == "GET" for method, _, _ in server.proxy.seen)


def is_later_window(request: Request) -> bool:
    return request.method == "GET" and not request.headers.get("range", "").startswith("bytes=0-")


def is_part(request: Request) -> bool:
    return "partNumber=" in request.query


def places(store: S3BlockStore) -> int:
    """Returns how many parts more the writers may hold."""
    return store._large._room._value


async def test_two_windows_are_fetched_while_the_caller_works(
    store: S3BlockStore, server: S3Server, key: BlockKey
) -> None:
    async with aclosing(store.stream(key, 0, LARGE)) as stream:  # type: ignore[type-var]  # it is a generator
        got = bytearray(await anext(stream))
        assert len(got) == CHUNK_BYTES
        async with asyncio.timeout(30):
            while gets(server) < 3 or len(store._objects.tasks):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        assert gets(server) == 3  # the fourth one waits for the caller
        async for chunk in stream:
            got += chunk
    assert got == sample(LARGE)
    assert gets(server) == 6


async def test_a_stream_that_its_caller_leaves_leaves_nothing(
    store: S3BlockStore, key: BlockKey
) -> None:
    async with aclosing(store.stream(key, 0, LARGE)) as stream:  # type: ignore[type-var]  # it is a generator
        await anext(stream)
        assert store._objects._streams == 1
    assert (store._objects._streams, len(store._objects.tasks)) == (0, 0)


async def test_a_window_that_fails_is_told_where_its_bytes_are_missing(
    store: S3BlockStore, server: S3Server, key: BlockKey
) -> None:
    server.proxy.plan(Fault.LOST_REQUEST, is_later_window, times=1000)
    got = bytearray()

    async def read() -> None:
        async for chunk in store.stream(key, 0, LARGE):
            got.extend(chunk)

    with pytest.raises(TarnError, match="tried 2 times") as caught:
        await read()
    assert caught.value.kind is Kind.UNAVAILABLE
    assert got == sample(LARGE)[: len(got)]
    assert len(got) == CHUNK_BYTES


@pytest.mark.parametrize("short", [0, 1, 2])
async def test_a_window_that_is_short_leaves_no_hole(
    short: int, store: S3BlockStore, key: BlockKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The windows behind it are fetched already."""
    get, wanted = Wire.get, (0, MIB, 5 * MIB)[short]

    async def cut(self: Wire, at: ObjectKey, start: int, end: int) -> tuple[memoryview, int]:
        body, size = await get(self, at, start, end)
        return (body[:-1] if start == wanted else body), size

    monkeypatch.setattr(Wire, "get", cut)
    got = bytearray()

    async def read() -> None:
        async for chunk in store.stream(key, 0, LARGE):
            got.extend(chunk)

    with pytest.raises(TarnError, match="only a part") as caught:
        await read()
    assert caught.value.kind is Kind.UNAVAILABLE
    assert got == sample(LARGE)[:wanted]


async def test_many_streams_fetch_nothing_ahead(
    store: S3BlockStore, server: S3Server, key: BlockKey
) -> None:
    """Their windows are as small as they may be: a second one of each would double the memory of all."""
    store._objects._streams += 10_000
    assert b"".join([bytes(each) async for each in store.stream(key, 0, MIB)]) == sample(MIB)
    assert gets(server) == 4
    async with aclosing(store.stream(key, 0, LARGE)) as stream:  # type: ignore[type-var]  # it is a generator
        await anext(stream)
        assert len(store._objects.tasks) == 0
    store._objects._streams -= 10_000


@pytest.mark.parametrize(("limit", "beside"), [(1, 0), (2, 1), (3, 2), (9, 2)])
async def test_parts_are_sent_beside_the_writer_as_far_as_there_is_room(
    server: S3Server, namespace: str, limit: int, beside: int
) -> None:
    body = sample(4 * PART + 1000)
    key = BlockKey(namespace, data_path(2))
    async with opened(server, namespace, S3Limits(large_writes=limit)) as store:
        async with await store.open_write(key) as writer:
            for begin in range(0, len(body), MIB):
                await writer.write(body[begin : begin + MIB])
                assert len(writer._sending) <= beside
            # Nobody asks for the outcome of a part before its place is needed, so this is no race.
            assert len(writer._sending) == beside
            await writer.finish()
        assert places(store) == limit
        assert await store.read(key) == body


async def test_a_thread_fills_parts_of_the_same_size(store: S3BlockStore, namespace: str) -> None:
    """A piece may go beyond a part: the rest of it begins the next one."""
    part_bytes = store._objects.limits.part_bytes
    key, body = BlockKey(namespace, data_path(2)), sample(2 * part_bytes + 700_000)
    view, done = memoryview(body), 0

    def work(append: Append, most: int) -> int:
        end = min(done + most + 100_000, len(body))
        for start in range(done, end, 300_000):
            append(view[start : min(start + 300_000, end)])
        return end

    async with await store.open_write(key) as writer:
        while done < len(body):
            done = await writer.write_by_thread(work)
            assert len(writer._held) <= part_bytes
        await writer.finish()
    assert await store.read(key) == body
    assert (await store.stat(key)).etag.endswith("-3")


@pytest.mark.parametrize("how", ["fails", "aborted", "cancelled"])
async def test_a_writer_that_does_not_finish_gives_all_places_back(
    store: S3BlockStore, server: S3Server, namespace: str, how: str
) -> None:
    limit, key = places(store), BlockKey(namespace, data_path(2))
    if how == "fails":
        server.proxy.plan(Fault.LOST_REQUEST, is_part, times=1000)
    body = sample(PART)

    async def write() -> None:
        async with await store.open_write(key) as writer:
            for _ in range(6):
                await writer.write(body)
            if how == "cancelled":
                await asyncio.Event().wait()
            if how == "fails":
                await writer.finish()

    if how == "fails":
        with pytest.raises(TarnError, match="tried 2 times"):
            await write()
    elif how == "cancelled":
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await write()
    else:
        await write()
    assert (places(store), len(store._objects.tasks)) == (limit, 0)
    server.proxy.clear()
    paths = [each.path for each in await store.list_page(namespace, "", "", 10)]
    assert paths == [data_path(1)]


async def test_a_waiting_writer_is_served_before_a_second_part_of_another(
    store: S3BlockStore, namespace: str
) -> None:
    large = store._large
    while places(store) > 1:
        await large.enter()
    await large.enter()
    waiting = asyncio.ensure_future(large.enter())
    await asyncio.sleep(0)
    large.leave()
    assert not await large.try_enter()
    await waiting
    assert not await large.try_enter()
    large.leave()
    assert await large.try_enter()

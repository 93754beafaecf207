"""The S3 store keeps the contract on a real server with conditional writes, under injected faults."""

from __future__ import annotations

import asyncio
import io
import random
import zlib
from collections.abc import AsyncIterator, Iterator
from email.message import Message
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from botocore.awsrequest import AWSRequest, AWSResponse
from s3_stores import opened, unfinished
from tests.support.faults.http_fault_proxy import Fault, FaultProfile
from tests.support.servers.s3_server import S3Server

from tarn.block.metered import metered
from tarn.block.port import (
    BlockExistsError,
    BlockKey,
    BlockNotFoundError,
    BlockStore,
    KeepsVersions,
    PresignsParts,
    PresignsReads,
    PresignsWrites,
)
from tarn.block.s3 import S3BlockStore, objects
from tarn.core.errors import Reason, TarnError
from tarn.rpc.process.system import SystemClock
from tarn.telemetry.meters import Meters
from tarn.testing.contract.block_contract import BlockContract
from tarn.testing.contract.block_samples import data_path, outcomes, sample
from tarn.testing.contract.block_upload_contract import LARGE, SMALL

FAULTY_SHARE = 0.04


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3-plain"), conditional=False) as server:
        yield server


class TestS3(BlockContract):
    scheme = "s3"
    takes_control_characters = False
    root = ""

    def namespace(self, name: str) -> str:
        return f"s3://tarn/{self.root}/{name}"

    @pytest.fixture
    async def store(
        self, server: S3Server, request: pytest.FixtureRequest
    ) -> AsyncIterator[BlockStore]:
        self.root = random.randbytes(8).hex()
        async with opened(server, f"s3://tarn/{self.root}") as store:
            # A seed of the test's name, so that a test gets the same faults whichever tests run before it.
            server.proxy.decide = FaultProfile(zlib.crc32(request.node.name.encode()), FAULTY_SHARE)
            yield store
        server.proxy.decide = None
        # After each test, the server must hold no unfinished upload.
        assert unfinished(server, self.root) == []

    async def test_what_clients_began_by_urls_and_left_is_aborted(
        self, store: S3BlockStore, server: S3Server
    ) -> None:
        """Of one block: another client may still write to the next one. A complete block stays."""
        left, other, whole = (self.key(data_path(number)) for number in (1, 2, 3))
        for key in (left, other):
            await store.presign_write(key, 60, 2)
        await store.put(whole, sample(SMALL))
        assert len(set(unfinished(server, self.root))) == 2
        assert await store.abort_writes(left) >= 1
        assert await store.abort_writes(left) == await store.abort_writes(whole) == 0
        (found,) = set(unfinished(server, self.root))
        assert found.endswith(other.path)
        await store.abort_writes(other)
        assert await store.read(whole) == sample(SMALL)


class TestWithoutConditionalWrites:
    """The promises that remain on a server that ignores `If-None-Match`."""

    @pytest.fixture
    async def store(self, plain: S3Server) -> AsyncIterator[S3BlockStore]:
        self.root = f"s3://tarn/{random.randbytes(8).hex()}"
        async with opened(plain, self.root) as store:
            yield store

    @pytest.mark.parametrize("size", [SMALL, LARGE, (5 << 20) + 1])
    async def test_second_write_is_refused(self, store: S3BlockStore, size: int) -> None:
        key = BlockKey(self.root, data_path(1))
        await store.put(key, sample(size))
        with pytest.raises(BlockExistsError):
            await store.put(key, sample(size, 1))
        assert await store.read(key) == sample(size)

    @pytest.mark.parametrize("size", [SMALL, (5 << 20) + 1])
    async def test_lost_reply_is_not_taken_for_another_write(
        self, plain: S3Server, store: S3BlockStore, size: int
    ) -> None:
        key = BlockKey(self.root, data_path(1))
        plain.proxy.plan(Fault.LOST_REPLY, lambda request: request.method in ("PUT", "POST"), 3)
        await store.put(key, sample(size))
        assert await store.read(key) == sample(size)

    async def test_a_write_beside_a_copy_is_noticed(
        self, store: S3BlockStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server ignores the condition of the copy, too."""
        source, target = BlockKey(self.root, data_path(1)), BlockKey(self.root, data_path(2))
        url = (await store.presign_write(source, 60, 0)).put_url
        await asyncio.to_thread(asked, url, sample(SMALL))
        etag = (await store.stat(source)).etag
        await asyncio.to_thread(asked, url, sample(SMALL, 1))
        with pytest.raises(TarnError) as caught:
            await store.copy_written(source, target, SMALL, etag)
        assert caught.value.reason is Reason.LINK_MISMATCH
        with pytest.raises(BlockNotFoundError):
            await store.stat(target)
        await asyncio.to_thread(asked, url, sample(SMALL))
        await store.copy_written(source, target, SMALL, etag)
        assert await store.read(target) == sample(SMALL)
        assert not store.binds_writes

    async def test_a_server_that_copies_no_parts_makes_no_empty_one(
        self, store: S3BlockStore
    ) -> None:
        key, source = BlockKey(self.root, data_path(1)), BlockKey(self.root, data_path(2))
        await store.put(source, sample(SMALL))
        upload_id = (await store.presign_write(key, 60, 1)).upload_id
        with pytest.raises(TarnError) as caught:
            await store.copy_part(source, key, upload_id, 1)
        assert caught.value.reason is Reason.NOT_IMPLEMENTED
        assert await store.abort_writes(key) == 1

    async def test_metadata_may_be_put_again(self, store: S3BlockStore) -> None:
        key = BlockKey(self.root, "_tarn/ranges/ab")
        assert await outcomes([store.put(key, sample(LARGE)) for _ in range(4)]) == [None] * 4
        await store.put(key, sample(LARGE))
        with pytest.raises(BlockExistsError):
            await store.put(key, sample(LARGE, 1))


def asked(url: str, body: bytes | None = None, **headers: str) -> tuple[bytes, Message]:
    """Sends a client's request, without any of Tarn's code; returns the answer's body and headers."""
    method = "GET" if body is None else "PUT"
    request = Request(url, body, headers, method=method)
    with urlopen(request, timeout=30) as answer:
        return answer.read(), answer.headers


class TestPresigned:
    """What clients read and write by URLs of the bucket, past Tarn."""

    @pytest.fixture
    async def store(self, server: S3Server) -> AsyncIterator[BlockStore]:
        self.server = server
        self.root = f"s3://tarn/{random.randbytes(8).hex()}"
        async with opened(server, self.root) as store:
            yield metered(store, SystemClock(), Meters())
        assert unfinished(server, self.root.removeprefix("s3://tarn/")) == []

    async def test_a_client_reads_a_block_or_a_range_of_it(self, store: BlockStore) -> None:
        assert isinstance(store, PresignsReads)
        key = BlockKey(self.root, data_path(1))
        await store.put(key, sample(SMALL))
        told = {"content_type": "text/csv", "content_disposition": 'attachment; filename="a b"'}
        url = await store.presign_read(key, 60, **told)
        body, headers = await asyncio.to_thread(asked, url)
        assert body == sample(SMALL)
        assert headers["Content-Type"] == "text/csv"
        assert headers["Content-Disposition"] == told["content_disposition"]
        url = await store.presign_read(key, 60)
        assert (await asyncio.to_thread(asked, url, Range="bytes=2-4"))[0] == sample(SMALL)[2:5]
        with pytest.raises(HTTPError, match="403"):
            await asyncio.to_thread(asked, url.replace(data_path(1), data_path(2)))

    async def test_a_client_writes_without_headers_if_it_need_not_be_once(
        self, store: BlockStore
    ) -> None:
        assert isinstance(store, PresignsWrites)
        key = BlockKey(self.root, data_path(1))
        guarded = await store.presign_write(key, 60, 0)
        assert dict(guarded.headers) == {"If-None-Match": "*"}
        with pytest.raises(HTTPError, match="403"):
            await asyncio.to_thread(asked, guarded.put_url, sample(SMALL))
        free = await store.presign_write(key, 60, 0, once=False)
        assert free.headers == ()
        await asyncio.to_thread(asked, free.put_url, sample(SMALL))
        assert await store.read(key) == sample(SMALL)

    async def test_parts_of_a_client_are_joined_once(self, store: BlockStore) -> None:
        assert isinstance(store, PresignsWrites)
        assert isinstance(store, PresignsParts)
        key, size = BlockKey(self.root, data_path(1)), 5 << 20
        begun = await store.presign_write(key, 60, 1)
        assert begun.upload_id
        (more,) = await store.presign_parts(key, begun.upload_id, [2], 60)
        parts = []
        for number, url, body in (
            (1, begun.part_urls[0], sample(size)),
            (2, more, sample(SMALL, 1)),
        ):
            _, headers = await asyncio.to_thread(asked, url, body)
            parts.append((number, headers["ETag"].strip('"')))
        info = await store.complete_parts(key, begun.upload_id, parts)
        assert (info.size, info.etag[-2:]) == (size + SMALL, "-2")
        assert await store.read(key) == sample(size) + sample(SMALL, 1)
        assert await store.complete_parts(key, begun.upload_id, parts) == info

    @pytest.mark.parametrize("most", [256 << 20, 5 << 20])
    async def test_what_a_client_wrote_is_copied_once(
        self, store: BlockStore, monkeypatch: pytest.MonkeyPatch, most: int
    ) -> None:
        """In one piece, and in parts."""
        monkeypatch.setattr(objects, "_COPY_BYTES_MAX", most)
        assert isinstance(store, PresignsWrites)
        assert store.binds_writes
        source, target, size = *(BlockKey(self.root, data_path(n)) for n in (1, 2)), (12 << 20) + 1
        with pytest.raises(BlockNotFoundError, match=data_path(1)):
            await store.copy_written(source, target, size, "0" * 32)
        url = (await store.presign_write(source, 60, 0, once=False)).put_url
        await asyncio.to_thread(asked, url, sample(size))
        etag = (await store.stat(source)).etag
        with pytest.raises(TarnError) as caught:
            await store.copy_written(source, target, size, "0" * 32)
        assert caught.value.reason is Reason.LINK_MISMATCH
        with pytest.raises(BlockNotFoundError):
            await store.stat(target)
        await store.copy_written(source, target, size, etag)
        await asyncio.to_thread(asked, url, sample(size, 1))
        await store.copy_written(source, target, size, etag)  # it is there
        for other in ((size, "0" * 32), (size - 1, etag)):
            with pytest.raises(BlockExistsError):
                await store.copy_written(source, target, *other)
        await store.delete_many(self.root, [source.path])
        await store.copy_written(source, target, size, etag)
        assert await store.read(target) == sample(size)
        assert unfinished(self.server, self.root.removeprefix("s3://tarn/")) == []

    async def test_a_part_is_copied_inside_the_server(self, store: BlockStore) -> None:
        assert isinstance(store, PresignsWrites)
        assert isinstance(store, PresignsParts)
        key, source, size = (
            BlockKey(self.root, data_path(1)),
            BlockKey(f"{self.root}/other", data_path(2)),
            (5 << 20) + 9,
        )
        await store.put(source, sample(size))
        upload_id = (await store.presign_write(key, 60, 1)).upload_id
        parts = [
            (1, await store.copy_part(source, key, upload_id, 1)),
            (2, await store.copy_part(source, key, upload_id, 2, (3, 7))),
        ]
        with pytest.raises(BlockNotFoundError, match=data_path(3)):
            await store.copy_part(BlockKey(self.root, data_path(3)), key, upload_id, 3)
        assert (await store.complete_parts(key, upload_id, parts)).size == size + 7
        assert await store.read(key) == sample(size) + sample(size)[3:10]
        with pytest.raises(BlockNotFoundError, match=data_path(1)):
            await store.copy_part(source, key, upload_id, 3)
        with pytest.raises(TarnError):
            await store.copy_part(source, key, upload_id, 0)

    async def test_a_part_of_another_etag_is_not_joined(self, store: BlockStore) -> None:
        assert isinstance(store, PresignsWrites)
        assert isinstance(store, PresignsParts)
        key = BlockKey(self.root, data_path(1))
        begun = await store.presign_write(key, 60, 1)
        await asyncio.to_thread(asked, begun.part_urls[0], sample(SMALL))
        with pytest.raises(TarnError) as caught:
            await store.complete_parts(key, begun.upload_id, [(1, "0" * 32)])
        assert caught.value.reason is Reason.UPLOAD_PART_INVALID
        await store.abort_writes(key)

    async def test_an_upload_that_was_aborted_is_not_completed(self, store: BlockStore) -> None:
        assert isinstance(store, PresignsWrites)
        assert isinstance(store, PresignsParts)
        key = BlockKey(self.root, data_path(1))
        begun = await store.presign_write(key, 60, 1)
        _, headers = await asyncio.to_thread(asked, begun.part_urls[0], sample(SMALL))
        for parts in ([], [(1, "0")] * 10_001):
            with pytest.raises(TarnError) as caught:
                await store.complete_parts(key, begun.upload_id, parts)
            assert caught.value.reason is Reason.UPLOAD_PART_INVALID
        with pytest.raises(TarnError):
            await store.presign_parts(key, begun.upload_id, [10_001], 60)
        assert await store.abort_writes(key) == 1
        with pytest.raises(BlockNotFoundError):
            await store.complete_parts(key, begun.upload_id, [(1, headers["ETag"].strip('"'))])


class Body(io.BytesIO):
    """The body of an answer, as urllib3 has it."""

    def stream(self) -> Iterator[bytes]:
        yield self.read()


@pytest.mark.parametrize(
    ("status", "answer", "told"),
    [
        (200, "<VersioningConfiguration/>", ""),
        (
            200,
            "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
            "the versioning of the bucket tarn is enabled",
        ),
        (
            200,
            "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>",
            "the versioning of the bucket tarn is suspended",
        ),
        (403, "<Error><Code>AccessDenied</Code></Error>", "the bucket tarn does not tell"),
        (501, "<Error><Code>NotImplemented</Code></Error>", "the bucket tarn does not tell"),
    ],
)
async def test_older_versions_are_told_or_doubted(
    server: S3Server, status: int, answer: str, told: str
) -> None:
    """The S3 server here has no versions, so its answer is replaced."""

    def replaced(request: AWSRequest, **_: object) -> AWSResponse:
        return AWSResponse(request.url, status, {}, Body(answer.encode()))

    async with opened(server) as store:
        assert isinstance(store, KeepsVersions)
        assert await store.kept_versions("s3://tarn/own") == "", "of the server itself"
        events = store._wire._boto.meta.events
        events.register("before-send.s3.GetBucketVersioning", replaced)
        found = await store.kept_versions("s3://tarn/own")
    assert found.startswith(told)
    assert bool(found) == bool(told)

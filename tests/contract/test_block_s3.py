"""The S3 store keeps the contract on a real server with conditional writes, under injected faults."""

from __future__ import annotations

import random
import zlib
from collections.abc import AsyncIterator, Iterator

import pytest
from s3_stores import opened, unfinished

from tarn.block.port import BlockExistsError, BlockKey, BlockStore
from tarn.block.s3 import S3BlockStore
from tarn.testing.contract.block_contract import BlockContract
from tarn.testing.contract.block_samples import data_path, outcomes, sample
from tarn.testing.contract.block_upload_contract import LARGE, SMALL
from tarn.testing.faults.http_fault_proxy import Fault, FaultProfile
from tarn.testing.servers.s3_server import S3Server

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

    async def test_metadata_may_be_put_again(self, store: S3BlockStore) -> None:
        key = BlockKey(self.root, "_tarn/ranges/ab")
        assert await outcomes([store.put(key, sample(LARGE)) for _ in range(4)]) == [None] * 4
        await store.put(key, sample(LARGE))
        with pytest.raises(BlockExistsError):
            await store.put(key, sample(LARGE, 1))

"""Mark and sweep on a real S3 server that loses requests and answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from collected_lake import DAY_US, CollectedLake
from s3_stores import opened
from tests.support.clock import RestlessClock, SeededIds
from tests.support.faults.http_fault_proxy import FaultProfile
from tests.support.servers.s3_server import S3Server

from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.block.rangefile import metarange_path
from tarn.client.erasures import ErasureClient
from tarn.collection.outcomes import Outcome
from tarn.collection.progress import CollectionProgress
from tarn.collection.purging import Purger
from tarn.core.ids import physical_path
from tarn_proto.graveler.v1.erasure_service_pb2 import DoomedNamespace

if TYPE_CHECKING:
    from tarn.rpc.wire.call import Call

FAULTY_SHARE = 0.04


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


async def test_garbage_goes_and_everything_else_stays(tmp_path: Path, server: S3Server) -> None:
    root = f"s3://tarn/{random.randbytes(8).hex()}"
    async with opened(server, root) as store:
        server.proxy.decide = FaultProfile(7, FAULTY_SHARE)
        lake = CollectedLake(tmp_path, RestlessClock(), f"{root}/lake", store)
        live = [await lake.object() for _ in range(20)]
        dead = [await lake.object() for _ in range(30)]
        lake.addresses += live[:10]
        kept, lost = await lake.listing([live[10:]]), await lake.listing([dead[10:]])
        lake.listings.append(kept)
        # The server gives the times, so the clock of the run goes on from the real time.
        newest_us = max(info.mtime_us for info in await lake.infos())
        lake.clock.advance((newest_us - lake.clock.now_us() + 2 * DAY_US) / 1e6)
        report = await lake.sweep(await lake.mark())
        server.proxy.decide = None
        assert await lake.paths("data/") == {physical_path(address) for address in live}
        assert await lake.paths("_tarn/metaranges/") == {metarange_path(kept)}
        assert metarange_path(lost) not in await lake.paths()
        assert len(await lake.paths("_tarn/ranges/")) == 1
        assert report.total(Outcome.DELETED).count == 32
        assert report.total(Outcome.FAILED).count == 0
        assert not lake.lease.is_open


class Granted(ErasureClient):
    """Graveler allows the purge."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    async def begin_purge(self, *_: object) -> DoomedNamespace:
        return DoomedNamespace()

    async def end_purge(self, *values: object) -> DoomedNamespace:
        self.ended.append(int(str(values[3])))
        return DoomedNamespace()


async def test_the_data_of_a_deleted_repository_go(server: S3Server) -> None:
    """Blocks, metadata and an unfinished upload; not the namespace below it."""
    root = f"s3://tarn/{random.randbytes(8).hex()}"
    clock = RestlessClock()
    async with opened(server, root) as store:
        ids = SeededIds(clock)
        for namespace in (f"{root}/lake", f"{root}/lake/below"):
            for _ in range(5):
                await store.put(BlockKey(namespace, physical_path(ids.uuid7())), b"body")
            await store.put(BlockKey(namespace, "_tarn/commits/1.json"), b"{}")
        upload = BlockKey(f"{root}/lake", physical_path(ids.uuid7()))
        await store.uploads.begin(upload, "u1")
        async with await store.uploads.open_part(upload, "u1", 1, "a") as part:
            await part.write(bytes(1000))
            await part.finish()
        server.proxy.decide = FaultProfile(7, FAULTY_SHARE)
        client = Granted()
        call = cast("Call", None)
        purger = Purger(client, lambda: call, store, clock, random.Random(1), CollectionProgress())
        doomed = DoomedNamespace(storage_namespace=f"{root}/lake", instance_uid="1" * 32)
        report = await purger.purge(doomed, "a" * 32)
        server.proxy.decide = None
        assert (report.is_complete, client.ended) == (True, [6])
        left = [info.path for info in await store.list_page(f"{root}/lake", "", "", 100)]
        assert [path for path in left if path.startswith(("data/", "_tarn/commits/"))] == []
        assert len(await store.list_page(f"{root}/lake/below", "", "", 100)) == 6
        with pytest.raises(BlockNotFoundError):
            await store.uploads.complete(upload, "u1", [(1, part.receipt)])

"""Mark and sweep on a real S3 server that loses requests and answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from collected_lake import DAY_US, CollectedLake
from s3_stores import opened

from tarn.block.rangefile import metarange_path
from tarn.core.ids import physical_path
from tarn.lifecycle.outcomes import Outcome
from tarn.testing.clock import RestlessClock
from tarn.testing.faults.http_fault_proxy import FaultProfile
from tarn.testing.servers.s3_server import S3Server

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

"""A process that uses another data centre of a cluster than the others is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.config import Config, load
from tarn.core.errors import Kind, TarnError
from tarn.kv.agreement import SETTINGS, agree, forget_settings, read_settings
from tarn.kv.fence import QUIET_SECONDS, fence_partition
from tarn.kv.opening import open_kv, open_store
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.snapshot.store import OpenStore, RateLimiter, TransferOptions, forget_agreed

pytestmark = pytest.mark.cassandra

NAME = "metadata.db.cassandra.local_datacenter"


def config_of(nodes: CassandraNodes, folder: Path) -> Config:
    return load(
        None,
        {
            "TARN_DATA_DIR": str(folder),
            "TARN_METADATA_DB_TYPE": "cassandra",
            "TARN_METADATA_DB_CASSANDRA_CONTACT_POINTS": ",".join(nodes.contact_points),
            "TARN_METADATA_DB_CASSANDRA_LOCAL_DATACENTER": nodes.LOCAL_DATACENTER,
            "TARN_METADATA_DB_CASSANDRA_KEYSPACE": "agreement",
            "TARN_METADATA_DB_CASSANDRA_REPLICATION_FACTOR": "1",
        },
    )


async def test_a_process_in_another_data_centre_than_the_first_is_refused_until_it_is_forgotten(
    cassandra_nodes: CassandraNodes, tmp_path: Path
) -> None:
    config, clock = config_of(cassandra_nodes, tmp_path), SystemClock()
    ids = SystemIds(clock)
    for _ in range(2):
        await (await open_kv(config, clock, ids)).close()
    store = await open_store(config, clock, ids)
    try:
        assert await read_settings(store, "tarn") == {NAME: cassandra_nodes.LOCAL_DATACENTER}
        # Simulates that the first process was in another data centre: this cluster has only one.
        await forget_settings(store, "tarn")
        await agree(store, "tarn", {NAME: "elsewhere"})
        said = f"{NAME} is {cassandra_nodes.LOCAL_DATACENTER} here and elsewhere on"
        with pytest.raises(TarnError, match=said) as raised:
            await open_kv(config, clock, ids)
        assert raised.value.kind is Kind.FAILED_PRECONDITION

        place = OpenStore(store, "tarn", "this cluster", is_shared=True)
        began = clock.monotonic()
        options = TransferOptions(clock, RateLimiter(clock, None), 1, lambda _: None)
        assert await forget_agreed(place, ids, options) == {NAME: "elsewhere"}
        assert clock.monotonic() - began >= QUIET_SECONDS  # leases of running processes
        await (await open_kv(config, clock, ids)).close()
        assert await store.get_many(fence_partition("tarn"), [SETTINGS]) != [None]
    finally:
        await store.close()

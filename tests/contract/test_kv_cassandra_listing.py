"""Partitions are listed from the rows of Cassandra's tables, too, so that no row stays unnoticed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.core.errors import Kind, TarnError
from tarn.kv.cassandra import CassandraKv, CassandraSettings
from tarn.kv.cassandra.cluster.session import Profile
from tarn.kv.cassandra.cluster.statements import seal_value
from tarn.kv.cassandra.partitions import listing
from tarn.kv.port import Group, Partition, PartitionInfo, PartitionKind
from tarn.testing.contract.cassandra_store import open_store

pytestmark = pytest.mark.cassandra


@pytest.fixture
async def kv(cassandra_nodes: CassandraNodes) -> AsyncIterator[CassandraKv]:
    points, center = cassandra_nodes.contact_points, cassandra_nodes.LOCAL_DATACENTER
    store = await open_store(CassandraSettings(points, center, "listing", 1))
    yield store
    await store.close()


async def test_buckets_are_listed_and_pages_neither_repeat_nor_skip_rows(
    kv: CassandraKv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_PAGE", 3)
    kinds = (PartitionKind.PLAIN, PartitionKind.REGISTER)
    wanted = {PartitionInfo(f"seams/{n}", kinds[n % 2], 1 + n % 4) for n in range(12)}
    for each in wanted:
        groups = [Group(key, ((key, b""),)) for key in (b"%d" % n for n in range(6))]
        partition = Partition(each.name, each.kind, each.buckets or 1)
        assert not any(await kv.set_many(partition, groups))
    found = [each async for each in kv.partitions("seams/")]
    assert len(found) == len(wanted)
    assert set(found) == wanted


@pytest.mark.parametrize("table", ["plain", "cas"])
async def test_rows_without_a_descriptor_are_an_error(kv: CassandraKv, table: str) -> None:
    """A half-restored backup leaves such rows."""
    parts = kv._parts
    place = (b"stray-%s/x\x000" % table.encode(), 0, b"k", seal_value(b"v"))
    if table == "plain":
        bound, profile = parts.statements.plain_set.bind((*place, 1)), Profile.WRITE
    else:
        bound, profile = parts.statements.cas_insert.bind((*place, b"n")), Profile.CAS
    await parts.session.ask(bound, profile)
    with pytest.raises(TarnError, match=f"stray-{table}/x") as caught:
        [each async for each in kv.partitions(f"stray-{table}/")]
    assert caught.value.kind is Kind.CORRUPT
    assert [each async for each in kv.partitions("other-installation/")] == []

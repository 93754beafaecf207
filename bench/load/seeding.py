"""Fills a running Tarn by its own code, without HTTP: the benchmark becomes another graveler replica.

It runs the parts of graveler over the node's metadata store and local blocks, in this process. Staged
rows are written by `Staging` (rule 1 with its re-check for every row), bases by the builder of committed
metadata and `Commits`. The blocks of seeded entries do not exist; no measurement reads them. This replica
writes with `durability: os`, whatever the node does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from bench.commit import staged
from bench.load.node import Node
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.aio.task_set import TaskSet
from tarn.block.local import open_local
from tarn.client.graveler import GravelerClient
from tarn.core.commit import Commit
from tarn.core.ids import BranchId, CommitId
from tarn.kv.cassandra import CassandraSettings, open_cassandra
from tarn.kv.embedded import open_embedded
from tarn.kv.port import Kv
from tarn.kv.records import Repository
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_cli.connection import Connection, connect
from tarn_cli.settings import Settings
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.config import open_committed
from tarn_graveler.records.branches import BranchName

__all__ = ["OLD", "Seeder", "batches", "connected", "seeder"]

OLD = "date=2026-01-01"
"""The folder of the rows of a base; newer folders sort behind it."""

_BATCH_ROWS = 65_536
_AT_ONCE = 4096
_CALL_SECONDS = 900.0
_KEYSPACE = "tarn"
"""The default keyspace of `tarn up --kv`."""


def batches(numbers: np.ndarray, folder: str = OLD) -> Iterator[pa.RecordBatch]:
    """Yields rows `lake/events/<folder>/part-<number>.parquet`, with values that do not compress."""
    for at in range(0, len(numbers), _BATCH_ROWS):
        seed = random.getrandbits(32)
        yield from staged(numbers[at : at + _BATCH_ROWS], seed, folder)


@dataclass(frozen=True, slots=True)
class Seeder:
    """The benchmark's own graveler replica."""

    graveler: Graveler
    connection: Connection

    async def repository(self, name: str) -> Repository:
        """Has the node create a repository."""
        await self.connection.graveler.create_repository(self.connection.call(), name)
        return await self.graveler.repositories.get(name)

    async def base(self, repository: Repository, branch: str, rows: int) -> None:
        """Creates a branch whose commit holds `rows` entries, numbered 0, 10, 20 …"""
        numbers = np.arange(rows, dtype=np.int64) * 10

        async def stream() -> AsyncIterator[pa.RecordBatch]:
            for batch in batches(numbers):
                yield batch

        layers = [stream()]
        built = await self.graveler.committed.build(repository.storage_namespace, None, layers)
        now_us = self.graveler.clock.now_us()
        commit = Commit((), built.metarange_id, "bench", f"{rows} entries", now_us, 0, ())
        commit_id: CommitId = await self.graveler.commits.add(repository, commit)
        await self.graveler.branches.create(BranchName(repository, BranchId(branch)), commit_id)

    async def stage(
        self, repository: Repository, branch: str, numbers: np.ndarray, folder: str = OLD
    ) -> None:
        """Stages an entry for each number."""
        name = BranchName(repository, BranchId(branch))
        for batch in batches(numbers, folder):
            paths, values = (column.to_pylist() for column in batch.columns)
            for at in range(0, len(paths), _AT_ONCE):
                async with asyncio.TaskGroup() as group:
                    part = slice(at, at + _AT_ONCE)
                    for path, value in zip(paths[part], values[part], strict=True):
                        group.create_task(self.graveler.staging.stage(name, path, value))

    async def unstage(self, repository: Repository, branch: str, paths: Sequence[str]) -> None:
        """Deletes paths, 1,000 per call."""
        name = BranchName(repository, BranchId(branch))
        for at in range(0, len(paths), 1000):
            await self.graveler.staging.unstage(name, paths[at : at + 1000])

    @property
    def client(self) -> GravelerClient:
        """A client of the node's graveler."""
        return self.connection.graveler


@asynccontextmanager
async def connected(node: Node) -> AsyncIterator[Connection]:
    """Yields a connection to a node, logged in as its admin."""
    clock = SystemClock()
    settings = Settings(
        server=node.server,
        auth_server=node.auth_server,
        access_key_id=node.access_key_id,
        secret_access_key=node.secret,
    )
    async with connect(settings, clock, SystemIds(clock), _CALL_SECONDS) as connection:
        yield connection


async def _open_kv(node: Node, clock: SystemClock) -> Kv:
    """Opens the node's metadata store."""
    if not node.form.cassandra:
        return await open_embedded(node.data / "kv" / "tarn.db", durability="os")
    settings = CassandraSettings(
        node.form.cassandra, CassandraNodes.LOCAL_DATACENTER, _KEYSPACE, replication_factor=1
    )
    return await open_cassandra(settings, clock=clock, ids=SystemIds(clock))


@asynccontextmanager
async def seeder(node: Node, folder: Path) -> AsyncIterator[Seeder]:
    """Yields a replica on a node's stores, with its range cache in a folder."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(connected(node))
        kv = await _open_kv(node, clock)
        stack.push_async_callback(kv.close)
        blocks = await open_local(node.data / "blocks", clock=clock, durability="os")
        stack.push_async_callback(blocks.close)
        committed = await stack.enter_async_context(open_committed(blocks, folder))
        tasks = TaskSet()
        stack.push_async_callback(tasks.close)
        graveler = assemble(
            settings=GravelerSettings("tarn"),
            kv=kv,
            blocks=blocks,
            committed=committed,
            clock=clock,
            ids=SystemIds(clock),
            tasks=tasks,
        )
        yield Seeder(graveler, connection)

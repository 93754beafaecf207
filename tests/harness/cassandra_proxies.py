"""Real nodes with a TCP proxy before each, so that answers can be lost on demand.

The nodes advertise the proxies' addresses, so no driver bypasses them. The proxies run on a thread of
their own: they forward whether or not a test has an event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile
from cassandra.cluster import Cluster as Driver
from cassandra.policies import DCAwareRoundRobinPolicy
from slowness import scaled
from tests.support.faults.tcp_proxy import Loss, TcpProxy
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.kv.cassandra.cluster.statements import _CQL, _ROW

__all__ = ["Cluster", "Proxies", "kv_url", "proxied", "statement_id"]

_START_SECONDS = scaled(10.0)
_WHOLE_SECONDS = scaled(120.0)
_ASK_SECONDS = scaled(10.0)
_PAUSE_SECONDS = 0.5


def kv_url(nodes: CassandraNodes, keyspace: str) -> str:
    """Returns the URL for `tarn up --kv`; it names all nodes, so that Tarn starts while one is down."""
    return f"cassandra://{','.join(nodes.contact_points)}/{keyspace}"


def statement_id(name: str, keyspace: str) -> bytes:
    """Returns the id of a prepared statement of `tarn.kv.cassandra.cluster.statements`; each request
    contains it.
    """
    cql = _CQL[name].format(keyspace, _ROW)
    return hashlib.md5(cql.encode(), usedforsecurity=False).digest()


class Proxies:
    """One proxy for each node."""

    def __init__(self, nodes: CassandraNodes) -> None:
        self._nodes = nodes
        self._loop = asyncio.new_event_loop()
        self._proxies: list[TcpProxy] = []
        self._end = asyncio.Event()

    def lose(self, index: int, loss: Loss, marker: bytes) -> asyncio.Event:
        """Loses the next exchange with a node whose request contains `marker`.

        Returns:
            An event: `is_set` says whether the loss has happened. Do not wait for it; it belongs to the
                proxies' loop.
        """

        async def plan() -> asyncio.Event:
            return self._proxies[index].lose(loss, marker)

        return asyncio.run_coroutine_threadsafe(plan(), self._loop).result(_START_SECONDS)

    async def _run(self, ready: threading.Event) -> None:
        async with AsyncExitStack() as stack:
            for advertised, address in self._nodes.ways:
                port = self._nodes.native_port
                proxy = TcpProxy(address, port, listen=(advertised, port))
                self._proxies.append(await stack.enter_async_context(proxy))
            ready.set()
            await self._end.wait()

    def _work(self, ready: threading.Event) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run(ready))

    def start(self) -> threading.Thread:
        """Returns when the proxies forward."""
        ready = threading.Event()
        thread = threading.Thread(target=self._work, args=(ready,), name="proxies")
        thread.start()
        assert ready.wait(_START_SECONDS), "the proxies do not start"
        return thread

    def stop(self) -> None:
        """Asks the thread to end."""
        self._loop.call_soon_threadsafe(self._end.set)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Three nodes and their proxies. A test that disturbs them must leave all of them running."""

    nodes: CassandraNodes
    proxies: Proxies

    def until_whole(self) -> None:
        """Returns when each node sees all nodes as up, and all have one schema.

        A node that was just started serves long before the other nodes see it as up.
        """
        hosts = [host for host, _ in self.nodes.ways]
        profile = ExecutionProfile(
            DCAwareRoundRobinPolicy(self.nodes.LOCAL_DATACENTER),
            consistency_level=ConsistencyLevel.ALL,
            request_timeout=_ASK_SECONDS,
        )
        deadline = time.monotonic() + _WHOLE_SECONDS
        while True:
            driver = Driver(
                hosts,
                port=self.nodes.native_port,
                protocol_version=5,
                execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                connect_timeout=_ASK_SECONDS,
            )
            try:
                session = driver.connect()
                for host in driver.metadata.all_hosts():
                    session.execute(
                        "SELECT * FROM system_distributed.repair_history LIMIT 1", host=host
                    )
                assert len(driver.metadata.all_hosts()) == len(hosts), "a node is missing"
                assert driver.control_connection.wait_for_schema_agreement(), "schemas differ"
                return
            except Exception:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
            finally:
                driver.shutdown()


@contextmanager
def proxied(nodes: CassandraNodes) -> Iterator[Proxies]:
    """Forwards to nodes that are `behind_proxies` and are started already or soon."""
    proxies = Proxies(nodes)
    thread = proxies.start()
    try:
        yield proxies
    finally:
        proxies.stop()
        thread.join()

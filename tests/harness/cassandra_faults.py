"""Faults of three Cassandra nodes while Tarn works on them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

from cassandra_proxies import Cluster, statement_id
from tests.support.faults.tcp_proxy import Loss

__all__ = ["NodeFaults"]

_POLL_SECONDS = 0.01
_LOSS_SECONDS = 1.0
_LOSSES_SECONDS = 60.0
"""Time limit of `lose`; an idle machine needs a third of it."""
_STATEMENTS = ("cas_update", "cas_update", "cas_update", "plain_set")


class NodeFaults:
    """Injects faults, one at a time.

    Args:
        cluster: the nodes.
        keyspace: keyspace whose exchanges are lost.
        rng: source of all choices.

    Attributes:
        counts: number of faults by kind.
        times: what began or ended when, on the monotonic clock, in seconds.
    """

    def __init__(self, cluster: Cluster, keyspace: str, rng: random.Random) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._keyspace = keyspace
        self._random = rng
        self.counts: Counter[str] = Counter()
        self.times: list[tuple[float, str]] = []
        self._down: set[int] = set()

    def _note(self, what: str) -> None:
        self.times.append((time.monotonic(), what))

    def lines(self, since: float) -> list[str]:
        """Describes the course of the faults; times count from `since`."""
        return [f"{at - since:.1f}: {what}" for at, what in self.times]

    async def kill(self, index: int, seconds: float) -> None:
        """Sends SIGKILL, and restarts the node after a while: the others have hints for it."""
        self.counts["kill"] += 1
        await self._kill(index)
        await asyncio.sleep(seconds)
        await self.start_all()

    async def pause(self, index: int, seconds: float) -> None:
        """Sends SIGSTOP, and SIGCONT after a while: connections stay, and requests are applied late."""
        self.counts["pause"] += 1
        self._note(f"node {index} is paused")
        self._nodes.pause(index)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._nodes.resume(index)
            self._note(f"node {index} goes on")

    async def kill_all_but(self, index: int | None) -> None:
        """Sends SIGKILL to two nodes, or to all three."""
        self.counts["kill of all" if index is None else "kill of two"] += 1
        for each in {0, 1, 2} - {index}:
            await self._kill(each)

    async def _kill(self, index: int) -> None:
        self._down.add(index)
        await asyncio.to_thread(self._nodes.kill, index)
        self._note(f"node {index} is killed")

    async def start_all(self) -> None:
        """Starts the killed nodes; returns when each node sees all as up."""
        self._note(f"start of {len(self._down)} nodes")
        async with asyncio.TaskGroup() as group:
            for index in self._down:
                group.create_task(asyncio.to_thread(self._nodes.start, index))
        self._down.clear()
        self._note("each node serves")
        await asyncio.to_thread(self._cluster.until_whole)
        self._note("each node sees all nodes")

    async def lose(self, count: int) -> None:
        """Loses `count` exchanges: mostly compare-and-sets, mostly after they were applied.

        A slow machine sends few statements of a kind per second, so a loss that did not happen is planned
        again.
        """
        self._note(f"loss of {count} exchanges begins")
        loop = asyncio.get_running_loop()
        lost, end = 0, loop.time() + _LOSSES_SECONDS
        while lost < count and loop.time() < end:
            name = self._random.choice(_STATEMENTS)
            (loss,) = self._random.choices([Loss.ANSWER, Loss.REQUEST, Loss.SILENCE], [6, 3, 1])
            marker = statement_id(name, self._keyspace)
            happened = self._cluster.proxies.lose(self._random.randrange(3), loss, marker)
            late = loop.time() + _LOSS_SECONDS
            while not happened.is_set() and loop.time() < late:  # noqa: ASYNC110 - another loop's event
                await asyncio.sleep(_POLL_SECONDS)
            if happened.is_set():
                lost += 1
                self.counts[f"lost {loss.name.lower()} of {name}"] += 1
        self._note(f"{lost} exchanges are lost")

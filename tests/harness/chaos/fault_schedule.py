"""The faults of a run: a schedule from a seed, and the operations that were open at each fault.

A kill *hit* an operation if its request was sent on a connection that the killed process had accepted, no
answer had arrived (`sockets`), and the connection then ended without one. The check and the kill happen
in one step of the event loop, in which no client runs; one request counts for one kill.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from chaos.node import Node, signal_process
from chaos.sockets import waiting_for
from chaos.wire import Exchange, Wires

__all__ = ["FaultEvent", "FaultSchedule", "FaultProfile"]

_AIM_SECONDS = 2.0
_AIM_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class FaultProfile:
    """Frequency and kind of faults.

    Attributes:
        pause_seconds: shortest and longest time between two faults.
        stop_seconds: shortest and longest time for which a worker is stopped.
        blind_rate: share of faults that do not look for a worker with open requests.
        kinds: relative frequency: `kill` a worker, `stop` one for a while, `crash` a node.
    """

    pause_seconds: tuple[float, float] = (0.1, 1.0)
    stop_seconds: tuple[float, float] = (0.2, 6.0)
    blind_rate: float = 0.05
    kinds: tuple[tuple[str, float], ...] = (("kill", 8), ("stop", 1.5), ("crash", 0.7))


@dataclass(slots=True)
class FaultEvent:
    """An injected fault.

    Attributes:
        kind: see `FaultProfile.kinds`.
        whom: names of processes.
        at_us: time on the clock of the history.
        exchanges: requests that were open at those processes.
    """

    kind: str
    whom: tuple[str, ...]
    at_us: int
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def hit_count(self) -> int:
        """Number of operations that this kill ended."""
        return sum(each.is_broken for each in self.exchanges) if self.kind != "stop" else 0

    def line(self) -> str:
        """Formats the event for the log."""
        return f"[{self.at_us:>5.0f}] {self.kind} {', '.join(self.whom)}: {self.hit_count} hit"


class FaultSchedule:
    """Injects faults into nodes of this machine.

    Args:
        nodes: nodes whose processes get the faults.
        wires: connections of the clients.
        profile: frequency and kind of faults.
        rng: source of all choices.
        tick: the clock of the history.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        wires: Wires,
        profile: FaultProfile,
        rng: random.Random,
        tick: Callable[[], int],
    ) -> None:
        self._nodes = nodes
        self._wires = wires
        self._profile = profile
        self._random = rng
        self._tick = tick
        self._stopped: set[int] = set()
        self.events: list[FaultEvent] = []

    @property
    def hits(self) -> int:
        """Number of kills that ended an open operation; the crash of a whole node counts as one."""
        return sum(event.hit_count > 0 for event in self.events)

    async def run(self, seconds: float, hits: int) -> None:
        """Runs until the time is over, or until `hits` kills hit (0: no limit). Leaves every process
        running.
        """
        kinds = dict(self._profile.kinds)
        loop = asyncio.get_running_loop()
        late = loop.time() + seconds
        async with asyncio.TaskGroup() as sleepers:
            while loop.time() < late and not 0 < hits <= self.hits:
                await asyncio.sleep(self._random.uniform(*self._profile.pause_seconds))
                (kind,) = self._random.choices([*kinds], [*kinds.values()])
                node = self._random.choice(self._nodes)
                workers, busy = await self._aim(node)
                if not workers:
                    continue
                if kind == "crash":
                    await self._crash(node, workers, busy)
                    continue
                name = self._random.choice(sorted(busy or workers))
                if kind == "kill":
                    self._kill(name, workers[name], busy.get(name, []))
                elif not self._stopped:
                    self._stop(name, workers[name], sleepers)
        for node in self._nodes:
            await node.until_whole()

    async def _aim(self, node: Node) -> tuple[dict[str, int], dict[str, list[Exchange]]]:
        """Returns workers, and the open requests of those that have any.

        Waits for a while for a worker with open requests; returns no workers if there is none. A blind
        event takes any worker, even one that is just starting.
        """
        if self._random.random() < self._profile.blind_rate:
            return node.workers(), {}
        loop = asyncio.get_running_loop()
        late = loop.time() + _AIM_SECONDS
        while loop.time() < late:
            workers = node.workers()
            if busy := self._busy(node, workers):
                return workers, busy
            await asyncio.sleep(_AIM_PAUSE_SECONDS)
        return {}, {}

    def _busy(self, node: Node, workers: Mapping[str, int]) -> dict[str, list[Exchange]]:
        exchanges = {p: each for p, each in self._wires.outstanding() if not each.is_doomed}
        pid_of = waiting_for(node.port, workers.values()) if exchanges else {}
        name_of = {pid: name for name, pid in workers.items()}
        found = defaultdict[str, list[Exchange]](list)
        for port in exchanges.keys() & pid_of.keys():
            found[name_of[pid_of[port]]].append(exchanges[port])
        return dict(found)

    def _note(self, kind: str, whom: Sequence[str], exchanges: list[Exchange]) -> None:
        self.events.append(FaultEvent(kind, tuple(whom), self._tick(), exchanges))
        if kind != "stop":
            for exchange in exchanges:
                exchange.is_doomed = True

    def _kill(self, name: str, pid: int, exchanges: list[Exchange]) -> None:
        if signal_process(pid, signal.SIGKILL):
            self._stopped.discard(pid)
            self._note("kill", [name], exchanges)

    def _stop(self, name: str, pid: int, sleepers: asyncio.TaskGroup) -> None:
        """Stops one worker at a time; it may be killed while it is stopped."""
        if signal_process(pid, signal.SIGSTOP):
            self._stopped.add(pid)
            self._note("stop", [name], [])
            seconds = self._random.uniform(*self._profile.stop_seconds)
            sleepers.create_task(self._wake(pid, seconds))

    async def _wake(self, pid: int, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            if pid in self._stopped:
                self._stopped.discard(pid)
                signal_process(pid, signal.SIGCONT)

    async def _crash(
        self, node: Node, workers: Mapping[str, int], busy: Mapping[str, list[Exchange]]
    ) -> None:
        self._stopped -= set(workers.values())
        self._note("crash", sorted(workers), [each for some in busy.values() for each in some])
        await node.crash()
        await node.restart()

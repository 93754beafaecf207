"""How bad a day it is: delays and faults of everything that a replica talks to.

Each run draws its own weather (swarm testing): one run has slow disks, another one lost answers, a
third none of both, and together they reach more than a single mixture would.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["CALM", "HOPS", "Sky", "Weather", "refused"]


@dataclass(frozen=True, slots=True)
class Weather:
    """Rates are probabilities per hop or operation.

    Attributes:
        hop_seconds: mean of an ordinary delay.
        slow_rate: hops that take up to `slow_seconds` instead.
        slow_seconds: longest delay of a hop.
        slow_what: operations that are slow far more often than the others, of `HOPS`. A race needs one
            or two things to be late while everything around them is on time.
        refused_rate: operations that are refused before they have any effect (UNAVAILABLE).
        lost_rate: writes whose answer is lost, half of them with their effect.
        late_rate: compare-and-sets that stay undecided until later (Cassandra).
        linger_rate: decided ones that plain quorum reads may miss for a while (Cassandra).
        down_rate: how often one of three nodes is down (Cassandra).
    """

    hop_seconds: float = 0.004
    slow_rate: float = 0.0
    slow_seconds: float = 0.0
    slow_what: frozenset[str] = frozenset()
    refused_rate: float = 0.0
    lost_rate: float = 0.0
    late_rate: float = 0.0
    linger_rate: float = 0.0
    down_rate: float = 0.0


CALM = Weather(hop_seconds=0.0001)

HOPS = ("read record", "read rows", "write rows", "change record", "scan", "block", "clean")
"""What a hop may belong to."""

_VERY_SLOW_RATE = 0.2
_BURST_SECONDS = 0.2
_BURST_RATE = 0.3


def refused(what: str) -> TarnError:
    """The error of an operation that was surely not done."""
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, f"{what} was refused")


class Sky:
    """Weather and its randomness; the weather may change during a run.

    Faults come in bursts: for a moment after one, others of its sort are likely.
    """

    def __init__(self, weather: Weather, rng: random.Random) -> None:
        self.weather = weather
        self.random = rng
        self._burst_end = -1.0

    def happens(self, rate: float) -> bool:
        """Whether a fault of this rate strikes now."""
        return rate > 0 and self.random.random() < rate

    def fails(self, rate: float) -> bool:
        """As `happens`, for faults that come in bursts."""
        if rate <= 0:
            return False
        now = asyncio.get_running_loop().time()
        if self.random.random() >= (_BURST_RATE if now < self._burst_end else rate):
            return False
        if now >= self._burst_end:
            self._burst_end = now + _BURST_SECONDS * self.random.random()
        return True

    def delay(self, what: str) -> float:
        """Seconds that one hop of an operation takes."""
        weather = self.weather
        assert what in HOPS, what
        if self.happens(_VERY_SLOW_RATE if what in weather.slow_what else weather.slow_rate):
            return self.random.uniform(0.2, 1.0) * weather.slow_seconds
        return min(self.random.expovariate(1 / weather.hop_seconds), 20 * weather.hop_seconds)

    async def hop(self, what: str) -> None:
        """Waits for one hop of an operation."""
        await asyncio.sleep(self.delay(what))

    def refuse(self, what: str) -> None:
        """Raises UNAVAILABLE if the weather is so."""
        if self.fails(self.weather.refused_rate):
            raise refused(what)

"""Injected faults: delays and faults of everything that a replica talks to.

Each run draws its own fault profile (swarm testing): one run has slow disks, another one lost answers, a
third has neither. Together they reach more states than a single mixture would.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["CALM", "HOPS", "FaultInjector", "FaultProfile", "refused"]


@dataclass(frozen=True, slots=True)
class FaultProfile:
    """The kinds of faults of a run; rates are probabilities per hop or operation.

    Attributes:
        hop_seconds: mean of an ordinary delay.
        slow_rate: hops that take up to `slow_seconds` instead.
        slow_seconds: longest delay of a hop.
        slow_what: operations of `HOPS` that are slow far more often than the others. A race needs one
            or two operations to be late while the others are on time.
        refused_rate: operations that are refused before they have any effect (UNAVAILABLE).
        raised_rate: calls of a store that raise UNAVAILABLE as a whole before anything is sent, instead of
            refusing rows one by one. The first call of a process on a partition fails far more often,
            because it needs the partition's descriptor.
        lost_rate: writes whose answer is lost, half of them with their effect.
        late_rate: compare-and-sets that stay undecided until later (Cassandra).
        queued_rate: writes and compare-and-sets that wait at a coordinator until their caller has timed
            out: they run later, possibly after a read that settles them (Cassandra).
        queue_seconds: longest wait at a coordinator.
        linger_rate: decided compare-and-sets that plain quorum reads may miss for a while (Cassandra).
        pause_rate: steps of a process before which it pauses (`pauses`).
        pause_seconds: longest pause.
        late_deletion_rate: deletions of blocks whose answer is lost, and which are applied later.
        down_rate: how often one of three nodes is down (Cassandra).
    """

    hop_seconds: float = 0.004
    slow_rate: float = 0.0
    slow_seconds: float = 0.0
    slow_what: frozenset[str] = frozenset()
    refused_rate: float = 0.0
    raised_rate: float = 0.0
    lost_rate: float = 0.0
    late_rate: float = 0.0
    queued_rate: float = 0.0
    queue_seconds: float = 0.0
    linger_rate: float = 0.0
    pause_rate: float = 0.0
    pause_seconds: float = 0.0
    down_rate: float = 0.0
    late_deletion_rate: float = 0.0


CALM = FaultProfile(hop_seconds=0.0001)

HOPS = ("read record", "read rows", "write rows", "change record", "scan", "block", "clean")
"""The operations that have hops."""

_VERY_SLOW_RATE = 0.2
_NEW_PARTITION_FACTOR = 10
_BURST_SECONDS = 0.2
_BURST_RATE = 0.3


def refused(what: str) -> TarnError:
    """Returns the error of an operation that surely had no effect."""
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, f"{what} was refused")


class FaultInjector:
    """A fault profile and its randomness; the profile may change during a run.

    Faults come in bursts: shortly after a fault, more faults of its kind are likely.

    Attributes:
        are_blocks_away: the block store refuses every write.
    """

    def __init__(self, profile: FaultProfile, rng: random.Random) -> None:
        self.profile = profile
        self.random = rng
        self.are_blocks_away = False
        self._burst_end = -1.0

    def happens(self, rate: float) -> bool:
        """Decides whether a fault of this rate occurs now."""
        return rate > 0 and self.random.random() < rate

    def fails(self, rate: float) -> bool:
        """Decides as `happens`, for faults that come in bursts."""
        if rate <= 0:
            return False
        now = asyncio.get_running_loop().time()
        if self.random.random() >= (max(rate, _BURST_RATE) if now < self._burst_end else rate):
            return False
        if now >= self._burst_end:
            self._burst_end = now + _BURST_SECONDS * self.random.random()
        return True

    def delay(self, what: str) -> float:
        """Draws the duration of one hop of an operation, in seconds."""
        profile = self.profile
        assert what in HOPS, what
        if self.happens(_VERY_SLOW_RATE if what in profile.slow_what else profile.slow_rate):
            return self.random.uniform(0.2, 1.0) * profile.slow_seconds
        return min(self.random.expovariate(1 / profile.hop_seconds), 20 * profile.hop_seconds)

    async def hop(self, what: str) -> None:
        """Waits for one hop of an operation."""
        await asyncio.sleep(self.delay(what))

    def refuse(self, what: str) -> None:
        """Raises UNAVAILABLE at the rate of the profile."""
        if self.fails(self.profile.refused_rate):
            raise refused(what)

    def raise_unavailable(self, what: str, *, is_new: bool = False) -> None:
        """Raises UNAVAILABLE as if the store could not begin; more likely on a partition new to the process."""
        rate = self.profile.raised_rate
        if self.fails(min(1.0, rate * _NEW_PARTITION_FACTOR) if is_new else rate):
            raise refused(f"{what}: nothing was sent, it")

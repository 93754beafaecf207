"""Rules for the timestamps of plain rows: which of them lose an acknowledged write when a clock lags.

`make mutate-guards` finds the seeds of whole runs in which a wrong rule breaks a promise (`stamp-…`).
"""

import random

import pytest
from tests.sim.lake_guards import GUARDS
from tests.sim.run import run_seed
from tests.support.faults.guards import Guard, Weakening, switched_off
from tests.support.sim.clock import SimClock
from tests.support.sim.faults import FaultInjector, FaultProfile
from tests.support.sim.kv_cassandra import SimCassandra
from tests.support.sim.loop import SimLoop, simulate
from tests.support.sim.stamps import (
    BesideWrite,
    CommitWait,
    OwnClock,
    OwnRowsRecent,
    ProcessMaximum,
    ReadFirst,
    StampRule,
)

from tarn.aio.task_set import TaskSet
from tarn.kv.port import Group, Partition, PartitionKind

ROWS = Partition("rows", PartitionKind.PLAIN, 2)
SKEW_US = 500_000
WRITES = 12
SEEDS = 40


def is_lost(rule: type[StampRule], seed: int) -> bool:
    """Returns whether a read missed a write that was acknowledged before it.

    Three processes take turns on two keys; one node may be down.
    """
    rng = random.Random(f"stamps {seed}")
    lost = False

    async def main(loop: SimLoop) -> None:
        nonlocal lost
        tasks = TaskSet()
        profile = FaultProfile(hop_seconds=0.004, down_rate=0.5)
        cluster = SimCassandra(FaultInjector(profile, random.Random(seed)), tasks)
        tasks.spawn(cluster.trouble())
        clocks = [SimClock(loop, rng.randint(-SKEW_US, SKEW_US)) for _ in range(3)]
        clients = [cluster.open(clock) for clock in clocks]
        for number in range(WRITES):
            key, value = rng.choice([b"a", b"b"]), b"%d" % number
            writer, reader = rng.choice(clients), rng.choice(clients)
            assert await writer.set_many(ROWS, [Group(key, ((key, value),))]) == [None]
            (found,) = await reader.get_many(ROWS, [key])
            lost = lost or found is None or found.value != value
        await tasks.close()

    guard = Guard("stamps", "", "", "", (Weakening(SimCassandra, "stamps", rule),))
    with switched_off(guard):
        simulate(main, seed)
    return lost


@pytest.mark.parametrize("rule", [OwnClock, ProcessMaximum, OwnRowsRecent])
def test_a_rule_that_does_not_read_loses_writes(rule: type[StampRule]) -> None:
    assert any(is_lost(rule, seed) for seed in range(SEEDS))


@pytest.mark.parametrize("rule", [ReadFirst, BesideWrite, CommitWait])
def test_a_rule_that_reads_or_waits_loses_none(rule: type[StampRule]) -> None:
    assert not [seed for seed in range(SEEDS) if is_lost(rule, seed)]


@pytest.mark.parametrize("seed", [2, 18])
def test_reading_beside_the_write_keeps_the_promises_of_a_whole_run(seed: int) -> None:
    """Plays seeds in which the wrong rules break a promise."""
    guard = Guard("stamps", "", "", "", (Weakening(SimCassandra, "stamps", BesideWrite),))
    with switched_off(guard):
        assert not run_seed(seed).violations


def test_each_wrong_rule_has_a_guard_with_a_recorded_seed() -> None:
    rules = {
        weakening.instead
        for guard in GUARDS
        for weakening in guard.weakenings
        if weakening.owner is SimCassandra
    }
    assert rules == {OwnClock, ProcessMaximum, OwnRowsRecent}

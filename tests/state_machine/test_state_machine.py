"""Random operations on a lake give what a model of dictionaries gives, on every store.

The same operations in every run; `make state-machine STEPS=20000` plays others, and more of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from lake_lab import running_lab
from lake_machine import LakeMachine
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.kv.cassandra import CassandraSettings, open_cassandra
from tarn.kv.embedded import open_embedded
from tarn.kv.mem import MemKv
from tarn.kv.port import Kv
from tarn.rpc.process.system import SystemClock, SystemIds

OpenStore: TypeAlias = Callable[[], Awaitable[Kv]]

_STEPS_PER_RUN = 50
_LEAST_OF_2000 = {"commit": 80, "merge": 10}
"""Least number of operations among 2,000 steps: a run that does nothing is no proof."""
_SEEN_IN_2000 = (
    "merge: MERGE_CONFLICT",
    "merge: BRANCH_DIRTY",
    "revert",
    "revert_range",
    "move",
    "criss_cross",
    "folded_diff",
    "what_if",
    "restore_branch",
    "read_moment",
    "filtered_log",
    "annotate",
    "put: BRANCH_PROTECTED",
    "commit: BRANCH_PROTECTED",
    "commit: REPOSITORY_READ_ONLY",
)
"""Outcomes that 2,000 steps see at least once."""
_SEEN_IN_20000 = ("cherry_pick", "undecided")
"""The same of 20,000 steps. Each example leaves some rules out (swarm testing), and times and ids differ between runs,
so a short run may see none: of 3,000 steps, one saw no pick and others 17, one nothing undecided and another one."""


def play(open_store: OpenStore, folder: Path, steps: int, *, is_reproducible: bool) -> Counter[str]:
    """Plays the machine on a store.

    Args:
        open_store: opens the store.
        folder: for the caches of the replicas.
        steps: number of operations, at most.
        is_reproducible: always the same operations, and no search for a smaller failing case, which would take
            minutes; otherwise other ones in each run.

    Returns:
        The number of operations by name and outcome.
    """

    @asynccontextmanager
    async def opened() -> AsyncIterator[type[LakeMachine]]:
        kv = await open_store()
        async with running_lab(kv, folder) as lab:

            class Machine(LakeMachine):
                pass

            Machine.lab, Machine.outcomes = lab, Counter()
            yield Machine
        await kv.close()

    with asyncio.Runner() as runner:
        context = opened()
        machine = runner.run(context.__aenter__())
        machine.loop = runner.get_loop()
        try:
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=max(1, steps // _STEPS_PER_RUN),
                    stateful_step_count=_STEPS_PER_RUN,
                    derandomize=is_reproducible,
                    phases=[Phase.generate] if is_reproducible else [Phase.generate, Phase.shrink],
                    database=None,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                    print_blob=True,
                ),
            )
        finally:
            runner.run(context.__aexit__(None, None, None))
    return machine.outcomes


def check(open_store: OpenStore, folder: Path, steps: int, config: pytest.Config) -> None:
    """Plays `steps` operations, or as many as the command line says, and compares how they ended with the least."""
    asked = config.getoption("--steps", 0)
    outcomes = play(open_store, folder, asked or steps, is_reproducible=not asked)
    print(dict(sorted(outcomes.items())))  # noqa: T201 - shown by `make state-machine`
    played = asked or steps
    least = {name: count * played // 2000 for name, count in _LEAST_OF_2000.items()}
    least |= dict.fromkeys(_SEEN_IN_2000, int(played >= 2000))
    least |= dict.fromkeys(_SEEN_IN_20000, int(played >= 20000))
    short = {name: outcomes[name] for name, count in least.items() if outcomes[name] < count}
    assert not short


@pytest.mark.timeout(3600)
def test_a_lake_in_memory(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    async def opened() -> Kv:
        return MemKv()

    check(opened, tmp_path, 3000, pytestconfig)


@pytest.mark.timeout(3600)
def test_a_lake_on_the_embedded_store(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    async def opened() -> Kv:
        return await open_embedded(tmp_path / "kv.db", durability="os")

    check(opened, tmp_path, 1000, pytestconfig)


@pytest.mark.cassandra
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_lake_on_cassandra(
    cassandra_nodes: CassandraNodes, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    async def opened() -> Kv:
        clock = SystemClock()
        nodes = cassandra_nodes
        settings = CassandraSettings(
            nodes.contact_points, nodes.LOCAL_DATACENTER, "state_machine", 1
        )
        return await open_cassandra(settings, clock=clock, ids=SystemIds(clock))

    check(opened, tmp_path, 250, pytestconfig)

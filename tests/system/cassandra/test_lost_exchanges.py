"""Every write of an operation is lost once, on a real node: what callers were told stays true.

An answer is lost; or a request is done late: right before the next write of its replica, which may be its own
repetition, or when its caller has been answered and others have gone on. Reads that decide what became of it
do not find such a request, because no node has seen it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from cassandra_cases import CASES, Case
from cassandra_losses import Ending, Lane, Losing, lanes_on

from tarn.testing.servers.cassandra_nodes import CassandraNodes
from tarn_graveler.repository import claiming

pytestmark = [
    pytest.mark.cassandra,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

KEYSPACE = "lost_exchanges"
WRITES_MAX = 40


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lanes(
    cassandra_nodes: CassandraNodes, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[list[Lane]]:
    folder = tmp_path_factory.mktemp("lanes")
    async with lanes_on(cassandra_nodes, KEYSPACE, folder) as made:
        yield made


@pytest.fixture(autouse=True)
def impatient_creators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a creator that died half-way."""
    monkeypatch.setattr(claiming, "PATIENCE_SECONDS", 0.2)


@dataclass
class Played:
    """What came of losing one write after the other, in one lane."""

    cases: list[Case] = field(default_factory=list)
    endings: list[tuple[str, Ending]] = field(default_factory=list)


async def play(lane: Lane, new_case: type[Case]) -> Played:
    played = Played()
    own = f"{lane.new_name()}-lake"
    await lane.sound.create_repository(own)
    repository = await lane.sound.graveler.repositories.get(own)
    for number in range(WRITES_MAX):
        case = new_case(lane, repository, lane.new_name())
        await case.prepare()
        await lane.hurt.until_well()
        lane.losses.arm(number, lane.losing)
        told = await lane.told(case.act())
        lane.losses.disarm()
        try:
            await case.go_on(told)
        except Exception as error:
            error.add_note(f"{lane.name}: write {number} ({lane.losses.lost}) was lost; {told}")
            raise
        played.cases.append(case)
        if not lane.losses.lost:
            assert told is Ending.DONE or not new_case.is_alone
            return played
        played.endings.append((lane.losses.lost, told))
    text = f"{new_case.__name__} makes {WRITES_MAX} writes and more"
    raise AssertionError(text)


@pytest.mark.parametrize("new_case", CASES)
async def test_whatever_is_lost_or_late_no_caller_is_told_wrong(
    lanes: list[Lane], new_case: type[Case]
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(play(lane, new_case)) for lane in lanes]
    played = [task.result() for task in tasks]
    for lane, each in zip(lanes, played, strict=True):
        if lane.is_patient and lane.losing is Losing.ANSWER and new_case.is_alone:
            in_doubt = {name for name, ending in each.endings if ending is not Ending.DONE}
            assert in_doubt <= {"cas_delete_if"}, "the store finds out by itself"
        assert each.endings
    clock, sound = lanes[0].clock, lanes[0].sound.graveler
    for _ in range(3):
        clock.shift_seconds += 61
        await sound.cleaning.drop_due()
    for case in (case for each in played for case in each.cases):
        await case.look()

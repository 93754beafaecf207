"""Each write of an operation is lost once, on a real node: the answers to callers stay true.

Either the answer is lost, or the request is applied late: right before the next write of its replica, which may be
its own repetition, or after its caller was answered and others have continued. Reads that settle its outcome do not
find a late request, because no node has seen it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from cassandra_cases import (
    CASES,
    BranchRemoval,
    Case,
    Commit,
    ConditionalPut,
    RepositoryRemoval,
    TwoCompletions,
)
from cassandra_losses import Ending, Losing, ReplicaPair, pairs_on
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn_graveler.records import claiming

pytestmark = [
    pytest.mark.cassandra,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

KEYSPACE = "lost_exchanges"
WRITES_MAX = 40
_QUICK = {Commit, BranchRemoval, RepositoryRemoval, TwoCompletions, ConditionalPut}
"""Each of the others makes its writes by the same code as one of these; the simulator loses them all."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pairs(
    cassandra_nodes: CassandraNodes, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[list[ReplicaPair]]:
    folder = tmp_path_factory.mktemp("pairs")
    async with pairs_on(cassandra_nodes, KEYSPACE, folder) as made:
        yield made


@pytest.fixture(autouse=True)
def impatient_creators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the wait for a creator that died half-way."""
    monkeypatch.setattr(claiming, "PATIENCE_SECONDS", 0.2)


@dataclass
class Played:
    """The outcomes of losing one write after another, with one pair."""

    cases: list[Case] = field(default_factory=list)
    endings: list[tuple[str, Ending, str]] = field(default_factory=list)
    """The statement that was lost, the outcome that its caller got, and the text of the error."""


async def play(pair: ReplicaPair, new_case: type[Case]) -> Played:
    played = Played()
    own = f"{pair.new_name()}-lake"
    await pair.sound.create_repository(own)
    repository = await pair.sound.graveler.repositories.get(own)
    for number in range(WRITES_MAX):
        case = new_case(pair, repository, pair.new_name())
        await case.prepare()
        await pair.hurt.until_well()
        pair.losses.arm(number, pair.losing)
        told = await pair.told(case.act())
        pair.losses.disarm()
        try:
            await case.go_on(told)
        except Exception as error:
            error.add_note(f"{pair.name}: write {number} ({pair.losses.lost}) was lost; {told}")
            raise
        played.cases.append(case)
        if not pair.losses.lost:
            assert told is Ending.DONE or not new_case.is_alone
            return played
        played.endings.append((pair.losses.lost, told, pair.failure))
    text = f"{new_case.__name__} makes {WRITES_MAX} writes and more"
    raise AssertionError(text)


@pytest.mark.parametrize(
    "new_case",
    [each if each in _QUICK else pytest.param(each, marks=pytest.mark.long) for each in CASES],
)
async def test_no_caller_gets_a_wrong_answer_when_a_write_is_lost_or_late(
    pairs: list[ReplicaPair], new_case: type[Case]
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(play(pair, new_case)) for pair in pairs]
    played = [task.result() for task in tasks]
    for pair, each in zip(pairs, played, strict=True):
        if pair.is_patient and pair.losing is Losing.ANSWER and new_case.is_alone:
            in_doubt = {
                name: why for name, ending, why in each.endings if ending is not Ending.DONE
            }
            assert in_doubt.keys() <= {"cas_delete_if"}, f"the store settles all others: {in_doubt}"
        assert each.endings
    clock, sound = pairs[0].clock, pairs[0].sound.graveler
    for _ in range(3):
        clock.shift_seconds += 61
        await sound.cleaner.drop_due()
    for case in (case for each in played for case in each.cases):
        await case.look()

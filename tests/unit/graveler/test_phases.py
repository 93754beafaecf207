"""Commits, merges and compactions tell how long each of their phases took."""

from __future__ import annotations

import pytest
from lake import MAIN, Lake, Running, reached

from tarn.core.errors import TarnError
from tarn.core.ids import BranchId
from tarn_graveler.versioning.merges import MergeRequest

PHASES = {"seal", "build", "publish"}


def phases(lake: Lake) -> dict[str, set[str]]:
    """Returns the phases of each operation that ended."""
    found: dict[str, set[str]] = {}
    for labels, _ in lake.meters.samples("operation.phase.count"):
        found.setdefault(labels["operation"], set()).add(labels["phase"])
    return found


def ended(lake: Lake) -> dict[str, float]:
    found = lake.meters.samples("operation.duration.count")
    return {labels["operation"]: count for labels, count in found}


async def test_every_operation_that_builds_has_three_phases(lake: Lake) -> None:
    await lake.put("a", 1)
    head = await lake.commit()
    side = BranchId("side")
    await lake.graveler.branches.create(lake.branch(side), head.commit_id)
    await lake.put("b", 1, side)
    await lake.graveler.compacting.compact(lake.branch(side))
    await lake.put("c", 1, MAIN)
    second = await lake.commit()
    await lake.graveler.moves.reset(lake.branch(side))
    await lake.graveler.merges.merge(
        lake.branch(side), MergeRequest(second.commit_id, "ann", "merge")
    )
    assert phases(lake) == dict.fromkeys(("commit", "compaction", "merge"), PHASES)
    assert ended(lake) == {"commit": 2, "compaction": 1, "merge": 1}


@pytest.mark.parametrize(
    ("operation", "nth", "slow"),
    [("set_if", 1, "seal"), ("scan_arrow", 1, "build"), ("set_if", 2, "publish")],
)
async def test_the_slow_phase_of_a_slow_commit_has_its_time(
    lake: Lake, running: Running, operation: str, nth: int, slow: str
) -> None:
    """The panel "Which phase of a commit is slow" and the line "slow operation" of the log show it."""
    await lake.put("a", 1)
    *quick, gate = [lake.kv.hold(operation) for _ in range(nth)]
    for each in quick:
        each.open()
    commit = running.start(lake.commit())
    await reached(gate)
    lake.clock.advance(7.5)
    gate.open()
    await commit
    spent = {labels["phase"]: value for labels, value in lake.meters.samples("operation.phase.sum")}
    assert spent == {**dict.fromkeys(PHASES, 0), slow: 7.5}


async def test_a_commit_that_is_refused_in_its_first_phase_is_counted(lake: Lake) -> None:
    with pytest.raises(TarnError):
        await lake.commit()
    assert phases(lake) == {"commit": {"seal"}}
    assert ended(lake) == {"commit": 1}

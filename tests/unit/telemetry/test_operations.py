"""Operations and their phases are timed, and slow ones are logged."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.clock import ManualClock

from tarn.rpc.process.log import LogConfig, logging_to
from tarn.telemetry.meters import Meters
from tarn.telemetry.operations import Operations, phase


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def meters() -> Meters:
    return Meters()


def phases(meters: Meters, part: str = "sum") -> dict[tuple[str, str], float]:
    found = meters.samples(f"operation.phase.{part}")
    return {(labels["operation"], labels["phase"]): value for labels, value in found}


def test_a_phase_counts_with_the_sum_of_its_runs(clock: ManualClock, meters: Meters) -> None:
    operations = Operations(clock, meters)
    with operations.begin("commit"):
        with phase("seal"):
            clock.advance(1)
        for _ in range(2):
            with phase("build"):
                clock.advance(2)
        clock.advance(4)
    assert phases(meters) == {("commit", "seal"): 1, ("commit", "build"): 4}
    assert phases(meters, "count") == {("commit", "seal"): 1, ("commit", "build"): 1}
    assert list(meters.samples("operation.duration.sum")) == [({"operation": "commit"}, 9)]


def test_a_failed_operation_is_timed_as_well(clock: ManualClock, meters: Meters) -> None:
    operations = Operations(clock, meters)

    def fail() -> None:
        with operations.begin("merge"), phase("build"):
            clock.advance(3)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert phases(meters) == {("merge", "build"): 3}
    assert list(meters.samples("operation.duration.count")) == [({"operation": "merge"}, 1)]


def test_a_phase_outside_of_operations_counts_nowhere(clock: ManualClock, meters: Meters) -> None:
    operations = Operations(clock, meters)
    with operations.begin("commit"):
        pass
    with phase("seal"):
        clock.advance(1)
    assert phases(meters) == {}


async def test_concurrent_operations_do_not_mix_their_phases(
    clock: ManualClock, meters: Meters
) -> None:
    operations = Operations(clock, meters)
    begun, go = asyncio.Event(), asyncio.Event()

    async def commit() -> None:
        with operations.begin("commit"), phase("seal"):
            begun.set()
            await go.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(commit())
        await begun.wait()
        with operations.begin("merge"), phase("build"):
            clock.advance(5)
        go.set()
    assert phases(meters) == {("merge", "build"): 5, ("commit", "seal"): 5}


@pytest.mark.parametrize(("seconds", "is_logged"), [(2.0, False), (2.5, True)])
def test_a_slow_operation_is_logged_with_its_phases(
    clock: ManualClock, meters: Meters, seconds: float, is_logged: bool, tmp_path: Path
) -> None:
    operations = Operations(clock, meters, 2.0)
    with (
        logging_to(LogConfig(output=str(tmp_path / "log"))),
        operations.begin("commit", repository="lake", branch="main"),
        phase("build"),
    ):
        clock.advance(seconds)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    if not is_logged:
        assert lines == []
        return
    (line,) = lines
    assert line["event"] == "slow operation"
    assert line["level"] == "warning"
    assert (line["operation"], line["repository"], line["branch"]) == ("commit", "lake", "main")
    assert (line["duration_ms"], line["build_ms"]) == (2500, 2500)

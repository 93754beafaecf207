"""Timers of a node, with real processes as their runs."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tarn.config import load
from tarn.rpc.process.system import SystemClock
from tarn_cli.node.data_dir import DataDir
from tarn_cli.node.timer_plan import plan_timers
from tarn_cli.node.timers import Timers, TimerSpec, TimerTimes, due_us, timers_record

HOUR_US = 3_600_000_000
SECOND_US = 1_000_000


@pytest.mark.parametrize(
    ("times", "interval_us", "due"),
    [
        (TimerTimes(), 24 * HOUR_US, 100 * HOUR_US),
        (TimerTimes(90 * HOUR_US, 91 * HOUR_US), 24 * HOUR_US, 114 * HOUR_US),
        (TimerTimes(20 * HOUR_US, 21 * HOUR_US), 24 * HOUR_US, 44 * HOUR_US),
        # Broken off: an hour after its begin, or at its next time.
        (TimerTimes(99 * HOUR_US), 24 * HOUR_US, 100 * HOUR_US),
        (TimerTimes(99 * HOUR_US), HOUR_US // 2, 99 * HOUR_US + HOUR_US // 2),
        # The clock was set back since.
        (TimerTimes(500 * HOUR_US, 501 * HOUR_US), 24 * HOUR_US, 124 * HOUR_US),
    ],
)
def test_the_next_run_is_due_an_interval_after_the_begin_of_the_last(
    times: TimerTimes, interval_us: int, due: int
) -> None:
    assert due_us(times, interval_us, 100 * HOUR_US, 7) == due + 7


class Punctual(random.Random):
    """Adds as much jitter as it is told."""

    jitter_s = 0

    def randrange(self, stop: int) -> int:  # type: ignore[override]
        return min(self.jitter_s * SECOND_US, stop - 1)


class TimedRuns:
    """Timers in a data folder; every run appends a line to a file."""

    def __init__(self, folder: Path) -> None:
        self.where = DataDir(folder / "data")
        self.where.create()
        self.where.write_timers({})
        self.runs = folder / "runs"
        self.lines: list[str] = []
        self.rng = Punctual()

    def spec(
        self, code: str = "", interval_s: float = 3600, name: str = "gc", needs: Path | None = None
    ) -> TimerSpec:
        note = f"import os; open({str(self.runs)!r}, 'a').write(f'{name} {{os.getpid()}}\\n'); "
        command = (sys.executable, "-c", note + code)
        return TimerSpec(
            name, (command,), dict(os.environ), int(interval_s * SECOND_US), needs=needs
        )

    def count(self, name: str = "gc") -> int:
        text = self.runs.read_text() if self.runs.exists() else ""
        return sum(line.startswith(name) for line in text.splitlines())

    def times(self, name: str = "gc") -> TimerTimes:
        return TimerTimes(**json.loads(self.where.timers())[name])

    async def during(self, *specs: TimerSpec, until: Callable[[], bool]) -> None:
        """Runs the timers until the condition holds, then stops them."""
        timers = Timers(specs, self.where, SystemClock(), self.rng, self.lines.append)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(timers.run())
            while not until():  # noqa: ASYNC110 - conditions look at files
                await asyncio.sleep(0.02)
            timers.stop()


@pytest.fixture
def lab(tmp_path: Path) -> TimedRuns:
    return TimedRuns(tmp_path)


async def test_a_new_timer_runs_soon_and_then_after_its_interval(lab: TimedRuns) -> None:
    await lab.during(lab.spec(interval_s=0.3), until=lambda: lab.count() >= 3)
    begin = lab.times().begin_us
    assert begin
    assert lab.lines[0].startswith("timer gc: done in")


async def test_the_time_of_the_last_run_outlives_the_node(lab: TimedRuns) -> None:
    await lab.during(lab.spec(interval_s=1), until=lambda: lab.lines != [])
    before = lab.times()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await lab.during(lab.spec(interval_s=3600), until=lambda: False)
    assert lab.count() == 1, "not due after a restart"
    assert lab.times().begin_us == before.begin_us
    assert lab.times().next_us - before.begin_us == 3600 * SECOND_US
    # A day later: it is overdue.
    late = {"gc": {"begin_us": 1, "end_us": 2, "exit_code": 0, "next_us": 3}}
    lab.where.write_timers(late)
    await lab.during(lab.spec(interval_s=3600), until=lambda: lab.count() == 2)


async def test_jitter_is_a_tenth_of_the_interval_and_ten_minutes_at_most(lab: TimedRuns) -> None:
    lab.rng.jitter_s = 10**6
    specs = [lab.spec(interval_s=3600), lab.spec(interval_s=86400, name="backup")]
    begin_us = SystemClock().now_us()
    await lab.during(*specs, until=lambda: "backup" in lab.where.timers())
    for name, jitter_s in (("gc", 360), ("backup", 600)):
        assert 0 <= lab.times(name).next_us - begin_us - jitter_s * SECOND_US < 60 * SECOND_US


async def test_a_failed_run_is_told_and_tried_at_the_next_time(lab: TimedRuns) -> None:
    spec = lab.spec("import sys; print('what went wrong', file=sys.stderr); sys.exit(5)", 0.3)
    await lab.during(spec, until=lambda: len(lab.lines) >= 2)
    assert lab.lines[:2] == ["timer gc: failed (exit code 5): what went wrong"] * 2
    assert lab.times().exit_code == 5
    assert timers_record(lab.where)["gc"]["exit_code"] == 5  # type: ignore[index]


async def test_a_killed_run_is_told_by_its_signal(lab: TimedRuns) -> None:
    spec = lab.spec("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    await lab.during(spec, until=lambda: lab.lines != [])
    assert "killed by SIGKILL" in lab.lines[0]
    assert lab.times().exit_code == -9


async def test_a_stop_ends_the_run_that_is_under_way(lab: TimedRuns) -> None:
    def begun() -> bool:
        if lab.count() == 1:
            # Noted at once: the machine may go down now.
            assert (lab.times().begin_us > 0, lab.times().end_us, lab.times().next_us) == (
                True,
                0,
                0,
            )
        return lab.count() == 1

    await lab.during(lab.spec("import signal; signal.pause()"), until=begun)
    pid = int(lab.runs.read_text().split()[1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    times = lab.times()
    assert (times.end_us, times.exit_code) == (0, -15)
    assert times.next_us - times.begin_us < 3600 * SECOND_US * 1.2
    assert "broken off" in lab.lines[-1]


async def test_a_run_that_ignores_sigterm_is_killed(
    lab: TimedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarn_cli.node.timers.STOP_SECONDS", 0.3)
    code = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)\n"
        "while True: signal.pause()"
    )
    log = lab.where.log_file.parent / "gc.log"
    await lab.during(lab.spec(code), until=lambda: log.exists() and "deaf" in log.read_text())
    assert lab.times().exit_code == -9


async def test_runs_do_not_overlap(lab: TimedRuns) -> None:
    """Each run fails if the other one is under way."""
    mark = lab.where.path / "under-way"
    code = (
        f"import os, time; os.close(os.open({str(mark)!r}, os.O_CREAT | os.O_EXCL)); "
        f"time.sleep(0.2); os.unlink({str(mark)!r})"
    )
    specs = [lab.spec(code, 0.01, "gc"), lab.spec(code, 0.01, "backup")]
    await lab.during(*specs, until=lambda: min(lab.count("gc"), lab.count("backup")) >= 3)
    assert [line for line in lab.lines if "failed" in line] == []


async def test_a_timer_waits_for_the_file_that_it_needs(
    lab: TimedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarn_cli.node.timers._LOOK_S", 0.05)
    needed = lab.where.path / "credentials"

    def created() -> bool:
        if lab.lines:
            assert lab.count() == 0 or needed.exists()
            needed.touch()
        return lab.count() == 1

    await lab.during(lab.spec(needs=needed), until=created)
    assert sum("waits for" in line for line in lab.lines) == 1


async def test_the_second_command_runs_only_after_the_success_of_the_first(lab: TimedRuns) -> None:
    fails, other = lab.spec("raise SystemExit(1)"), lab.spec(name="second")
    both = TimerSpec("gc", (*fails.commands, *other.commands), dict(os.environ), 3600 * SECOND_US)
    await lab.during(both, until=lambda: lab.lines != [])
    assert (lab.count("gc"), lab.count("second")) == (1, 0)


async def test_damaged_times_count_as_never(lab: TimedRuns) -> None:
    (lab.where.path / "timers.json").write_text("{")
    assert timers_record(lab.where) == {}
    await lab.during(lab.spec(interval_s=1), until=lambda: lab.count() == 1)
    assert "cannot be read" in lab.lines[0]


async def test_nothing_is_shown_of_timers_that_are_off(lab: TimedRuns) -> None:
    lab.where.write_timers({"gc": {"begin_us": 1}})
    await lab.during(until=lambda: True)
    assert timers_record(lab.where) == {}


def test_commands_follow_from_the_configuration(tmp_path: Path) -> None:
    data = tmp_path / "data"
    environment = {
        "HOME": str(tmp_path),
        "TARN_DATA_DIR": str(data),
        "TARN_LIFECYCLE_GC_INTERVAL": "daily",
        "TARN_LIFECYCLE_GC_RATE": "7",
        "TARN_BACKUP_INTERVAL": "8h",
        "TARN_JOURNAL_COMPACT_INTERVAL": "12h",
        "TARN_BACKUP_PLACE": "/backup",
        "TARN_BACKUP_KEEP": "3",
        "TARN_SECRET_ACCESS_KEY": "of-a-person",
    }
    file = tmp_path / "tarn.yaml"
    gc, journal, backup = plan_timers(load(None, environment), file, environment, "a:1", "b:2")
    assert (gc.interval_us, backup.interval_us) == (24 * HOUR_US, 8 * HOUR_US)
    assert gc.needs == data / "credentials"
    (run,) = gc.commands
    text = " ".join(run)
    assert f"--server a:1 --auth-server b:2 --settings {data}/credentials gc run --rate 7" in text
    assert "--rate 7 --max-percent 50 --max-gib 0 --max-growth 5" in text
    assert (journal.interval_us, journal.needs) == (12 * HOUR_US, gc.needs)
    (run,) = journal.commands
    text = " ".join(run)
    assert f"--settings {data}/credentials journal compact --config {file}" in text
    create, prune = (" ".join(command) for command in backup.commands)
    assert f"backup create /backup --config {file}" in create
    assert "backup prune /backup --keep 3" in prune
    assert "TARN_SECRET_ACCESS_KEY" not in gc.environment
    assert gc.environment["TARN_DATA_DIR"] == str(data)
    off = {"HOME": str(tmp_path)}
    assert plan_timers(load(None, off), None, off, "a:1", "b:2") == ()

"""Simulates power failures at many points of a recorded run, and checks the remaining state each time."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from tests.support.crash.disk import Disk
from tests.support.crash.loss import rebuild_all, rebuild_some, rebuild_synced
from tests.support.crash.recorder import recording
from tests.support.crash.sqlite_calls import find_library
from tests.support.crash.trace import Sync, Trace

from tarn.core.errors import TarnError

POINTS = int(os.environ.get("CRASH_POINTS", "100"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
_RECOVERY_CHANCE = 0.1
_FIRST = 45
"""The first events, which create the store, are all crash points."""
_NEAR = 12
_NEAR_EVENTS = (10, 50)
"""Some damage shows immediately, some only when the log starts over."""
_NEAR_POINTS = 4
_NEAR_ANSWERS = 6
_NEAR_SEEDS = 15


class LostError(Exception):
    """The remaining state breaks a promise."""


class Story(Protocol):
    """The operations of a recorded run, and the state that must remain.

    Attributes:
        answered_at: points in time at which an operation was acknowledged.
    """

    answered_at: list[int]

    async def check(self, root: Path, at: int, *, power_failed: bool, go_on: bool = True) -> None:
        """Opens the store in a rebuilt root, checks it, and closes it.

        Args:
            root: the rebuilt copy of the recorded folder.
            at: the crash came before this event.
            power_failed: False if only the process died, so that all its writes exist.
            go_on: whether to finish the interrupted operations, too.

        Raises:
            LostError, TarnError, sqlite3.Error, OSError: the promise is broken.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How many crashes are examined.

    Attributes:
        points: number of crash points in addition to those of the store's creation.
        choices: number of choices of unsynced writes at each point, in addition to none and all.
        seed: seed of the points and the choices.
        failures_max: number of failures after which to stop.
        near: examine only points after these events.
    """

    points: int = POINTS
    choices: int = 3
    seed: int = SEED
    failures_max: int = 5
    near: tuple[int, ...] = ()


FIRST_FAILURE = Plan(choices=2, failures_max=1)
"""Returns a plan for a run that must fail."""


async def is_missed(site: str, trace: Trace, story: Story, work: Path) -> bool:
    """Whether leaving out the syncs of one place in the code breaks a promise."""
    near = tuple(
        index
        for index, event in enumerate(trace.events)
        if isinstance(event, Sync) and event.site == site
    )
    without = trace.without_site(site)
    for seed in range(SEED, SEED + _NEAR_SEEDS):
        plan = Plan(choices=6, seed=seed, failures_max=1, near=near)
        if await broken_promises(without, story, work, plan):
            return True
    return False


def contents(root: Path) -> dict[str, bytes | None]:
    """Returns all files below a folder (None for folders), except sqlite's shared memory."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
        if not path.name.endswith("-shm")
    }


def library() -> ctypes.CDLL:
    """Returns the sqlite library of this interpreter; skips the test if it cannot be reached."""
    found = find_library()
    if found is None:
        pytest.skip("this interpreter has sqlite built in and does not export its functions")
    return found


@contextmanager
def fast_folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, in memory if possible: the model decides what is durable, not the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    folder = memory / f"tarn-crash-{os.getpid()}-{tmp_path.name}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


async def broken_promises(trace: Trace, story: Story, work: Path, plan: Plan) -> list[str]:
    """Returns the failures, up to `failures_max`; the plan's seed plays each again.

    Args:
        trace: the recorded run, possibly without some syncs.
        story: the same run as its clients saw it.
        work: an empty folder.
        plan: the crashes to examine.
    """
    chance = random.Random(plan.seed)
    failures: list[str] = []
    disk = Disk(trace)
    if plan.near:
        points = _points_near(trace, story.answered_at, plan.near, chance)
    else:
        points = _points(trace, story.answered_at, plan.points, chance)
    for at in points:
        disk.advance(at)
        for choice in range(plan.choices + 2):
            label = {0: "synced", 1: "all"}.get(choice, f"choice {choice - 1}")
            root = work / "left"
            root.mkdir()
            try:
                _rebuild(disk, root, choice, chance)
                if chance.random() < _RECOVERY_CHANCE:
                    label += ", again while opening"
                    await _check_twice(story, root, at, work, power=choice != 1, chance=chance)
                else:
                    await story.check(root, at, power_failed=choice != 1)
            except (LostError, TarnError, sqlite3.Error, OSError) as error:
                failures.append(f"event {at} of {trace.now}, {label}: {error!r}")
                if len(failures) == plan.failures_max:
                    return failures
            finally:
                shutil.rmtree(root)
    return failures


def _points(
    trace: Trace, answered_at: Sequence[int], count: int, chance: random.Random
) -> list[int]:
    """Chooses crash points, half of them right after an answer, where most must be durable."""
    answers = chance.sample(answered_at, min(count // 2, len(answered_at)))
    anywhere = chance.choices(range(trace.now + 1), k=count - len(answers))
    return sorted({*range(min(_FIRST, trace.now)), *answers, *anywhere, trace.now})


def _points_near(
    trace: Trace, answered_at: Sequence[int], near: Sequence[int], chance: random.Random
) -> list[int]:
    """Returns some points after each event, and those of the next answers."""
    points: set[int] = set()
    for index in chance.sample(near, min(_NEAR, len(near))):
        for count in _NEAR_EVENTS:
            end = min(index + count, trace.now)
            points.update(chance.randint(index + 1, end) for _ in range(_NEAR_POINTS))
        points.update(sorted(at for at in answered_at if at > index)[:_NEAR_ANSWERS])
    return sorted(points)


def _rebuild(disk: Disk, root: Path, choice: int, chance: random.Random) -> None:
    if choice == 0:
        rebuild_synced(disk, root)
    elif choice == 1:
        rebuild_all(disk, root)
    else:
        rebuild_some(disk, root, chance)


async def _check_twice(
    story: Story, root: Path, at: int, work: Path, *, power: bool, chance: random.Random
) -> None:
    """Simulates another power failure while the store is opened, checked and closed."""
    with recording(root, library()) as trace:
        await story.check(root, at, power_failed=power, go_on=False)
    disk = Disk(trace)
    for again in sorted({chance.randrange(trace.now + 1) for _ in range(2)}):
        disk.advance(again)
        left = work / "again"
        left.mkdir()
        try:
            _rebuild(disk, left, chance.choice((0, 2)), chance)
            await story.check(left, at, power_failed=True)
        finally:
            shutil.rmtree(left)

"""Plays the commands of a story on real replicas of graveler over one store, and tells what happens.

Each actor calls a replica of its own, with its own caches. One call runs at a time: the player waits until it has
answered, or stands at the step at which the story stops it. Time passes only at commands that say so, and while the
cleaner, the deleter and the collector run. So a replay is the same each time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lake import Lake, Replicas, create_repository
from tests.stories.calls import Calls
from tests.stories.collector import StoryCollector
from tests.stories.script import Script, StoryError
from tests.stories.told_kv import ACTOR, STEPS, Fault, GatedSteps, ToldKv
from tests.stories.words import Names

from tarn_graveler.collection.online_deletion import OnlineSettings

__all__ = ["play"]

_WAIT_SECONDS: Final = 10.0
_DELETION_DELAY_SECONDS: Final = 600.0
_STEP: Final = "|".join(STEPS)
_FAULTS: Final = (
    (re.compile(rf"(stops before|stops after) ({_STEP})"), (1, 2)),
    (re.compile(rf"(loses the answer of) ({_STEP})"), (1, 2)),
    (re.compile(rf"({_STEP}) (is lost|is late)"), (2, 1)),
)


@dataclass(eq=False)
class _Call:
    """A call of an actor that has not answered yet."""

    task: asyncio.Task[str]
    stops: Sequence[Fault]


class _Stage:
    """A repository, the replicas, and the calls that stand still."""

    def __init__(self, replicas: Replicas, kv: GatedSteps, told: ToldKv, names: Names) -> None:
        self.replicas = replicas
        self.kv = kv
        self.told = told
        self.lakes: dict[str, Lake] = {}
        self.standing: dict[str, _Call] = {}
        self.calls = Calls(replicas.blocks, names)

    async def run(self, command: str) -> list[str]:
        """Runs one command; returns what happened."""
        self.told.told.clear()
        for pattern, method in _COMMANDS:
            found = pattern.fullmatch(command)
            if found:
                await method(self, **found.groupdict())
                break
        else:
            raise StoryError(f"no such command: {command}")
        return list(self.told.told)

    # ---- calls

    def _faults(self, actor: str, text: str | None) -> list[Fault]:
        faults: list[Fault] = []
        for part in filter(None, (text or "").split(", ")):
            for pattern, (kind, step) in _FAULTS:
                found = pattern.fullmatch(part)
                if found:
                    faults.append(Fault(actor, found[kind], found[step]))
                    break
            else:
                raise StoryError(f"no such fault: {part}")
        return faults

    async def call(self, actor: str, what: str, faults: str | None) -> None:
        """Starts a call of an actor."""
        if actor in self.standing:
            raise StoryError(f"{actor} stands still: let it go on, or call through another actor")
        stops = self._faults(actor, faults)
        self.kv.faults += stops
        ACTOR.set(actor)
        work = self.calls.begin(self.lakes[actor], what)
        await self._wait(actor, asyncio.get_running_loop().create_task(work), stops)

    async def _wait(self, actor: str, task: asyncio.Task[str], stops: Sequence[Fault]) -> None:
        self.standing[actor] = _Call(task, stops)
        standing = [asyncio.ensure_future(stop.reached.wait()) for stop in stops]
        done, _ = await asyncio.wait(
            [task, *standing], timeout=_WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for each in standing:
            each.cancel()
        if not done:
            raise StoryError(f"{actor} neither answers nor stops")
        if task.done():
            del self.standing[actor]
            for fault in [fault for fault in self.kv.faults if fault.actor == actor]:
                self.kv.faults.remove(fault)
                self.told.tell(f"{actor} did not come to {fault.step}")
            self.told.tell(f"{actor}: {task.result()}")

    async def go_on(self, actor: str, faults: str | None) -> None:
        """Lets an actor go on that stands still."""
        call = self.standing.pop(actor, None)
        if call is None:
            self.told.tell(f"{actor} has its answer already")
            return
        stops = self._faults(actor, faults)
        self.kv.faults += stops
        for stop in call.stops:
            stop.opened.set()
        waiting = [stop for stop in call.stops if not stop.reached.is_set()]
        await self._wait(actor, call.task, [*waiting, *stops])

    async def kill(self, actor: str) -> None:
        """Ends a call as the death of its process does."""
        call = self.standing.pop(actor, None)
        if call is None:
            self.told.tell(f"{actor} has its answer already")
            return
        call.task.cancel()
        await asyncio.wait([call.task])
        self.told.tell(f"{actor} gets no answer")

    async def pass_time(self, number: str, unit: str) -> None:
        """Lets time pass."""
        self.replicas.clock.advance({"minutes": 60, "hours": 3600}[unit] * int(number))

    async def clean(self) -> None:
        """Drops what no record has named for the drop delay."""
        ACTOR.set("cleaner")
        if not await self.lakes["a"].drop_everything_removed():
            self.told.tell("nothing is dropped")

    async def delete_blocks(self) -> None:
        """Looks at the replaced objects, lets the delay pass, and deletes blocks."""
        ACTOR.set("deleter")
        before = await self._blocks()
        for seconds in (_DELETION_DELAY_SECONDS, 0.0):
            for lake in self.lakes.values():
                assert lake.graveler.online is not None
                await lake.graveler.online.step()
            self.replicas.clock.advance(seconds)
        await self._tell_deleted(before)

    async def collect(self) -> None:
        """Runs a garbage collection."""
        ACTOR.set("collector")
        before = await self._blocks()
        lake, clock = self.lakes["a"], self.replicas.clock
        parts = {"blocks": self.replicas.blocks, "kv": self.kv, "clock": clock, "ids": None}
        await StoryCollector(0, lake.graveler, lake.repository, **parts).run()
        await self._tell_deleted(before)

    async def _tell_deleted(self, before: set[str]) -> None:
        deleted = sorted(before - await self._blocks())
        self.told.tell(", ".join(deleted) + " is deleted" if deleted else "no block is deleted")

    async def _blocks(self) -> set[str]:
        repository = self.lakes["a"].repository
        store = self.replicas.blocks
        infos = await store.list_page(repository.storage_namespace, "data/", "", 1000)
        return {f"the block of {int(info.size)} bytes" for info in infos}

    async def close(self) -> None:
        """Ends the calls that stand still."""
        for actor in list(self.standing):
            await self.kill(actor)


_COMMANDS: Final[Sequence[tuple[re.Pattern[str], Callable[..., Awaitable[None]]]]] = [
    (re.compile(pattern), method)
    for pattern, method in (
        (r"(?P<actor>[a-z]): (?P<what>[^,]+)(?:, (?P<faults>.+))?", _Stage.call),
        (r"(?P<actor>[a-z]) goes on(?:, (?P<faults>.+))?", _Stage.go_on),
        (r"(?P<actor>[a-z]) dies", _Stage.kill),
        (r"(?P<number>\d+) (?P<unit>minutes|hours) pass", _Stage.pass_time),
        (r"the cleaner runs", _Stage.clean),
        (r"the deleter runs", _Stage.delete_blocks),
        (r"the collector runs", _Stage.collect),
    )
]


async def play(script: Script, directory: Path) -> list[list[str]]:
    """Plays a story; returns what happened, one list of lines for each command.

    Raises:
        StoryError: a command is not understood, or cannot be carried out.
    """
    names = Names()
    told = ToldKv(names)
    online = OnlineSettings(is_enabled=True, delay_seconds=_DELETION_DELAY_SECONDS)
    replicas = Replicas(directory, told, online=online)
    kv = replicas.kv = GatedSteps(told)
    stage = _Stage(replicas, kv, told, names)
    actors = {command[0] for command in script.commands if command[1:3] in {": ", " g"}} | {"a"}
    async with AsyncExitStack() as stack:
        for resource in (replicas.blocks, kv, replicas.tasks):
            stack.push_async_callback(resource.close)
        gravelers = {
            actor: await stack.enter_async_context(replicas.replica()) for actor in sorted(actors)
        }
        repository = await create_repository(gravelers["a"])
        for actor, graveler in gravelers.items():
            stage.lakes[actor] = Lake(graveler, repository, kv, replicas.clock)
        stack.push_async_callback(stage.close)
        return [await stage.run(command) for command in script.commands]

"""Plays the commands of a story on real replicas of graveler over one store, and tells what happens.

Each actor calls a replica of its own, with its own caches. One call runs at a time: the player waits until it has
answered, or stands at the step at which the story stops it. Time stands still unless the story lets it pass. So a
replay is the same each time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from lake import MAIN, Lake, Replicas, create_repository
from lake_parts import listing
from tests.stories.script import Script, StoryError
from tests.stories.told_kv import ACTOR, STEPS, Fault, GatedSteps, ToldKv
from tests.stories.words import Names, answer_of, listed

from tarn.block.port import BlockKey
from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, etag_of, pack, unpack
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId, physical_path
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.collection.online_deletion import OnlineSettings
from tarn_graveler.uploads.state import NewUpload
from tarn_graveler.versioning.merges import MergeRequest

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
        self.names = names
        self.lakes: dict[str, Lake] = {}
        self.calls: dict[str, _Call] = {}
        self.uploads: dict[str, str] = {}
        self.count = 0

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
        return list(self.told.told) or ["nothing changes"]

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
        if actor in self.calls:
            raise StoryError(f"{actor} stands still: let it go on, or call through another actor")
        stops = self._faults(actor, faults)
        self.kv.faults += stops
        lake = self.lakes[actor]
        ACTOR.set(actor)
        work = self._answer(_call_of(self, lake, what))
        await self._wait(actor, asyncio.get_running_loop().create_task(work), stops)

    async def _answer(self, work: Coroutine[Any, Any, str]) -> str:
        try:
            return await work
        except TarnError as error:
            return answer_of(error, self.names)

    async def _wait(self, actor: str, task: asyncio.Task[str], stops: Sequence[Fault]) -> None:
        self.calls[actor] = _Call(task, stops)
        standing = [asyncio.ensure_future(stop.reached.wait()) for stop in stops]
        done, _ = await asyncio.wait(
            [task, *standing], timeout=_WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for each in standing:
            each.cancel()
        if not done:
            raise StoryError(f"{actor} neither answers nor stops")
        if task.done():
            del self.calls[actor]
            self.kv.faults = [each for each in self.kv.faults if each.actor != actor]
            self.told.tell(f"{actor}: {task.result()}")

    async def go_on(self, actor: str, faults: str | None) -> None:
        """Lets an actor go on that stands still."""
        call = self.calls.pop(actor, None)
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
        call = self.calls.pop(actor)
        call.task.cancel()
        await asyncio.wait([call.task])
        self.told.tell(f"{actor} gets no answer")

    async def arrive(self, actor: str) -> None:
        """Lets a late compare-and-set arrive."""
        late = self.kv.late.pop(actor)
        await late.land()
        if not late.landed:
            self.told.tell("it is not applied: the branch is not what it expects")

    async def pass_time(self, number: str, unit: str) -> None:
        """Lets time pass."""
        self.replicas.clock.advance(int(number) * {"seconds": 1, "minutes": 60}[unit])

    async def clean(self) -> None:
        """Drops what no record has named for the drop delay."""
        ACTOR.set("cleaner")
        await self.lakes["a"].drop_everything_removed()

    async def delete_blocks(self) -> None:
        """Looks at the replaced objects, lets the delay pass, and deletes blocks."""
        before = await self._blocks()
        ACTOR.set("deleter")
        for lake in self.lakes.values():
            assert lake.graveler.online is not None
            await lake.graveler.online.step()
        self.replicas.clock.advance(_DELETION_DELAY_SECONDS)
        for lake in self.lakes.values():
            assert lake.graveler.online is not None
            await lake.graveler.online.step()
        for name in sorted(before - await self._blocks()):
            self.told.tell(f"{name} is deleted")

    async def _blocks(self) -> set[str]:
        repository = self.lakes["a"].repository
        store = self.replicas.blocks
        infos = await store.list_page(repository.storage_namespace, "data/", "", 1000)
        return {f"the block of {int(info.size)} bytes" for info in infos}

    async def close(self) -> None:
        """Ends the calls that stand still."""
        for actor in list(self.calls):
            await self.kill(actor)

    # ---- what actors call

    async def _new(self, lake: Lake, size: int, operation: str = "") -> bytes:
        """Writes a block of `size` bytes; returns the entry that names it."""
        self.count += 1
        now_ms = lake.clock.now_us() // 1000
        address = now_ms.to_bytes(6, "big") + self.count.to_bytes(10, "big")
        key = BlockKey(lake.repository.storage_namespace, physical_path(address))
        await self.replicas.blocks.put(key, bytes(size))
        return pack(Entry(size, 0, address, size.to_bytes(16, "big"), operation_id=operation))

    async def put(self, lake: Lake, path: str, size: str, branch: str | None) -> str:
        packed = await self._new(lake, int(size))
        name = lake.branch(BranchId(branch or MAIN))
        await lake.graveler.staging.stage(name, path, packed, is_new=True)
        return "acknowledged"

    async def put_if(
        self,
        lake: Lake,
        path: str,
        size: str,
        expected: str | None,
        branch: str | None,
    ) -> str:
        condition = WriteCondition(if_none_match=True)
        if expected:
            entry = Entry(int(expected), 0, bytes(16), int(expected).to_bytes(16, "big"))
            condition = WriteCondition(if_match=etag_of(pack(entry)))
        # A repetition by its client has the operation id of the first attempt.
        packed = await self._new(lake, int(size), f"{ACTOR.get()} puts {path} = {size}")
        name = lake.branch(BranchId(branch or MAIN))
        await lake.graveler.conditional.stage(name, path, packed, condition)
        return "acknowledged"

    async def delete(self, lake: Lake, path: str) -> str:
        (error,) = await lake.delete(path)
        if error is not None:
            raise error
        return "acknowledged"

    async def get(self, lake: Lake, path: str, ref: str | None) -> str:
        size = await lake.get(path, ref or "main")
        return f"there is no {path}" if size is None else f"{path} = {size}"

    async def read(self, lake: Lake, path: str) -> str:
        packed = await lake.graveler.reading.lookup(lake.repository, "main", path)
        entry = unpack(packed)
        key = BlockKey(lake.repository.storage_namespace, physical_path(entry.address))
        try:
            await self.replicas.blocks.stat(key)
        except TarnError:
            return f"{path} = {entry.size}, but its block is gone: its bytes are lost"
        return f"{path} = {entry.size}, and its {entry.size} bytes"

    async def copy(self, lake: Lake, source: str, path: str) -> str:
        packed = await lake.graveler.copy_sources.find(lake.repository, "main", source)
        entry = replace(unpack(packed), mtime_us=1)
        await lake.graveler.staging.stage(lake.main, path, pack(entry))
        return "acknowledged"

    async def show(self, lake: Lake, ref: str | None) -> str:
        return listed(sorted((await listing(lake, ref or "main")).items()))

    async def commit(self, lake: Lake, branch: str | None) -> str:
        name = lake.branch(BranchId(branch or MAIN))
        request = CommitRequest(ACTOR.get(), "")
        made = await lake.graveler.committing.commit(name, request)
        return await self._holds(lake, "committed", made.commit_id)

    async def _holds(self, lake: Lake, verb: str, commit_id: Any) -> str:
        held = listed(sorted((await listing(lake, commit_id)).items()))
        return f"{verb} as {self.names.commit(commit_id)}, which holds {held}"

    async def merge(self, lake: Lake, source: str, branch: str) -> str:
        head = await lake.graveler.refs.commit_of(lake.repository, source)
        request = MergeRequest(head, ACTOR.get(), "")
        made = await lake.graveler.merges.merge(lake.branch(BranchId(branch)), request)
        return await self._holds(lake, "merged", made.commit_id)

    async def compact(self, lake: Lake) -> str:
        done = await lake.graveler.compacting.compact(lake.main)
        return done.outcome.name.lower()

    async def branch(self, lake: Lake, branch: str, source: str) -> str:
        head = await lake.graveler.refs.commit_of(lake.repository, source)
        await lake.graveler.branches.create(lake.branch(BranchId(branch)), head)
        return "created"

    async def delete_branch(self, lake: Lake, branch: str) -> str:
        name = lake.branch(BranchId(branch))

        async def announce(tokens: Any) -> None:
            await lake.graveler.drops.announce(name, tokens)

        await lake.graveler.branches.delete(name, announce)
        return "deleted"

    async def restore_branch(self, lake: Lake, branch: str) -> str:
        deletion = await lake.graveler.reflog.deletion(lake.repository, BranchId(branch))
        assert deletion is not None
        assert deletion.old_commit_id is not None
        name = lake.branch(BranchId(branch))
        await lake.graveler.branches.create(name, deletion.old_commit_id, undone=deletion)
        return "restored"

    async def begin_upload(self, lake: Lake, path: str) -> str:
        new = NewUpload(MAIN, path, b"", ACTOR.get(), "", is_full_object_checksum=False)
        made = await lake.graveler.uploads.create(lake.repository, new)
        self.uploads[path] = made.upload_id
        return "begun"

    async def complete_upload(self, lake: Lake, path: str, size: str) -> str:
        uploads, upload_id = lake.graveler.uploads, self.uploads[path]
        claim = await uploads.begin_complete(lake.repository, upload_id, bytes(32))
        if claim.completed_entry:
            return "acknowledged: it was complete already"
        packed = await self._new(lake, int(size), upload_id)
        await uploads.finish_complete(
            lake.repository, upload_id, claim.op_id, packed, WriteCondition()
        )
        return "acknowledged"


_ON: Final = r"(?: on (?P<branch>\w+))?"
_CALLS: Final[Sequence[tuple[re.Pattern[str], Callable[..., Coroutine[Any, Any, str]]]]] = [
    (re.compile(pattern), method)
    for pattern, method in (
        (rf"put (?P<path>\S+) = (?P<size>\d+){_ON}", _Stage.put),
        (
            r"put (?P<path>\S+) = (?P<size>\d+) if "
            rf"(?:it is (?P<expected>\d+)|there is none){_ON}",
            _Stage.put_if,
        ),
        (r"delete branch (?P<branch>\w+)", _Stage.delete_branch),
        (r"delete (?P<path>\S+)", _Stage.delete),
        (r"get (?P<path>\S+)(?: at (?P<ref>\S+))?", _Stage.get),
        (r"read the bytes of (?P<path>\S+)", _Stage.read),
        (r"copy (?P<source>\S+) to (?P<path>\S+)", _Stage.copy),
        (r"list(?: (?P<ref>\S+))?", _Stage.show),
        (r"merge (?P<source>\w+) into (?P<branch>\w+)", _Stage.merge),
        (rf"commit{_ON}", _Stage.commit),
        (r"compact", _Stage.compact),
        (r"create branch (?P<branch>\w+) from (?P<source>\w+)", _Stage.branch),
        (r"restore branch (?P<branch>\w+)", _Stage.restore_branch),
        (r"begin an upload of (?P<path>\S+)", _Stage.begin_upload),
        (r"complete the upload of (?P<path>\S+) = (?P<size>\d+)", _Stage.complete_upload),
    )
]
_COMMANDS: Final[Sequence[tuple[re.Pattern[str], Callable[..., Awaitable[None]]]]] = [
    (re.compile(pattern), method)
    for pattern, method in (
        (r"(?P<actor>[a-z]): (?P<what>[^,]+)(?:, (?P<faults>.+))?", _Stage.call),
        (r"(?P<actor>[a-z]) goes on(?:, (?P<faults>.+))?", _Stage.go_on),
        (r"(?P<actor>[a-z]) dies", _Stage.kill),
        (r"(?P<actor>[a-z])'s late request arrives", _Stage.arrive),
        (r"(?P<number>\d+) (?P<unit>minutes|seconds) pass", _Stage.pass_time),
        (r"the cleaner runs", _Stage.clean),
        (r"the deleter runs", _Stage.delete_blocks),
    )
]


def _call_of(stage: _Stage, lake: Lake, what: str) -> Coroutine[Any, Any, str]:
    for pattern, method in _CALLS:
        found = pattern.fullmatch(what)
        if found:
            return method(stage, lake, **found.groupdict())
    raise StoryError(f"no such call: {what}")


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

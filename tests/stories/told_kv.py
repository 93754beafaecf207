"""A store that tells what changes in it, and stops, loses or delays the steps of a story's actors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from tests.stories.words import Names, content

from tarn.core.branch import Branch
from tarn.core.errors import TarnError
from tarn.core.ids import TokenId
from tarn.kv.keys import path_key, path_of
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, OutcomeUnknownError, Partition, Predicate, Versioned
from tarn.kv.records import decode_branch, is_pending_branch
from tarn.testing.faults.gates import GatedKv, Late

__all__ = ["ACTOR", "STEPS", "Fault", "GatedSteps", "ToldKv"]

ACTOR: ContextVar[str] = ContextVar("ACTOR", default="")
"""Who acts; the tasks that an actor's call starts have it, too."""

ROW, SEAL, LAST, NOTE = "its row", "its seal", "its last step", "its note"
READ, LOOK = "its read of the row", "its look at the branch"
STEPS: Final = (ROW, SEAL, LAST, NOTE, READ, LOOK)
"""The steps of a call that a story can name.

Its row: the write of a staged row. Its seal: the compare-and-set of the branch record that begins a commit, a merge, or
a compaction. Its last step: the one that publishes. Its note: of the address that a copy refers to. Its read of the
row, its look at the branch: the next read of a staged row, and of the branch record.
"""

_BRANCH: Final = b"branches/"
_ROWS: Final = path_key("")
_NOTES: Final = b"copied/"
_TOKEN: Final = re.compile(r"[^:]*:([0-9a-f]{32})")


def _token_of(partition: Partition) -> TokenId | None:
    found = _TOKEN.fullmatch(partition.name.rpartition("/")[2])
    return TokenId(found[1]) if found else None


def _branch_of(value: bytes | None) -> Branch | None:
    return None if value is None or is_pending_branch(value) else decode_branch(value)


class ToldKv(MemKv):
    """Tells each applied change of a branch record and of a staged row, in words."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names
        self.told: list[str] = []

    def row_in_words(self, partition: Partition, key: bytes, value: bytes) -> str:
        """`orders = 1 lands in T1`; empty for what a story does not tell."""
        token = _token_of(partition)
        if token is None:
            return ""
        name = self._names.token(token)
        if key.startswith(_NOTES):
            return f"a note that its object is copied lands in {name}"
        return f"{path_of(key)} {content(value)} lands in {name}" if key.startswith(_ROWS) else ""

    def change_in_words(self, key: bytes, before: bytes | None, after: bytes | None) -> str:
        """`main is now T2 over T1 over C0`; empty if nothing changes for a reader."""
        if not key.startswith(_BRANCH):
            return ""
        name = key.removeprefix(_BRANCH).decode()
        old, new = _branch_of(before), _branch_of(after)
        if new is None:
            return "" if old is None else f"{name} is gone"
        if old is not None and old.same_layers(new):
            return ""
        return f"{name} is now {self._names.layers(new)}"

    def tell(self, line: str) -> None:
        """Adds a line to what happened, unless it is empty."""
        if line:
            self.told.append(line)

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        outcomes = await super().set_many(partition, groups)
        for group, error in zip(groups, outcomes, strict=True):
            for key, value in group.rows if error is None else ():
                self.tell(self.row_in_words(partition, key, value))
        return outcomes

    async def set_if(
        self, partition: Partition, key: bytes, value: bytes, predicate: Predicate | None
    ) -> Predicate:
        before = await self.current(partition, key)
        version = await super().set_if(partition, key, value, predicate)
        self.tell(self.row_in_words(partition, key, value))
        self.tell(self.change_in_words(key, before, value))
        return version

    async def delete_if(self, partition: Partition, key: bytes, predicate: Predicate) -> None:
        before = await self.current(partition, key)
        await super().delete_if(partition, key, predicate)
        self.tell(self.change_in_words(key, before, None))

    async def drop_partition(self, partition: Partition) -> None:
        await super().drop_partition(partition)
        token = _token_of(partition)
        self.tell(f"{self._names.token(token)} is dropped" if token else "")

    async def current(self, partition: Partition, key: bytes) -> bytes | None:
        """Returns the value of a row as it is."""
        (found,) = await MemKv.get_many(self, partition, [key])
        return None if found is None else found.value


@dataclass(eq=False)
class Fault:
    """What happens to the next such step of an actor.

    Attributes:
        kind: `stops before`, `stops after`, `is lost`, `is late`, or `loses the answer of`.
        reached: set when the actor stands there.
        opened: set when the actor goes on.
    """

    actor: str
    kind: str
    step: str
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)


class GatedSteps(GatedKv):
    """Stops, loses and delays steps by their names."""

    def __init__(self, kv: ToldKv) -> None:
        super().__init__(kv)
        self._told = kv
        self.faults: list[Fault] = []
        self.late: dict[str, Late] = {}

    def _next_fault(self, step: str) -> Fault | None:
        fits = (each for each in self.faults if (each.actor, each.step) == (ACTOR.get(), step))
        fault = next(fits, None)
        if fault is not None:
            self.faults.remove(fault)
        return fault

    async def _stand(self, fault: Fault | None, place: str, what: str) -> None:
        if fault is not None and fault.kind == f"stops {place}":
            self._told.tell(
                f"{fault.actor} stops before this: {what}"
                if place == "before"
                else f"{fault.actor} stops"
            )
            fault.reached.set()
            await fault.opened.wait()

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        rows = [row for group in groups for row in group.rows]
        what = next(filter(None, (self._told.row_in_words(partition, *row) for row in rows)), "")
        is_note = any(key.startswith(_NOTES) for key, _ in rows)
        fault = self._next_fault(NOTE if is_note else ROW) if what else None
        await self._stand(fault, "before", what)
        outcomes = await super().set_many(partition, groups)
        await self._stand(fault, "after", what)
        return outcomes

    async def set_if(
        self, partition: Partition, key: bytes, value: bytes, predicate: Predicate | None
    ) -> Predicate:
        before = await self._told.current(partition, key)
        what = self._told.row_in_words(partition, key, value)
        what = what or self._told.change_in_words(key, before, value)
        fault = self._next_fault(_step_of(key, before, value)) if what else None
        await self._stand(fault, "before", what)
        if fault is not None and fault.kind == "is late":
            self.late[fault.actor] = self.delay(key)
            self._told.tell(f"this waits in a queue: {what}")
        if fault is not None and fault.kind in {"is lost", "loses the answer of"}:
            self.lose("set_if", key, applied=fault.kind != "is lost")
        try:
            version = await super().set_if(partition, key, value, predicate)
        except OutcomeUnknownError:
            if fault is not None and fault.kind == "is lost":
                self._told.tell(f"this is lost: {what}")
            elif fault is not None and fault.kind != "is late":
                self._told.tell("the answer is lost")
            raise
        await self._stand(fault, "after", what)
        return version

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        step = ""
        if any(key.startswith(_BRANCH) for key in keys):
            step = LOOK
        elif _token_of(partition) and any(key.startswith(_ROWS) for key in keys):
            step = READ
        fault = self._next_fault(step)
        what = "" if fault is None else _reads(partition, keys, self._told)
        await self._stand(fault, "before", what)
        found = await super().get_many(partition, keys, settle=settle)
        await self._stand(fault, "after", what)
        return found


def _step_of(key: bytes, before: bytes | None, after: bytes) -> str:
    old, new = _branch_of(before) if key.startswith(_BRANCH) else None, None
    if old is None:
        return ROW
    new = _branch_of(after)
    assert new is not None
    is_seal = new.sealed[-len(old.tokens) :] == old.tokens and new.commit_id == old.commit_id
    return SEAL if is_seal else LAST


def _reads(partition: Partition, keys: Sequence[bytes], told: ToldKv) -> str:
    token = _token_of(partition)
    if token is None:
        return "it reads the branch"
    paths = ", ".join(path_of(key) for key in keys if key.startswith(_ROWS))
    return f"it reads {paths} in {told._names.token(token)}"

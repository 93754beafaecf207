"""A store that tells what changes in it, and stops, loses or delays the steps of a story's actors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from tests.stories.script import StoryError
from tests.stories.words import Names, row
from tests.support.faults.gates import GatedKv, Late

from tarn.core.branch import Branch
from tarn.core.entry import address_of
from tarn.core.errors import TarnError
from tarn.core.ids import TokenId
from tarn.kv.keys import COPIED, copied_note, path_key, path_of
from tarn.kv.mem import MemKv
from tarn.kv.port import (
    Group,
    OutcomeUnknownError,
    Partition,
    Predicate,
    PredicateFailedError,
    Row,
    Versioned,
)
from tarn.kv.records import decode_branch, is_pending_branch

__all__ = ["ACTOR", "STEPS", "Fault", "GatedSteps", "ToldKv"]

ACTOR: ContextVar[str] = ContextVar("ACTOR", default="")
"""Who acts; the tasks that an actor's call starts have it, too."""

ROW, SEAL, LAST, NOTE = "its row", "its seal", "its last step", "its note"
READ = "its read of the row"
STEPS: Final = (ROW, SEAL, LAST, NOTE, READ)
"""The steps of a call that a story can name.

Its row: the write of a staged row. Its seal: the compare-and-set of the branch record with which a commit, a merge or a
compaction begins. Its last step: the one that publishes. Its note: of the address that a copy refers to. Its read of
the row: of a staged row.
"""

_BRANCH: Final = b"branches/"
_ROWS: Final = path_key("")
_NOTES: Final = COPIED
_TOKEN: Final = re.compile(r"[^:]*:([0-9a-f]{32})")
_LOST: Final = {"is lost": "this is lost: {}", "loses the answer of": "the answer is lost"}


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
        self._objects: dict[bytes, str] = {}  # by the key of the note that one is copied
        self.told: list[str] = []

    def row_in_words(self, partition: Partition, key: bytes, value: bytes) -> str:
        """`orders = 1 lands in T1`; empty for what a story does not tell."""
        token = _token_of(partition)
        if token is None:
            return ""
        name = self._names.token(token)
        if key.startswith(_NOTES):
            copied = self._objects[key]
            return f"a note that {copied} is copied lands in {name}"
        if not key.startswith(_ROWS):
            return ""
        words = row(path_of(key), value)
        self._objects.setdefault(copied_note(address_of(value) or b""), words)
        return f"{words} lands in {name}"

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

    def name_of(self, token: TokenId) -> str:
        """The name of a token."""
        return self._names.token(token)

    def tell(self, line: str) -> None:
        """Adds a line to what happened, unless it is empty."""
        if line:
            self.told.append(line)

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`."""
        outcomes = await super().set_many(partition, groups)
        for group, error in zip(groups, outcomes, strict=True):
            for key, value in group.rows if error is None else ():
                self.tell(self.row_in_words(partition, key, value))
        return outcomes

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        """See `Kv.set_if`."""
        before = await self.current(partition, key)
        version = await super().set_if(partition, key, value, predicate, companions=companions)
        self.tell(self.row_in_words(partition, key, value))
        self.tell(self.change_in_words(key, before, value))
        return version

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        """See `Kv.delete_if`."""
        before = await self.current(partition, key)
        await super().delete_if(partition, key, predicate, companions=companions)
        self.tell(self.change_in_words(key, before, None))

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
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


@dataclass(eq=False, kw_only=True)
class _ToldLate(Late):
    """A late compare-and-set that tells when it arrives."""

    tell: Callable[[str], None]

    async def land(self) -> None:
        """See `Late.land`."""
        self.tell("what waited in the queue arrives" if self.request is not None else "")
        await super().land()


class GatedSteps(GatedKv):
    """Stops, loses and delays steps by their names."""

    def __init__(self, kv: ToldKv) -> None:
        super().__init__(kv)
        self._told = kv
        self.faults: list[Fault] = []

    def delay(self, key: bytes) -> Late:
        """See `GatedKv.delay`."""
        late = _ToldLate(key, tell=self._told.tell)
        self._late.append(late)
        return late

    @asynccontextmanager
    async def _at(self, step: str, operation: str, key: bytes, what: str) -> AsyncIterator[None]:
        """Does to a step what the story says.

        Args:
            step: one of `STEPS`; empty: none.
            operation: of the store.
            key: of the row.
            what: the step in words.
        """
        fits = (each for each in self.faults if (each.actor, each.step) == (ACTOR.get(), step))
        fault = next(fits, None)
        if fault is None:
            yield
            return
        self.faults.remove(fault)
        await self._stand(fault, "before", what)
        if fault.kind in _LOST:
            self.lose(operation, key, applied=fault.kind != "is lost")
        elif fault.kind == "is late":
            if operation != "set_if":
                raise StoryError(f"{step} is no compare-and-set, and cannot be late")
            self.delay(key)
            self._told.tell(f"this waits in a queue: {what}")
        try:
            yield
        except OutcomeUnknownError:
            self._told.tell(_LOST.get(fault.kind, "").format(what))
            raise
        await self._stand(fault, "after", what)

    async def _stand(self, fault: Fault, place: str, what: str) -> None:
        if fault.kind == f"stops {place}":
            self._told.tell(f"{fault.actor} stops {place} this: {what}")
            fault.reached.set()
            await fault.opened.wait()

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`."""
        for group in groups:
            for key, value in group.rows:
                if what := self._told.row_in_words(partition, key, value):
                    step = NOTE if key.startswith(_NOTES) else ROW
                    async with self._at(step, "set_many", key, what):
                        return await super().set_many(partition, groups)
        return await super().set_many(partition, groups)

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        """See `Kv.set_if`."""
        before = await self._told.current(partition, key)
        what = self._told.row_in_words(partition, key, value)
        what = what or self._told.change_in_words(key, before, value)
        step = _step_of(key, before, value) if what else ""
        async with self._at(step, "set_if", key, what):
            try:
                return await super().set_if(partition, key, value, predicate, companions=companions)
            except PredicateFailedError:
                self._told.tell(f"the store refuses this: {what}" if what else "")
                raise

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`."""
        token = _token_of(partition)
        paths = ", ".join(path_of(key) for key in keys if key.startswith(_ROWS))
        if token is None or not paths:
            return await super().get_many(partition, keys, settle=settle)
        what = f"it reads {paths} in {self._told.name_of(token)}"
        async with self._at(READ, "get_many", keys[0], what):
            return await super().get_many(partition, keys, settle=settle)


def _step_of(key: bytes, before: bytes | None, after: bytes) -> str:
    if not key.startswith(_BRANCH):
        return ROW
    old, new = _branch_of(before), _branch_of(after)
    if old is None or new is None:
        return ""
    is_seal = new.sealed[-len(old.tokens) :] == old.tokens and new.commit_id == old.commit_id
    return SEAL if is_seal else LAST

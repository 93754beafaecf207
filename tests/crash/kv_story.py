"""A run of the embedded store, and the state that a crash must leave.

All writes go through one queue, so the remaining state is that after the first n writes: at least all
acknowledged ones, at most all that were sent.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.examine import LostError
from tests.support.crash.trace import Trace

from tarn.kv.embedded import EmbeddedKv, EmbeddedLimits, open_embedded
from tarn.kv.embedded.sql import Durability
from tarn.kv.port import Group, Partition, PartitionKind, Predicate, PredicateFailedError

PLAINS = tuple(Partition(f"staging/{number}", PartitionKind.PLAIN) for number in range(3))
REGISTERS = tuple(Partition(f"refs/{number}", PartitionKind.REGISTER) for number in range(2))
LARGE = Partition("dropped", PartitionKind.PLAIN)
PROBE = Partition("probe", PartitionKind.REGISTER)
LIMITS = EmbeddedLimits(log_bytes_max=256 << 10)
FILE = Path("data/kv/kv.db")
_DROP_ROWS = 2000  # of one step of a drop; each step is a transaction

RowName = tuple[Partition, bytes]
Rows = dict[RowName, bytes]
Effect = dict[RowName, bytes | None]
"""The changes of one atomic write; None removes a row."""


@dataclass(slots=True)
class _Write:
    effect: Effect
    sent_at: int
    answered_at: int | None
    digest: int


@dataclass(slots=True)
class KvStory:
    """The writes of a run, in the order of the queue, as its only client knows them."""

    durability: Durability
    answered_at: list[int] = field(default_factory=list)
    rows: Rows = field(default_factory=dict)
    writes: list[_Write] = field(default_factory=list)
    versions: dict[tuple[Partition, bytes, bytes], tuple[Predicate, int]] = field(
        default_factory=dict
    )
    """The version of a value, and when it was returned, by partition, key and value (values do not repeat)."""
    _digest: int = 0

    def send(self, effect: Effect, at: int) -> _Write:
        """Records a write; the caller adds its answer."""
        for name, value in effect.items():
            old = self.rows.pop(name, None)
            if old is not None:
                self._digest ^= hash((name, old))
            if value is not None:
                self.rows[name] = value
                self._digest ^= hash((name, value))
        self.writes.append(write := _Write(effect, at, None, self._digest))
        return write

    async def check(self, root: Path, at: int, *, power_failed: bool, go_on: bool = True) -> None:
        """See `Story.check`."""
        answered = sum(
            write.answered_at is not None and write.answered_at <= at for write in self.writes
        )
        # A write without an effect may be sent and answered between two events.
        sent = max(answered, sum(write.sent_at < at for write in self.writes))
        least = 0 if power_failed and self.durability == "os" else answered
        kv = await open_embedded(root / FILE, durability=self.durability, limits=LIMITS)
        try:
            found = await _read(kv)
            await self._check_versions(kv, found, at)
            self._check_rows(found, least, sent)
            if go_on and any(name[0] == LARGE for name in found):
                await kv.drop_partition(LARGE)
                if await kv.scan(LARGE, b"", None, 1):
                    raise LostError("a drop that was cut short cannot be finished")
            with closing(sqlite3.connect(root / FILE)) as connection:
                if (told := connection.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
                    raise LostError(f"the file is damaged: {told}")
        finally:
            await kv.close()

    def _check_rows(self, found: Rows, least: int, most: int) -> None:
        digest = 0
        for row in found.items():
            digest ^= hash(row)
        states = [0, *(write.digest for write in self.writes[:most])]
        if digest in states[least:]:
            return
        wanted: Rows = {}
        for write in self.writes[:least]:
            for name, value in write.effect.items():
                wanted.pop(name, None)
                if value is not None:
                    wanted[name] = value
        raise LostError(
            f"neither what {least} nor what up to {most} writes made (what {digest in states} made)."
            f" Beside the former, missing: {_shown(wanted.items() - found.items())};"
            f" more: {_shown(found.items() - wanted.items())}"
        )

    async def _check_versions(self, kv: EmbeddedKv, found: Rows, at: int) -> None:
        for (partition, key), value in found.items():
            known, _ = self.versions.get((partition, key, value), (None, 0))
            if known is not None:
                (stored,) = await kv.get_many(partition, [key])
                if stored is None or stored.predicate != known:
                    raise LostError(f"{key!r} has another version than its writer was told")
        taken = await kv.set_if(PROBE, b"probe", b"", None)
        await kv.delete_if(PROBE, b"probe", taken)
        if any(taken == given and told <= at for given, told in self.versions.values()):
            raise LostError(f"the version {taken.hex()} was given out twice")


async def _read(kv: EmbeddedKv) -> Rows:
    found: Rows = {}
    for partition in (*PLAINS, *REGISTERS, LARGE):
        for key, value in await kv.scan(partition, b"", None, 10_000):
            found[partition, key] = value
    await kv.drop_partition(PROBE)  # by a check whose machine crashed, too
    return found


def _shown(rows: set[tuple[RowName, bytes]]) -> str:
    names = sorted((name[0].name, name[1]) for name, _ in rows)
    return f"{names[:4]} ({len(names)})"


class KvRun:
    """Plays a seeded run on a store whose folder is recorded."""

    def __init__(self, trace: Trace, seed: int, durability: Durability) -> None:
        self.story = KvStory(durability)
        self._trace = trace
        self._chance = random.Random(seed)
        self._path = trace.root / FILE
        self._count = 0

    async def play(self, rounds: int) -> KvStory:
        """Plays `rounds` rounds and returns the story; the operations of a round run concurrently."""
        kv = await self._open()
        kinds = (
            [self._set_groups] * 6 + [self._compare] * 5 + [self._delete] * 2
            + [self._burst, self._drop_small]
        )  # fmt: skip
        for number in range(rounds):
            if number % 15 == 14:
                await kv.close()  # the last connection empties and removes the log
                kv = await self._open()
            elif number == rounds // 2:
                await self._fill_and_drop(kv)
            else:
                await self._chance.choice(kinds)(kv)
        await kv.close()
        return self.story

    async def _open(self) -> EmbeddedKv:
        return await open_embedded(self._path, durability=self.story.durability, limits=LIMITS)

    def _value(self, size_max: int = 3000) -> bytes:
        self._count += 1
        return b"%d/" % self._count + self._chance.randbytes(self._chance.randint(1, size_max))

    async def _together(self, calls: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Sends writes in order, in one tick of the loop, and records when all are answered."""
        first = len(self.story.writes)
        async with asyncio.TaskGroup() as tasks:
            for call in calls:
                tasks.create_task(call)
        for write in self.story.writes[first:]:
            write.answered_at = self._trace.now
        self.story.answered_at.append(self._trace.now)

    async def _set_groups(self, kv: EmbeddedKv) -> None:
        def groups(partition: Partition) -> list[Group]:
            made = []
            for _ in range(self._chance.randint(1, 3)):
                key = b"%03d" % self._chance.randrange(60)
                made.append(Group(key, ((key, self._value()), (key + b"/event", self._value(100)))))
            return made

        async def call(partition: Partition, made: list[Group]) -> None:
            for group in made:
                effect: Effect = {(partition, key): value for key, value in group.rows}
                self.story.send(effect, self._trace.now)
            assert await kv.set_many(partition, made) == [None] * len(made)

        chosen = [self._chance.choice(PLAINS) for _ in range(self._chance.randint(1, 6))]
        await self._together([call(partition, groups(partition)) for partition in chosen])

    async def _compare(self, kv: EmbeddedKv) -> None:
        story = self.story

        async def call(partition: Partition, key: bytes) -> None:
            old = story.rows.get((partition, key))
            predicate = None if old is None else story.versions[partition, key, old][0]
            fate = self._chance.random()
            if fate < 0.15:  # a lost race
                stale = Predicate(bytes(12)) if predicate is None else None
                try:
                    await kv.set_if(partition, key, b"lost", stale)
                except PredicateFailedError:
                    return
                raise AssertionError("a lost race was won")
            if fate < 0.3 and predicate is not None:
                story.send({(partition, key): None}, self._trace.now)
                await kv.delete_if(partition, key, predicate)
                return
            value = self._value(400)
            story.send({(partition, key): value}, self._trace.now)
            version = await kv.set_if(partition, key, value, predicate)
            story.versions[partition, key, value] = version, self._trace.now

        names = {
            (self._chance.choice(REGISTERS), b"%02d" % self._chance.randrange(12)): None
            for _ in range(self._chance.randint(1, 5))
        }
        await self._together([call(partition, key) for partition, key in names])

    async def _delete(self, kv: EmbeddedKv) -> None:
        partition = self._chance.choice(PLAINS)
        keys = [b"%03d" % self._chance.randrange(60) for _ in range(5)]

        async def call() -> None:
            self.story.send({(partition, key): None for key in keys}, self._trace.now)
            await kv.delete_many(partition, keys)

        await self._together([call()])

    async def _burst(self, kv: EmbeddedKv) -> None:
        """Writes more than the bound of the log in a few transactions."""

        async def call(key: bytes) -> None:
            value = self._value(100) + bytes(30_000)
            self.story.send({(PLAINS[0], key): value}, self._trace.now)
            assert await kv.set_many(PLAINS[0], [Group(key, ((key, value),))]) == [None]

        await self._together([call(b"large/%d" % number) for number in range(10)])

    async def _drop_small(self, kv: EmbeddedKv) -> None:
        await self._drop(kv, self._chance.choice(PLAINS))

    async def _fill_and_drop(self, kv: EmbeddedKv) -> None:
        """Creates and drops a partition whose drop takes several steps."""
        names = [b"%05d" % number for number in range(_DROP_ROWS + 300)]
        groups = [
            Group(names[at], tuple((name, name) for name in names[at : at + 100]))
            for at in range(0, len(names), 100)
        ]

        async def fill() -> None:
            for group in groups:
                effect: Effect = {(LARGE, key): value for key, value in group.rows}
                self.story.send(effect, self._trace.now)
            assert await kv.set_many(LARGE, groups) == [None] * len(groups)

        await self._together([fill()])
        await self._drop(kv, LARGE)

    async def _drop(self, kv: EmbeddedKv, partition: Partition) -> None:
        by_partition = defaultdict(list)
        for name in sorted(self.story.rows, key=lambda name: name[1]):
            by_partition[name[0]].append(name)
        names = by_partition[partition]

        async def call() -> None:
            for at in range(0, len(names), _DROP_ROWS):
                effect: Effect = dict.fromkeys(names[at : at + _DROP_ROWS])
                self.story.send(effect, self._trace.now)
            await kv.drop_partition(partition)

        await self._together([call()])

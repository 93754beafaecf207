"""The events of records (docs/design/journal.md), in runs whose replicas keep events.

The links of all processes are watched. Each event must be registered, by its exact key and for the version that its
change expects, before the change is sent. At the end, and before a partition is dropped, each acknowledged change must
have its event, no change that was refused may have one, and each record must be what its newest event says. Each event
must be in a file of the bucket, as it is in the store, before a drain removes it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim.told import untold
from tests.support.sim.link import KvLink, Wire

from tarn.block.port import BlockKey
from tarn.journal.events import rows_of
from tarn.journal.files import decode_file
from tarn.kv.port import (
    COMPANION_KEYS,
    Companion,
    CompanionName,
    Group,
    Kv,
    Partition,
    Predicate,
    PredicateFailedError,
    Row,
)
from tarn.kv.record_kinds import Place, kind_of, place_of
from tarn_proto.store.v1 import journal_pb2 as pb

if TYPE_CHECKING:
    from tests.sim.world import World

    from tarn.core.errors import TarnError

__all__ = ["JournaledRecords", "WatchedLink"]

_REGISTRATIONS = "sim/journal/"
_FILE = re.compile(r"^_tarn/journal/.*/[0-9a-f]{32}-[0-9]{10}-[0-9a-f]{64}\.parquet$")
_Row = tuple[bytes, int, str, bytes]
"""Id, order, key and payload of an event."""


class _State(enum.Enum):
    SENT = "sent"
    MADE = "made"
    REFUSED = "refused"


@dataclass
class _Change:
    """A change of a record that a process has sent; `payload` is what its event must say."""

    payload: bytes
    state: _State = _State.SENT


class JournaledRecords:
    """The changes of records of a run, and their events."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._registered: dict[bytes, pb.JournalRegistration] = {}
        self._changes: dict[tuple[str, bytes], list[_Change]] = {}
        self._places: dict[str, Place] = {}
        self._removed: dict[str, dict[bytes, Companion]] = {}
        self._files: dict[BlockKey, set[_Row]] = {}
        self.events = 0

    def rebuilt(self, name: str, rows: Mapping[bytes, bytes]) -> None:
        """Notes the records that a store begins with; the base of its epoch has them, with the order 0."""
        place = place_of("sim", name)
        assert place is not None, "it has records"
        self._places[name] = place
        for key, value in rows.items():
            if (kind := kind_of(place, key)).is_journaled:
                told = kind.told(value)
                event = pb.JournalEvent(key=key.decode(), payload=told).SerializeToString()
                known = self._removed.setdefault(name, {})
                known[b"base/" + key] = Companion(b"base/" + key, event, 0)
                self._changes[name, key] = [_Change(told, _State.MADE)]

    def begin(
        self,
        partition: Partition,
        key: bytes,
        value: bytes | None,
        predicate: Predicate | None,
        companions: Sequence[Row],
    ) -> _Change | None:
        """Notes a change that is about to be sent; None: it is not of a record of the journal."""
        place = place_of("sim", partition.name)
        if place is None or not (kind := kind_of(place, key)).is_journaled:
            return None
        change = _Change(b"" if value is None else kind.told(value))
        self._changes.setdefault((partition.name, key), []).append(change)
        for event_key, _ in companions:
            found = self._registered.get(event_key)
            expected = predicate or b""
            if found is None or (found.key, found.expected) != (key, expected):
                self._problem(f"the event of {key!r} is sent before it is registered")
        return change

    def made(self, partition: Partition, change: _Change) -> None:
        """Notes that a change was acknowledged."""
        change.state = _State.MADE
        if (place := place_of("sim", partition.name)) is not None:
            self._places.setdefault(partition.name, place)

    def wrote(
        self, partition: Partition, groups: Sequence[Group], outcomes: Sequence[TarnError | None]
    ) -> None:
        """Notes registrations, and rows of records in a plain partition."""
        for group, outcome in zip(groups, outcomes, strict=True):
            if partition.name.startswith(_REGISTRATIONS) and outcome is None:
                for _, value in group.rows:
                    record = pb.JournalRegistration.FromString(value)
                    self._registered[record.event_key] = record
            for key, value in group.rows:
                events = [row for row in group.companions if row[0].startswith(COMPANION_KEYS)]
                change = self.begin(partition, key, value, None, events)
                if change is not None and outcome is None:
                    self.made(partition, change)

    async def look(self, name: str) -> None:
        """Compares a partition with its events, if it has records, for the last time."""
        if (place := self._places.pop(name, None)) is None:
            return
        rows, left = await self._world.store.peek(name)
        companions = [*({each.key: each for each in left} | self._removed.get(name, {})).values()]
        self.events += len(companions)
        for text in untold(place, rows, companions):
            self._problem(f"{text}, in {name}")
        self._compare(name, companions)

    def _compare(self, name: str, companions: Sequence[Companion]) -> None:
        told: dict[bytes, set[bytes]] = {}
        for each in companions:
            event = pb.JournalEvent.FromString(each.value)
            told.setdefault(event.key.encode(), set()).add(event.payload)
        for (partition, key), changes in self._changes.items():
            if partition != name:
                continue
            made = {each.payload for each in changes if each.state is _State.MADE}
            may_be = {each.payload for each in changes if each.state is _State.SENT}
            if made - told.get(key, set()):
                self._problem(f"no event was written for an acknowledged change of {key!r}")
            if told.get(key, set()) - made - may_be:
                self._problem(f"{key!r} has an event of a change that was not made")

    async def removing(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """Notes the events that a drain is about to remove; some may be gone already."""
        keys = {key for _, key in names}
        _, companions = await self._world.store.peek(partition.name)
        removed = self._removed.setdefault(partition.name, {})
        told = await self._told()
        for each in companions:
            if each.key not in keys:
                continue
            event = pb.JournalEvent.FromString(each.value)
            event_id = each.key.removeprefix(COMPANION_KEYS)
            if (event_id, each.order, event.key, event.payload) not in told:
                self._problem(f"the event of {event.key!r} is removed, and is in no file")
            removed[each.key] = each
            self._world.statistics["journal: events of records removed"] += 1

    async def _told(self) -> set[_Row]:
        """What the files of all journals say at this moment, whether their passes have ended or not."""
        blocks = self._world.blocks
        held = [
            BlockKey(namespace, path)
            for namespace, paths in blocks._namespaces.items()
            for path in paths
            if _FILE.search(path)
        ]
        for key in held:
            if key not in self._files:
                _, table = decode_file(key.path, await blocks.read(key))
                rows = [row for row in rows_of(table) if not row.token]
                self._files[key] = {(r.event_id, r.order, r.key, r.payload) for r in rows}
        return set().union(*self._files.values())

    async def finish(self) -> None:
        """Looks at all partitions that are left."""
        for name in list(self._places):
            await self.look(name)
        self._world.statistics["journal: events of records"] += self.events

    def _problem(self, text: str) -> None:
        self._world.problem(text)


class WatchedLink(KvLink):
    """The link of a process; what it changes is noted if the run has events."""

    def __init__(self, world: World, kv: Kv, wire: Wire, page_rows: int) -> None:
        super().__init__(kv, wire, page_rows)
        self._records = world.journaled.records if world.plan.keeps_events else None

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`."""
        outcomes = await super().set_many(partition, groups)
        if self._records is not None:
            self._records.wrote(partition, groups, outcomes)
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
        change = self._begin(partition, key, value, predicate, companions)
        try:
            made = await super().set_if(partition, key, value, predicate, companions=companions)
        except PredicateFailedError:
            if change is not None:
                change.state = _State.REFUSED
            raise
        self._made(partition, change)
        return made

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        """See `Kv.delete_if`."""
        change = self._begin(partition, key, None, predicate, companions)
        try:
            await super().delete_if(partition, key, predicate, companions=companions)
        except PredicateFailedError:
            if change is not None:
                change.state = _State.REFUSED
            raise
        self._made(partition, change)

    def _begin(
        self,
        partition: Partition,
        key: bytes,
        value: bytes | None,
        predicate: Predicate | None,
        companions: Sequence[Row],
    ) -> _Change | None:
        if self._records is None:
            return None
        return self._records.begin(partition, key, value, predicate, companions)

    def _made(self, partition: Partition, change: _Change | None) -> None:
        if self._records is not None and change is not None:
            self._records.made(partition, change)

    async def delete_companions(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """See `Kv.delete_companions`."""
        if self._records is not None:
            await self._records.removing(partition, names)
        await super().delete_companions(partition, names)

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
        if self._records is not None:
            await self._records.look(partition.name)
        await super().drop_partition(partition)

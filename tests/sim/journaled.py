"""The journal (docs/design/journal.md), in runs whose replicas keep events and drain them.

A look at a token sees every node at one moment. The newest row of each path must be that of its newest event, by the
order of the store: a row and its event are one request. Tokens are looked at when they are dropped, and at the end.

At the end everything is drained once more, and the files are read from the bucket alone: each acknowledged write must
be among their events, nothing may be that was never in the store, and what a rebuild would make of a token that a
record still names must be its rows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sim.journaled_records import JournaledRecords
from tests.support.check.history import OpKind, Outcome
from tests.support.drained_files import Files, read_files

from tarn.core.entry import is_tombstone
from tarn.core.ids import BranchId
from tarn.journal.events import EventRow, operation_name
from tarn.kv.keys import PATHS_END, PATHS_START, path_of
from tarn.kv.port import COMPANION_KEYS
from tarn_graveler.journal.epochs import JournalPlace
from tarn_proto.store.v1 import journal_pb2 as pb

if TYPE_CHECKING:
    from tests.sim.world import Replica, World

__all__ = ["REBUILT", "Journaled"]

REBUILT = "rebuild"
"""Who wrote what a rebuilt store begins with: the base of its epoch has that."""


class Journaled:
    """What the tokens of a run held, and its files.

    Attributes:
        drained: the values that events in files have put to paths.
        events: the events that were seen in the store: the value of each, by its partition, key and order.
        records: the same for records.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.drained: set[tuple[str, int]] = set()
        self.events: dict[tuple[str, bytes, int], bytes] = {}
        self.records = JournaledRecords(world)

    async def look(self, token: str) -> dict[str, tuple[int, bytes]]:
        """Compares the rows of a token with its events, and returns the newest of each path.

        Args:
            token: the name of its partition.
        """
        rows, companions = await self._world.store.peek(token)
        newest: dict[str, tuple[int, bytes]] = {}
        for each in companions:
            event = pb.JournalEvent.FromString(each.value)
            self.events[token, each.key, each.order] = each.value
            newest[event.key] = max(newest.get(event.key, (-1, b"")), (each.order, event.payload))
        for key, row in rows.items():
            if PATHS_START <= key < PATHS_END and newest.get(path_of(key), (0, b""))[1] != row:
                self._world.problem(f"the row of {path_of(key)} in {token} is not its newest event")
        return newest

    async def finish(self, last: Replica) -> None:
        """Drains what is left through a replica, and compares the files with the store and the history."""
        drain = last.graveler.drain
        assert drain is not None
        places = [place async for place in drain._places([])]
        for place in places:
            await drain.drain(place, is_full=True)
        left = {name: await self.look(name) for name in self._world.store.token_names()}
        with tempfile.TemporaryDirectory() as folder:
            for place in places:
                path = Path(folder) / place.root.replace("/", "-")
                files = await read_files(self._world.blocks, place.namespace, path)
                self._compare(place, files, left)
        for op in self._world.history.ops:
            is_put = op.kind is OpKind.PUT and op.outcome is Outcome.OK
            if not is_put or not op.key or not op.value or op.proc == REBUILT:
                continue
            if (op.key, self._world.values.same(op.value)) not in self.drained:
                self._world.problem(f"no event is in the files for {op.line()}")
        self._world.statistics["journal: events"] += len(self.events)
        await self.records.finish()

    def _compare(
        self, place: JournalPlace, files: Files, left: dict[str, dict[str, tuple[int, bytes]]]
    ) -> None:
        """Compares the files of one repository with what its tokens hold, or held when they were dropped."""
        world = self._world
        if files.report is None:
            world.problem(f"no epoch of the journal of {place.namespace} has begun")
            return
        for text in files.report.lines():
            if "never ended" not in text:  # of a pass whose process died
                world.problem(f"events of the journal are missing: {text}")
        newest: dict[str, dict[str, tuple[int, bytes]]] = {}
        for row in files.events:
            if not row.token:
                continue
            token = f"{place.root}/{BranchId(row.branch)}:{row.token}"
            if not self._was_stored(token, row):
                world.problem(f"event {row} of the files was never in the store")
            known = newest.setdefault(token, {})
            known[row.key] = max(known.get(row.key, (-1, b"")), (row.order, row.payload))
            if not is_tombstone(row.payload):
                value = world.values.of(row.payload)
                self.drained.add((row.key, world.values.same(value)))
        for token, rows in left.items():
            if token.startswith(f"{place.root}/") and rows and rows != newest.get(token):
                world.problem(f"the files have other events of {token} than the store")
        world.statistics["journal: files"] += files.report.files

    def _was_stored(self, token: str, row: EventRow) -> bool:
        key = COMPANION_KEYS + row.event_id
        if (value := self.events.get((token, key, row.order))) is None:
            # A later attempt has a key of its own, which files do not have.
            return any(
                name == token and order == row.order and _is(row, event)
                for (name, _, order), event in self.events.items()
            )
        return _is(row, value)


def _is(row: EventRow, value: bytes) -> bool:
    event = pb.JournalEvent.FromString(value)
    told = row.key, row.payload, row.operation
    return told == (event.key, event.payload, operation_name(event.operation))

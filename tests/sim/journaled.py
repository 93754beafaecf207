"""The events of objects beside their rows (docs/design/journal.md), in runs whose replicas keep events.

A look at a token sees every node at one moment. The newest row of each path must be that of its newest event, by the
order of the store: a row and its event are one request. Tokens are looked at when they are dropped, and at the end.
What a drain could have read until then counts as drained. Each acknowledged write must be among it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.journaled_records import JournaledRecords
from tests.support.check.history import OpKind, Outcome

from tarn.core.entry import is_tombstone
from tarn.kv.keys import PATHS_END, PATHS_START, path_of
from tarn_proto.store.v1 import journal_pb2 as pb

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["Journaled"]


class Journaled:
    """What the tokens of a run held.

    Attributes:
        drained: the values that events have put to paths.
        events: the events that were seen.
        records: the same for records.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.drained: set[tuple[str, int]] = set()
        self.events: dict[tuple[str, bytes], bytes] = {}
        self.records = JournaledRecords(world)

    async def look(self, token: str) -> None:
        """Compares the rows of a token with its events; `token` is the name of its partition."""
        rows, companions = await self._world.store.peek(token)
        newest: dict[str, tuple[int, bytes]] = {}
        for each in companions:
            event = pb.JournalEvent.FromString(each.value)
            self.events[token, each.key] = each.value
            newest[event.key] = max(newest.get(event.key, (-1, b"")), (each.order, event.payload))
            if not is_tombstone(event.payload):
                value = self._world.values.of(event.payload)
                self.drained.add((event.key, self._world.values.same(value)))
        for key, row in rows.items():
            if PATHS_START <= key < PATHS_END and newest.get(path_of(key), (0, b""))[1] != row:
                self._world.problem(f"the row of {path_of(key)} in {token} is not its newest event")

    async def finish(self) -> None:
        """Looks at all tokens that are left, and for the acknowledged writes."""
        for token in self._world.store.token_names():
            await self.look(token)
        for op in self._world.history.ops:
            is_put = op.kind is OpKind.PUT and op.outcome is Outcome.OK
            if not is_put or not op.key or not op.value:
                continue
            if (op.key, self._world.values.same(op.value)) not in self.drained:
                self._world.problem(f"no event was written for {op.line()}")
        self._world.statistics["journal: events"] += len(self.events)
        await self.records.finish()

"""The events of records in a pass: found by their registrations (`tarn.kv.registrations`).

They are read after the branches of a pass. So the file has the event of every record that the pass has seen, and maybe
later ones: a token that only these name took its first row after the pass began.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from tarn.core.clock import Clock
from tarn.journal.events import BRANCHES, EventRow, event_row
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Companion, Kv
from tarn.kv.record_kinds import Place, place_of
from tarn.kv.records import parse_record
from tarn.kv.registrations import Registration, Registrations, find_event, hour_of, is_complete
from tarn_proto.store.v1 import journal_pb2 as pb

__all__ = ["DrainedRecord", "RecordEvents"]

_OF_REPOSITORIES: Final = {Place.REFS, Place.COMMITS, Place.PULLS}
_HOURS_BACK: Final = 24
"""How far back the first look goes: a process may have registered before anything was drained."""


@dataclass(frozen=True, slots=True)
class DrainedRecord:
    """A registration that is done once the file of the pass is there.

    Attributes:
        hour: in which it is registered.
        row: the event; None: it will never be there.
    """

    hour: int
    registration: Registration
    row: EventRow | None


class RecordEvents:
    """Finds and finishes the registrations of an installation.

    Attributes:
        first_hour: hours since 1970 before it have no registrations left.
    """

    def __init__(self, kv: Kv, keys: InstallationKeys, clock: Clock) -> None:
        self._kv = kv
        self._keys = keys
        self._clock = clock
        self._registrations = Registrations(kv, keys, clock)
        self.first_hour = 0

    def begin(self, first_hour: int) -> None:
        """Begins a round with what the record of the drain says; 0: nothing was drained before."""
        first = first_hour or hour_of(self._clock.now_us()) - _HOURS_BACK
        self.first_hour = max(self.first_hour, first)

    def _hours(self) -> range:
        # A row counts only in the hour of its process, whose clock may be ahead.
        return range(self.first_hour, hour_of(self._clock.now_us()) + 2)

    def root_of(self, registration: Registration) -> str:
        """The root of the repository that a record belongs to; of another record, the installation."""
        name = registration.partition.name
        if place_of(self._keys.installation_id, name) not in _OF_REPOSITORIES:
            return self._keys.installation_id
        return "/".join(name.split("/")[:2])

    async def roots(self) -> set[str]:
        """Returns what has registrations that are not done. Forgets hours that are complete and have none."""
        found: set[str] = set()
        for hour in self._hours():
            some = [self.root_of(each) async for each in self._registrations.registered(hour)]
            found.update(some)
            is_done = not some and is_complete(hour, self._clock.now_us())
            if is_done and hour == self.first_hour:
                await self._registrations.forget(hour)
                self.first_hour = hour + 1
        return found

    async def of(self, root: str) -> list[DrainedRecord]:
        """Returns the events of a root that are there now, and registrations whose events will never be there."""
        found = []
        for hour in self._hours():
            async for each in self._registrations.registered(hour):
                if self.root_of(each) != root:
                    continue
                state = await find_event(self._kv, each, self._clock.now_us())
                if state.event is not None:
                    found.append(DrainedRecord(hour, each, _row(each, state.event)))
                elif state.is_over:
                    found.append(DrainedRecord(hour, each, None))
        return found

    async def of_dead(self, roots: Iterable[str]) -> list[DrainedRecord]:
        """Returns the registrations of roots that have no journal any more."""
        wanted = set(roots)
        return [
            DrainedRecord(hour, each, None)
            for hour in self._hours()
            async for each in self._registrations.registered(hour)
            if self.root_of(each) in wanted
        ]

    async def finish(self, drained: Sequence[DrainedRecord]) -> None:
        """Marks registrations as done: their file is in the bucket.

        Raises:
            TarnError: some may not be marked; their events come again.
        """
        by_hour = sorted(drained, key=lambda each: each.hour)
        for hour, some in groupby(by_hour, key=lambda each: each.hour):
            await self._registrations.finish(hour, [each.registration for each in some])


def _row(registration: Registration, found: Companion) -> EventRow:
    event = parse_record(pb.JournalEvent(), found.value)
    key = registration.key.decode()
    branch = key.removeprefix(BRANCHES) if key.startswith(BRANCHES) else ""
    return event_row(registration.event_id, event, branch=branch, token="", order=found.order)

"""The events of records in a pass: found by their registrations (`tarn.kv.registrations`).

They are read after the branches of a pass. So the file has the event of every record that the pass has seen, and maybe
later ones: a token that only these name took its first row after the pass began.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tarn.core.clock import Clock
from tarn.journal.events import BRANCHES, EventRow, event_row
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Companion, CompanionName, Kv, Partition
from tarn.kv.records import parse_record
from tarn.kv.registrations import Registration, Registrations, find_event, hour_of, is_complete
from tarn_proto.store.v1 import journal_pb2 as pb

__all__ = ["DrainedRecord", "RecordEvents"]

_HOURS_BACK: Final = 24
"""How far back the first look goes: a process may have registered before anything was drained."""


@dataclass(frozen=True, slots=True)
class DrainedRecord:
    """A registration that is done once the file of the pass is there.

    Attributes:
        hour: in which it is registered.
        row: the event, which goes into the file of the pass; None: it is in a file already, or will never be there.
        is_in_file: it is in a file of the bucket.
    """

    hour: int
    registration: Registration
    row: EventRow | None = None
    is_in_file: bool = False


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

    async def roots(self) -> set[str]:
        """Returns what has registrations that are not done. Forgets hours that are complete and have none."""
        found: set[str] = set()
        for hour in self._hours():
            some = await self._registrations.roots(hour)
            found.update(some)
            is_done = not some and is_complete(hour, self._clock.now_us())
            if is_done and hour == self.first_hour:
                await self._registrations.forget(hour)
                self.first_hour = hour + 1
        return found

    async def of(self, root: str, in_files: Container[bytes]) -> AsyncIterator[DrainedRecord]:
        """Yields the events of a root that are there now, and registrations that need no file any more.

        Args:
            root: see `tarn.kv.record_kinds.root_of`. Only its own registrations are read.
            in_files: keys of events that the caller has written to files.

        Raises:
            TarnError: CORRUPT: a registration or an event is damaged; errors of the store.
        """
        for hour in self._hours():
            async for each in self._registrations.registered(hour, root):
                if each.is_drained or each.event_key in in_files:
                    # The pass that has drained it did not come to the removal.
                    yield DrainedRecord(hour, each, is_in_file=True)
                    continue
                state = await find_event(self._kv, each, self._clock.now_us())
                if state.event is not None:
                    yield DrainedRecord(hour, each, _row(each, state.event))
                elif state.is_over:
                    yield DrainedRecord(hour, each)

    async def of_dead(self, roots: Iterable[str]) -> list[DrainedRecord]:
        """Returns the registrations of roots that have no journal any more."""
        return [
            DrainedRecord(hour, each)
            for hour in self._hours()
            for root in roots
            async for each in self._registrations.registered(hour, root)
        ]

    async def finish(self, drained: Sequence[DrainedRecord]) -> None:
        """Removes events that are in files of the bucket, and finishes their registrations and those without an event.

        Exactly these events: one that came after the pass has looked for it is in no file, and stays.

        Args:
            drained: what a pass has read, whose file is in the bucket.

        Raises:
            TarnError: some events or registrations are there still; the next pass of any replica goes on.
        """
        in_files = [each for each in drained if each.is_in_file]
        for hour, some in _by_hour(each for each in in_files if not each.registration.is_drained):
            await self._registrations.mark_drained(hour, some)
        names: dict[Partition, list[CompanionName]] = {}
        for each in in_files:
            found = each.registration
            names.setdefault(found.partition, []).append((found.key, found.event_key))
        for partition, those in names.items():
            await self._kv.delete_companions(partition, those)
        for hour, some in _by_hour(drained):
            await self._registrations.finish(hour, some)


def _by_hour(drained: Iterable[DrainedRecord]) -> Iterator[tuple[int, list[Registration]]]:
    found: dict[int, list[Registration]] = {}
    for each in drained:
        found.setdefault(each.hour, []).append(each.registration)
    return iter(found.items())


def _row(registration: Registration, found: Companion) -> EventRow:
    event = parse_record(pb.JournalEvent(), found.value)
    key = registration.key.decode()
    branch = key.removeprefix(BRANCHES) if key.startswith(BRANCHES) else ""
    return event_row(registration.event_id, event, branch=branch, token="", order=found.order)

"""Reads the events of records out of a store, by their registrations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from tarn.kv.port import Kv
from tarn.kv.records import parse_record
from tarn.kv.registrations import Registration, Registrations, find_event
from tarn_proto.store.v1 import journal_pb2 as pb

__all__ = ["RecordEvent", "record_events", "registered"]


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """An event of a record that a store holds.

    Attributes:
        registration: names its place.
        event: what it says.
        order: as in `tarn.kv.port.Companion`; of the events of one key, the greatest is the record's last change.
    """

    registration: Registration
    event: pb.JournalEvent
    order: int


async def registered(registrations: Registrations, hour: int) -> list[Registration]:
    """Returns all registrations of an hour that are not finished, by their roots."""
    roots = sorted(await registrations.roots(hour))
    return [each for root in roots async for each in registrations.registered(hour, root)]


async def record_events(
    kv: Kv, registrations: Registrations, hours: Iterable[int], now_us: int
) -> AsyncIterator[RecordEvent]:
    """Yields the events of records that are registered in some hours and have not been removed, hour by hour.

    Those of one hour come by their roots, then by the times of their requests, which is not the order of the changes.

    Args:
        kv: the store.
        registrations: of the installation.
        hours: since 1970.
        now_us: the present time.

    Raises:
        TarnError: CORRUPT: a registration or an event is damaged; errors of the store.
    """
    for hour in hours:
        for each in await registered(registrations, hour):
            found = (await find_event(kv, each, now_us)).event
            if found is not None:
                yield RecordEvent(each, parse_record(pb.JournalEvent(), found.value), found.order)

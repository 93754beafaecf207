"""Compares records with their events (docs/design/journal.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tarn.kv.port import Companion
from tarn.kv.record_kinds import Place, kind_of
from tarn_proto.store.v1 import journal_pb2 as pb

__all__ = ["untold"]


def untold(place: Place, rows: Mapping[bytes, bytes], companions: Sequence[Companion]) -> list[str]:
    """Returns how the rows of a partition differ from what their events say, by the order of the store.

    The event of each record's last change is taken to be there: nothing has removed events.
    """
    newest: dict[bytes, tuple[int, bytes]] = {}
    for each in companions:
        event = pb.JournalEvent.FromString(each.value)
        key = event.key.encode()
        newest[key] = max(newest.get(key, (-1, b"")), (each.order, event.payload))
    problems = []
    for key, value in rows.items():
        kind = kind_of(place, key)
        if kind.is_journaled and newest.get(key, (0, b""))[1] != kind.told(value):
            problems.append(f"the record {key!r} is not what its newest event says")
    for key, (_, payload) in newest.items():
        if not kind_of(place, key).is_journaled:
            problems.append(f"{key!r} has an event, and is no record of the journal")
        elif (
            payload and key not in rows and place is not Place.REFLOG
        ):  # those expire without events
            problems.append(f"the newest event of {key!r} has a record that is not there")
    return problems

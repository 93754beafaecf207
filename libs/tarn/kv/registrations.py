"""Registrations: which events of records the journal's drain looks for (docs/design/journal.md, "Events in the KV").

Before a record changes, the exact key of its event is registered, in a partition of the present hour. So a drain never
scans a partition of records, where events were removed one by one. A registration does not say whether the change was
made: that follows from the record and the event (`find_event`).

A row that lands in the partition of an hour that is dropped already would be lost. So a row counts only if it was
durable within two minutes after its hour was chosen; otherwise its process was paused, and it is written again, in the
hour of that time. An hour may be dropped three minutes after its end: by any clock of the installation, no row that
counts comes later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tarn.core.branch import Token
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import InstallationKeys, after_prefix
from tarn.kv.paging import rows_of
from tarn.kv.port import (
    COMPANION_KEYS,
    Companion,
    Group,
    Kv,
    Partition,
    PartitionKind,
    Predicate,
)
from tarn.kv.record_kinds import root_of
from tarn.kv.records import parse_record, token_from, token_to
from tarn.kv.register import require_written
from tarn_proto.store.v1 import journal_pb2 as pb

__all__ = [
    "HOUR_US",
    "EventState",
    "Registration",
    "Registrations",
    "find_event",
    "hour_of",
    "is_complete",
    "new_event_id",
]

_TIME_BYTES: Final = 8
_RANDOM_BYTES: Final = 8
HOUR_US: Final = 3_600_000_000
_LATE_US: Final = 120_000_000
"""Age of a row that is too old when it is durable: its hour may be dropped."""
_COMPLETE_US: Final = 180_000_000
"""How long after its end an hour gets no more rows: more than `_LATE_US` and the clock skew."""
_GIVE_UP_US: Final = 24 * HOUR_US
"""Age of an event that does not come any more, where no version of the record can say so."""
_TRIES: Final = 3
"""How often one call writes a registration that was late."""
_PAGE: Final = 256
_FIRST: Final = b"event/"
_END: Final = b"event0"


def new_event_id(time_us: int, nonce: bytes) -> bytes:
    """Returns the 16 bytes of a new event: its time, so that keys sort by it, and random ones.

    Args:
        time_us: microseconds since 1970.
        nonce: at least 8 random bytes.
    """
    return time_us.to_bytes(_TIME_BYTES, "big") + nonce[:_RANDOM_BYTES]


def hour_of(time_us: int) -> int:
    """The hour since 1970 of a time in microseconds since then."""
    return time_us // HOUR_US


def is_complete(hour: int, now_us: int) -> bool:
    """Whether no registration that counts can be added to an hour any more."""
    return now_us >= (hour + 1) * HOUR_US + _COMPLETE_US


@dataclass(frozen=True, slots=True)
class Registration:
    """A change of a record that may be made, or was made.

    Attributes:
        partition: of the record and its event.
        key: of the record.
        event_key: of the event, a companion.
        expected: the version of the record that the compare-and-set expects; None: no record, or it is none, because
            the partition is a plain one.
        token: the staging token that the record of a branch names after the change; None: it is not of a branch.
        is_drained: the event is in a file of the bucket, and may still be in the store.
    """

    partition: Partition
    key: bytes
    event_key: bytes
    expected: Predicate | None = None
    token: Token | None = None
    is_drained: bool = False

    @property
    def event_id(self) -> bytes:
        """The 16 bytes in the key of the event: a time in microseconds since 1970, 8 bytes, and random ones."""
        return self.event_key[len(COMPANION_KEYS) :]

    @property
    def time_us(self) -> int:
        """When its process chose the key of the event, microseconds since 1970."""
        return int.from_bytes(self.event_id[:_TIME_BYTES], "big")


@dataclass(frozen=True, slots=True)
class EventState:
    """What a store has of a registered event.

    Attributes:
        event: None: it is not there.
        is_over: it is there, or it will never be: the registration is done once the event is drained.
    """

    event: Companion | None
    is_over: bool


class Registrations:
    """The registrations of one installation. Any replica may add to them, and any may drain."""

    def __init__(self, kv: Kv, keys: InstallationKeys, clock: Clock) -> None:
        self._kv = kv
        self._keys = keys
        self._clock = clock

    async def register(self, registrations: Sequence[Registration]) -> None:
        """Makes registrations durable, in the present hour. One that is there already may be added again.

        Before its change, or, by a drain, before its former hour is dropped.

        Raises:
            TarnError: not all of them are registered; also UNAVAILABLE because the process was paused in each attempt.
        """
        groups = [_group(self._keys, each) for each in registrations]
        for _ in range(_TRIES):
            now_us = self._clock.now_us()
            partition = self._keys.registrations(hour_of(now_us))
            require_written(await self._kv.set_many(partition, groups))
            if self._clock.now_us() - now_us < _LATE_US:
                return
        text = (
            f"an event was registered {_TRIES} times, each time minutes too late: this process or its store is "
            "stopped again and again; try again"
        )
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)

    async def registered(self, hour: int, root: str) -> AsyncIterator[Registration]:
        """Yields the registrations of an hour that are not finished, by the times of their events.

        Args:
            hour: since 1970.
            root: of a repository, or of what belongs to none (`root_of`).

        Raises:
            TarnError: CORRUPT: a row is damaged; errors of the store.
        """
        partition = self._keys.registrations(hour)
        first = self._keys.registration(root, None)
        async for _, value in rows_of(self._kv, partition, first, after_prefix(first), _PAGE):
            if value:
                yield _decode(value)

    async def roots(self, hour: int) -> set[str]:
        """Returns what has registrations of an hour that are not finished. Their keys tell it, so damaged ones count.

        Raises:
            TarnError: errors of the store.
        """
        rows = rows_of(self._kv, self._keys.registrations(hour), _FIRST, _END, _PAGE)
        return {_root_in(key) async for key, value in rows if value}

    async def mark_drained(self, hour: int, registrations: Sequence[Registration]) -> None:
        """Notes that the events of registrations of an hour are in the bucket.

        To be called before the events are removed: otherwise nothing shows that a record that was created and removed
        has been drained. Until they are finished, `registered` yields them, so that the next drain removes the events
        that a crash has left.

        Raises:
            TarnError: some may not be marked.
        """
        marked = [replace(each, is_drained=True) for each in registrations]
        await self._write(hour, [_group(self._keys, each) for each in marked])

    async def finish(self, hour: int, registrations: Sequence[Registration]) -> None:
        """Marks registrations of an hour as done: their events are removed, or will never be there.

        Raises:
            TarnError: some may not be marked.
        """
        keys = [_key(self._keys, each) for each in registrations]
        await self._write(hour, [Group(key, ((key, b""),)) for key in keys])

    async def _write(self, hour: int, groups: Sequence[Group]) -> None:
        require_written(await self._kv.set_many(self._keys.registrations(hour), groups))

    async def forget(self, hour: int) -> None:
        """Drops the registrations of an hour since 1970, all of which are finished or registered in a later one.

        Raises:
            TarnError: FAILED_PRECONDITION: registrations may still be added to this hour; errors of the store.
        """
        if not is_complete(hour, self._clock.now_us()):
            text = f"registrations of the hour {hour} are not complete yet"
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
        await self._kv.drop_partition(self._keys.registrations(hour))


async def find_event(kv: Kv, registration: Registration, now_us: int) -> EventState:
    """Looks for a registered event.

    The record is read first, settling, and the event after it. So if the record has another version than the change
    expects, the change was made before that read, and the event is found, or it is never made. A change that expects no
    record may still be made when the record is there and is removed again, but no process of Tarn does that with a
    staging token: it names the token in a pending record first, and registers again when the record goes live.

    Args:
        kv: the store.
        registration: of the event.
        now_us: the present time. The event of a change that expects no record, and finds none, is given up after a
            day; so is that of a plain row.

    Raises:
        TarnError: errors of the store.
    """
    partition, key = registration.partition, registration.event_key
    is_past = False
    if partition.kind is PartitionKind.REGISTER:
        (found,) = await kv.get_many(partition, [registration.key], settle=True)
        is_past = (None if found is None else found.predicate) != registration.expected
    events = await kv.scan_companions(partition, key, key + b"\0", 1)
    if events:
        return EventState(events[0], is_over=True)
    may_be_given_up = registration.expected is None
    is_old = may_be_given_up and now_us - registration.time_us >= _GIVE_UP_US
    return EventState(None, is_past or is_old)


def _key(keys: InstallationKeys, registration: Registration) -> bytes:
    root = root_of(keys.installation_id, registration.partition.name)
    return keys.registration(root, registration.event_id)


def _root_in(key: bytes) -> str:
    """Returns the root in a key of `InstallationKeys.registration`."""
    return key.removeprefix(_FIRST).rpartition(b":")[0].decode()


def _group(keys: InstallationKeys, registration: Registration) -> Group:
    key = _key(keys, registration)
    return Group(key, ((key, _encode(registration)),))


def _encode(registration: Registration) -> bytes:
    partition, token = registration.partition, registration.token
    return pb.JournalRegistration(
        partition=partition.name,
        buckets=partition.buckets,
        is_plain=partition.kind is PartitionKind.PLAIN,
        key=registration.key,
        event_key=registration.event_key,
        expected=registration.expected or b"",
        token=None if token is None else token_to(token),
        is_drained=registration.is_drained,
    ).SerializeToString()


def _decode(value: bytes) -> Registration:
    record = parse_record(pb.JournalRegistration(), value)
    kind = PartitionKind.PLAIN if record.is_plain else PartitionKind.REGISTER
    return Registration(
        Partition(record.partition, kind, record.buckets),
        record.key,
        record.event_key,
        Predicate(record.expected) if record.expected else None,
        token_from(record.token) if record.HasField("token") else None,
        record.is_drained,
    )

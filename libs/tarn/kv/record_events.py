"""The events of records: each change of a record writes its event in the same compare-and-set (docs/design/journal.md).

`JournaledKv` stands between a service and its store. So an event is made in one place, for all that change records,
and none can forget it; `tarn.kv.record_kinds` says which rows are records. Without a journal no service has it.

Reads, and writes of rows that are no records, go to the store as if it were not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Protocol

from tarn.core.branch import Branch
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadOperation
from tarn.core.levels import Feature, FeatureGate
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.port import (
    COMPANION_KEYS,
    Group,
    Kv,
    OutcomeUnknownError,
    Partition,
    Predicate,
    PredicateFailedError,
    ReadsAtOnce,
    ReadsTogether,
    Row,
    RowName,
    SetsBeside,
)
from tarn.kv.record_kinds import Place, RecordKind, kind_of, place_of, root_of
from tarn.kv.records import decode_branch, is_pending_branch
from tarn.kv.register import REGISTER_TRIES
from tarn.kv.registrations import Registration, Registrations, new_event_id
from tarn_proto.store.v1 import journal_pb2 as pb

__all__ = ["PRINCIPAL", "JournaledKv", "Principal", "changing"]


class HasPrincipal(Protocol):
    """For whom records are changed: a `Principal`, or the grant of a caller (`tarn.core.access.policy.Grant`)."""

    @property
    def user_uid(self) -> bytes:
        """As `Principal.user_uid`."""
        ...

    @property
    def session_key_id(self) -> str:
        """As `Principal.session_key_id`."""
        ...


@dataclass(frozen=True, slots=True)
class Principal:
    """For whom records are changed.

    Attributes:
        user_uid: of the user; empty: Tarn itself changes them.
        session_key_id: of the session key that the user's request came by; empty: by a key pair.
    """

    user_uid: bytes = b""
    session_key_id: str = ""


_TARN_ITSELF: Final = Principal()
PRINCIPAL: Final[ContextVar[HasPrincipal]] = ContextVar("tarn_principal", default=_TARN_ITSELF)
"""For whom this task changes records."""

_REMEMBERED_MAX: Final = 4096
"""Partitions whose place and root are remembered: each write of an object asks for both."""

_BRANCHES: Final = RepositoryKeys.branch("")
_OPERATIONS: Final = {
    HeadOperation.CREATE: pb.JOURNAL_OPERATION_CREATE,
    HeadOperation.COMMIT: pb.JOURNAL_OPERATION_COMMIT,
    HeadOperation.MERGE: pb.JOURNAL_OPERATION_MERGE,
    HeadOperation.REVERT: pb.JOURNAL_OPERATION_REVERT,
    HeadOperation.CHERRY_PICK: pb.JOURNAL_OPERATION_CHERRY_PICK,
    HeadOperation.MOVE: pb.JOURNAL_OPERATION_MOVE,
    HeadOperation.DELETE: pb.JOURNAL_OPERATION_REMOVE_BRANCH,
    HeadOperation.RESTORE: pb.JOURNAL_OPERATION_RESTORE,
    HeadOperation.OTHER: pb.JOURNAL_OPERATION_TOUCH,
}


@dataclass(frozen=True, slots=True)
class _Change:
    """What is known of a change of a branch besides its new record."""

    before: Branch | None = None
    cause: bytes = b""


_UNKNOWN: Final = _Change()
_CHANGE: Final[ContextVar[_Change]] = ContextVar("tarn_record_change", default=_UNKNOWN)


class changing:  # noqa: N801 - a context manager
    """Says what the change of a branch is that is sent within; for the event only.

    Args:
        before: the record that the change replaces; None: it is a removal.
        cause: the operation id of a removal; that of another change is in its record.
    """

    __slots__ = ("_change", "_outside")

    def __init__(self, before: Branch | None, cause: bytes = b"") -> None:
        self._change = _Change(before, cause)
        self._outside: Token[_Change] | None = None

    def __enter__(self) -> None:
        self._outside = _CHANGE.set(self._change)

    def __exit__(self, *exc: object) -> None:
        assert self._outside is not None, "it was entered"
        _CHANGE.reset(self._outside)


class JournaledKv:
    """`Kv` whose writes of records leave events.

    Args:
        kv: the store; its owner closes it.
        installation_id: whose records are told from other rows.
        clock: for the times of events.
        ids: random bits of ids.
        features: says from which feature level of the store on there are events.
        count: is told of the events of objects and records before they are written: the root of their repository
            (`RepositoryKeys.root`) or the installation, and the bytes of their keys and values.
    """

    def __init__(
        self,
        kv: Kv,
        installation_id: str,
        clock: Clock,
        ids: IdSource,
        features: FeatureGate,
        count: Callable[[str, int], None] | None = None,
    ) -> None:
        self._kv = kv
        self._count = count or (lambda _root, _size: None)
        self._installation_id = installation_id
        self._clock = clock
        self._ids = ids
        self._features = features
        self._registrations = Registrations(kv, InstallationKeys(installation_id), clock)
        self.get_many = kv.get_many
        self.scan = kv.scan
        self.scan_without = kv.scan_without
        self.scan_arrow = kv.scan_arrow
        self.scan_companions = kv.scan_companions
        self.delete_companions = kv.delete_companions
        self.drop_partition = kv.drop_partition
        self.close = kv.close
        if isinstance(kv, ReadsTogether):
            self.get_together = kv.get_together
        if isinstance(kv, ReadsAtOnce):
            self.get_at_once = kv.get_at_once
            self.get_at_once_beside = kv.get_at_once_beside
        if isinstance(kv, SetsBeside):
            self._set_beside = kv.set_beside
            self.set_beside = self._set_object_beside

    def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> Coroutine[Any, Any, list[TarnError | None]]:
        """See `Kv.set_many`. Only the partitions of commits and reflogs have records that are written so."""
        place, root = _place_and_root(self._installation_id, partition.name)
        if place is None:
            # Each write of an object comes here: loops, because a comprehension is a call.
            size = 0
            for group in groups:
                for key, value in group.companions:
                    size += len(key) + len(value)
            if size:
                self._count(root, size)
        elif self._features.allows(Feature.JOURNAL):
            return self._set_groups(partition, place, groups)
        return self._kv.set_many(partition, groups)

    def _set_object_beside(
        self, partition: Partition, group: Group, beside: RowName
    ) -> Awaitable[Predicate | None]:
        """See `SetsBeside.set_beside`: the write of an object. No record is written so."""
        if companions := group.companions:
            place, root = _place_and_root(self._installation_id, partition.name)
            assert place is None, "records are written by set_many"
            size = 0
            for key, value in companions:
                size += len(key) + len(value)
            self._count(root, size)
        return self._set_beside(partition, group, beside)

    async def _set_groups(
        self, partition: Partition, place: Place, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        registrations: list[Registration] = []
        told: list[Group] = []
        for group in groups:
            events: list[Row] = []
            for key, value in group.rows:
                if (kind := kind_of(place, key)).is_journaled:
                    registration, event = self._event(partition, kind, key, value, None)
                    registrations.append(registration)
                    events.append(event)
            told.append(replace(group, companions=(*group.companions, *events)))
        if registrations:
            try:
                await self._register(registrations)
            except TarnError as error:
                return [error] * len(groups)
        self._count_events(partition, [row for each in told for row in each.companions])
        return await self._kv.set_many(partition, told)

    def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Coroutine[Any, Any, Predicate]:
        """See `Kv.set_if`. UNAVAILABLE also if the event cannot be registered: then nothing was written."""
        kind = self._kind(partition, key)
        if kind is None:
            self._count_events(partition, companions)
            return self._kv.set_if(partition, key, value, predicate, companions=companions)
        return self._set_record(partition, kind, (key, value), predicate, companions)

    async def _set_record(
        self,
        partition: Partition,
        kind: RecordKind,
        row: Row,
        predicate: Predicate | None,
        companions: Sequence[Row],
    ) -> Predicate:
        key, value = row
        registration, event = self._event(partition, kind, key, value, predicate)
        await self._register([registration])
        beside = (*companions, event)
        self._count_events(partition, beside)
        return await self._kv.set_if(partition, key, value, predicate, companions=beside)

    def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> Coroutine[Any, Any, None]:
        """See `Kv.delete_if`; as `set_if`."""
        kind = self._kind(partition, key)
        if kind is None:
            self._count_events(partition, companions)
            return self._kv.delete_if(partition, key, predicate, companions=companions)
        return self._delete_record(partition, kind, key, predicate, companions)

    async def _delete_record(
        self,
        partition: Partition,
        kind: RecordKind,
        key: bytes,
        predicate: Predicate,
        companions: Sequence[Row] = (),
    ) -> None:
        registration, event = self._event(partition, kind, key, None, predicate)
        await self._register([registration])
        beside = (*companions, event)
        self._count_events(partition, beside)
        await self._kv.delete_if(partition, key, predicate, companions=beside)

    def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> Coroutine[Any, Any, None]:
        """See `Kv.delete_many`. Records are removed one by one, each with its event.

        Rows of reflogs are removed when they expire, without events: a rebuild has them again, and they expire again.
        """
        if self._place(partition) in (None, Place.REFLOG):
            return self._kv.delete_many(partition, keys)
        return self._delete_rows(partition, keys)

    async def _delete_rows(self, partition: Partition, keys: Sequence[bytes]) -> None:
        kinds = {key: self._kind(partition, key) for key in keys}
        if others := [key for key, kind in kinds.items() if kind is None]:
            await self._kv.delete_many(partition, others)
        for key, kind in kinds.items():
            if kind is not None:
                await self._delete_whatever(partition, kind, key)

    async def _delete_whatever(self, partition: Partition, kind: RecordKind, key: bytes) -> None:
        """Removes a record, whatever its version is. One that is gone was removed with an event, perhaps by this."""
        for _ in range(REGISTER_TRIES):
            (found,) = await self._kv.get_many(partition, [key], settle=True)
            if found is None:
                return
            with suppress(PredicateFailedError, OutcomeUnknownError):  # the next read decides
                await self._delete_record(partition, kind, key, found.predicate)
                return
        raise OutcomeUnknownError(f"{key!r} changed {REGISTER_TRIES} times during its removal")

    def _count_events(self, partition: Partition, events: Sequence[Row]) -> None:
        if events:
            _, root = _place_and_root(self._installation_id, partition.name)
            self._count(root, sum([len(key) + len(value) for key, value in events]))

    def _place(self, partition: Partition) -> Place | None:
        place = place_of(self._installation_id, partition.name)
        return place if place is not None and self._features.allows(Feature.JOURNAL) else None

    def _kind(self, partition: Partition, key: bytes) -> RecordKind | None:
        """The kind of a record whose changes leave events."""
        if (place := self._place(partition)) is None:
            return None
        kind = kind_of(place, key)
        return kind if kind.is_journaled else None

    async def _register(self, registrations: Sequence[Registration]) -> None:
        try:
            await self._registrations.register(registrations)
        except OutcomeUnknownError as error:
            # Of the registration; the record was surely not changed.
            text = (
                f"nothing was changed, because its event could not be registered: {error.message}"
            )
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error

    def _event(
        self,
        partition: Partition,
        kind: RecordKind,
        key: bytes,
        value: bytes | None,
        expected: Predicate | None,
    ) -> tuple[Registration, Row]:
        """Returns the event of a change, and its registration; `value` is None for a removal."""
        principal = PRINCIPAL.get()
        event = pb.JournalEvent(
            time_us=self._clock.now_us(),
            user_uid=principal.user_uid,
            session_uid=principal.session_key_id.encode(),
            operation=kind.set_operation if value is not None else pb.JOURNAL_OPERATION_REMOVE,
            key=key.decode(),
            payload=b"" if value is None else kind.told(value),
        )
        token = None
        if key.startswith(_BRANCHES):
            change = _CHANGE.get()
            event.operation, event.cause = pb.JOURNAL_OPERATION_REMOVE_BRANCH, change.cause
            if value is not None:
                branch = decode_branch(value)
                is_new = is_pending_branch(value)
                event.operation = _operation_of(change.before, branch, is_pending=is_new)
                event.cause = branch.recent_op_ids[0] if branch.recent_op_ids else b""
                token = branch.staging
        event_key = COMPANION_KEYS + new_event_id(event.time_us, self._ids.nonce())
        registration = Registration(partition, key, event_key, expected, token)
        return registration, (event_key, event.SerializeToString())


@lru_cache(_REMEMBERED_MAX)
def _place_and_root(installation_id: str, name: str) -> tuple[Place | None, str]:
    return place_of(installation_id, name), root_of(installation_id, name)


def _operation_of(before: Branch | None, after: Branch, *, is_pending: bool) -> pb.JournalOperation:
    """Returns what changed the record of a branch, in the order in which one change may be several things."""
    if after.is_deleted and not is_pending:
        return pb.JOURNAL_OPERATION_REMOVE_BRANCH
    if before is None or after.commit_id != before.commit_id:
        newest = after.outbox[-1].operation if after.outbox else HeadOperation.CREATE
        return _OPERATIONS[newest]
    if after.reset_count != before.reset_count:
        return pb.JOURNAL_OPERATION_RESET
    if after.compaction_end_time_us != before.compaction_end_time_us:
        return pb.JOURNAL_OPERATION_COMPACT
    if after.staging != before.staging:
        return pb.JOURNAL_OPERATION_SEAL
    return pb.JOURNAL_OPERATION_TOUCH

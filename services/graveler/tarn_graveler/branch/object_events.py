"""The events of objects: what the journal says of each write and delete (docs/design/journal.md).

An event is a companion of its row, so both land in one atomic step or neither does. It begins with the request, and
has one id over all attempts: the row of an earlier attempt may be in a token that was sealed meanwhile. The key of the
first attempt is that id; each later one has a key of its own time.

Most passes of the drain read the events of the last minutes only, by their keys. So a write is acknowledged only while
the key of its event is young: otherwise it was written by a process that had paused, and its outcome is unknown.
"""

from __future__ import annotations

from hashlib import blake2b

from tarn.core.access.policy import Grant
from tarn.core.clock import Clock, IdSource
from tarn.core.levels import Feature, FeatureGate
from tarn.core.value import hot_value
from tarn.kv.port import COMPANION_KEYS, OutcomeUnknownError, Row
from tarn.kv.registrations import new_event_id
from tarn_proto.store.v1 import journal_pb2 as pb

__all__ = ["KEY_AGE_US_MAX", "TARN_ITSELF", "Mutation", "ObjectEvents", "Origin", "origin_of"]

_ID_BYTES = 16
KEY_AGE_US_MAX = 540_000_000
"""Age of an event's key up to which its write is acknowledged: what passes read again, without a minute by which clocks
may differ.
"""


@hot_value
class Origin:
    """Who asked for a mutation, and how.

    Attributes:
        user_uid: empty for Tarn's own operations.
        operation: None: what the mutation is by itself, a put, a delete or the completion of an upload.
        session_key_id: of the session key that the request came by; empty: by a key pair.
    """

    user_uid: bytes = b""
    operation: pb.JournalOperation | None = None
    session_key_id: str = ""


def origin_of(grant: Grant, operation: pb.JournalOperation | None = None) -> Origin:
    """Returns the origin of a request."""
    return Origin(grant.user_uid, operation, grant.session_key_id)


TARN_ITSELF = Origin()


class Mutation:
    """One mutation of one request, over all its attempts."""

    __slots__ = ("_event_id", "_events", "_key_us", "_operation", "_origin")

    def __init__(
        self,
        events: ObjectEvents | None,
        origin: Origin,
        operation: pb.JournalOperation,
        event_id: bytes = b"",
    ) -> None:
        self._events = events
        self._key_us = 0
        self._origin = origin
        self._operation = operation if origin.operation is None else origin.operation
        self._event_id = event_id

    def companions(self, path: str, payload: bytes) -> tuple[Row, ...]:
        """Returns the event of the next attempt, to be written with its row; none without a journal.

        Args:
            path: of the object.
            payload: the value of the row: the packed entry, or the tombstone.
        """
        if self._events is None:
            return ()
        event = pb.JournalEvent(
            user_uid=self._origin.user_uid,
            session_uid=self._origin.session_key_id.encode(),
            operation=self._operation,
            key=path,
            payload=payload,
        )
        row, self._event_id = self._events.make(event, self._event_id)
        self._key_us = event.time_us
        return (row,)

    def check_age(self) -> None:
        """To be called when the row of the last attempt is durable, before the write is acknowledged.

        Raises:
            OutcomeUnknownError: the key of its event is so old that no round of the drain may read it.
        """
        if self._events is None or not self._key_us:
            return
        age_us = self._events.now_us() - self._key_us
        if age_us > KEY_AGE_US_MAX:
            text = (
                f"the write took {age_us // 1_000_000} s, and its event may reach the journal late, although it is "
                "done; repeat it"
            )
            raise OutcomeUnknownError(text)


_SILENT = Mutation(None, TARN_ITSELF, pb.JOURNAL_OPERATION_UNSPECIFIED)
"""Without a journal."""


class ObjectEvents:
    """Makes the events of objects.

    Args:
        clock: for the times of requests and keys.
        ids: random bits of ids.
        features: says from which feature level of the store on there are events.
        is_on: whether the journal is on.
    """

    def __init__(self, clock: Clock, ids: IdSource, features: FeatureGate, *, is_on: bool) -> None:
        self._clock = clock
        self._ids = ids
        self._features = features
        self._is_on = is_on

    def put(self, origin: Origin) -> Mutation:
        """Begins the write of an object."""
        return self._begin(origin, pb.JOURNAL_OPERATION_PUT) if self._is_on else _SILENT

    def delete(self, origin: Origin) -> Mutation:
        """Begins the deletion of one path."""
        return self._begin(origin, pb.JOURNAL_OPERATION_DELETE) if self._is_on else _SILENT

    def complete(self, origin: Origin, upload_id: str) -> Mutation:
        """Begins the completion of an upload, which another process may repeat: the id follows from the upload."""
        if not self._is_on:
            return _SILENT
        event_id = blake2b(upload_id.encode(), digest_size=_ID_BYTES).digest()
        return self._begin(origin, pb.JOURNAL_OPERATION_COMPLETE_UPLOAD, event_id)

    def _begin(
        self, origin: Origin, operation: pb.JournalOperation, event_id: bytes = b""
    ) -> Mutation:
        if not self._features.allows(Feature.JOURNAL):
            return _SILENT
        return Mutation(self, origin, operation, event_id)

    def now_us(self) -> int:
        """The present time, Unix microseconds."""
        return self._clock.now_us()

    def make(self, event: pb.JournalEvent, event_id: bytes) -> tuple[Row, bytes]:
        """Returns the row of an event, and the id of the mutation: `event_id`, unless this is its first event."""
        event.time_us = self._clock.now_us()
        own = new_event_id(event.time_us, self._ids.nonce())
        event.event_id = event_id
        return (COMPANION_KEYS + own, event.SerializeToString()), event_id or own

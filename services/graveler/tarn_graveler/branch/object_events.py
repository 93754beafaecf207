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
        events: ObjectEvents,
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
        origin, events, event_id = self._origin, self._events, self._event_id
        self._key_us = time_us = events.now_us()
        key = new_event_id(time_us, events.nonce())
        event = pb.JournalEvent(
            time_us=time_us,
            user_uid=origin.user_uid,
            session_uid=origin.session_key_id.encode(),
            operation=self._operation,
            key=path,
            payload=payload,
            event_id=event_id,
        )
        if not event_id:
            self._event_id = key
        return ((COMPANION_KEYS + key, event.SerializeToString()),)

    def check_age(self) -> None:
        """To be called when the row of the last attempt is durable, before the write is acknowledged.

        Raises:
            OutcomeUnknownError: the key of its event is so old that no round of the drain may read it.
        """
        key_us = self._key_us
        if key_us and (age_us := self._events.now_us() - key_us) > KEY_AGE_US_MAX:
            text = (
                f"the write took {age_us // 1_000_000} s, and its event may reach the journal late, although it is "
                "done; repeat it"
            )
            raise OutcomeUnknownError(text)


class _Silent(Mutation):
    """One without a journal."""

    __slots__ = ()

    def __init__(self) -> None:
        self._key_us = 0

    def companions(self, _path: str, _payload: bytes) -> tuple[Row, ...]:
        """Returns none."""
        return ()


_SILENT = _Silent()


def _nothing_allowed(_: Feature) -> bool:
    return False


class ObjectEvents:
    """Makes the events of objects.

    Args:
        clock: for the times of requests and keys.
        ids: random bits of ids.
        features: says from which feature level of the store on there are events.
        is_on: whether the journal is on.

    Attributes:
        now_us: returns the present time, Unix microseconds.
        nonce: returns random bytes.
    """

    def __init__(self, clock: Clock, ids: IdSource, features: FeatureGate, *, is_on: bool) -> None:
        self.now_us = clock.now_us
        self.nonce = ids.nonce
        self._allows = features.allows if is_on else _nothing_allowed

    def put(self, origin: Origin) -> Mutation:
        """Begins the write of an object."""
        if self._allows(Feature.JOURNAL):
            return Mutation(self, origin, pb.JOURNAL_OPERATION_PUT)
        return _SILENT

    def delete(self, origin: Origin) -> Mutation:
        """Begins the deletion of one path."""
        if self._allows(Feature.JOURNAL):
            return Mutation(self, origin, pb.JOURNAL_OPERATION_DELETE)
        return _SILENT

    def complete(self, origin: Origin, upload_id: str) -> Mutation:
        """Begins the completion of an upload, which another process may repeat: the id follows from the upload."""
        if not self._allows(Feature.JOURNAL):
            return _SILENT
        event_id = blake2b(upload_id.encode(), digest_size=_ID_BYTES).digest()
        return Mutation(self, origin, pb.JOURNAL_OPERATION_COMPLETE_UPLOAD, event_id)

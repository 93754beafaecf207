"""Events as rows: what files hold of a `JournalEvent`, and the columns of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tarn.core.errors import Kind, Reason, TarnError
from tarn_proto.store.v1 import journal_pb2 as pb

__all__ = [
    "BASE_ID",
    "BASE_OPERATION",
    "BRANCHES",
    "EVENT_SCHEMA",
    "ID_BYTES",
    "ORDER_MAX",
    "REPLAYED",
    "EventRow",
    "event_row",
    "operation_name",
    "rows_of",
    "table_of",
]

ID_BYTES: Final = 16
ORDER_MAX: Final = (1 << 63) - 1
BASE_ID: Final = bytes(ID_BYTES)
"""The id of rows of a base, which are no events."""
BASE_OPERATION: Final = "base"
BRANCHES: Final = "branches/"
"""The key of a branch's record is this and the name of the branch."""

EVENT_SCHEMA: Final = pa.schema(
    [
        pa.field("event_id", pa.binary(ID_BYTES), nullable=False),
        pa.field("branch", pa.string(), nullable=False),
        pa.field("token", pa.string(), nullable=False),
        pa.field("order", pa.int64(), nullable=False),
        pa.field("time_us", pa.int64(), nullable=False),
        pa.field("user_uid", pa.binary(), nullable=False),
        pa.field("session_uid", pa.binary(), nullable=False),
        pa.field("operation", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("cause", pa.binary(), nullable=False),
    ]
)
REPLAYED: Final = ("branch", "token", "order", "key", "payload")
"""The columns that a replay needs."""
_PREFIX: Final = "JOURNAL_OPERATION_"


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event, with its place.

    Attributes:
        event_id: 16 bytes; one for all attempts of a request. `BASE_ID`: a row of a base.
        branch: name of the branch; empty: the record is of something else.
        token: id of the staging token; empty: it is the event of a record.
        order: of the store: of equal keys in one token, the greatest (order, payload) counts. 0 to `ORDER_MAX`.
        time_us: of the request, for people.
        user_uid: empty for Tarn's own operations.
        session_uid: empty without a session.
        operation: see `operation_name`.
        key: path, or key of the record.
        payload: the row as it is stored; empty: the row was deleted.
        cause: operation id of the change of the record, or empty.
    """

    event_id: bytes
    branch: str
    token: str
    order: int
    time_us: int
    user_uid: bytes
    session_uid: bytes
    operation: str
    key: str
    payload: bytes
    cause: bytes


def operation_name(operation: int) -> str:
    """The name of a `JournalOperation` in files, e.g. `complete-upload`; `operation-<number>` if it is unknown here."""
    try:
        name = pb.JournalOperation.Name(operation)
    except ValueError:  # of a newer release
        return f"operation-{operation}"
    return name.removeprefix(_PREFIX).lower().replace("_", "-")


def event_row(
    key_id: bytes, event: pb.JournalEvent, *, branch: str, token: str, order: int
) -> EventRow:
    """Returns the row of an event that a store holds.

    Args:
        key_id: the id in the key of its row.
        event: the value.
        branch: as in `EventRow`.
        token: likewise.
        order: as the store returns it.
    """
    return EventRow(
        event.event_id or key_id,
        branch,
        token,
        order,
        event.time_us,
        event.user_uid,
        event.session_uid,
        operation_name(event.operation),
        event.key,
        event.payload,
        event.cause,
    )


def table_of(rows: Sequence[EventRow]) -> pa.Table:
    """Returns a table of `EVENT_SCHEMA`, sorted by branch, token and key, then by order and id.

    Raises:
        TarnError: CORRUPT: an id does not have 16 bytes, or an order is not from 0 to `ORDER_MAX`.
    """
    for row in rows:
        if len(row.event_id) != ID_BYTES or not 0 <= row.order <= ORDER_MAX:
            text = f"an event has the id {row.event_id.hex()!r} and the order {row.order}"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    ordered = sorted(
        rows, key=lambda each: (each.branch, each.token, each.key, each.order, each.event_id)
    )
    columns = [
        pa.array([getattr(row, field.name) for row in ordered], field.type)
        for field in EVENT_SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=EVENT_SCHEMA)


def rows_of(table: pa.Table | pa.RecordBatch) -> list[EventRow]:
    """Returns the rows of a table of `EVENT_SCHEMA`."""
    columns = [table.column(name).to_pylist() for name in EVENT_SCHEMA.names]
    return [EventRow(*row) for row in zip(*columns, strict=True)]

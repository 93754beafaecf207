"""The data of the journal of reads: rows in the store, and files in the bucket (docs/formats/reads.md).

The row that says since when it is on lies beside the fence, and belongs to the store: no transfer, dump or backup
copies it. So in a copy of an installation every object counts as read. The other rows are in a partition of their own
(`InstallationKeys.reads`), so that their writes do not compete with those of the fence.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.parquet import UNREADABLE, ParquetLimits, read_table

__all__ = [
    "ADDRESS_BYTES",
    "FILES_KEY",
    "FILE_ROWS",
    "ON_KEY",
    "SESSIONS_KEY",
    "DayFiles",
    "Session",
    "check_row",
    "decode_addresses",
    "decode_on",
    "encode_addresses",
    "encode_on",
    "file_path",
]

ON_KEY: Final = b"reads/on"
"""The row beside the fence that says since when every replica keeps the journal; absent while it is off."""
SESSIONS_KEY: Final = b"sessions/"
FILES_KEY: Final = b"files/"
FILE_ROWS: Final = 20_000
"""Most addresses of one file: 320 kB."""
ADDRESS_BYTES: Final = 16

_SCHEMA: Final = pa.schema([pa.field("address", pa.binary(ADDRESS_BYTES), nullable=False)])
_LIMITS: Final = ParquetLimits(rows=1 << 20, size_bytes=16 << 20)
_DIGEST: Final = b"sha256"
"""Name in the file's metadata of the SHA-256 of its addresses, in hex."""
_ID: Final = re.compile(r"[0-9a-f]{32}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """The journal of one life of a replica. A life that ended well, and lost nothing, leaves no row.

    Attributes:
        session_id: 32 hex digits.
        until_us: every lookup that was answered before is in the files, microseconds since the epoch.
        lost_us: when a record was lost last; 0: none was.
        is_ended: whether the replica has ended well, so `until_us` is its end.
    """

    session_id: str
    until_us: int
    lost_us: int = 0
    is_ended: bool = False

    @property
    def key(self) -> bytes:
        """The key of the row."""
        return SESSIONS_KEY + self.session_id.encode()

    def encode(self) -> bytes:
        """Encodes the row as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> Session:
        """Decodes a row; fields of later releases are ignored.

        Raises:
            TarnError: CORRUPT.
        """

        def parse(found: dict[str, Any]) -> Session:
            return cls(
                _id(found["session_id"]),
                int(found["until_us"]),
                int(found["lost_us"]),
                bool(found["is_ended"]),
            )

        return _parsed("a session of the journal of reads", value, parse)


@dataclass(frozen=True, slots=True)
class DayFiles:
    """The files that one session wrote about one repository on one day.

    Attributes:
        instance_uid: of the repository.
        day: days since the epoch, UTC, on which they were written.
        session_id: of the session.
        namespace: storage namespace of the repository.
        numbers: one for each file, ascending.
    """

    instance_uid: str
    day: int
    session_id: str
    namespace: str
    numbers: tuple[int, ...] = ()

    @property
    def key(self) -> bytes:
        """The key of the row. The days of a repository are in order."""
        return self.day_key(self.instance_uid, self.day) + self.session_id.encode()

    @staticmethod
    def day_key(instance_uid: str, day: int) -> bytes:
        """The prefix of the keys of one repository and day; a negative day counts as 0."""
        return FILES_KEY + f"{instance_uid}/{max(day, 0):06d}/".encode()

    @property
    def paths(self) -> list[str]:
        """The paths of the files in the namespace."""
        return [file_path(self.day, self.session_id, each) for each in self.numbers]

    def encode(self) -> bytes:
        """Encodes the row as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> DayFiles:
        """Decodes a row; fields of later releases are ignored.

        Raises:
            TarnError: CORRUPT.
        """

        def parse(found: dict[str, Any]) -> DayFiles:
            return cls(
                str(found["instance_uid"]),
                int(found["day"]),
                _id(found["session_id"]),
                str(found["namespace"]),
                tuple(int(each) for each in found["numbers"]),
            )

        return _parsed("a day of the journal of reads", value, parse)


def encode_on(since_us: int) -> bytes:
    """Encodes the row `ON_KEY`."""
    return json.dumps({"since_us": since_us}).encode()


def decode_on(value: bytes) -> int:
    """Returns since when the journal is on, microseconds since the epoch.

    Raises:
        TarnError: CORRUPT.
    """
    return _parsed("the begin of the journal of reads", value, lambda found: int(found["since_us"]))


def check_row(key: bytes, value: bytes) -> None:
    """Checks a row of the partition of the journal.

    Raises:
        ValueError, TarnError: its key or its value cannot be read, or they do not belong together.
    """
    row = DayFiles.decode(value) if key.startswith(FILES_KEY) else Session.decode(value)
    if row.key != key:
        raise ValueError("the row belongs to another key")


def file_path(day: int, session_id: str, number: int) -> str:
    """Returns the path of a file of the journal in its namespace."""
    date = (_EPOCH + timedelta(days=day)).date().isoformat()
    return f"_tarn/reads/{date}/{session_id}-{number:06d}.parquet"


def encode_addresses(addresses: bytes) -> bytes:
    """Returns the file of some addresses, 16 bytes each. Blocks."""
    count = len(addresses) // ADDRESS_BYTES
    column = pa.FixedSizeBinaryArray.from_buffers(
        _SCHEMA.field("address").type, count, [None, pa.py_buffer(addresses)]
    )
    sink = pa.BufferOutputStream()
    schema = _SCHEMA.with_metadata({_DIGEST: _digest(addresses)})
    table = pa.Table.from_arrays([column], schema=schema)
    pq.write_table(table, sink, use_dictionary=False)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def decode_addresses(body: bytes) -> bytes:
    """Returns the addresses of a file, 16 bytes each. Blocks.

    Raises:
        ValueError: it is damaged.
    """
    try:
        table = read_table(body, _SCHEMA, _LIMITS)
        found = pq.read_schema(pa.BufferReader(body)).metadata or {}
    except UNREADABLE as error:
        raise ValueError(str(error)[:200]) from error
    addresses = b"".join(table.column("address").to_pylist())
    if found.get(_DIGEST) != _digest(addresses):
        raise ValueError("its addresses have another digest")
    return addresses


def _digest(addresses: bytes) -> bytes:
    return hashlib.sha256(addresses).hexdigest().encode()


def _id(value: object) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError("a session has 32 hex digits")
    return value


def _parsed(what: str, value: bytes, parse: Callable[[dict[str, Any]], T]) -> T:
    try:
        return parse(json.loads(value))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        text = f"{what} cannot be read: {value[:200]!r}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text) from error

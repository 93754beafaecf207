"""The texts of a dump: what was begun, what is in each part, and that it is finished.

`docs/formats/kv-dump.md` describes them. Whatever cannot be read is CORRUPT, a newer version is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import Partition, PartitionKind
from tarn.kv.transfer.ranges import Range

__all__ = ["VERSION", "Begun", "Finished", "Part", "corrupt_error"]

VERSION = 1
_FORMAT = "tarn kv dump"
_FILE = re.compile(r"[0-9]{1,18}\.parquet")

T = TypeVar("T")


def corrupt_error(text: str) -> TarnError:
    """A dump that was damaged, or is none."""
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)


@dataclass(frozen=True, slots=True)
class Begun:
    """The first line of the index: whose dump it is.

    Attributes:
        transfer_id: names this dump.
        installation_id: what is in it.
        begin_time_us: when it was begun.
    """

    transfer_id: str
    installation_id: str
    begin_time_us: int

    def encode(self) -> bytes:
        """A line."""
        return _line(
            {
                "format": _FORMAT,
                "version": VERSION,
                "transfer_id": self.transfer_id,
                "installation_id": self.installation_id,
                "begin_time_us": self.begin_time_us,
            }
        )

    @classmethod
    def decode(cls, line: bytes) -> Begun:
        """What a line says.

        Raises:
            TarnError: CORRUPT; FAILED_PRECONDITION: another version.
        """

        def read(found: Mapping[str, object]) -> Begun:
            _check_version(found)
            return cls(
                _text(found["transfer_id"]),
                _text(found["installation_id"]),
                _number(found["begin_time_us"]),
            )

        return _decoded(line, read)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of rows: a line of the index.

    Attributes:
        file: its name in the folder `parts`.
        size_bytes: of the file.
        sha256: of the file's bytes, in hex.
        ranges: whose rows are in it, one range after the other.
    """

    file: str
    size_bytes: int
    sha256: str
    ranges: tuple[Range, ...]

    def encode(self) -> bytes:
        """A line."""
        return _line(
            {
                "part": self.file,
                "size_bytes": self.size_bytes,
                "sha256": self.sha256,
                "ranges": [_range_to(each) for each in self.ranges],
            }
        )

    @classmethod
    def decode(cls, line: bytes) -> Part:
        """What a line says.

        Raises:
            TarnError: CORRUPT.
        """

        def read(found: Mapping[str, object]) -> Part:
            ranges = found["ranges"]
            file = _text(found["part"])
            if not isinstance(ranges, list) or not _FILE.fullmatch(file):
                raise ValueError(file)
            return cls(
                file,
                _number(found["size_bytes"]),
                _text(found["sha256"]),
                tuple(_range_from(each) for each in ranges),
            )

        return _decoded(line, read)


@dataclass(frozen=True, slots=True)
class Finished:
    """The manifest: written last, so a dump that has one is whole.

    Attributes:
        begun: as in the index.
        end_time_us: when it was finished.
        parts: how many files.
        partitions: how many hold at least a row.
        rows: in all of them.
        size_bytes: keys and values.
        index_sha256: of the whole index, in hex, which vouches for everything else.
    """

    begun: Begun
    end_time_us: int
    parts: int
    partitions: int
    rows: int
    size_bytes: int
    index_sha256: str

    def encode(self) -> bytes:
        """The file."""
        fields = self._fields()
        return json.dumps({**fields, "sha256": _sha256(fields)}, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, text: bytes) -> Finished:
        """What the file says.

        Raises:
            TarnError: CORRUPT; FAILED_PRECONDITION: another version.
        """

        def read(found: Mapping[str, object]) -> Finished:
            _check_version(found)
            begun = Begun(
                _text(found["transfer_id"]),
                _text(found["installation_id"]),
                _number(found["begin_time_us"]),
            )
            manifest = cls(
                begun,
                end_time_us=_number(found["end_time_us"]),
                parts=_number(found["parts"]),
                partitions=_number(found["partitions"]),
                rows=_number(found["rows"]),
                size_bytes=_number(found["size_bytes"]),
                index_sha256=_text(found["index_sha256"]),
            )
            if found["sha256"] != _sha256(manifest._fields()):
                raise ValueError("sha256")
            return manifest

        return _decoded(text, read)

    def _fields(self) -> dict[str, object]:
        return {
            "format": _FORMAT,
            "version": VERSION,
            "transfer_id": self.begun.transfer_id,
            "installation_id": self.begun.installation_id,
            "begin_time_us": self.begun.begin_time_us,
            "end_time_us": self.end_time_us,
            "parts": self.parts,
            "partitions": self.partitions,
            "rows": self.rows,
            "size_bytes": self.size_bytes,
            "index_sha256": self.index_sha256,
        }


def _check_version(found: Mapping[str, object]) -> None:
    if found.get("format") != _FORMAT:
        raise ValueError("format")
    version = _number(found["version"])
    if version != VERSION:
        text = f"the dump is of version {version}, this Tarn reads {VERSION}"
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)


def _range_to(found: Range) -> list[object]:
    partition = found.partition
    return [
        partition.name,
        partition.kind.value,
        partition.buckets,
        found.start.hex(),
        None if found.end is None else found.end.hex(),
        found.rows,
        found.size_bytes,
        found.digest,
    ]


def _range_from(fields: object) -> Range:
    if not isinstance(fields, list):
        raise TypeError(fields)
    name, kind, buckets, start, end, rows, size_bytes, digest = fields
    return Range(
        Partition(_text(name), PartitionKind(kind), _number(buckets)),
        bytes.fromhex(_text(start)),
        None if end is None else bytes.fromhex(_text(end)),
        _number(rows),
        _number(size_bytes),
        _text(digest),
    )


def _line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _decoded(text: bytes, read: Callable[[Mapping[str, object]], T]) -> T:
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise TypeError(found)
        return read(found)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise corrupt_error(f"the dump cannot be read: {text[:120]!r}… ({error!r})") from error


def _sha256(fields: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    value.encode()  # JSON can spell half of a surrogate pair, which is no text
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(value)
    return value

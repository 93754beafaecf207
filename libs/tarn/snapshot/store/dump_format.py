"""The text files of a dump: the header and the lines of the index, and the manifest.

`docs/formats/kv-dump.md` describes them. Unreadable text is CORRUPT; a newer version is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import LEVEL_FIRST, StoreLevel, unsupported
from tarn.kv.port import Partition, PartitionKind
from tarn.snapshot.files.ranges import Range

__all__ = ["VERSION", "IndexHeader", "Finished", "Part", "corrupt_error"]

VERSION = 2
_VERSION_OF_LEVEL_1 = 1
"""A dump of feature level 1 has no level, so that the last release can load it."""
_FORMAT = "tarn kv dump"
_TEXT_BYTES_MAX = 16 << 20
"""Of a line or of the manifest. The line of a part names up to some hundred ranges, each by two keys in hex."""
_FILE = re.compile(r"[0-9]{1,18}\.parquet")

T = TypeVar("T")


def corrupt_error(text: str) -> TarnError:
    """The error for a dump that is damaged, or for files that are not a dump."""
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The first line of the index, which identifies the dump.

    Attributes:
        transfer_id: id of this dump.
        installation_id: the installation that is dumped.
        begin_time_us: when the dump began, in Unix microseconds.
        level: the feature level of the store. Releases that do not know levels cannot read a dump of a later one.
    """

    transfer_id: str
    installation_id: str
    begin_time_us: int
    level: int = LEVEL_FIRST

    def encode(self) -> bytes:
        """Encodes the header as a line."""
        return _line(
            {
                "format": _FORMAT,
                **_version_of(self),
                "transfer_id": self.transfer_id,
                "installation_id": self.installation_id,
                "begin_time_us": self.begin_time_us,
            }
        )

    @classmethod
    def decode(cls, line: bytes) -> IndexHeader:
        """Decodes the header from a line.

        Raises:
            TarnError: CORRUPT: the line cannot be read. FAILED_PRECONDITION: it has another version.
        """

        def read(found: Mapping[str, object]) -> IndexHeader:
            _check_version(found)
            return _begun(found)

        return _decoded(line, read)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of rows: a line of the index.

    Attributes:
        file: its name in the folder `parts`.
        size_bytes: size of the file.
        sha256: hash of the file's bytes, in hex.
        ranges: the ranges whose rows the file holds, in this order.
    """

    file: str
    size_bytes: int
    sha256: str
    ranges: tuple[Range, ...]

    def encode(self) -> bytes:
        """Encodes the part as a line."""
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
        """Decodes a part from a line.

        Raises:
            TarnError: CORRUPT: the line cannot be read.
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
    """The manifest. It is written last, so a dump that has one is complete.

    Attributes:
        begun: as in the index.
        end_time_us: when the dump was finished, in Unix microseconds.
        parts: number of files.
        partitions: number of partitions that hold at least one row.
        rows: number of rows in all partitions.
        size_bytes: size of all keys and values.
        index_sha256: hash of the whole index, in hex; through it, the manifest covers every other file.
    """

    begun: IndexHeader
    end_time_us: int
    parts: int
    partitions: int
    rows: int
    size_bytes: int
    index_sha256: str

    def encode(self) -> bytes:
        """Encodes the manifest as the contents of its file."""
        fields = self._fields()
        return json.dumps({**fields, "sha256": _sha256(fields)}, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, text: bytes) -> Finished:
        """Decodes the manifest.

        Raises:
            TarnError: CORRUPT: the file cannot be read. FAILED_PRECONDITION: it has another version.
        """

        def read(found: Mapping[str, object]) -> Finished:
            _check_version(found)
            manifest = cls(
                _begun(found),
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
            **_version_of(self.begun),
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
    if version not in (_VERSION_OF_LEVEL_1, VERSION):
        text = f"the dump has format version {version}, this Tarn reads up to version {VERSION}; use a newer Tarn"
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
    level = LEVEL_FIRST if version == _VERSION_OF_LEVEL_1 else _number(found["level"])
    if text := unsupported(StoreLevel(level, level), _text(found["installation_id"])):
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.FEATURE_LEVEL, f"the dump: {text}")


def _version_of(begun: IndexHeader) -> dict[str, int]:
    if begun.level == LEVEL_FIRST:
        return {"version": _VERSION_OF_LEVEL_1}
    return {"version": VERSION, "level": begun.level}


def _begun(found: Mapping[str, object]) -> IndexHeader:
    level = LEVEL_FIRST if found["version"] == _VERSION_OF_LEVEL_1 else _number(found["level"])
    return IndexHeader(
        _text(found["transfer_id"]),
        _text(found["installation_id"]),
        _number(found["begin_time_us"]),
        level,
    )


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
        if len(text) > _TEXT_BYTES_MAX:  # JSON of a few bytes becomes an object of many
            raise ValueError(f"{len(text)} bytes, more than {_TEXT_BYTES_MAX}")
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
    value.encode()  # JSON can spell half of a surrogate pair, which UTF-8 cannot encode
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(value)
    return value

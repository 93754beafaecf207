"""The text files of a backup: the index, which lists its chunks, and the manifest, which is written last.

`docs/formats/backup.md` describes them. Unreadable text is CORRUPT; a newer version is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import Partition, PartitionKind
from tarn.snapshot.files.chunks import corrupt_error, pack, unpack
from tarn.snapshot.files.ranges import Range

__all__ = [
    "BACKUP_ID",
    "INDEX_BYTES_MAX",
    "INDEX_LINES_MAX",
    "MANIFEST_BYTES_MAX",
    "IndexFile",
    "Manifest",
    "SavedRepository",
    "decode_index",
    "encode_index",
    "index_file",
    "manifest_file",
]

_VERSION_OF_LEVEL_1: Final = 1
"""A backup of feature level 1 records no level, so that the last release can restore it. Nor do those that this
release's first versions made, of any level."""
_VERSION: Final = 2
INDEX_LINES_MAX: Final = 10_000
"""Chunks of one file of the index."""
BACKUP_ID: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9]{6}[0-9a-f]{4}")
"""Ids of backups, in order of time: the begin in UTC with microseconds, and four random digits."""
_FORMAT: Final = "tarn backup"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
INDEX_BYTES_MAX: Final = 256 << 20
MANIFEST_BYTES_MAX: Final = 32 << 20
"""Some 300 bytes for each repository, and 70 for each 10,000 chunks."""
_LINE_BYTES_MAX: Final = 64 << 10
"""A line has the name of a partition, and two keys of at most 4 KiB in hex."""


def manifest_file(backup_id: str) -> str:
    """The name of the manifest in the target. A backup without it is not finished."""
    return f"backups/{backup_id}/manifest.json"


def index_file(backup_id: str, number: int) -> str:
    """The name of a file of the index; numbers begin with 1."""
    return f"backups/{backup_id}/index-{number:06d}.jsonl.zst"


@dataclass(frozen=True, slots=True)
class SavedRepository:
    """The facts about one repository in a backup.

    Attributes:
        repository_id: its name.
        instance_uid: its instance.
        storage_namespace: where its blocks are.
        branches: number of branches.
        tags: number of tags.
        commits: number of commits.
        staged: number of uncommitted rows.
    """

    repository_id: str
    instance_uid: str
    storage_namespace: str
    branches: int
    tags: int
    commits: int
    staged: int


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file of the index: its name, and the SHA-256 of its bytes in hex."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a finished backup.

    Attributes:
        backup_id: see `BACKUP_ID`.
        installation_id: the installation.
        begin_time_us: every write that was acknowledged before is in the backup; Unix microseconds.
        end_time_us: nothing later is in the backup.
        encryption_key_ids: ids of the keys that users' secrets may be encrypted with; they reveal nothing.
        repositories: by name.
        chunks: number of chunks.
        new_chunks: number of those that the target did not hold before.
        rows: number of rows.
        size_bytes: size of their keys and values.
        new_bytes: size of the new chunks' files.
        index: the files of the index, in order.
        level: the feature level of the store at the end of the backup (`tarn.core.levels`), 2 or more; None: it
            was 1, or is not recorded.
    """

    backup_id: str
    installation_id: str
    begin_time_us: int
    end_time_us: int
    encryption_key_ids: tuple[str, ...]
    repositories: tuple[SavedRepository, ...]
    chunks: int
    new_chunks: int
    rows: int
    size_bytes: int
    new_bytes: int
    index: tuple[IndexFile, ...]
    level: int | None = None

    def encode(self) -> bytes:
        """Encodes the manifest as the contents of its file."""
        fields = self._fields()
        return json.dumps({**fields, "sha256": _sha256(fields)}, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, text: bytes) -> Manifest:
        """Decodes a manifest.

        Raises:
            TarnError: CORRUPT: it cannot be read, or was changed. FAILED_PRECONDITION: it has another version.
        """
        try:
            found = json.loads(text)
            return cls._read(found)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise corrupt_error(f"a manifest of a backup cannot be read: {error!r}") from error

    @classmethod
    def _read(cls, found: Mapping[str, object]) -> Manifest:
        if found["format"] != _FORMAT:
            raise ValueError("format")
        version = _number(found["version"])
        if version not in (_VERSION_OF_LEVEL_1, _VERSION):
            text = f"the backup has format version {version}, this Tarn reads up to {_VERSION}; use a newer Tarn"
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
        backup_id = _text(found["backup_id"])
        if not BACKUP_ID.fullmatch(backup_id):
            raise ValueError("backup_id")
        manifest = cls(
            backup_id,
            _text(found["installation_id"]),
            begin_time_us=_number(found["begin_time_us"]),
            end_time_us=_number(found["end_time_us"]),
            encryption_key_ids=tuple(map(_text, _list(found["encryption_key_ids"]))),
            repositories=tuple(map(_repository_from, _list(found["repositories"]))),
            chunks=_number(found["chunks"]),
            new_chunks=_number(found["new_chunks"]),
            rows=_number(found["rows"]),
            size_bytes=_number(found["size_bytes"]),
            new_bytes=_number(found["new_bytes"]),
            index=tuple(
                IndexFile(index_file(backup_id, number), _digest(each))
                for number, each in enumerate(_list(found["index"]), 1)
            ),
            level=None if version == _VERSION_OF_LEVEL_1 else _number(found["level"]),
        )
        if found["sha256"] != _sha256(manifest._fields()):
            raise ValueError("sha256")
        return manifest

    def _fields(self) -> dict[str, object]:
        return {
            "format": _FORMAT,
            **self._version(),
            "backup_id": self.backup_id,
            "installation_id": self.installation_id,
            "begin_time_us": self.begin_time_us,
            "end_time_us": self.end_time_us,
            "encryption_key_ids": list(self.encryption_key_ids),
            "repositories": [_repository_to(each) for each in self.repositories],
            "chunks": self.chunks,
            "new_chunks": self.new_chunks,
            "rows": self.rows,
            "size_bytes": self.size_bytes,
            "new_bytes": self.new_bytes,
            "index": [each.sha256 for each in self.index],
        }

    def _version(self) -> dict[str, object]:
        if self.level is None:
            return {"version": _VERSION_OF_LEVEL_1}
        return {"version": _VERSION, "level": self.level}


def encode_index(ranges: Sequence[Range]) -> bytes:
    """Encodes a file of the index: a line for each chunk, compressed."""
    return pack(b"".join(_line(each) for each in ranges))


def decode_index(data: bytes, about: str) -> list[Range]:
    """Decodes a file of the index.

    Raises:
        TarnError: CORRUPT.
    """
    lines = unpack(data, about, INDEX_BYTES_MAX).splitlines()
    try:
        if len(lines) > INDEX_LINES_MAX or max(map(len, lines), default=0) > _LINE_BYTES_MAX:
            text = f"more than {INDEX_LINES_MAX} lines, or one of more than {_LINE_BYTES_MAX} bytes"
            raise ValueError(text)
        return [_range_from(json.loads(line)) for line in lines]
    except (ValueError, TypeError, RecursionError) as error:
        raise corrupt_error(f"{about} cannot be read: {error!r}") from error


def _line(found: Range) -> bytes:
    partition = found.partition
    fields = [
        partition.name,
        partition.kind.value,
        partition.buckets,
        found.start.hex(),
        None if found.end is None else found.end.hex(),
        found.rows,
        found.size_bytes,
        found.digest,
    ]
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _range_from(fields: object) -> Range:
    name, kind, buckets, start, end, rows, size_bytes, digest = _list(fields)
    return Range(
        Partition(_text(name), PartitionKind(kind), _number(buckets)),
        bytes.fromhex(_text(start)),
        None if end is None else bytes.fromhex(_text(end)),
        _number(rows),
        _number(size_bytes),
        _digest(digest),
    )


_COUNTS: Final = ("branches", "tags", "commits", "staged")


def _repository_to(saved: SavedRepository) -> dict[str, object]:
    return {
        "repository_id": saved.repository_id,
        "instance_uid": saved.instance_uid,
        "storage_namespace": saved.storage_namespace,
        **{name: getattr(saved, name) for name in _COUNTS},
    }


def _repository_from(fields: object) -> SavedRepository:
    if not isinstance(fields, dict):
        raise TypeError(fields)
    return SavedRepository(
        _text(fields["repository_id"]),
        _text(fields["instance_uid"]),
        _text(fields["storage_namespace"]),
        **{name: _number(fields[name]) for name in _COUNTS},
    )


def _sha256(fields: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    value.encode()  # JSON can spell half of a surrogate pair, which UTF-8 cannot encode
    return value


def _digest(value: object) -> str:
    text = _text(value)
    if not _DIGEST.fullmatch(text):
        raise ValueError(text)
    return text


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(value)
    return value

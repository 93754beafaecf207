"""The text files of a snapshot: the index, which lists its chunks, and the manifest, which is written last.

`docs/formats/snapshot.md` describes them. Unreadable text is CORRUPT; a newer version is refused.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Final

from tarn.core.clock import IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import Partition, PartitionKind
from tarn.snapshot.files.content import TEXT_BYTES, corrupt_error
from tarn.snapshot.files.ranges import Range

__all__ = [
    "INDEX_LINES_MAX",
    "MANIFEST_BYTES_MAX",
    "SNAPSHOT_ID",
    "Manifest",
    "SavedRepository",
    "Scope",
    "decode_index",
    "encode_index",
    "manifest_file",
    "new_snapshot_id",
    "snapshot_folder",
]

VERSION: Final = 1
_FORMAT: Final = "tarn snapshot"
INDEX_LINES_MAX: Final = 10_000
"""Chunks of one text of the index; it also ends with the line that reaches `TEXT_BYTES`."""
SNAPSHOT_ID: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9]{6}[0-9a-f]{4}")
"""Ids of snapshots, in order of time: the begin in UTC with microseconds, and four random digits."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
MANIFEST_BYTES_MAX: Final = 32 << 20
"""Some 300 bytes for each repository, and 70 for each 10,000 chunks."""
_LINE_BYTES_MAX: Final = 64 << 10
"""A line has the name of a partition, and two keys of at most 4 KiB in hex."""


class Scope(enum.Enum):
    """What a snapshot is of, and how it was made. The value is the folder of such snapshots in a target.

    Attributes:
        INSTALLATION: a backup: records of an installation, in the order of `tarn.snapshot.records`, beside writers.
        STORE: all rows of an installation, while its store is closed.
        REPOSITORY: the portable records of one repository, as graveler gives them to its users.
    """

    INSTALLATION = "installation"
    STORE = "store"
    REPOSITORY = "repository"


def snapshot_folder(scope: Scope, snapshot_id: str) -> str:
    """The folder in the target for all files of a snapshot but its content."""
    return f"{scope.value}/{snapshot_id}"


def manifest_file(scope: Scope, snapshot_id: str) -> str:
    """The name of the manifest in the target. A snapshot without it is not finished."""
    return f"{snapshot_folder(scope, snapshot_id)}/manifest.json"


def new_snapshot_id(begin_us: int, ids: IdSource) -> str:
    """Makes an id; see `SNAPSHOT_ID`."""
    time = datetime.fromtimestamp(begin_us // 1_000_000, UTC)
    return f"{time:%Y%m%dT%H%M%SZ}-{begin_us % 1_000_000:06d}{ids.uuid7().hex()[-4:]}"


@dataclass(frozen=True, slots=True)
class SavedRepository:
    """The facts about one repository in a snapshot.

    Attributes:
        repository_id: its name.
        instance_uid: its instance.
        storage_namespace: where its blocks are.
        default_branch_id: its default branch.
        branches: number of branches.
        tags: number of tags.
        commits: number of commits.
        staged: number of uncommitted rows.
    """

    repository_id: str
    instance_uid: str
    storage_namespace: str
    default_branch_id: str
    branches: int = 0
    tags: int = 0
    commits: int = 0
    staged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of a finished snapshot.

    Attributes:
        scope: see `Scope`.
        snapshot_id: see `SNAPSHOT_ID`.
        installation_id: the installation; empty in a snapshot of a repository, whose user does not know it.
        begin_time_us: every write that was acknowledged before is in the snapshot; Unix microseconds.
        end_time_us: nothing later is in the snapshot.
        level: the feature level of the store at the end (`tarn.core.levels`); 0 for a repository.
        encryption_key_ids: ids of the keys that users' secrets may be encrypted with; they reveal nothing. Only of
            the scope INSTALLATION.
        repositories: by name; none in the scope STORE.
        chunks: number of chunks.
        new_chunks: number of those that the target did not hold before.
        rows: number of rows.
        size_bytes: size of their keys and values.
        new_bytes: size of the new chunks' files.
        index: digests of the texts of the index, in order.
    """

    scope: Scope
    snapshot_id: str
    installation_id: str
    begin_time_us: int
    end_time_us: int
    level: int
    encryption_key_ids: tuple[str, ...] = ()
    repositories: tuple[SavedRepository, ...] = ()
    chunks: int
    new_chunks: int
    rows: int
    size_bytes: int
    new_bytes: int
    index: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """The digest of the manifest, which covers all of the snapshot."""
        return _sha256(self._fields())

    def encode(self) -> bytes:
        """Encodes the manifest as the contents of its file."""
        return json.dumps({**self._fields(), "sha256": self.sha256}, indent=1).encode() + b"\n"

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
            raise corrupt_error(f"a manifest of a snapshot cannot be read: {error!r}") from error

    @classmethod
    def _read(cls, found: Mapping[str, object]) -> Manifest:
        if found["format"] != _FORMAT:
            raise ValueError("format")
        version = _number(found["version"])
        if version != VERSION:
            text = f"the snapshot has format version {version}, this Tarn reads {VERSION}; use a newer Tarn"
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
        snapshot_id = _text(found["snapshot_id"])
        if not SNAPSHOT_ID.fullmatch(snapshot_id):
            raise ValueError("snapshot_id")
        manifest = cls(
            scope=Scope(found["scope"]),
            snapshot_id=snapshot_id,
            installation_id=_text(found["installation_id"]),
            encryption_key_ids=tuple(map(_text, _list(found["encryption_key_ids"]))),
            repositories=tuple(map(_repository_from, _list(found["repositories"]))),
            index=tuple(map(_digest, _list(found["index"]))),
            **{name: _number(found[name]) for name in _NUMBERS},
        )
        if len(set(manifest.index)) < len(manifest.index):
            raise ValueError("index: one small text, named again and again, would fill the memory")
        if found["sha256"] != manifest.sha256:
            raise ValueError("sha256")
        return manifest

    def _fields(self) -> dict[str, object]:
        # As JSON has them: the digest of what was read must be that of what was written.
        found = {**asdict(self), "scope": self.scope.value}
        return {"format": _FORMAT, "version": VERSION, **found}


_NUMBERS: Final = tuple(each.name for each in fields(Manifest) if each.type == "int")
_COUNTS: Final = ("branches", "tags", "commits", "staged")
_NAMES: Final = ("repository_id", "instance_uid", "storage_namespace", "default_branch_id")


def encode_index(ranges: Iterable[Range]) -> Iterator[bytes]:
    """Yields the texts of an index, with a line for each chunk."""
    lines: list[bytes] = []
    size = 0
    for each in ranges:
        lines.append(_line(each))
        size += len(lines[-1])
        if len(lines) == INDEX_LINES_MAX or size >= TEXT_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    if lines:
        yield b"".join(lines)


def decode_index(text: bytes, about: str) -> list[Range]:
    """Decodes a text of the index.

    Raises:
        TarnError: CORRUPT.
    """
    lines = text.splitlines()
    try:
        if len(lines) > INDEX_LINES_MAX or max(map(len, lines), default=0) > _LINE_BYTES_MAX:
            why = f"more than {INDEX_LINES_MAX} lines, or one of more than {_LINE_BYTES_MAX} bytes"
            raise ValueError(why)
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


def _repository_from(found: object) -> SavedRepository:
    if not isinstance(found, dict):
        raise TypeError(found)
    repository_id, instance_uid, namespace, default = (_text(found[name]) for name in _NAMES)
    counts = {name: _number(found[name]) for name in _COUNTS}
    return SavedRepository(repository_id, instance_uid, namespace, default, **counts)


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

"""The commit: an immutable snapshot of a repository, identified by a hash of its contents.

Canonical bytes, version 1 (`docs/formats/commit.md`): the magic, the version, then every field in the order of
the dataclass, with little-endian integers and every text preceded by its length. The lengths make the encoding
injective: no two commits have the same bytes. The id is the SHA-256 of these bytes. They do not contain the
repository, so the same history has the same ids wherever it is copied.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from dataclasses import dataclass
from typing import TypeVar

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, MetarangeId
from tarn.core.moments import At, iso_time, parse_moment

__all__ = [
    "AUTHOR_TIME",
    "COMMITS",
    "COMMIT_PATH",
    "NOTES",
    "NOTE_PATH",
    "VERSION",
    "Commit",
    "author_time_us",
    "canonical_bytes",
    "commit_id_of",
    "commit_path",
    "from_json",
    "note_path",
    "to_json",
    "with_author_time",
]

VERSION = 1
AUTHOR_TIME = "tarn.author_time"
"""Name under which a commit's metadata records when its author made the change, as `iso_time` writes it."""
COMMITS = "_tarn/commits/"
"""Where a storage namespace holds its commits, one object each. A repository has one from its creation on."""
COMMIT_PATH = re.compile(rf"{COMMITS}([0-9a-f]{{64}})\.json")
"""Matches what `commit_path` returns; the group is the commit's id."""
NOTES = "_tarn/refs/"
"""Where a storage namespace holds its notes: which commit became the head of which branch, and when."""
NOTE_PATH = re.compile(rf"{NOTES}([^/]+)/([0-9]{{20}})-([0-9a-f]{{64}})\.json")
"""Matches what `note_path` returns; the groups are the branch, the time and the commit's id."""

_T = TypeVar("_T", str, int, list[object])
_ID = re.compile(r"[0-9a-f]{64}")
_MAGIC = b"tarn commit\n"
_U32 = struct.Struct("<I")
_TIMES = struct.Struct("<qQ")
# The errors that damaged bytes cause in the JSON reader and in the code that uses its result.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit.

    Attributes:
        parents: commit ids, first parent first; empty for the first commit of a repository.
        metarange_id: the listing of the snapshot.
        committer: the user who committed.
        message: the user's description of the change.
        create_time_us: microseconds since the Unix epoch.
        generation: 0 without parents, else 1 + the greatest generation of the parents. Lets a search for a
            merge base stop early.
        metadata: pairs of name and value. Invariant: sorted by name, names unique.
        version: version of the canonical encoding.
    """

    parents: tuple[CommitId, ...]
    metarange_id: MetarangeId
    committer: str
    message: str
    create_time_us: int
    generation: int
    metadata: tuple[tuple[str, str], ...] = ()
    version: int = VERSION


def author_time_us(commit: Commit) -> int | None:
    """Returns when the author of a commit made the change, in Unix microseconds; None: when it was committed."""
    for name, value in commit.metadata:
        if name == AUTHOR_TIME:
            moment = parse_moment(value)
            if isinstance(moment, At) and iso_time(moment.time_us) == value:
                return moment.time_us
    return None


def with_author_time(
    metadata: tuple[tuple[str, str], ...], time_us: int
) -> tuple[tuple[str, str], ...]:
    """Returns the metadata of a commit, with the time at which its author made the change."""
    return tuple(sorted((*metadata, (AUTHOR_TIME, iso_time(time_us)))))


def _text(value: str) -> bytes:
    data = value.encode()
    return _U32.pack(len(data)) + data


def canonical_bytes(commit: Commit) -> bytes:
    """The bytes that the id is a hash of.

    Raises:
        TarnError: CORRUPT: this code does not know the commit's version.
    """
    _check_version(commit.version)
    names = [name for name, _ in commit.metadata]
    assert names == sorted(set(names)), "metadata must be sorted and its names unique"
    parts = [_MAGIC, _U32.pack(commit.version), _U32.pack(len(commit.parents))]
    parts += [_text(parent) for parent in commit.parents]
    parts += [_text(commit.metarange_id), _text(commit.committer), _text(commit.message)]
    parts += [_TIMES.pack(commit.create_time_us, commit.generation), _U32.pack(len(names))]
    parts += [_text(text) for pair in commit.metadata for text in pair]
    return b"".join(parts)


def commit_id_of(commit: Commit) -> CommitId:
    """The commit's id: 64 lower-case hex digits. Raises as `canonical_bytes` does."""
    return CommitId(hashlib.sha256(canonical_bytes(commit)).hexdigest())


def commit_path(commit_id: CommitId | str) -> str:
    """Returns the path of a commit's object in its storage namespace."""
    return f"{COMMITS}{commit_id}.json"


def note_path(branch_id: BranchId, time_us: int, commit_id: CommitId) -> str:
    """Returns the path of a note; a branch's notes sort by their time, in microseconds since the Unix epoch."""
    return f"{NOTES}{branch_id}/{time_us:020d}-{commit_id}.json"


def to_json(commit: Commit) -> bytes:
    """Encodes the object at `commit_path`; equal commits give equal bytes."""
    fields = {
        "version": commit.version,
        "commit_id": commit_id_of(commit),
        "parents": commit.parents,
        "metarange_id": commit.metarange_id,
        "committer": commit.committer,
        "message": commit.message,
        "create_time_us": commit.create_time_us,
        "generation": commit.generation,
        "metadata": dict(commit.metadata),
    }
    return json.dumps(fields, ensure_ascii=False, indent=2).encode() + b"\n"


def from_json(data: bytes) -> Commit:
    """Decodes a commit from such an object.

    Raises:
        TarnError: CORRUPT: the object is damaged, has an unknown version, or does not match its id.
    """
    try:
        fields = json.loads(data)
        _check_version(fields["version"])
        commit = Commit(
            parents=tuple(CommitId(_id(parent)) for parent in _of(list, fields["parents"])),
            metarange_id=MetarangeId(_id(fields["metarange_id"])),
            committer=_of(str, fields["committer"]),
            message=_of(str, fields["message"]),
            create_time_us=_of(int, fields["create_time_us"]),
            generation=_of(int, fields["generation"]),
            metadata=tuple(
                sorted((name, _of(str, value)) for name, value in fields["metadata"].items())
            ),
        )
        claimed, found = fields["commit_id"], commit_id_of(commit)
    except _UNREADABLE as error:
        raise _corrupt(f"commit object cannot be read: {error!r}") from error
    if claimed != found:
        raise _corrupt(f"the commit object of {claimed!r} hashes to {found}")
    return commit


def _of(kind: type[_T], value: object) -> _T:
    # In Python, True is an int; it would be a second spelling of 1.
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def _id(value: object) -> str:
    """Checks an id, because it becomes a name in the bucket."""
    text = _of(str, value)
    if not _ID.fullmatch(text):
        raise ValueError(f"{value!r} is not an id")
    return text


def _check_version(version: int) -> None:
    if version != VERSION:
        raise _corrupt(f"commit has version {version!r}, this code knows {VERSION}")


def _corrupt(text: str) -> TarnError:
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)

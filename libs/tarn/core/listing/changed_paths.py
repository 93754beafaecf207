"""The paths that a commit changed, in a form that is small enough to keep beside every commit.

A commit *changes* a path if the identity of its entry there differs from that of each parent. A log by path asks for
each commit whether it changes one of some paths. The answer is kept in one of four forms, the first that fits:

    form           holds                                              answers
    PATHS          every path                                         exactly
    FINGERPRINTS   32 bits of every path and of every folder          no, or maybe
    FOLDERS        32 bits of every folder                            no, or maybe
    UNKNOWN        nothing                                            maybe

A folder is the part of a path up to one of its slashes, so a path has as many folders as slashes. "Maybe" is decided by
comparing the listings, so two texts with equal fingerprints cost time and never a wrong answer.

Prior art: the changed-path Bloom filters of git's commit-graph. Fingerprints take 4 bytes for a path, Bloom filters as
git has them 1.25. But a Bloom filter is wrong for 1 commit in 100, and each time two ranges are opened (10 ms);
fingerprints are wrong for 1 in 250,000 here.
"""

from __future__ import annotations

import enum
import hashlib
import json
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from posixpath import commonprefix

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.run import data_of, offsets_of

__all__ = [
    "NO_PATHS",
    "UNKNOWN_PATHS",
    "Answer",
    "ChangedPaths",
    "Form",
    "PathCollector",
    "PathQuery",
    "fingerprints_of",
]

Marks = npt.NDArray[np.uint32]

_VERSION = 1
_PATHS_MAX = 512
_PATHS_BYTES_MAX = 16 << 10
_MARKS_MAX = 16_384
_ENCODED_BYTES_MAX = 1 << 18
_HEAD = struct.Struct("<BBI")
_SLASH = ord("/")
_FEW_PATHS = 256
"""Paths whose folders are found one by one: fewer cost less so than by another look at their bytes."""


class Form(enum.IntEnum):
    """The form in which the changed paths are kept."""

    PATHS = 1
    FINGERPRINTS = 2
    FOLDERS = 3
    UNKNOWN = 4


class Answer(enum.Enum):
    """Whether a commit changes one of some paths."""

    NO = "no"
    YES = "yes"
    MAYBE = "maybe"


def fingerprints_of(texts: Iterable[str]) -> Marks:
    """32 bits of each text, in the same order."""
    return _marks_of(text.encode() for text in texts)


def _marks_of(texts: Iterable[bytes]) -> Marks:
    return np.fromiter(map(zlib.crc32, texts), np.uint32)


def _folder_of(path: str) -> str:
    return path[: path.rfind("/") + 1]


def _folders_in(paths: pa.StringArray) -> Iterator[str]:
    """Yields the longest folder of each path, in order, but mostly once for neighbours that share it.

    Of sorted paths, what the first and the last one begin with, all begin with. If they have no slash beyond that, they
    are in one folder, and a million paths of a folder cost one look at their bytes.
    """
    shared = _folder_of(commonprefix([paths[0].as_py(), paths[-1].as_py()]))
    ends = offsets_of(paths)
    slashes = np.count_nonzero(data_of(paths)[ends[0] : ends[-1]] == _SLASH)
    if slashes == len(paths) * shared.count("/"):
        yield shared
    elif len(paths) <= _FEW_PATHS:
        yield from map(_folder_of, paths.to_pylist())
    else:
        half = len(paths) // 2
        yield from _folders_in(paths.slice(0, half))
        yield from _folders_in(paths.slice(half))


def _folders(path: str) -> Iterable[str]:
    """The folders of a path, longest first."""
    at = len(path)
    while (at := path.rfind("/", 0, at)) >= 0:
        yield path[: at + 1]


@dataclass(frozen=True, slots=True, eq=False)
class PathQuery:
    """Paths that a log asks for: each of `paths`, and all that start with one of `prefixes`.

    Attributes:
        marks: fingerprints of the paths, and of the folders that hold each prefix.
        folder_marks: fingerprints of the folders that hold the paths and the prefixes.
        anywhere: whether a prefix, and whether a path or a prefix, lies in no folder, so that folders say nothing.
        digest: 16 bytes, the same for equal queries.
    """

    paths: tuple[str, ...]
    prefixes: tuple[str, ...]
    marks: Marks = field(init=False)
    folder_marks: Marks = field(init=False)
    anywhere: tuple[bool, bool] = field(init=False)
    digest: bytes = field(init=False)
    _set: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        of_paths = [_folder_of(path) for path in self.paths]
        of_prefixes = [_folder_of(prefix) for prefix in self.prefixes]
        inside = [folder for folder in of_prefixes if folder]
        both = inside + [folder for folder in of_paths if folder]
        object.__setattr__(self, "marks", fingerprints_of([*self.paths, *inside]))
        object.__setattr__(self, "folder_marks", fingerprints_of(both))
        object.__setattr__(self, "anywhere", ("" in of_prefixes, "" in of_prefixes + of_paths))
        said = json.dumps([self.paths, self.prefixes]).encode()
        object.__setattr__(self, "digest", hashlib.blake2b(said, digest_size=16).digest())
        object.__setattr__(self, "_set", frozenset(self.paths))

    def matches(self, path: str) -> bool:
        """Whether the query asks for a path."""
        return path in self._set or path.startswith(self.prefixes)

    def matches_any(self, paths: Sequence[str]) -> bool:
        """Whether the query asks for one of some paths, which are sorted. O(paths), and O(log) for each prefix."""
        if not self._set.isdisjoint(paths):
            return True
        for prefix in self.prefixes:
            place = bisect_left(paths, prefix)
            if place < len(paths) and paths[place].startswith(prefix):
                return True
        return False


@dataclass(frozen=True, slots=True, eq=False)
class ChangedPaths:
    """The paths that one commit changed, as far as they are kept.

    Attributes:
        form: how the paths are kept.
        paths: with `PATHS`, sorted.
        marks: with `FINGERPRINTS` and `FOLDERS`, sorted.
    """

    form: Form
    paths: tuple[str, ...] = ()
    marks: Marks = field(default_factory=lambda: np.zeros(0, np.uint32))

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, approximately."""
        return 200 + sum(len(path) + 60 for path in self.paths) + self.marks.nbytes

    def answer(self, query: PathQuery) -> Answer:
        """Whether the commit changes a path that the query asks for."""
        if self.form is Form.PATHS:
            return Answer.YES if query.matches_any(self.paths) else Answer.NO
        if self.form is Form.UNKNOWN:
            return Answer.MAYBE
        is_full = self.form is Form.FINGERPRINTS
        if query.anywhere[0 if is_full else 1]:
            return Answer.MAYBE
        held = self.holds(query.marks if is_full else query.folder_marks)
        return Answer.MAYBE if held.any() else Answer.NO

    def holds(self, marks: Marks) -> npt.NDArray[np.bool_]:
        """Which fingerprints are among those that are kept; requires `FINGERPRINTS` or `FOLDERS`."""
        if not len(self.marks):
            return np.zeros(len(marks), np.bool_)
        at = np.searchsorted(self.marks, marks)
        found: npt.NDArray[np.bool_] = self.marks.take(at, mode="clip") == marks
        return found

    def encode(self) -> bytes:
        """Encodes it as the value of a row (docs/formats/changed-paths.md)."""
        body = self.marks.astype("<u4").tobytes()
        count = len(self.marks)
        if self.form is Form.PATHS:
            texts = [path.encode() for path in self.paths]
            lengths = np.array([len(text) for text in texts], "<u2").tobytes()
            body, count = zlib.compress(lengths + b"".join(texts), 1), len(texts)
        return _HEAD.pack(_VERSION, self.form, count) + body

    @staticmethod
    def decode(data: bytes) -> ChangedPaths:
        """Decodes it.

        Raises:
            TarnError: CORRUPT: the bytes are damaged or of an unknown version.
        """
        try:
            version, form_code, count = _HEAD.unpack_from(data)
            form, body = Form(form_code), data[_HEAD.size :]
            if version != _VERSION or len(data) > _ENCODED_BYTES_MAX:
                raise ValueError(f"version {version}, {len(data)} bytes")
            if form is Form.PATHS:
                return ChangedPaths(form, _paths_of(body, count))
            marks = np.frombuffer(body, "<u4").astype(np.uint32)
            if len(marks) != count or (np.diff(marks.astype(np.int64)) <= 0).any():
                raise ValueError(f"{len(marks)} fingerprints, not {count} in order")
        except (ValueError, struct.error, zlib.error) as error:
            text = f"the changed paths of a commit cannot be read: {error}"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text) from error
        return ChangedPaths(form, (), marks)


def _paths_of(body: bytes, count: int) -> tuple[str, ...]:
    if count > _PATHS_MAX:
        raise ValueError(f"{count} paths")
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(body, 2 * count + _PATHS_BYTES_MAX)
    ends = 2 * count + np.frombuffer(data, "<u2", count).astype(np.int64).cumsum()
    if not unpacker.eof or (len(data) != (int(ends[-1]) if count else 0)):
        raise ValueError("paths of another length")
    starts = [2 * count, *ends[:-1].tolist()]
    return tuple(data[a:b].decode() for a, b in zip(starts, ends.tolist(), strict=False))


NO_PATHS = ChangedPaths(Form.PATHS)
"""A commit that changes no path, such as a merge: it takes every path from one of its parents."""

UNKNOWN_PATHS = ChangedPaths(Form.UNKNOWN)


class PathCollector:
    """Collects the changed paths of a commit, in order, in bounded memory."""

    def __init__(self) -> None:
        self._paths: list[str] | None = []
        self._paths_bytes = 0
        self._marks: list[Marks] = []
        self._count = 0
        self._folders: set[str] | None = set()
        self._last_folder = ""

    def add(self, paths: pa.StringArray | Sequence[str]) -> None:
        """Adds paths that follow those added before, in byte order."""
        if self._folders is None or not len(paths):
            return
        if not isinstance(paths, pa.Array):
            paths = pa.array(paths, pa.string())
        self._count += len(paths)
        if self._count <= _MARKS_MAX:
            self._marks.append(_marks_of(paths.cast(pa.binary()).to_pylist()))
        if self._paths is not None:
            ends = offsets_of(paths)
            self._paths_bytes += int(ends[-1] - ends[0])
            fits = self._count <= _PATHS_MAX and self._paths_bytes <= _PATHS_BYTES_MAX
            self._paths = [*self._paths, *paths.to_pylist()] if fits else None
        for folder in _folders_in(paths):
            if folder != self._last_folder:
                self._last_folder = folder
                self._folders.update(_folders(folder))
                if len(self._folders) > _MARKS_MAX:
                    self._folders, self._marks = None, []
                    return

    def result(self) -> ChangedPaths:
        """The paths, in the first form that fits."""
        if self._paths is not None:
            return ChangedPaths(Form.PATHS, tuple(self._paths))
        if self._folders is None:
            return UNKNOWN_PATHS
        folders = fingerprints_of(self._folders)
        if self._count + len(folders) <= _MARKS_MAX:
            every = np.concatenate([*self._marks, folders])
            return ChangedPaths(Form.FINGERPRINTS, (), np.unique(every))
        return ChangedPaths(Form.FOLDERS, (), np.unique(folders))

"""A dump as a folder: parts, an index that grows with every part, and a manifest at the end.

    index.jsonl      a line that identifies the dump, then one line for each finished part
    parts/*.parquet  rows
    manifest.json    written last: a dump with a manifest is complete

The index is also the state of an interrupted dump. A part that it does not name is unfinished and is removed;
a torn last line is ignored. Everything here blocks.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import Partition
from tarn.snapshot.files.plain_files import read_plain
from tarn.snapshot.files.ranges import Range
from tarn.snapshot.store.dump_format import Finished, IndexHeader, Part, corrupt_error
from tarn.snapshot.store.parts import PARTS, Batches, sync_folder, write_part

__all__ = ["DumpFolder", "DumpWriter", "read_dump"]

INDEX = "index.jsonl"
MANIFEST = "manifest.json"
_MANIFEST_BYTES_MAX = 1 << 20
_INDEX_BYTES_MAX = 1 << 30


class DumpFolder:
    """A finished dump.

    Attributes:
        path: the folder.
        manifest: the parsed manifest.
        parts: its files, as the index lists them.
    """

    def __init__(self, path: Path, manifest: Finished, parts: tuple[Part, ...]) -> None:
        self.path = path
        self.manifest = manifest
        self.parts = parts

    def partitions(self) -> dict[str, Partition]:
        """All partitions in the dump, by name."""
        found = (each.partition for part in self.parts for each in part.ranges)
        return {partition.name: partition for partition in found}


def read_dump(path: Path) -> DumpFolder:
    """Opens a finished dump. Checks the index now, and each part when it is read.

    Raises:
        TarnError: NOT_FOUND: there is no dump. FAILED_PRECONDITION: it is not finished, or has another
            format version. CORRUPT: it is damaged.
    """
    try:
        manifest = Finished.decode(read_plain(path, MANIFEST, _MANIFEST_BYTES_MAX))
    except FileNotFoundError:
        if (path / INDEX).exists():
            raise _refused(
                f"the dump {path} is not finished: `tarn kv dump` continues it"
            ) from None
        text = f"there is no dump at {path}"
        raise TarnError(Kind.NOT_FOUND, Reason.INVALID_ARGUMENT, text, path=str(path)) from None
    try:
        index = read_plain(path, INDEX, _INDEX_BYTES_MAX)
    except FileNotFoundError:
        raise corrupt_error(f"{path / INDEX} is missing") from None
    if hashlib.sha256(index).hexdigest() != manifest.index_sha256:
        raise corrupt_error(f"{path / INDEX} was changed after the dump")
    begun, *lines = index.splitlines() or [b""]
    if IndexHeader.decode(begun) != manifest.begun:
        raise corrupt_error(f"{path / MANIFEST} belongs to another dump")
    if len(lines) != manifest.parts:
        raise corrupt_error(f"{path / INDEX} has {len(lines)} parts, the manifest {manifest.parts}")
    return DumpFolder(path, manifest, tuple(Part.decode(line) for line in lines))


class DumpWriter:
    """Writes a dump; only one process at a time may. A context manager.

    Several threads may call `write` concurrently; all other methods take one thread at a time.

    Attributes:
        begun: the header of this dump, or of the interrupted dump that it continues.
    """

    def __init__(self, path: Path, begun: IndexHeader) -> None:
        """Begins a dump in an empty or missing folder, or continues an interrupted one.

        Raises:
            TarnError: FAILED_PRECONDITION: the folder holds something else, a finished dump, or a dump of
                another installation, or another process writes to it. CORRUPT: its index is damaged.
            OSError: the folder cannot be written.
        """
        self._path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._take_lock()
            self.begun, self._parts = self._restore(begun)
            self._remove_unknown()
            self._next = 1 + max((int(part.file.split(".")[0]) for part in self._parts), default=0)
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._lock)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The finished parts."""
        return tuple(self._parts)

    def covered(self) -> dict[str, bytes | None]:
        """By partition name, the key up to which it is dumped; None: it is dumped completely."""
        return {each.partition.name: each.end for part in self._parts for each in part.ranges}

    def next_file(self) -> str:
        """The name of the next part."""
        number, self._next = self._next, self._next + 1
        return f"{number:08d}.parquet"

    def write(self, file: str, found: Sequence[tuple[Range, Batches]]) -> Part:
        """Writes the file of a part. The part joins the dump only with `record`."""
        return write_part(self._path, file, found)

    def record(self, part: Part) -> None:
        """Adds a part to the dump. Parts of one partition must be added in order of keys."""
        with (self._path / INDEX).open("ab") as stream:
            stream.write(part.encode())
            stream.flush()
            os.fsync(stream.fileno())
        self._parts.append(part)

    def forget(self, names: set[str]) -> None:
        """Removes partitions from the dump, so that they are dumped again. May also remove others that share
        their files."""
        kept = [
            part
            for part in self._parts
            if not any(each.partition.name in names for each in part.ranges)
        ]
        self._parts = _in_sequence(kept)
        self._rewrite()
        self._remove_unknown()

    def finish(self, end_time_us: int) -> Finished:
        """Writes the manifest, which completes the dump."""
        ranges = [each for part in self._parts for each in part.ranges]
        manifest = Finished(
            self.begun,
            end_time_us,
            parts=len(self._parts),
            partitions=len({each.partition.name for each in ranges if each.rows}),
            rows=sum(each.rows for each in ranges),
            size_bytes=sum(each.size_bytes for each in ranges),
            index_sha256=hashlib.sha256((self._path / INDEX).read_bytes()).hexdigest(),
        )
        _replace(self._path, MANIFEST, manifest.encode())
        return manifest

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _refused(f"another process is writing a dump to {self._path}") from None

    def _restore(self, begun: IndexHeader) -> tuple[IndexHeader, list[Part]]:
        if (self._path / MANIFEST).exists():
            raise _refused(f"{self._path} holds a finished dump")
        (self._path / PARTS).mkdir(mode=0o700, exist_ok=True)
        try:
            text = read_plain(self._path, INDEX, _INDEX_BYTES_MAX)
        except FileNotFoundError:
            known = {PARTS, f".{INDEX}.draft"}
            if any(found.name not in known for found in self._path.iterdir()) or any(
                (self._path / PARTS).iterdir()
            ):
                raise _refused(f"{self._path} is not empty") from None
            _replace(self._path, INDEX, begun.encode())
            return begun, []
        header, *lines = text[: text.rfind(b"\n") + 1].splitlines() or [b""]
        found = IndexHeader.decode(header)
        if found.installation_id != begun.installation_id:
            text_ = f"{self._path} holds a dump of installation {found.installation_id!r}"
            raise _refused(text_)
        parts = _in_sequence([part for line in lines if self._is_there(part := Part.decode(line))])
        self.begun, self._parts = found, parts
        self._rewrite()
        return found, parts

    def _is_there(self, part: Part) -> bool:
        path = self._path / PARTS / part.file
        return path.exists() and path.stat().st_size == part.size_bytes

    def _rewrite(self) -> None:
        lines = [self.begun.encode(), *(part.encode() for part in self._parts)]
        _replace(self._path, INDEX, b"".join(lines))

    def _remove_unknown(self) -> None:
        known = {part.file for part in self._parts}
        for path in (self._path / PARTS).iterdir():
            if path.name not in known:
                path.unlink()


def _in_sequence(parts: Sequence[Part]) -> list[Part]:
    """The parts without gaps: drops each part with a range that does not begin where the last one ended."""
    kept = list(parts)
    while True:
        ends: dict[str, bytes | None] = {}
        whole = [part for part in kept if all(_goes_on(each, ends) for each in part.ranges)]
        if len(whole) == len(kept):
            return kept
        kept = whole


def _goes_on(found: Range, ends: dict[str, bytes | None]) -> bool:
    if ends.get(found.partition.name, b"") != found.start:
        return False
    ends[found.partition.name] = found.end
    return True


def _replace(folder: Path, name: str, data: bytes) -> None:
    """Writes a file atomically and durably."""
    draft = folder / f".{name}.draft"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(folder / name)
    sync_folder(folder)


def _refused(text: str) -> TarnError:
    return TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)

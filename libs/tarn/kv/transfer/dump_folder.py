"""A dump as a folder: parts, an index that grows with every part, and a manifest at the end.

    index.jsonl      a line on what this is, then one for each finished part
    parts/*.parquet  rows
    manifest.json    written last: with it the dump is whole

The index is also the state of a dump that was interrupted. A part that it does not name was not finished,
and goes; a last line that is torn counts for nothing. Everything here blocks.
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
from tarn.kv.transfer.dump_format import Begun, Finished, Part, corrupt_error
from tarn.kv.transfer.parts import PARTS, Batches, sync_folder, write_part
from tarn.kv.transfer.ranges import Range

__all__ = ["DumpFolder", "DumpWriter", "read_dump"]

INDEX = "index.jsonl"
MANIFEST = "manifest.json"


class DumpFolder:
    """A finished dump.

    Attributes:
        path: the folder.
        manifest: what it says of itself.
        parts: its files.
    """

    def __init__(self, path: Path, manifest: Finished, parts: tuple[Part, ...]) -> None:
        self.path = path
        self.manifest = manifest
        self.parts = parts

    def partitions(self) -> dict[str, Partition]:
        """Everything that is in it, by name."""
        found = (each.partition for part in self.parts for each in part.ranges)
        return {partition.name: partition for partition in found}


def read_dump(path: Path) -> DumpFolder:
    """Opens a finished dump; its index is checked, its parts are when they are read.

    Raises:
        TarnError: NOT_FOUND: there is none; FAILED_PRECONDITION: it is not finished, or of another
            version; CORRUPT.
    """
    try:
        manifest = Finished.decode((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        if (path / INDEX).exists():
            raise _refused(
                f"the dump {path} is not finished: `tarn kv dump` goes on with it"
            ) from None
        text = f"there is no dump at {path}"
        raise TarnError(Kind.NOT_FOUND, Reason.INVALID_ARGUMENT, text, path=str(path)) from None
    try:
        index = (path / INDEX).read_bytes()
    except FileNotFoundError:
        raise corrupt_error(f"{path / INDEX} is missing") from None
    if hashlib.sha256(index).hexdigest() != manifest.index_sha256:
        raise corrupt_error(f"{path / INDEX} was changed after the dump")
    begun, *lines = index.splitlines() or [b""]
    if Begun.decode(begun) != manifest.begun:
        raise corrupt_error(f"{path / MANIFEST} is of another dump")
    return DumpFolder(path, manifest, tuple(Part.decode(line) for line in lines))


class DumpWriter:
    """A dump that is being made, by this process alone. A context manager.

    `write` may be called from several threads at once, everything else from one at a time.

    Attributes:
        begun: of this dump, or of the interrupted one that goes on.
    """

    def __init__(self, path: Path, begun: Begun) -> None:
        """Begins a dump in a folder that is empty or not there, or goes on with one.

        Raises:
            TarnError: FAILED_PRECONDITION: the folder holds something else, a finished dump, or one of
                another installation, or somebody else writes to it; CORRUPT.
            OSError: it cannot be written.
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
        """What is finished."""
        return tuple(self._parts)

    def covered(self) -> dict[str, bytes | None]:
        """By partition name, the key up to which it is dumped; None: all of it."""
        return {each.partition.name: each.end for part in self._parts for each in part.ranges}

    def next_file(self) -> str:
        """The name of the next part."""
        number, self._next = self._next, self._next + 1
        return f"{number:08d}.parquet"

    def write(self, file: str, found: Sequence[tuple[Range, Batches]]) -> Part:
        """Writes the file of a part."""
        return write_part(self._path, file, found)

    def record(self, part: Part) -> None:
        """Makes a part belong to the dump. Parts of one partition must come in order of keys."""
        with (self._path / INDEX).open("ab") as stream:
            stream.write(part.encode())
            stream.flush()
            os.fsync(stream.fileno())
        self._parts.append(part)

    def forget(self, names: set[str]) -> None:
        """Takes partitions out, to be dumped again; others that share their files may go too."""
        kept = [
            part
            for part in self._parts
            if not any(each.partition.name in names for each in part.ranges)
        ]
        self._parts = _in_sequence(kept)
        self._rewrite()
        self._remove_unknown()

    def finish(self, end_time_us: int) -> Finished:
        """Writes the manifest: the dump is whole."""
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
            raise _refused(f"another process writes a dump to {self._path}") from None

    def _restore(self, begun: Begun) -> tuple[Begun, list[Part]]:
        if (self._path / MANIFEST).exists():
            raise _refused(f"{self._path} holds a finished dump")
        (self._path / PARTS).mkdir(mode=0o700, exist_ok=True)
        try:
            text = (self._path / INDEX).read_bytes()
        except FileNotFoundError:
            known = {PARTS, f".{INDEX}.draft"}
            if any(found.name not in known for found in self._path.iterdir()) or any(
                (self._path / PARTS).iterdir()
            ):
                raise _refused(f"{self._path} is not empty") from None
            _replace(self._path, INDEX, begun.encode())
            return begun, []
        header, *lines = text[: text.rfind(b"\n") + 1].splitlines() or [b""]
        found = Begun.decode(header)
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
    """Parts without those of which a range does not go on where the one before it ended."""
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
    """Writes a file whole or not at all, durably."""
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

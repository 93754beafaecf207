"""The file of a dump (`docs/formats/dump.md`): writing it with restarts, and reading it after checking every byte.

While it is written, a dump is a folder beside the file, `<file>.partial`, with one file of lines for each kind. Each
page is synced before its token is recorded, so an interrupted dump continues after its last whole page.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from tarn.core.dump import LINE_BYTES_MAX
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["FORMAT", "MEMBERS", "VERSION", "DumpFile", "DumpFolder", "Dumped"]

FORMAT = "tarn repository dump"
VERSION = 1
MEMBERS = {
    "settings": "settings.jsonl",
    "branch": "branches.jsonl",
    "tag": "tags.jsonl",
    "reflog": "reflogs.jsonl",
    "commit": "commits.jsonl",
    "expired": "expired.jsonl",
}
"""The member of the tar for each kind of line."""

_LATER = "expired.jsonl"
"""A member that dumps of earlier versions of Tarn lack: then no commit had expired."""
_MANIFEST = "manifest.json"
_STATE = "state.json"
_CHUNK_BYTES = 1 << 20
_MANIFEST_BYTES_MAX = 1 << 20
_MEMBERS_MAX = 64
_HEADER_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class Dumped:
    """The repository that a dump is of."""

    repository_id: str
    instance_uid: str
    storage_namespace: str
    default_branch_id: str


def _refused(text: str, hint: str) -> TarnError:
    """The error for a file or folder that cannot be used."""
    return TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, f"{text}; {hint}")


def _damaged(text: str, hint: str = "use another copy") -> TarnError:
    """The error for a dump that is none, or not whole."""
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, f"{text}; {hint}")


class DumpFolder:
    """A dump that is being written.

    Attributes:
        page_token: token of the next page; empty before the first page.
        is_complete: every page is written.
    """

    def __init__(self, target: Path, repository_id: str, *, restart: bool = False) -> None:
        """Opens the folder of a dump, and continues an interrupted one.

        Args:
            target: the file that the dump will have.
            repository_id: the repository to dump.
            restart: discard an interrupted dump.

        Raises:
            TarnError: FAILED_PRECONDITION: the file exists, another process writes it, or its folder belongs to another
                dump.
        """
        if target.exists():
            raise _refused(f"{target} exists already", "name another file")
        self._target = target
        self._folder = target.with_name(target.name + ".partial")
        self._lock = self._open_folder()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            text = f"another process writes {target}"
            raise _refused(text, "wait for its end") from error
        self.page_token, self.is_complete = "", False
        self._dumped: Dumped | None = None
        if restart:  # before the files are emptied: a state must never describe longer files
            (self._folder / _STATE).unlink(missing_ok=True)
            os.fsync(self._lock)
        state = self._read_state()
        sizes: Mapping[str, int] = {}
        if state is not None:
            self._dumped = Dumped(**state["repository"])
            self.page_token, self.is_complete = state["page_token"], state["is_complete"]
            sizes = state["sizes"]
            if self._dumped.repository_id != repository_id:
                self.close()
                text = f"{self._folder} is an unfinished dump of {self._dumped.repository_id}"
                raise _refused(text, "name another file, or give --restart")
        for name in MEMBERS.values():
            with _opened(self._folder / name) as file:
                if file.seek(0, os.SEEK_END) < sizes.get(name, 0):
                    self.close()
                    text = f"{self._folder / name} is shorter than it was"
                    raise _damaged(text, "give --restart")
                file.truncate(sizes.get(name, 0))

    def _open_folder(self) -> int:
        """Opens the folder, unless another user made it: its owner can lead each file elsewhere by a link."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            opened = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            text = f"folder {self._folder} cannot be used: {error.strerror}"
            raise _refused(text, "name another file") from error
        if os.fstat(opened).st_uid != os.geteuid():
            os.close(opened)
            text = f"{self._folder} belongs to another user"
            raise _refused(text, "name another file")
        return opened

    def _read_state(self) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = json.loads((self._folder / _STATE).read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            self.close()
            text = f"{self._folder / _STATE} is damaged: {error}"
            raise _damaged(text, "give --restart") from error
        return found

    def append(self, lines: Sequence[str], dumped: Dumped, page_token: str) -> None:
        """Makes a page durable, and then the token of the next one; an empty token means that this was the last.

        Raises:
            TarnError: FAILED_PRECONDITION: the repository was deleted and created again since the dump began.
        """
        if self._dumped not in (None, dumped):
            text = f"repository {dumped.repository_id} was changed or created again since its dump began"
            raise _refused(text, "give --restart")
        by_member: dict[str, list[str]] = {}
        for line in lines:
            by_member.setdefault(MEMBERS[json.loads(line)["kind"]], []).append(line)
        for name, some in by_member.items():
            with _opened(self._folder / name) as file:
                file.seek(0, os.SEEK_END)
                file.write("".join(line + "\n" for line in some).encode())
                _sync(file)
        self._dumped, self.page_token, self.is_complete = dumped, page_token, not page_token
        sizes = {name: (self._folder / name).stat().st_size for name in MEMBERS.values()}
        state = {
            "repository": _fields(dumped),
            "page_token": page_token,
            "is_complete": self.is_complete,
            "sizes": sizes,
        }
        self._write(_STATE, json.dumps(state).encode())

    def _write(self, name: str, data: bytes) -> None:
        new = self._folder / (name + ".new")
        new.unlink(missing_ok=True)
        with _opened(new) as file:
            file.write(data)
            _sync(file)
        new.rename(self._folder / name)
        os.fsync(self._lock)

    def finish(self, end_time_us: int) -> Mapping[str, object]:
        """Makes the file of a complete dump, and removes the folder; returns the manifest.

        Raises:
            TarnError: FAILED_PRECONDITION: the file was created meanwhile.
        """
        assert self._dumped is not None, "the dump has not begun"
        assert self.is_complete, "the dump has more pages"
        members = {name: _digest_of(self._folder / name) for name in MEMBERS.values()}
        manifest: dict[str, object] = {
            "format": FORMAT,
            "version": VERSION,
            **_fields(self._dumped),
            "end_time_us": end_time_us,
            "members": members,
        }
        manifest["sha256"] = _own_digest(manifest)
        self._write(_MANIFEST, json.dumps(manifest, indent=2).encode())
        tar = self._folder / "dump.tar"
        tar.unlink(missing_ok=True)
        with _opened(tar) as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as out:
                for name in (_MANIFEST, *MEMBERS.values()):
                    out.add(self._folder / name, name, filter=_anonymous)
            _sync(file)
        try:
            os.link(tar, self._target)
        except FileExistsError as error:
            text = f"{self._target} was created meanwhile; the dump is {tar}"
            raise _refused(text, "rename it") from error
        parent = os.open(self._target.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
        shutil.rmtree(self._folder)
        return manifest

    def close(self) -> None:
        """Lets other processes continue the dump; keeps its folder."""
        os.close(self._lock)


class _Member(tarfile.TarInfo):
    """A member, whose header must be small: `tarfile` reads the long forms of headers into memory as a whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type not in tarfile.REGULAR_TYPES and found.size > _HEADER_BYTES_MAX:
            text = f"a header of type {found.type!r} has {found.size} bytes, more than {_HEADER_BYTES_MAX}"
            raise tarfile.ReadError(text)
        return found


class DumpFile:
    """A finished dump. Use it as a context manager.

    Attributes:
        dumped: the repository.
        digest: SHA-256 of the manifest, which covers all members.
    """

    def __init__(self, path: Path) -> None:
        """Opens a dump and checks every byte of it.

        Raises:
            FileNotFoundError: there is no such file.
            TarnError: CORRUPT: it is no dump, of another version, not finished, or damaged.
        """
        self._path = path
        try:
            self._tar = tarfile.open(path, "r:", tarinfo=_Member)  # noqa: SIM115 - closed by `close`
        except FileNotFoundError:
            raise
        except (OSError, tarfile.TarError) as error:
            raise _damaged(f"{path} is no dump of a repository: {error}") from error
        try:
            self._check()
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
            tarfile.TarError,
        ) as error:
            self.close()
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise _damaged(f"{path} is damaged: {why}") from error

    def _check(self) -> None:
        count = 0
        while self._tar.next() is not None:
            count += 1
            if count > _MEMBERS_MAX:
                raise ValueError(f"it has more than {_MEMBERS_MAX} members")
        with self.open(_MANIFEST) as file:
            data = file.read(_MANIFEST_BYTES_MAX + 1)
        if len(data) > _MANIFEST_BYTES_MAX:
            raise ValueError(f"{_MANIFEST} has more than {_MANIFEST_BYTES_MAX} bytes")
        manifest = json.loads(data)
        if manifest["format"] != FORMAT or manifest["version"] != VERSION:
            raise ValueError(
                f"it has format {manifest['format']!r}, version {manifest['version']!r}; this code reads "
                f"{FORMAT!r}, version {VERSION}"
            )
        self.digest = str(manifest.pop("sha256"))
        if self.digest != _own_digest(manifest):
            raise ValueError(f"{_MANIFEST} does not match its digest")
        for name in MEMBERS.values():
            if name == _LATER and name not in manifest["members"]:
                continue
            with self.open(name) as file:
                found = _digest(file)
            if found != manifest["members"][name]:
                raise ValueError(f"{name} does not match its digest")
        self._has_later = _LATER in manifest["members"]
        self.dumped = Dumped(**{name: str(manifest[name]) for name in Dumped.__slots__})

    def open(self, name: str) -> IO[bytes]:
        """Opens a member; the caller closes it."""
        info = self._tar.getmember(name)
        # Other kinds lead to other members, or have a size that no byte in the file stands for.
        if not info.isreg() or info.issparse():
            raise ValueError(f"{name} is not a plain file")
        file = self._tar.extractfile(info)
        assert file is not None, "it is a file"
        return file

    def lines(self, kind: str) -> Iterator[str]:
        """Yields the lines of a kind."""
        if MEMBERS[kind] == _LATER and not self._has_later:
            return
        with self.open(MEMBERS[kind]) as file:
            while line := file.readline(LINE_BYTES_MAX + 1):
                yield line.removesuffix(b"\n").decode(errors="replace")

    def close(self) -> None:
        """Closes the file."""
        self._tar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _fields(dumped: Dumped) -> dict[str, str]:
    return {name: getattr(dumped, name) for name in Dumped.__slots__}


def _opened(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o600
    return info


def _digest_of(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        return _digest(file)


def _digest(file: IO[bytes]) -> dict[str, object]:
    found, size, lines = hashlib.sha256(), 0, 0
    while chunk := file.read(_CHUNK_BYTES):
        found.update(chunk)
        size += len(chunk)
        lines += chunk.count(b"\n")
    return {"lines": lines, "size_bytes": size, "sha256": found.hexdigest()}


def _own_digest(manifest: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()

"""What every part of a check is given, and what it does with a thing that looks wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tarn.core.clock import Clock
from tarn.core.errors import Kind, TarnError
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.records import Repository, decode_repository
from tarn_graveler.fsck.finding import Code, Finding
from tarn_graveler.fsck.options import FsckOptions
from tarn_graveler.fsck.progress import Progress
from tarn_graveler.fsck.reads import Reads
from tarn_graveler.fsck.state import State

__all__ = ["FsckSession", "Lake", "or_corrupt", "shown", "uuid_time_us"]


def uuid_time_us(hex_digits: str) -> int:
    """When a UUIDv7 was made; 0 for what is none, which is as old as can be."""
    try:
        return int(hex_digits[:12], 16) * 1000
    except ValueError:
        return 0


def shown(data: bytes) -> str:
    """Bytes that are mostly text, for people."""
    return data.decode(errors="backslashreplace")


def or_corrupt(error: TarnError) -> str:
    """What is wrong with stored bytes; any other failure is no finding, and ends the check."""
    if error.kind is not Kind.CORRUPT:
        raise error
    return error.message


@dataclass(frozen=True, slots=True)
class FsckSession:
    """One run.

    Attributes:
        compute: runs what would stall the event loop in a thread.
    """

    options: FsckOptions
    reads: Reads
    state: State
    progress: Progress
    clock: Clock
    keys: InstallationKeys
    compute: Callable[[Callable[[], object]], Awaitable[object]]

    @property
    def oldest_us(self) -> int:
        """What is younger than this is never called an orphan."""
        return self.state.start_time_us - int(self.options.grace_seconds * 1_000_000)

    async def is_alive(self, repository: Repository) -> bool:
        """Whether a repository is still there, in the same life and not being deleted."""
        key = self.keys.repository(repository.repository_id)
        found = await self.reads.get(self.keys.graveler, key)
        if found is None:
            return False
        now = decode_repository(found.value)
        return now.instance_uid == repository.instance_uid and now.is_served

    def lake(self, repository: Repository) -> Lake:
        """What concerns one repository."""
        keys = self.keys.of_repository(repository.repository_id, repository.instance_uid)
        return Lake(self, repository, keys)


@dataclass(frozen=True, slots=True)
class Lake:
    """One repository under check."""

    session: FsckSession
    repository: Repository
    keys: RepositoryKeys

    @property
    def uid(self) -> str:
        """Of this life of it."""
        return self.repository.instance_uid

    @property
    def namespace(self) -> str:
        """Where its blocks are."""
        return self.repository.storage_namespace

    def find(self, code: Code, subject: str, detail: str, size_bytes: int = 0) -> None:
        """Keeps a finding."""
        name = str(self.repository.repository_id)
        self.session.state.find(Finding(code, name, subject, detail, size_bytes))

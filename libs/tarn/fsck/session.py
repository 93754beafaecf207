"""Shared by all parts of a check: stores, options, progress, and the reporting of findings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tarn.core.clock import Clock
from tarn.core.errors import Kind, TarnError
from tarn.fsck.finding import Code, Finding
from tarn.fsck.progress import CheckProgress
from tarn.fsck.reads import Reads
from tarn.fsck.state import State
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.records import Repository, decode_bucket

__all__ = [
    "CONCURRENCY",
    "GRACE_SECONDS",
    "FsckOptions",
    "FsckSession",
    "Lake",
    "or_corrupt",
    "shown",
    "uuid_time_us",
]

CONCURRENCY = 8
GRACE_SECONDS = 24 * 3600.0


def uuid_time_us(hex_digits: str) -> int:
    """Returns the creation time of a UUIDv7; 0 for any other value, so that it counts as old."""
    try:
        return int(hex_digits[:12], 16) * 1000
    except ValueError:
        return 0


def shown(data: bytes) -> str:
    """Formats bytes, which are mostly text, for people."""
    return data.decode(errors="backslashreplace")


def or_corrupt(error: TarnError) -> str:
    """Returns the text of a CORRUPT error; raises any other error, which is not a finding and ends the
    check.
    """
    if error.kind is not Kind.CORRUPT:
        raise error
    return error.message


@dataclass(frozen=True, slots=True)
class FsckOptions:
    """The scope of a check, and the load that it may cause.

    Attributes:
        repositories: names of the repositories to check; empty: all, and the objects of the installation.
        ref: only this branch, `branches/main`, or tag, `tags/v1`, of the one repository; a bare name is a
            branch. With a ref, no object can be identified as an orphan.
        verify_data: whether to read every block and compare its MD5.
        concurrency: number of concurrent reads.
        requests_per_second: limit for both stores together; 0: no limit.
        grace_seconds: minimum age of an orphan, because a younger object may be referred to soon. Must be
            longer than any upload takes.
        settle_seconds: how long an object must stay an orphan that the protocol makes one for a moment.
    """

    repositories: tuple[str, ...] = ()
    ref: str = ""
    verify_data: bool = False
    concurrency: int = CONCURRENCY
    requests_per_second: float = 0
    grace_seconds: float = GRACE_SECONDS
    settle_seconds: float = 5.0

    @property
    def is_whole(self) -> bool:
        """Whether the whole installation is checked."""
        return not self.repositories

    @property
    def ref_key(self) -> str:
        """The key of the row of `ref`; empty for all refs."""
        if not self.ref or self.ref.startswith(("branches/", "tags/")):
            return self.ref
        return f"branches/{self.ref}"

    def scope(self) -> str:
        """Describes the scope of a state file; a check of another scope cannot continue with it."""
        names = ",".join(sorted(self.repositories)) or "*"
        return f"{names} {self.ref or '*'} {'data' if self.verify_data else 'metadata'}"


@dataclass(frozen=True, slots=True)
class FsckSession:
    """One run of a check.

    Attributes:
        compute: runs long computations in a thread, so that they do not block the event loop.
    """

    options: FsckOptions
    reads: Reads
    state: State
    progress: CheckProgress
    clock: Clock
    keys: InstallationKeys
    compute: Callable[[Callable[[], object]], Awaitable[object]]

    @property
    def oldest_us(self) -> int:
        """Objects younger than this time are never called orphans; microseconds since the epoch."""
        return self.state.start_time_us - int(self.options.grace_seconds * 1_000_000)

    async def is_alive(self, repository: Repository) -> bool:
        """Whether a repository still exists, as the same instance and not being deleted."""
        key = self.keys.repository(repository.repository_id)
        found = await self.reads.get(self.keys.graveler, key)
        if found is None:
            return False
        now = decode_bucket(found.value)
        if not isinstance(now, Repository):
            return False
        return now.instance_uid == repository.instance_uid and now.is_served

    def lake(self, repository: Repository) -> Lake:
        """Returns the context of one repository."""
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
        """Id of this instance of the repository."""
        return self.repository.instance_uid

    @property
    def namespace(self) -> str:
        """Storage namespace of the repository."""
        return self.repository.storage_namespace

    def find(self, code: Code, subject: str, detail: str, size_bytes: int = 0) -> None:
        """Stores a finding."""
        name = str(self.repository.repository_id)
        self.session.state.find(Finding(code, name, subject, detail, size_bytes))

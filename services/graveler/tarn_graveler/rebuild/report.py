"""What a rebuild found, what it made of it, and what it could not make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tarn.core.moments import iso_seconds

__all__ = ["NOT_REBUILT", "KeyToReissue", "RebuildReport", "RepositoryReport"]

NOT_REBUILT: Final = (
    "open uploads: clients begin them again",
    "links that were issued and not used",
    "tasks",
    "sessions, of session keys and of browsers",
    "secrets of access keys: they are issued anew",
)
"""What no journal has; a list for people."""


@dataclass(frozen=True, slots=True)
class KeyToReissue:
    """An access key that the lost store had. Its secret is in no journal, so it opens nothing any more."""

    access_key_id: str
    user_id: str
    description: str


@dataclass(slots=True)
class RepositoryReport:
    """One journal: that of a repository, or of what belongs to none (then `repository_id` is empty).

    Attributes:
        epoch: number of the epoch that was read.
        drained_until_us: what was acknowledged before is in the files; later changes may be missing. Unix microseconds.
        files: files of passes that were read.
        events: rows in them and in the base.
        branches: that were rebuilt; so for tags and commits.
        staged: uncommitted rows that were folded into listings.
        problems: what is damaged or missing, and what depends on it.
        younger: commits in the bucket that became the head of a branch after the last drained change of it.
    """

    repository_id: str
    storage_namespace: str
    epoch: int = 0
    drained_until_us: int = 0
    files: int = 0
    events: int = 0
    branches: int = 0
    tags: int = 0
    commits: int = 0
    staged: int = 0
    problems: list[str] = field(default_factory=list)
    younger: list[str] = field(default_factory=list)

    def lag_us(self, lost_us: int) -> int:
        """How old the newest drained change may be if the store was lost at a time; microseconds."""
        return max(0, lost_us - self.drained_until_us) if self.drained_until_us else 0

    def as_record(self, lost_us: int) -> dict[str, object]:
        """Returns the report as JSON knows it; `lost_us`: when the store was lost, 0 if that is not known."""
        until_us = self.drained_until_us
        lag = {"lag_seconds": self.lag_us(lost_us) / 1_000_000} if lost_us and until_us else {}
        return {
            "repository": self.repository_id,
            "storage_namespace": self.storage_namespace,
            "epoch": self.epoch,
            "drained_until": iso_seconds(until_us) if until_us else "",
            **lag,
            "files": self.files,
            "events": self.events,
            "branches": self.branches,
            "tags": self.tags,
            "commits": self.commits,
            "uncommitted": self.staged,
            "problems": self.problems,
            "younger": self.younger,
        }


@dataclass(slots=True)
class RebuildReport:
    """A rebuild of an installation, or of one repository.

    Attributes:
        shared: of what belongs to no repository; None: it was not rebuilt.
        repositories: that were rebuilt, by name.
        lost: repositories that were not, because their journal cannot be read; their problems say why.
        left_out: records that were left out on purpose, and why.
        users: that were rebuilt.
        keys: access keys whose secrets have to be issued anew.
        rows: in the new store.
    """

    shared: RepositoryReport | None = None
    repositories: list[RepositoryReport] = field(default_factory=list)
    lost: list[RepositoryReport] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    users: int = 0
    keys: list[KeyToReissue] = field(default_factory=list)
    rows: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether all that was drained is there, as far as the files can tell."""
        parts = [*self.repositories, *([self.shared] if self.shared else [])]
        return not self.lost and not any(part.problems for part in parts)

    def as_record(self, lost_us: int = 0) -> dict[str, object]:
        """Returns the report as JSON knows it; `lost_us`: when the store was lost, 0 if that is not known."""
        return {
            "is_whole": self.is_whole,
            "shared": None if self.shared is None else self.shared.as_record(lost_us),
            "repositories": [each.as_record(lost_us) for each in self.repositories],
            "lost": [each.as_record(lost_us) for each in self.lost],
            "left_out": self.left_out,
            "users": self.users,
            "keys_to_reissue": [
                {
                    "access_key_id": each.access_key_id,
                    "user": each.user_id,
                    "description": each.description,
                }
                for each in self.keys
            ],
            "rows": self.rows,
            "not_rebuilt": list(NOT_REBUILT),
        }

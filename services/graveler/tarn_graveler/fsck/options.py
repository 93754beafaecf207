"""The options of a check."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CONCURRENCY", "GRACE_SECONDS", "FsckOptions"]

CONCURRENCY = 8
GRACE_SECONDS = 24 * 3600.0


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

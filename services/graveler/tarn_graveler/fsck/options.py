"""What a check is asked to do."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CONCURRENCY", "GRACE_SECONDS", "FsckOptions"]

CONCURRENCY = 8
GRACE_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class FsckOptions:
    """What to check, and how hard to press.

    Attributes:
        repositories: names; empty: all, and what belongs to the installation.
        ref: only this branch, `branches/main`, or tag, `tags/v1`, of the one repository; a bare name is
            a branch. Nothing is then known to be an orphan.
        verify_data: read every block and compare its MD5.
        concurrency: reads under way at once.
        requests_per_second: to both stores together; 0: no limit.
        grace_seconds: what is younger is no orphan: somebody may be about to refer to it. Longer than
            any upload takes.
        settle_seconds: how long something must stay an orphan that the protocol makes one for a moment.
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
        """Whether everything of the installation is looked at."""
        return not self.repositories

    @property
    def ref_key(self) -> str:
        """The row of `ref`; empty for all refs."""
        if not self.ref or self.ref.startswith(("branches/", "tags/")):
            return self.ref
        return f"branches/{self.ref}"

    def scope(self) -> str:
        """What a state file is made for; another scope cannot go on with it."""
        names = ",".join(sorted(self.repositories)) or "*"
        return f"{names} {self.ref or '*'} {'data' if self.verify_data else 'metadata'}"

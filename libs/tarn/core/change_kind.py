"""The kinds of changes of a repository that its rules can block.

Every rpc that changes a repository states its kind in its proto (option `change` of `tarn.common.v1.rule`), so
the protos are the table of which operation falls under which rule; `docs/design/rpcs.md` prints it.
"""

from __future__ import annotations

import enum

__all__ = ["PROTECTABLE", "ChangeKind"]


class ChangeKind(enum.StrEnum):
    """A kind of change; the values are those of the protos and of the command line."""

    WRITE = "write"
    """Uncommitted writes: objects that are put, copied, uploaded or deleted."""
    COMMIT = "commit"
    """Commits that are made on the branch itself: commit, revert and cherry-pick."""
    MERGE = "merge"
    """Merges into the branch."""
    DELETE = "delete"
    """Deletion of the branch."""
    FORCE = "force"
    """Reset of uncommitted changes, and moves of the head (hard resets)."""
    OTHER = "other"
    """Only a read-only repository blocks it: new branches, tags, metadata, deletion of the repository."""
    ALWAYS = "always"
    """Nothing blocks it: the rules themselves, and giving up an upload."""


PROTECTABLE = (
    ChangeKind.WRITE,
    ChangeKind.COMMIT,
    ChangeKind.MERGE,
    ChangeKind.DELETE,
    ChangeKind.FORCE,
)
"""The kinds that a protection can block."""

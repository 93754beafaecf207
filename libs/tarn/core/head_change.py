"""A change of a branch's head, as the reflog records it (docs/design/reflog.md)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tarn.core.ids import CommitId

__all__ = ["UNATTRIBUTED", "Cause", "HeadChange", "HeadOperation"]


class HeadOperation(enum.Enum):
    """The kind of operation that changed a head."""

    CREATE = "create"
    COMMIT = "commit"
    MERGE = "merge"
    REVERT = "revert"
    CHERRY_PICK = "cherry-pick"
    MOVE = "move"
    DELETE = "delete"
    RESTORE = "restore"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Cause:
    """Who changes a head, and by which operation.

    Attributes:
        user_id: the caller; empty if the service itself acts.
    """

    operation: HeadOperation
    user_id: str = ""


UNATTRIBUTED = Cause(HeadOperation.OTHER)
"""The cause of a change whose caller names none."""


@dataclass(frozen=True, slots=True)
class HeadChange:
    """One entry of a branch's reflog.

    Attributes:
        entry_id: the operation id of the compare-and-set that made the change; unique.
        sequence: the number of this change among those of the branch's name, from 1. Later incarnations of
            the name continue it.
        time_us: Unix microseconds by the clock of the replica that made the change. Invariant: greater than
            the time of the change before it.
        incarnation: the incarnation of the branch that changed.
        old_commit_id: the head before; None for a creation.
        new_commit_id: the head after; None for a deletion.
        old_since_us: the time from which `old_commit_id` was the head; 0 if unknown.
        unknown_operation: the name of an operation that only newer replicas know; `operation` is then OTHER.
        unknown_fields: fields of the record that only newer replicas know (`tarn.kv.unknown_fields`).
    """

    entry_id: bytes
    sequence: int
    time_us: int
    operation: HeadOperation
    user_id: str
    incarnation: bytes
    old_commit_id: CommitId | None
    new_commit_id: CommitId | None
    old_since_us: int = 0
    unknown_operation: str = ""
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    @property
    def is_deletion(self) -> bool:
        """Whether the change removed the branch."""
        return self.new_commit_id is None

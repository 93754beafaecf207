"""The findings of a check: one code for each kind of damage, with its severity and its remedy.

`docs/operate/fsck.md` shows the same table; a test keeps the two equal.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Code", "Finding", "Severity"]


class Severity(enum.StrEnum):
    """How bad a finding is."""

    LOST = "lost"
    """Data that a ref leads to cannot be read."""
    INCONSISTENT = "inconsistent"
    """Two records contradict each other; the data that they describe may be whole."""
    ORPHAN = "orphan"
    """Unreferenced data: wasted space, and normal."""


class Code(enum.Enum):
    """The kinds of findings: label, severity, remedy."""

    BLOCK_MISSING = (
        "block-missing",
        Severity.LOST,
        "restore the block from a backup, or remove the object",
    )
    BLOCK_SIZE = ("block-size", Severity.LOST, "restore the block from a backup")
    BLOCK_DAMAGED = ("block-damaged", Severity.LOST, "restore the block from a backup")
    BLOCK_ERASED = (
        "block-erased",
        Severity.INCONSISTENT,
        "run the plan again: `tarn erase run REPOSITORY --plan PLAN`",
    )
    RANGE_MISSING = ("range-missing", Severity.LOST, "restore the file from a backup")
    RANGE_DAMAGED = ("range-damaged", Severity.LOST, "restore the file from a backup")
    METARANGE_MISSING = ("metarange-missing", Severity.LOST, "restore the file from a backup")
    METARANGE_DAMAGED = ("metarange-damaged", Severity.LOST, "restore the file from a backup")
    COMMIT_MISSING = (
        "commit-missing",
        Severity.LOST,
        "restore row and object from a backup, or delete the ref",
    )
    COMMIT_ROW_MISSING = (
        "commit-row-missing",
        Severity.INCONSISTENT,
        "restore the store; the commit's object is whole",
    )
    COMMIT_ROW_DAMAGED = (
        "commit-row-damaged",
        Severity.INCONSISTENT,
        "restore the store; compare with the commit's object",
    )
    COMMIT_OBJECT_MISSING = (
        "commit-object-missing",
        Severity.INCONSISTENT,
        "restore the object; its row is whole, so Tarn works without it",
    )
    COMMIT_OBJECT_DAMAGED = (
        "commit-object-damaged",
        Severity.INCONSISTENT,
        "restore the object; its row is whole, so Tarn works without it",
    )
    COMMIT_GENERATION = (
        "commit-generation",
        Severity.INCONSISTENT,
        "report it: Tarn may compute wrong merge bases",
    )
    RANGE_BOUNDS = ("range-bounds", Severity.INCONSISTENT, "report it: rows are not found by path")
    ENTRY_INVALID = ("entry-invalid", Severity.INCONSISTENT, "write or remove the object again")
    RECORD_DAMAGED = ("record-damaged", Severity.INCONSISTENT, "restore the store from a backup")
    KEY_UNKNOWN = ("key-unknown", Severity.INCONSISTENT, "find out who wrote it; Tarn did not")
    NAMESPACE_TAKEN = (
        "namespace-taken",
        Severity.INCONSISTENT,
        "do not collect garbage until the owner of the namespace is known",
    )
    REF_TWICE = (
        "ref-twice",
        Severity.INCONSISTENT,
        "report it; note the tag's commit, and delete one of the two",
    )
    NAME_UNHELD = (
        "name-unheld",
        Severity.INCONSISTENT,
        "report it; create no ref of the same name until the store is restored",
    )
    TOKEN_SHARED = (
        "token-shared",
        Severity.INCONSISTENT,
        "report it: two branches write to one token",
    )
    TOKEN_UNREADABLE = (
        "token-unreadable",
        Severity.INCONSISTENT,
        "report it: the branch's uncommitted changes cannot be read",
    )
    TOKEN_DOOMED = (
        "token-doomed",
        Severity.INCONSISTENT,
        "stop Tarn before the drop is due, and commit the branch or remove the registration",
    )
    NOTE_INVALID = ("note-invalid", Severity.INCONSISTENT, "remove the note; Tarn does not read it")
    PARTITION_ORPHAN = ("partition-orphan", Severity.ORPHAN, "none needed; drop it by hand")
    NAMESPACE_ORPHAN = (
        "namespace-orphan",
        Severity.ORPHAN,
        "remove its blocks by hand if the deleted repository is no longer needed",
    )
    NAME_ORPHAN = ("name-orphan", Severity.ORPHAN, "none needed; the name is free")
    CREATION_ORPHAN = (
        "creation-orphan",
        Severity.ORPHAN,
        "none needed; the name is free, and the next creation of this name takes it over",
    )
    UPLOAD_ORPHAN = ("upload-orphan", Severity.ORPHAN, "none needed")
    COMMIT_ORPHAN = ("commit-orphan", Severity.ORPHAN, "none needed; commits are kept")
    METARANGE_ORPHAN = ("metarange-orphan", Severity.ORPHAN, "left to `tarn gc`")
    RANGE_ORPHAN = ("range-orphan", Severity.ORPHAN, "left to `tarn gc`")
    BLOCK_ORPHAN = ("block-orphan", Severity.ORPHAN, "left to `tarn gc`")
    BLOCK_FOREIGN = ("block-foreign", Severity.ORPHAN, "find out who wrote it; Tarn did not")

    def __init__(self, label: str, severity: Severity, remedy: str) -> None:
        self.label = label
        self.severity = severity
        self.remedy = remedy

    @staticmethod
    def of(label: str) -> Code:
        """The code of a label."""
        return _BY_LABEL[label]


_BY_LABEL = {code.label: code for code in Code}


@dataclass(frozen=True, slots=True)
class Finding:
    """One lost, inconsistent or orphaned object.

    Attributes:
        code: kind of the finding.
        repository: its name, or empty if the object belongs to the installation.
        subject: the object: a block's path, `branch main`, `commit 12ab…`, a partition's name.
        detail: the expected and the actual state, and the reference that leads there.
        size_bytes: bytes that are wasted or lost, 0 if unknown.
    """

    code: Code
    repository: str
    subject: str
    detail: str
    size_bytes: int = 0

"""All kinds of records of the KV, and when a backup copies each: one row for each layout of `tarn.kv.keys`.

A record that another one needs is written first. So a backup copies the record that needs it first: whatever that names
exists by then, and is read later. Two things may still go wrong, and `guard` says what prevents each: the needed record
may be removed between the two reads, and copies may belong together although no process wrote them in this order.

A record that is not in the table, or that is copied before one that needs it, fails `tests/unit/backup/test_order.py`,
which also watches the reads of a backup. Objects, listings and commit objects are in the bucket
(docs/design/backup.md).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

__all__ = ["RECORDS", "Record", "Step"]


class Step(enum.IntEnum):
    """The steps of a backup, in order. Those from UPLOADS to CLOSING are repeated for each repository."""

    CHECKPOINT = 1
    USERS = 2
    UPLOADS = 3
    BRANCHES = 4
    REFS = 5
    PULLS = 6
    REFLOGS = 7
    CHANGED = 8
    COMMITS = 9
    CLOSING = 10
    SHARED = 11
    LOOKS = 12


@dataclass(frozen=True, slots=True)
class Record:
    """A kind of record.

    Attributes:
        layout: class and name in `tarn.kv.keys` of its key, or of the partition that only it uses.
        step: when it is copied; None: it is not in a backup.
        needs: layouts of the records that it needs. None of them is copied in an earlier step.
        guard: why it is left out; or what makes it whole although it is read while it changes.
    """

    layout: str
    step: Step | None
    needs: tuple[str, ...] = ()
    guard: str = ""


_INSTALLATION: Final = (
    Record(
        "InstallationKeys.DONE_BEFORE",
        Step.CHECKPOINT,
        guard="read first: every look that is registered later is ahead of it",
    ),
    Record(
        "InstallationKeys.drop",
        Step.LOOKS,
        guard="looks only, for entries that drop could name a saved token; one that is done is made from the record",
    ),
    Record(
        "InstallationKeys.registration",
        None,
        guard="events of the store that is copied: a restore begins a new epoch of the journal",
    ),
    Record(
        "InstallationKeys.epoch",
        None,
        guard="a store that is restored continues no epoch: it begins one of its own",
    ),
    Record("InstallationKeys.EPOCHS", None, guard="as epoch"),
    Record("InstallationKeys.DRAIN", None, guard="how far the store that is copied was drained"),
    Record(
        "InstallationKeys.repository",
        Step.CLOSING,
        guard="read before and after its rows, which are read again if its default branch is not among them",
    ),
    Record(
        "InstallationKeys.namespace",
        Step.SHARED,
        guard="a repository that is newer than its part of the backup holds data, too; a doom is left out",
    ),
    Record("InstallationKeys.quota", Step.SHARED),
    Record("InstallationKeys.QUOTAS", Step.SHARED),
    Record("InstallationKeys.COMPACTION_PAUSE", Step.SHARED),
    Record("InstallationKeys.PAGE_KEY", None, guard="made again"),
    Record("InstallationKeys.reads", None, guard="the journal belongs to the running processes"),
)

_USERS: Final = (
    Record(
        "AuthKeys.credential",
        Step.USERS,
        ("AuthKeys.owned", "AuthKeys.user", "AuthKeys.secrets"),
        guard="without its user it opens nothing",
    ),
    Record(
        "AuthKeys.owned",
        Step.USERS,
        guard="made from the saved credentials: a copy could lack the row of one that is deleted meanwhile",
    ),
    Record("AuthKeys.OWNED", Step.USERS),
    Record(
        "AuthKeys.deletion",
        Step.USERS,
        ("AuthKeys.user",),
        guard="a deletion is repeated until done",
    ),
    Record("AuthKeys.user", Step.USERS),
    Record("AuthKeys.setup", Step.USERS, ("AuthKeys.user",), guard="by key before the users"),
    Record("AuthKeys.secrets", Step.USERS),
    Record(
        "AuthKeys.session", None, guard="lives for hours, and must not come back once it was ended"
    ),
    Record("AuthKeys.session_end", None, guard="index of session keys"),
    Record("AuthKeys.SESSION_ENDS", None, guard="index of session keys"),
    Record(
        "AuthKeys.web_session",
        None,
        guard="lives for hours, and must not come back once it was ended",
    ),
    Record("AuthKeys.WEB_SESSIONS", None, guard="sessions of browsers"),
    Record("AuthKeys.web_session_end", None, guard="index of sessions of browsers"),
    Record("AuthKeys.WEB_SESSION_ENDS", None, guard="index of sessions of browsers"),
)

_REPOSITORY: Final = (
    Record(
        "RepositoryKeys.UPLOAD_DAYS",
        Step.UPLOADS,
        ("RepositoryKeys.upload",),
        guard="a day without uploads is empty",
    ),
    Record(
        "RepositoryKeys.upload_day",
        Step.UPLOADS,
        ("RepositoryKeys.upload",),
        guard="read before the uploads of the day",
    ),
    Record(
        "RepositoryKeys.upload",
        Step.UPLOADS,
        ("path_key", "staged_upload", "RepositoryKeys.open_upload", "RepositoryKeys.upload_part"),
        guard="a completed upload whose row is gone was overwritten",
    ),
    Record("RepositoryKeys.upload_part", Step.UPLOADS),
    Record("RepositoryKeys.open_upload", Step.UPLOADS),
    Record("RepositoryKeys.OPEN_UPLOADS", Step.UPLOADS),
    Record(
        "RepositoryKeys.branch",
        Step.BRANCHES,
        (
            "path_key",
            "staged_upload",
            "copied_note",
            "RepositoryKeys.commit",
            "RepositoryKeys.reflog_row",
            "RepositoryKeys.name",
            "InstallationKeys.drop",
        ),
        guard="read again after its tokens; commits are kept",
    ),
    Record(
        "staged_upload",
        Step.BRANCHES,
        ("path_key",),
        guard="read before the rows of paths of its token",
    ),
    Record(
        "copied_note",
        Step.BRANCHES,
        guard="it protects rows that a running process wrote, and no process has written those of a restored store",
    ),
    Record(
        "path_key",
        Step.BRANCHES,
        ("RepositoryKeys.erased",),
        guard="the record is read again after the tokens",
    ),
    Record("COPIED", Step.BRANCHES),
    Record("STAGED_UPLOADS", Step.BRANCHES),
    Record("PATHS_START", Step.BRANCHES),
    Record("PATHS_END", Step.BRANCHES),
    Record("RepositoryKeys.tag", Step.REFS, ("RepositoryKeys.commit", "RepositoryKeys.name")),
    Record(
        "RepositoryKeys.name",
        Step.COMMITS,
        guard="made from the saved branches and tags; a stored row gives its time",
    ),
    Record("RepositoryKeys.SETTINGS", Step.REFS),
    Record("RepositoryKeys.COLLECTION", Step.REFS, guard="saved without its run, mark and hold"),
    Record("RepositoryKeys.CLOSED", None, guard="a repository that has it is left out"),
    Record(
        "RepositoryKeys.reflog_row",
        Step.REFLOGS,
        ("RepositoryKeys.commit", "RepositoryKeys.deleted_row", "InstallationKeys.drop"),
        guard="up to the sequence of the saved branch, whose record holds what is not written yet",
    ),
    Record("RepositoryKeys.reflog_rows", Step.REFLOGS),
    Record("RepositoryKeys.deleted_row", Step.REFLOGS, ("InstallationKeys.drop",)),
    Record("RepositoryKeys.DELETED", Step.REFLOGS),
    Record(
        "RepositoryKeys.changed_paths",
        Step.CHANGED,
        ("RepositoryKeys.commit",),
        guard="an aid that can be computed again",
    ),
    Record(
        "RepositoryKeys.commit",
        Step.COMMITS,
        ("RepositoryKeys.expired", "RepositoryKeys.erased"),
        guard="kept for ever; missing parents are added",
    ),
    Record("RepositoryKeys.expired", Step.COMMITS),
    Record("RepositoryKeys.EXPIRED", Step.COMMITS),
    Record("RepositoryKeys.erased", Step.COMMITS),
    Record("RepositoryKeys.ERASED", Step.COMMITS),
    Record(
        "RepositoryKeys.pull",
        Step.PULLS,
        guard="it names branches and commits that may be gone; an event without its request is shown to nobody",
    ),
    Record("RepositoryKeys.PULLS", Step.PULLS),
    Record("RepositoryKeys.pull_event", Step.PULLS),
    Record("RepositoryKeys.PULL_INDEX", Step.PULLS, guard="made from the saved requests"),
    Record("RepositoryKeys.task", None, guard="belongs to the running installation"),
    Record("RepositoryKeys.task_body", None, guard="belongs to its task"),
    Record("RepositoryKeys.task_quota", None, guard="belongs to its day of tasks"),
    Record("RepositoryKeys.task_look", None, guard="its task is not saved"),
    Record("RepositoryKeys.branch_look", Step.LOOKS, guard="see InstallationKeys.drop"),
    Record("RepositoryKeys.reflog_expiry", Step.LOOKS, guard="see InstallationKeys.drop"),
)

RECORDS: Final = (*_INSTALLATION, *_USERS, *_REPOSITORY)

"""All kinds of records of the KV: who owns each, which snapshots have it, and when and how it is copied. One row for
each layout of `tarn.kv.keys`.

A snapshot of a store has the rows of all records but those that the store owns: it copies what the store lists. The
two other scopes read beside writers, in an order. A record that another one needs is written first. So the record that
needs it is copied first: whatever that names exists by then, and is read later. Two things may still go wrong, and
`guard` says what prevents each: the needed record may be removed between the two reads, and copies may belong together
although no process wrote them in this order.

A record that is not in the table, or that is copied before one that needs it, fails `test_order.py`
(tests/unit/snapshot), which also watches the reads of a backup and the lines of a dump. Objects, listings and commit
objects are in the bucket (docs/design/backup.md).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from tarn.snapshot.files.manifest import Scope

__all__ = ["LINES", "RECORDS", "How", "Owner", "Record", "Step"]


class Owner(enum.Enum):
    """With what a record lives and goes.

    Attributes:
        STORE: the metadata store; another store that gets the data has its own.
        INSTALLATION: the installation.
        USERS: users and their keys, at auth.
        REPOSITORY: one life of a repository.
        TOKEN: the staging token of a branch.
    """

    STORE = "store"
    INSTALLATION = "installation"
    USERS = "users"
    REPOSITORY = "repository"
    TOKEN = "token"  # noqa: S105 - no secret


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


class How(enum.Enum):
    """How a backup gets a record.

    Attributes:
        COPIED: each row as it is.
        CHOSEN: some rows, as they are.
        CHANGED: without what belongs to the running installation.
        MADE: from other saved records.
        LEFT_OUT: it has none.
    """

    COPIED = "copied"
    CHOSEN = "chosen"
    CHANGED = "changed"
    MADE = "made"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Record:
    """A kind of record.

    Attributes:
        layout: class and name in `tarn.kv.keys` of its key, or of the partition that only it uses. Of a record that
            the store owns: module and name.
        step: when a backup copies it; None: it is not in a backup.
        needs: layouts of the records that it needs. None of them is copied in an earlier step.
        how: see `How`.
        line: the kind of the lines that stand for it in a dump of a repository (`tarn.core.dump`); empty: it is not in
            such a dump.
        guard: why it is left out; or what makes it whole although it is read while it changes.
    """

    layout: str
    step: Step | None
    needs: tuple[str, ...] = ()
    how: How = How.COPIED
    line: str = ""
    guard: str = ""

    @property
    def owner(self) -> Owner:
        """See `Owner`."""
        return _OWNERS.get(self.layout.rpartition(".")[0], Owner.TOKEN)

    @property
    def scopes(self) -> frozenset[Scope]:
        """The scopes of the snapshots that have it."""
        found = {
            Scope.STORE: self.owner is not Owner.STORE,
            Scope.INSTALLATION: self.step is not None,
            Scope.REPOSITORY: bool(self.line),
        }
        return frozenset(scope for scope, has in found.items() if has)


_OWNERS: Final = {
    "tarn.kv.fence": Owner.STORE,
    "InstallationKeys": Owner.INSTALLATION,
    "AuthKeys": Owner.USERS,
    "RepositoryKeys": Owner.REPOSITORY,
}

_STORE: Final = (
    Record(
        "tarn.kv.fence.fence_partition",
        None,
        how=How.LEFT_OUT,
        guard="fence, level, settings and rows of replicas are about the processes that use the store",
    ),
)

_INSTALLATION: Final = (
    Record(
        "InstallationKeys.DONE_BEFORE",
        Step.CHECKPOINT,
        guard="read first: every look that is registered later is ahead of it",
    ),
    Record(
        "InstallationKeys.drop",
        Step.LOOKS,
        how=How.CHOSEN,
        guard="looks only, for entries that drop could name a saved token; one that is done is made from the record",
    ),
    Record(
        "InstallationKeys.registration",
        None,
        how=How.LEFT_OUT,
        guard="events of the store that is copied: a restore begins a new epoch of the journal",
    ),
    Record(
        "InstallationKeys.epoch",
        None,
        how=How.LEFT_OUT,
        guard="a store that is restored continues no epoch: it begins one of its own",
    ),
    Record("InstallationKeys.EPOCHS", None, how=How.LEFT_OUT, guard="as epoch"),
    Record(
        "InstallationKeys.DRAIN",
        None,
        how=How.LEFT_OUT,
        guard="how far the store that is copied was drained",
    ),
    Record(
        "InstallationKeys.repository",
        Step.CLOSING,
        how=How.CHOSEN,
        guard="read before and after its rows, which are read again if its default branch is not among them",
    ),
    Record(
        "InstallationKeys.namespace",
        Step.SHARED,
        how=How.CHANGED,
        guard="a repository that is newer than its part of the backup holds data, too; a doom is left out",
    ),
    Record("InstallationKeys.quota", Step.SHARED),
    Record("InstallationKeys.QUOTAS", Step.SHARED),
    Record("InstallationKeys.COMPACTION_PAUSE", Step.SHARED),
    Record("InstallationKeys.PAGE_KEY", None, how=How.LEFT_OUT, guard="made again"),
    Record(
        "InstallationKeys.request_counts",
        None,
        how=How.LEFT_OUT,
        guard="counts of the installation that runs: a restored one begins at none",
    ),
    Record(
        "InstallationKeys.reads",
        None,
        how=How.LEFT_OUT,
        guard="the journal belongs to the running processes",
    ),
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
        how=How.MADE,
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
        "AuthKeys.session",
        None,
        how=How.LEFT_OUT,
        guard="lives for hours, and must not come back once it was ended",
    ),
    Record("AuthKeys.session_end", None, how=How.LEFT_OUT, guard="index of session keys"),
    Record("AuthKeys.SESSION_ENDS", None, how=How.LEFT_OUT, guard="index of session keys"),
    Record(
        "AuthKeys.web_session",
        None,
        how=How.LEFT_OUT,
        guard="lives for hours, and must not come back once it was ended",
    ),
    Record("AuthKeys.WEB_SESSIONS", None, how=How.LEFT_OUT, guard="sessions of browsers"),
    Record(
        "AuthKeys.web_session_end", None, how=How.LEFT_OUT, guard="index of sessions of browsers"
    ),
    Record(
        "AuthKeys.WEB_SESSION_ENDS", None, how=How.LEFT_OUT, guard="index of sessions of browsers"
    ),
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
        line="branch",
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
    Record(
        "RepositoryKeys.tag",
        Step.REFS,
        ("RepositoryKeys.commit", "RepositoryKeys.name"),
        how=How.CHOSEN,
        line="tag",
    ),
    Record(
        "RepositoryKeys.name",
        Step.COMMITS,
        how=How.MADE,
        guard="made from the saved branches and tags; a stored row gives its time",
    ),
    Record("RepositoryKeys.SETTINGS", Step.REFS, line="settings"),
    Record(
        "RepositoryKeys.COLLECTION",
        Step.REFS,
        how=How.CHANGED,
        guard="saved without its run, mark and hold",
    ),
    Record(
        "RepositoryKeys.CLOSED",
        None,
        how=How.LEFT_OUT,
        guard="a repository that has it is left out",
    ),
    Record(
        "RepositoryKeys.reflog_row",
        Step.REFLOGS,
        ("RepositoryKeys.commit", "RepositoryKeys.deleted_row", "InstallationKeys.drop"),
        how=How.CHOSEN,
        line="reflog",
        guard="up to the sequence of the saved branch, whose record holds what is not written yet",
    ),
    Record("RepositoryKeys.reflog_rows", Step.REFLOGS),
    Record("RepositoryKeys.REFLOG", Step.REFLOGS),
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
        how=How.CHOSEN,
        line="commit",
        guard="kept for ever; missing parents are added",
    ),
    Record("RepositoryKeys.expired", Step.COMMITS, line="expired"),
    Record("RepositoryKeys.EXPIRED", Step.COMMITS),
    Record("RepositoryKeys.erased", Step.COMMITS),
    Record("RepositoryKeys.ERASED", Step.COMMITS),
    Record(
        "RepositoryKeys.pull",
        Step.PULLS,
        guard="it names branches and commits that may be gone; an event without its request is never shown",
    ),
    Record("RepositoryKeys.PULLS", Step.PULLS),
    Record("RepositoryKeys.pull_event", Step.PULLS),
    Record(
        "RepositoryKeys.PULL_INDEX", Step.PULLS, how=How.MADE, guard="made from the saved requests"
    ),
    Record(
        "RepositoryKeys.task", None, how=How.LEFT_OUT, guard="belongs to the running installation"
    ),
    Record("RepositoryKeys.task_body", None, how=How.LEFT_OUT, guard="belongs to its task"),
    Record(
        "RepositoryKeys.task_quota", None, how=How.LEFT_OUT, guard="belongs to its day of tasks"
    ),
    Record("RepositoryKeys.task_look", None, how=How.LEFT_OUT, guard="its task is not saved"),
    Record(
        "RepositoryKeys.branch_look", Step.LOOKS, how=How.CHOSEN, guard="see InstallationKeys.drop"
    ),
    Record(
        "RepositoryKeys.reflog_expiry",
        Step.LOOKS,
        how=How.CHOSEN,
        guard="see InstallationKeys.drop",
    ),
)

RECORDS: Final = (*_STORE, *_INSTALLATION, *_USERS, *_REPOSITORY)

LINES: Final = ("settings", "branch", "tag", "reflog", "commit", "expired")
"""Kinds of lines of a dump of a repository, in the order in which they are read."""

"""The reflog of a branch: decisions about its entries, without I/O (docs/design/reflog.md).

An entry is written together with the change that it describes: into the outbox of the branch record, by the
same compare-and-set. Later it becomes a row, and then leaves the outbox.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from tarn.core.branch import Branch
from tarn.core.head_change import Cause, HeadChange

__all__ = [
    "OUTBOX_MAX",
    "DeletionJudge",
    "begin_reflog",
    "deletion_of",
    "leave_outbox",
    "note_head_change",
]

OUTBOX_MAX = 8
"""Greatest number of entries in an outbox. A change of the head writes their rows first, so more than one is
rare."""


def note_head_change(before: Branch, after: Branch, cause: Cause, *, now_us: int) -> Branch:
    """Returns `after` with an entry in its outbox if the head differs from that of `before`.

    Args:
        before: the record that the change replaces.
        after: the record after the change; its newest operation id becomes the id of the entry.
        cause: who changes the head, and how.
        now_us: the time of the caller. The entry gets a later time if the entry before it has this one.
    """
    if after.commit_id == before.commit_id:
        return after
    time_us = max(now_us, before.head_time_us + 1)
    entry = HeadChange(
        entry_id=after.recent_op_ids[0],
        sequence=before.head_sequence + 1,
        time_us=time_us,
        operation=cause.operation,
        user_id=cause.user_id,
        incarnation=before.incarnation,
        old_commit_id=before.commit_id,
        new_commit_id=after.commit_id,
        old_since_us=before.head_time_us,
    )
    return replace(
        after,
        outbox=(*after.outbox, entry),
        head_sequence=entry.sequence,
        head_time_us=time_us,
    )


def leave_outbox(branch: Branch, durable: AbstractSet[bytes]) -> Branch:
    """Returns a record without the entries whose rows are durable.

    Args:
        branch: the record.
        durable: ids of entries.
    """
    left = tuple(each for each in branch.outbox if each.entry_id not in durable)
    return branch if len(left) == len(branch.outbox) else replace(branch, outbox=left)


def begin_reflog(
    branch: Branch,
    cause: Cause,
    newest: HeadChange | None,
    *,
    entry_id: bytes,
    now_us: int,
    continues: bool = False,
) -> Branch:
    """Returns a new branch with the entry of its creation, which continues the reflog and the moves of its name.

    `Branch.move_time_us` begins at the time of that entry, which is later than all times of the earlier branch. So no
    row of that branch, in a commit on which the new one is made, looks as if the new one had judged it (rule 9).

    Args:
        branch: the branch, with its incarnation.
        cause: who creates it, and how.
        newest: the newest entry of an earlier branch of this name; None if there is none.
        entry_id: unique for each branch.
        now_us: the time of the caller.
        continues: the branch of `newest` was never deleted: this one is its copy, restored from a dump. So the
            name has had a head all the time.
    """
    time_us = now_us if newest is None else max(now_us, newest.time_us + 1)
    entry = HeadChange(
        entry_id=entry_id,
        sequence=1 if newest is None else newest.sequence + 1,
        time_us=time_us,
        operation=cause.operation,
        user_id=cause.user_id,
        incarnation=branch.incarnation,
        old_commit_id=newest.new_commit_id if continues and newest is not None else None,
        new_commit_id=branch.commit_id,
        old_since_us=0 if newest is None else newest.time_us,
    )
    return replace(
        branch,
        outbox=(entry,),
        head_sequence=entry.sequence,
        head_time_us=entry.time_us,
        move_time_us=entry.time_us,
    )


def deletion_of(branch: Branch, cause: Cause, *, entry_id: bytes, now_us: int) -> HeadChange:
    """Returns the entry of the removal of a record, later than all changes of its head and of what lies beneath it.

    Its row is written before the removal, which may fail.
    """
    return HeadChange(
        entry_id=entry_id,
        sequence=branch.head_sequence + 1,
        time_us=max(now_us, branch.head_time_us + 1, branch.move_time_us + 1),
        operation=cause.operation,
        user_id=cause.user_id,
        incarnation=branch.incarnation,
        old_commit_id=branch.commit_id,
        new_commit_id=None,
        old_since_us=branch.head_time_us,
    )


class DeletionJudge:
    """Decides which entries count, when they are read from the newest to the oldest.

    The row of a deletion is written before the record is removed, and stays if the removal fails. So it counts
    only if its incarnation is not the present one and made no change afterwards: a change of the same
    incarnation with the same or a greater sequence shows that the removal failed. At equal sequences, changes
    must come before deletions. Of several attempts at one deletion, the first one that is read counts; it must be the
    latest, because earlier ones failed. But one that is later than the creation of the next branch says
    (`HeadChange.old_since_us`) was not there when that branch was created: the record was gone, so it failed, too.

    Args:
        live: the incarnation of the present record; None if there is none.
        last: the incarnation of the entry that counted last, when reading continues on another page.
        since_us: since when the old head of that entry was the head; 0 if that is unknown.
    """

    def __init__(self, live: bytes | None, last: bytes | None = None, since_us: int = 0) -> None:
        self._live = live
        self._last = last
        self._since_us = since_us

    def counts(self, entry: HeadChange) -> bool:
        """Whether the next entry counts."""
        if entry.is_deletion:
            if entry.incarnation in (self._live, self._last):
                return False
            if 0 < self._since_us < entry.time_us:
                return False
        self._last, self._since_us = entry.incarnation, entry.old_since_us
        return True

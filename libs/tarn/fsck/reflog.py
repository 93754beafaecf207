"""Reflogs: checks their rows, and yields the commits that they name.

A commit that a reflog names is in use: a user can reach it as `main@{2}`, or restore a deleted branch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from tarn.core.errors import TarnError
from tarn.core.head_change import HeadChange
from tarn.core.ids import BranchId, CommitId
from tarn.fsck.finding import Code
from tarn.fsck.session import Lake, or_corrupt, shown
from tarn.kv.port import Row
from tarn.kv.records import decode_head_change

__all__ = ["check_reflog", "commits_of", "reflog_commits"]

_LOG = b"log/"


async def check_reflog(lake: Lake) -> None:
    """Checks that every row can be read and is stored under its own key."""
    partition = lake.keys.reflog
    async for key, value in lake.session.reads.rows(partition):
        subject = f"{partition.name} {shown(key)}"
        branch_id = BranchId(key.partition(b"/")[2].partition(b"/")[0].decode(errors="replace"))
        if not key.startswith((_LOG, lake.keys.DELETED)):
            lake.find(Code.KEY_UNKNOWN, subject, "unknown key layout")
            continue
        try:
            entry = decode_head_change(value)
        except TarnError as error:
            lake.find(Code.RECORD_DAMAGED, subject, or_corrupt(error))
            continue
        keys = (lake.keys.reflog_row(branch_id, entry), lake.keys.deleted_row(branch_id, entry))
        if key not in keys:
            text = f"the record belongs to entry {entry.sequence}, {entry.entry_id.hex()}"
            lake.find(Code.RECORD_DAMAGED, subject, text)


def commits_of(entry: HeadChange) -> set[CommitId]:
    """Returns the commits that an entry names."""
    return {each for each in (entry.old_commit_id, entry.new_commit_id) if each is not None}


async def reflog_commits(lake: Lake) -> AsyncIterator[tuple[str, CommitId]]:
    """Yields the branch and the commit of each row; rows that cannot be read are reported by `check_reflog`."""
    async for row in lake.session.reads.rows(lake.keys.reflog, _LOG, b"log0"):
        for commit_id in _commits(row):
            yield shown(row[0].split(b"/")[1]), commit_id


def _commits(row: Row) -> set[CommitId]:
    try:
        return commits_of(decode_head_change(row[1]))
    except TarnError as error:
        or_corrupt(error)
        return set()

"""Checks the reflogs at the end of a run: every change of a head has one entry (docs/design/reflog.md)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.support.check.history import OpKind

from tarn.core.errors import TarnError
from tarn.core.head_change import HeadChange, HeadOperation
from tarn.core.ids import BranchId, CommitId
from tarn_graveler.assembly import Graveler
from tarn_graveler.records.branches import BranchName

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["check_reflog"]

_MADE = {
    HeadOperation.COMMIT,
    HeadOperation.MERGE,
    HeadOperation.REVERT,
    HeadOperation.CHERRY_PICK,
}
_KINDS = {OpKind.COMMIT, OpKind.MERGE, OpKind.REVERT, OpKind.PICK}


async def check_reflog(world: World, graveler: Graveler, branch: str) -> None:
    """Reports entries that are missing, doubled or out of order.

    The entries of a branch name form a chain that ends at its head. So an entry of a change that was not made,
    and a change without an entry, both break it. Beside expiry the reflogs end early, and nothing is checked.
    """
    if world.plan.expiring is not None:
        return
    repository_id, branch_id = branch.split("/")
    try:
        repository = await graveler.repositories.get(repository_id)
    except TarnError:
        return
    name = BranchName(repository, BranchId(branch_id))
    try:
        head = str((await graveler.branches.fresh(name)).branch.commit_id)
    except TarnError:
        head = ""
    page = await graveler.reflog.page(repository, name.branch_id, "", 1_000_000)
    for problem in _problems(page.entries, head):
        world.reflog_problems.append(f"the reflog of {branch} {problem}")
    world.statistics["reflog entries"] += len(page.entries)
    if repository_id == "tmp":
        return  # operations of its earlier lives have their entries there
    made = Counter(entry.new_commit_id for entry in page.entries if entry.operation in _MADE)
    for op in world.history.ops:
        if not op.is_ok or op.is_claim or op.branch != branch or op.kind not in _KINDS:
            continue
        if op.commit_id:
            count = made[CommitId(op.commit_id)]
            # A fast-forward may be made again after a hard move; a commit is made once.
            if count == 0 or (op.kind is OpKind.COMMIT and count > 1):
                world.reflog_problems.append(
                    f"{count} entries in the reflog of {branch} for: {op.line()}"
                )


def _problems(entries: list[HeadChange], head: str) -> list[str]:
    newest = "" if not entries else entries[0].new_commit_id or ""
    found = [] if newest == head else [f"ends at {newest!r}, but its head is {head!r}"]
    if entries and entries[-1].old_commit_id is not None:
        found.append("does not begin with a creation")
    for newer, older in pairwise(entries):
        place = f"at sequence {newer.sequence}"
        if newer.old_commit_id != older.new_commit_id:
            found.append(f"has a gap {place}")
        if newer.sequence != older.sequence + 1 or newer.time_us <= older.time_us:
            found.append(f"is out of order {place}")
    if len({entry.entry_id for entry in entries}) != len(entries):
        found.append("has an entry twice")
    return found

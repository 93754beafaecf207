"""The guard of the reflog (docs/design/reflog.md), and plausible code without it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.faults.guards import Guard, Weakening

from tarn.core.branch import Branch
from tarn_graveler.records.branches import Branches, BranchName

__all__ = ["REFLOG_GUARDS"]


async def _forget_outbox(self: Branches, name: BranchName, branch: Branch) -> frozenset[bytes]:
    """Takes entries off the record whose rows are not written, as if their writer had died."""
    return frozenset(entry.entry_id for entry in branch.outbox)


REFLOG_GUARDS: Sequence[Guard] = (
    Guard(
        "reflog-row-first",
        "12",
        "I10",
        "an entry leaves the outbox before its row is durable",
        (Weakening(Branches, "write_reflog", _forget_outbox),),
    ),
)

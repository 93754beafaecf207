"""Branches that a rebuild leaves out because their records cannot be read, and what depends on them.

A branch is lost with its record: that names its commit and its tokens. The rest of its repository is rebuilt, and
nothing of the branch stays, so its name is free.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tarn.core.ids import BranchId, CommitId
from tarn.core.moments import iso_seconds
from tarn.core.pull_request import PullState
from tarn.kv.pull_records import decode_pull
from tarn_graveler.rebuild.commits import KnownCommits

__all__ = ["LostBranches"]


@dataclass(slots=True)
class LostBranches:
    """The branches of one repository whose records cannot be read.

    Attributes:
        why: what is wrong with each record.
        pulls: numbers of their open pull requests, by branch.
    """

    why: dict[BranchId, str] = field(default_factory=dict)
    pulls: dict[BranchId, list[int]] = field(default_factory=dict)

    def take_pull(self, payload: bytes) -> None:
        """Notes the record of a pull request that one of these branches is a side of. Branches come before them.

        Raises:
            TarnError: CORRUPT: it cannot be read.
        """
        pull = decode_pull(payload)
        if pull.state is not PullState.OPEN:
            return
        for name in {pull.source.branch_id, pull.destination.branch_id} & self.why.keys():
            self.pulls.setdefault(name, []).append(pull.number)

    def told(self, known: KnownCommits) -> list[str]:
        """Returns what the report says of each: why, what is lost with it, and what a person can do."""
        return [self._told(name, known) for name in sorted(self.why)]

    def _told(self, name: BranchId, known: KnownCommits) -> str:
        text = f"branch {name} is lost, with its uncommitted changes and its reflog; its name is free: {self.why[name]}"
        if pulls := sorted(self.pulls.get(name, ())):
            numbers = ", ".join(map(str, pulls))
            text += f". Open pull requests of it cannot be merged: {numbers}"
        return text + f". {_way_back(name, known)}"


def _way_back(name: BranchId, known: KnownCommits) -> str:
    heads: list[tuple[int, CommitId]] = [
        each for each in known.notes.get(name, ()) if known.has(each[1])
    ]
    if not heads:
        return "The bucket does not tell which commits were its heads"
    time_us, commit_id = max(heads)
    return f"Its newest head in the bucket is commit {commit_id}, of {iso_seconds(time_us)}: create the branch from it"

"""Publications: which commits became heads of which branches, as a history and as notes beside the ranges."""

from __future__ import annotations

import json

import structlog

from tarn.block.port import BlockKey, BlockStore
from tarn.core.clock import Clock
from tarn.core.commit import note_path
from tarn.core.errors import TarnError
from tarn.core.ids import CommitId
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.records.commits import Commits

__all__ = ["Publications"]

_ANCESTRY_MAX = 10_000

_log = structlog.get_logger()


class Publications:
    """Finds and notes published commits."""

    def __init__(
        self, branches: Branches, commits: Commits, blocks: BlockStore, clock: Clock
    ) -> None:
        self._branches = branches
        self._commits = commits
        self._blocks = blocks
        self._clock = clock

    async def find(self, name: BranchName, commit_id: CommitId) -> bool:
        """Whether a commit is in a branch's history: settles a publish that is no longer in the record.

        Any incarnation of the branch proves it, because only a published commit gets into a history. False
        proves nothing: a reset may have moved the head away from the commit, or the history cannot be read.
        """
        try:
            at = (await self._branches.fresh(name)).branch.commit_id
            for _ in range(_ANCESTRY_MAX):
                if at == commit_id:
                    return True
                parents = (await self._commits.get(name.repository, at)).parents
                if not parents:
                    return False
                at = parents[0]
        except TarnError as error:
            _log.warning("cannot find out whether a commit was published", error=error.message)
        return False

    async def note(self, name: BranchName, commit_id: CommitId) -> None:
        """Writes a note beside the ranges that says which commit a branch reached (docs/design/metadata.md).

        With these notes, committed data can be found without the KV. A note that cannot be written is
        only logged: the commit is published, and the next commit writes a note of its own.
        """
        now = self._clock.now_us()
        note = {"branch": name.branch_id, "commit_id": commit_id, "time_us": now}
        path = note_path(name.branch_id, now, commit_id)
        try:
            await self._blocks.put(
                BlockKey(name.repository.storage_namespace, path), json.dumps(note).encode()
            )
        except TarnError as error:
            _log.warning("cannot write a refs manifest", error=error.message, commit_id=commit_id)

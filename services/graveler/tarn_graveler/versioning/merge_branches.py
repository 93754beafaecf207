"""What-if merges: the result of a merge as a branch of its own, to be read and checked before the merge is made."""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadOperation
from tarn.core.ids import CommitId
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.branch.publications import Publications
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.versioning.merges import Destination, MergeRequest, Merges

__all__ = ["MergeBranches"]


class MergeBranches:
    """Creates branches at merge commits."""

    def __init__(self, merges: Merges, branches: Branches, publications: Publications) -> None:
        self._merges = merges
        self._branches = branches
        self._publications = publications

    async def create(
        self, name: BranchName, dest: CommitId, into: Destination, request: MergeRequest
    ) -> NewHead:
        """Creates a branch at the merge of a commit into another one; no other branch changes.

        Args:
            name: the new branch.
            dest: the commit that takes the merge: the first parent.
            into: the same as the caller wrote it.
            request: the merge.

        Raises:
            TarnError: BRANCH_EXISTS, TAG_EXISTS; NOTHING_TO_MERGE; MERGE_CONFLICT; OUTCOME_UNKNOWN.
        """
        await self._refuse_existing(name)
        new = await self._merges.propose(name.repository, dest, into, request)
        cause = Cause(HeadOperation.CREATE, request.committer)
        await self._branches.create(name, new.commit_id, cause)
        await self._publications.note(name, new.commit_id)
        return new

    async def _refuse_existing(self, name: BranchName) -> None:
        """Refuses a name that is surely taken before the merge is made; its creation decides all other cases."""
        try:
            await self._branches.fresh(name)
        except TarnError as error:
            if error.reason is not Reason.BRANCH_NOT_FOUND:
                raise
            return
        text = f"branch {name.branch_id} already exists in {name.repository.repository_id}"
        reason = Reason.BRANCH_EXISTS
        raise TarnError(Kind.ALREADY_EXISTS, reason, text, branch=name.branch_id)

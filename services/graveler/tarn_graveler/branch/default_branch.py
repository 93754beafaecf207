"""Changes the default branch of a repository, which always exists: it cannot be deleted.

The default branch is a field of the repository's record, and a branch is a record of its own, so two compare-and-sets
must agree without a transaction:

- *A change* first sets the field. Then it changes the operation ids of the branch's record (`tarn.core.branch.touch`),
  and removes its expiry: the default branch never expires. If the branch does not exist any more, it sets the field
  back.
- *A deletion* reads the branch's record, then the repository's record, and then removes the branch's record by
  compare-and-set over the version that it read.

If the deletion reads the repository before the field is set, it has read the branch before the change touches it.
Either it removes the branch first, and the touch finds no branch; or its compare-and-set fails, and it reads both
again. A process that dies between the two steps of a change leaves the field set. If that branch is being deleted at
the same moment, the repository's default branch does not exist until it is set again.
"""

from __future__ import annotations

from dataclasses import replace

from tarn.core.branch import Branch, touch
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.kv.port import OutcomeUnknownError
from tarn.kv.records import Repository
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.records.repositories import Repositories, repository_not_found
from tarn_graveler.records.settings import settings_changed

__all__ = ["DefaultBranch"]


def _touch(branch: Branch, op_id: bytes) -> Branch:
    return touch(replace(branch, expiry=None), op_id)


class DefaultBranch:
    """Changes the default branch, and keeps it from being deleted; see the module."""

    def __init__(self, repositories: Repositories, branches: Branches) -> None:
        self._repositories = repositories
        self._branches = branches

    async def refuse_deletion(self, name: BranchName) -> None:
        """Refuses the deletion of the default branch; to be called after the branch's record was read.

        Raises:
            TarnError: FAILED_PRECONDITION; REPOSITORY_NOT_FOUND.
        """
        current = await self._repositories.read(name.repository.repository_id)
        if current.default_branch == name.branch_id:
            text = (
                f"{name.branch_id} is the default branch of {current.repository_id} and cannot be deleted; make "
                "another branch the default branch first"
            )
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)

    async def set(self, name: BranchName, expected: str) -> BranchId:
        """Makes an existing branch the default branch; returns the former one.

        Args:
            name: the new default branch.
            expected: the former default branch; empty for any.

        Raises:
            TarnError: BRANCH_NOT_FOUND; CONFLICT, SETTINGS_CHANGED: the default branch is not `expected`.
                REPOSITORY_NOT_FOUND; UNAVAILABLE; OUTCOME_UNKNOWN.
        """
        handle = BranchHandle(self._branches, name)
        await handle.version()
        former = await self._replace(name.repository, name.branch_id, expected)
        try:
            # Again if another call has given the branch an end meanwhile: the default branch never expires.
            await handle.change(_touch, lambda now: now.expiry is None)
        except TarnError as error:
            if error.reason is not Reason.BRANCH_NOT_FOUND:
                text = f"{name.branch_id} was made the default branch, but then: {error.message}"
                raise OutcomeUnknownError(text) from error
            await self._put_back(name, former)
            raise
        return former

    async def _put_back(self, name: BranchName, former: BranchId) -> None:
        """Undoes the first step of a change, unless the default branch was changed again since."""
        try:
            await self._replace(name.repository, former, name.branch_id)
        except TarnError as error:
            if error.reason is Reason.SETTINGS_CHANGED:
                return
            text = (
                f"{name.branch_id} was made the default branch and deleted; then: {error.message}"
            )
            raise OutcomeUnknownError(text) from error

    async def _replace(
        self, repository: Repository, branch_id: BranchId, expected: str
    ) -> BranchId:
        """Sets the field of the record; returns its former value."""
        former = branch_id

        def decide(current: Repository) -> Repository:
            nonlocal former
            if current.instance_uid != repository.instance_uid or not current.is_served:
                raise repository_not_found(repository.repository_id)
            if expected not in ("", current.default_branch):
                raise settings_changed(repository.repository_id, "the default branch")
            former = current.default_branch
            return replace(current, default_branch=branch_id)

        def holds(now: Repository) -> bool:
            is_same = now.instance_uid == repository.instance_uid and now.is_served
            return is_same and now.default_branch == branch_id

        await self._repositories.change(repository.repository_id, decide, holds)
        return former

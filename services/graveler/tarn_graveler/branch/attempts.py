"""Shared by all kinds of writes: the number of attempts, the pinned branch, and unknown outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tarn.core.branch import Branch
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId
from tarn.kv.port import Kv, OutcomeUnknownError, Partition, Predicate
from tarn.kv.records import Repository
from tarn_graveler.branch.records import Branches, branch_not_found

__all__ = ["TRIES", "PinnedBranch", "set_settled", "unknown_if"]

TRIES = 8
"""Attempts of one write; an attempt fails only if a commit or compaction sealed its token."""


@contextmanager
def unknown_if(written: bool) -> Iterator[None]:
    """Turns an error into OUTCOME_UNKNOWN if a row of the operation is already written.

    Such an error must not look like a refusal: a commit may have included the row before the branch was
    deleted, for instance. A refusal of the *next* attempt says nothing about the row of this one.
    """
    try:
        yield
    except TarnError as error:
        if not written or isinstance(error, OutcomeUnknownError):
            raise
        raise OutcomeUnknownError(f"the row was written, but then: {error.message}") from error


async def set_settled(
    kv: Kv, partition: Partition, key: bytes, value: bytes, predicate: Predicate | None
) -> None:
    """Compares and sets a staged row; if the outcome is unknown, a settling read decides.

    Raises:
        PredicateFailedError: the row was not set; the error carries the existing row.
        OutcomeUnknownError: the row may be set, now or later, although the settling read does not show
            it.
        TarnError: the row was not set.
    """
    try:
        await kv.set_if(partition, key, value, predicate)
    except OutcomeUnknownError:
        with unknown_if(True):
            (found,) = await kv.get_many(partition, [key], settle=True)
        if found is None or found.value != value:
            raise


class PinnedBranch:
    """Reads the record of one incarnation of a branch: the first one that the operation read afresh.

    A branch that was deleted and created again under the same name is another branch. A write that began
    on the old one fails with "not found" and does not reach the new one.
    """

    __slots__ = ("_branch_id", "_branches", "_repository", "_seen")

    def __init__(self, branches: Branches, repository: Repository, branch_id: BranchId) -> None:
        self._branches = branches
        self._repository = repository
        self._branch_id = branch_id
        self._seen: bytes | None = None

    def check(self, branch: Branch) -> Branch:
        """Returns the record if it belongs to the pinned incarnation.

        Raises:
            TarnError: BRANCH_NOT_FOUND.
        """
        if self._seen is None:
            self._seen = branch.incarnation
        elif self._seen != branch.incarnation:
            raise branch_not_found(self._repository, self._branch_id)
        return branch

    async def fresh(self, *, written: bool) -> Branch:
        """Returns the record, by a read issued after this call.

        Args:
            written: True if a row of the operation is already written, so that no error is a refusal.

        Raises:
            TarnError: BRANCH_NOT_FOUND; OUTCOME_UNKNOWN instead of any error if `written`.
        """
        with unknown_if(written):
            version = await self._branches.fresh(self._repository, self._branch_id)
            return self.check(version.branch)

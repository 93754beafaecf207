"""What all attempts of one write have in common, whatever is written."""

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
"""Attempts of one write; each lost one means that a commit or compaction sealed the token."""


@contextmanager
def unknown_if(written: bool) -> Iterator[None]:
    """Tells no caller that nothing was done once a row is there.

    A commit may have taken the row along before the branch was deleted, for instance; and if the *next*
    attempt is refused, that is no word about this one.
    """
    try:
        yield
    except TarnError as error:
        if not written or isinstance(error, OutcomeUnknownError):
            raise
        raise OutcomeUnknownError(f"written, then: {error.message}") from error


async def set_settled(
    kv: Kv, partition: Partition, key: bytes, value: bytes, predicate: Predicate | None
) -> None:
    """Compares and sets a staged row; a settling read decides an outcome that is not known.

    Raises:
        PredicateFailedError: surely not set; the error has the row that is there.
        OutcomeUnknownError: the row may be set, now or later, and the settling read does not show it.
        TarnError: surely not set.
    """
    try:
        await kv.set_if(partition, key, value, predicate)
    except OutcomeUnknownError:
        with unknown_if(True):
            (found,) = await kv.get_many(partition, [key], settle=True)
        if found is None or found.value != value:
            raise


class PinnedBranch:
    """Reads the record of the life of a branch that an operation belongs to: the first that it saw afresh.

    A branch that was deleted and made again under the same name is another branch: a write that began
    on the old one ends as "not found", it does not leak into the new one.
    """

    __slots__ = ("_branch_id", "_branches", "_repository", "_seen")

    def __init__(self, branches: Branches, repository: Repository, branch_id: BranchId) -> None:
        self._branches = branches
        self._repository = repository
        self._branch_id = branch_id
        self._seen: bytes | None = None

    def check(self, branch: Branch) -> Branch:
        """The record, if it is of this life.

        Raises:
            TarnError: BRANCH_NOT_FOUND.
        """
        if self._seen is None:
            self._seen = branch.incarnation
        elif self._seen != branch.incarnation:
            raise branch_not_found(self._repository, self._branch_id)
        return branch

    async def fresh(self, *, written: bool) -> Branch:
        """The record, by a read issued after this call.

        Args:
            written: a row of the operation is there already, so whatever goes wrong is no refusal.

        Raises:
            TarnError: BRANCH_NOT_FOUND; OUTCOME_UNKNOWN for everything if `written`.
        """
        with unknown_if(written):
            version = await self._branches.fresh(self._repository, self._branch_id)
            return self.check(version.branch)

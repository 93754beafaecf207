"""Branches that live for a limited time: sets their end, and deletes them when it has come (`tarn.core.branch_expiry`).

The drop list says when to look at a branch. A look is registered *before* the record may name its time, so no crash
leaves an expired branch unseen. A look decides nothing: the record does. So a look of a former end, or
of a former branch of the same name, does no harm.

A deletion and a prolongation are compare-and-sets of the same record. The deletion judges the very version that its
compare-and-set removes; if the branch was prolonged in between, it reads the record again and leaves the branch.
Several replicas may look at the same time: one of them deletes the branch, the others find none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from tarn.core.access.policy import Grant, Policy
from tarn.core.branch import Branch, Token, set_expiry
from tarn.core.branch_expiry import BranchExpiry
from tarn.core.change_kind import ChangeKind
from tarn.core.clock import DAY_US, Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadOperation
from tarn.core.ids import UserId
from tarn.core.moments import iso_time
from tarn.kv.drop_records import BranchOwner, Drop
from tarn_graveler.branch.default_branch import DefaultBranch
from tarn_graveler.branch.handle import BranchHandle, claims_nothing
from tarn_graveler.guards.drops import Drops
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.records.drop_list import DropList
from tarn_graveler.records.ref_names import RefNames
from tarn_graveler.records.repositories import Repositories
from tarn_graveler.records.settings import RepositorySettings

__all__ = ["BranchExpiring", "ExpiryProgress"]

_TRIES = 4
"""How often a look is registered while the outcome is unknown, as for announcements (`guards/drops.py`)."""
_NOBODY = Grant(UserId("tarn"), Policy(()), "", 0)
"""The service itself, which no protection exempts."""

_log = structlog.get_logger()


class _NotDueError(Exception):
    """The branch was prolonged, or is another one."""


@dataclass(slots=True)
class ExpiryProgress:
    """Counts of the looks of one replica since its start.

    Attributes:
        deleted: branches that it deleted.
        kept: looks at branches that have expired and may not be deleted.
    """

    deleted: int = 0
    kept: int = 0


class BranchExpiring:
    """Sets the end of branches, and deletes those whose grace is over.

    Attributes:
        progress: counts of the looks, for metrics.
    """

    def __init__(
        self,
        repositories: Repositories,
        branches: Branches,
        names: RefNames,
        settings: RepositorySettings,
        drops: Drops,
        drop_list: DropList,
        clock: Clock,
    ) -> None:
        self._repositories = repositories
        self._branches = branches
        self._names = names
        self._settings = settings
        self._drops = drops
        self._drop_list = drop_list
        self._clock = clock
        self._default_branch = DefaultBranch(repositories, branches)
        self.progress = ExpiryProgress()

    async def register(self, name: BranchName, time_us: int) -> None:
        """Registers a look at a branch; before its record names the time. Registering one again does no harm.

        Raises:
            TarnError: UNAVAILABLE: the record must not name the time.
        """
        keys = self._repositories.keys_of(name.repository)
        owner = BranchOwner(keys.root, name.branch_id, name.repository.repository_id)
        look = Drop(keys.branch_look(name.branch_id), time_us, branch=owner)
        error: TarnError | None = None
        for _ in range(_TRIES):
            try:
                (error,) = await self._drop_list.add([look])
            except TarnError as raised:
                error = raised
            if error is None:
                return
            if error.kind is not Kind.UNKNOWN_OUTCOME:
                break
        assert error is not None
        text = f"cannot register the end of branch {name.branch_id}: {error.message}"
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error

    async def set(self, name: BranchName, expiry: BranchExpiry | None) -> Branch:
        """Sets the end of a branch; None: it never expires. Returns the record as it was written.

        Raises:
            TarnError: BRANCH_NOT_FOUND; UNAVAILABLE; TOO_MANY_RETRIES; OUTCOME_UNKNOWN.
        """
        if expiry is not None:
            await self.register(name, expiry.delete_time_us)
        handle = BranchHandle(self._branches, name)

        def decide(branch: Branch, op_id: bytes) -> Branch:
            return set_expiry(branch, expiry, op_id)

        # Not repeated: an end that another call has set since stays. That call came later.
        return (await handle.change(decide, claims_nothing)).written

    async def look(self, owner: BranchOwner, look_time_us: int) -> None:
        """Deletes a branch if the end of its grace is not later than a registered time that has come.

        A branch that may not be deleted is looked at again a day later, as long as it is expired.

        Raises:
            TarnError: UNAVAILABLE, OUTCOME_UNKNOWN: the cleaner repeats the look.
        """
        name = await self._name_of(owner)
        if name is None:
            return
        try:
            await self._delete(name, look_time_us)
        except _NotDueError:
            return
        except TarnError as error:
            if error.reason is Reason.BRANCH_NOT_FOUND:
                return
            if error.kind in (Kind.UNAVAILABLE, Kind.UNKNOWN_OUTCOME):
                raise
            # No branch may keep the cleaner from its other work.
            self.progress.kept += 1
            where = {"repository": owner.repository_id, "branch": owner.branch_id}
            _log.warning("expired branch kept", **where, reason=error.reason, error=error.message)
            await self.register(name, self._day_after(look_time_us))

    async def _name_of(self, owner: BranchOwner) -> BranchName | None:
        """Returns the branch of a look; None if its repository does not exist any more."""
        try:
            repository = await self._repositories.read(owner.repository_id)
        except TarnError as error:
            if error.reason is Reason.REPOSITORY_NOT_FOUND:
                return None
            raise
        if not repository.is_served or self._repositories.keys_of(repository).root != owner.root:
            return None
        return BranchName(repository, owner.branch_id)

    async def _delete(self, name: BranchName, look_time_us: int) -> None:
        def judge(branch: Branch) -> None:
            if branch.expiry is None or branch.expiry.delete_time_us > look_time_us:
                raise _NotDueError

        repository = name.repository

        async def announce(tokens: Sequence[Token]) -> None:
            # After the record was read that the deletion expects: see `DefaultBranch`.
            await self._default_branch.refuse_deletion(name)
            rules = (await self._settings.read(repository)).rules
            rules.require(repository.repository_id, name.branch_id, ChangeKind.DELETE, _NOBODY)
            await self._drops.announce(name, tokens)

        cause = Cause(HeadOperation.DELETE)
        gone = await self._branches.delete(name, announce, cause, judge)
        await self._names.release(repository, name.branch_id)
        self.progress.deleted += 1
        assert gone.expiry is not None, "judged"
        _log.info(
            "expired branch deleted",
            repository=repository.repository_id,
            branch=name.branch_id,
            commit_id=gone.commit_id,
            expired=iso_time(gone.expiry.expire_time_us),
        )

    def _day_after(self, time_us: int) -> int:
        """Returns the first time after now that is a whole number of days after a look: the same in all replicas."""
        late_us = max(self._clock.now_us() - time_us, 0)
        return time_us + (late_us // DAY_US + 1) * DAY_US

"""Branch records that are overwritten, not compared and set: what many guards are against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tarn.core.branch import Branch
from tarn.core.errors import TarnError
from tarn.core.head_change import Cause
from tarn.core.reflog import note_head_change
from tarn.kv.keys import RepositoryKeys
from tarn.kv.records import encode_branch
from tarn_graveler.records.branches import BranchChange, Branches, BranchName, BranchVersion
from tarn_graveler.records.settling import Attempts

__all__ = ["overwriting"]

_compare_and_set = Branches.compare_and_set


def overwriting(is_meant: Callable[[Branch, Branch], bool]) -> Callable[..., Any]:
    """Returns a `Branches.compare_and_set` that overwrites the current record in some changes.

    Args:
        is_meant: whether a change from the first record to the second one is such a change.
    """

    async def changed(
        self: Branches,
        name: BranchName,
        before: BranchVersion,
        after: Branch,
        attempts: Attempts,
        cause: Cause,
    ) -> Any:
        if not is_meant(before.branch, after):
            return await _compare_and_set(self, name, before, after, attempts, cause)
        after = note_head_change(before.branch, after, cause, now_us=self._clock.now_us())
        partition = self._repositories.keys_of(name.repository).refs
        key = RepositoryKeys.branch(name.branch_id)
        while True:
            (found,) = await self._kv.get_many(partition, [key])
            if found is None:
                return None
            try:
                value = encode_branch(after)
                predicate = await self._kv.set_if(partition, key, value, found.predicate)
            except TarnError:
                continue
            return BranchChange(before.branch, after, BranchVersion(after, predicate))

    return changed

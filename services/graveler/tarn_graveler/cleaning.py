"""Dropping what nothing refers to any more: rule 5 of design §4.

A token may be dropped only after a *confirmed* compare-and-set took it out of its branch record, and
not before D later: readers that began by an older record have ended or start again by then. It is
dropped a second time an hour after that, because a write that was never acknowledged may have landed
between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import structlog

from tarn.core.branch import Token
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Kv, Partition
from tarn.kv.records import Drop, Repository
from tarn_graveler.drop_list import DropList
from tarn_graveler.repositories import Repositories

__all__ = ["Cleaning"]

_SECOND_DROP_US = 3_600_000_000

_log = structlog.get_logger()


class Cleaning:
    """Registers partitions and drops them when their time has come. Several may run at once.

    Args:
        drop_delay_seconds: D of rules 2 and 5; the same number for all replicas.
    """

    def __init__(
        self,
        kv: Kv,
        keys: InstallationKeys,
        repositories: Repositories,
        clock: Clock,
        drop_delay_seconds: float,
        poll_seconds: float,
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._list = DropList(kv, keys, clock)
        self._repositories = repositories
        self._clock = clock
        self._drop_delay_us = int(drop_delay_seconds * 1_000_000)
        self._poll_seconds = poll_seconds
        # Rows of the list that this replica has done and will read again; a few minutes' worth.
        self._dropped: set[bytes] = set()

    async def register_tokens(
        self, repository: Repository, branch_id: BranchId, tokens: Iterable[Token]
    ) -> None:
        """Registers tokens that a confirmed change removed from a branch record.

        A failure is logged and not raised: the change is made and its answer is due; what stays
        behind is only space, which `tarn fsck` finds.
        """
        keys = self._repositories.keys_of(repository)
        await self.register([keys.token(branch_id, token) for token in tokens])

    async def register(self, partitions: Sequence[Partition]) -> bool:
        """Registers partitions that nothing refers to; failures are logged. Whether there was none."""
        if not partitions:
            return True
        drop_time_us = self._clock.now_us() + self._drop_delay_us
        drops = [Drop(partition, drop_time_us) for partition in partitions]
        errors = [error for error in await self._list.add(drops) if error is not None]
        for error in errors:
            _log.warning("cannot register a drop", reason=error.reason, error=error.message)
        return not errors

    async def run(self) -> None:
        """Drops for ever what is due; errors are logged and tried again."""
        while True:
            try:
                await self.drop_due()
            except TarnError as error:
                _log.warning("cleaning failed", reason=error.reason, error=error.message)
            await self._clock.sleep(self._poll_seconds)

    async def drop_due(self) -> int:
        """Drops every partition whose time has come; returns how many.

        What other replicas have dropped is dropped once more by each: that changes nothing.
        """
        one_pass = await self._list.begin()
        before = self._keys.drop(one_pass.done_before_us, "")
        self._dropped = {key for key in self._dropped if key >= before}
        count = 0
        async for key, drop in one_pass.due():
            if key not in self._dropped:
                await self._drop(drop)
                self._dropped.add(key)
                count += 1
        await one_pass.finish()
        return count

    async def _drop(self, drop: Drop) -> None:
        await self._kv.drop_partition(drop.partition)
        if drop.count:
            return
        # The same row whoever adds it.
        again = replace(drop, drop_time_us=drop.drop_time_us + _SECOND_DROP_US, count=1)
        (error,) = await self._list.add([again])
        if error is not None:
            raise error
